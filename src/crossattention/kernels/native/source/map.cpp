// Map few rows: every weight row is loaded once, where it lies, and met by rows held in registers.
//
//     output[i, y] = sum_x rows[i, x] * weight[y, x] + bias[y]
//
// It is how queries score keys, and done by the same code. Compiled once for each instruction set.
#include "dot.h"
#include "layout.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

void map(const Map& p, int64_t begin, int64_t end) {
    constexpr int64_t step = kMapBlock + kPad;  // the last sums of a block stand beyond its end
    float found[kTile * step];
    for (int64_t first = 0; first < p.n; first += kTile) {
        int64_t count = p.n - first < kTile ? p.n - first : kTile;
        score<Single<float>>(count, p.rows + first * p.x, p.x, p.weight + begin * p.stride, p.stride,
                             end - begin, found, step);
        for (int64_t i = 0; i < count; ++i) {
            int64_t at = (first + i) * p.y;
            for (int64_t j = begin; j < end; ++j) {
                float x = found[i * step + j - begin] + (p.bias ? p.bias[j] : 0.0f);
                if (p.relu && CROSSATTENTION_MUTANT != 10) x = x < 0.0f ? 0.0f : x;
                p.output[at + j] = x + (p.rest ? p.rest[at + j] : 0.0f);
            }
        }
    }
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
