// Map few rows: every weight row is loaded once, where it lies, and met by rows held in registers.
//
//     output[i, y] = sum_x rows[i, group of y, x] * weight[y, x] + bias[y]
//
// It is how queries score keys, and done by the same code; while some weight rows are met, the next
// are asked for. Compiled once for each instruction set.
#include "convert.h"
#include "dot.h"
#include "layout.h"

namespace crossattention {
namespace CROSSATTENTION_SET {
namespace {

constexpr int64_t kTogether = 8;  // weight rows

void write(const Map& p, int64_t first, int64_t rows, int64_t y, int64_t count, const float* found) {
    for (int64_t i = 0; i < rows; ++i) {
        int64_t at = (first + i) * p.y + y;
        for (int64_t j = 0; j < count; ++j) {
            float x = found[i * kTogether + j] + (p.bias ? p.bias[y + j] : 0.0f);
            if (p.relu && CROSSATTENTION_MUTANT != 10) x = x < 0.0f ? 0.0f : x;
            p.output[at + j] = x + (p.rest ? p.rest[at + j] : 0.0f);
        }
    }
}

template <class T>
void map_by(const Map& p, const T* weights, int64_t begin, int64_t end) {
    typedef Single<T, Far<(1 << 14), 1>> Way;
    float found[kDotQueries * kTogether];
    int64_t each = p.y / p.groups, count;
    for (int64_t y = begin; y < end; y += count) {
        int64_t group = y / each, next = (group + 1) * each, left = (next < end ? next : end) - y;
        const float* own = p.rows + (CROSSATTENTION_MUTANT == 11 ? begin / each : group) * p.group;
        count = left < kTogether ? left : kTogether;
        in_passes(p.n, kDotQueries, [&](int64_t first, int64_t rows) {
            const float* from = own + first * p.row;
            const T* weight = weights + y * p.stride;
            Asked asks = Asked::share(kTogether * p.stride, first, rows, p.n);
            dot_some<Way>(rows, from, p.row, p.x, weight, p.stride, count, found, kTogether, asks);
            write(p, first, rows, y, count, found);
        });
    }
}

}  // namespace

void map(const Map& p, int64_t begin, int64_t end) {
    visit({p.weight, p.dtype, {}}, 0, [&](auto* weights) { map_by(p, weights, begin, end); });
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
