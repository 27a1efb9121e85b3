// Read one task: block after block of a memory's rows, scored, weighed and added.
//
// Rows at or beyond the task's end are never touched. Rows hidden from some queries are multiplied
// by a weight of 0; where that gave no number (they may hold anything), the task is done again,
// carefully, and they are not multiplied at all. Compiled once for each instruction set.
#include <cmath>
#include <type_traits>

#include "mix.h"
#include "panel.h"
#include "tile.h"

namespace crossattention {
namespace CROSSATTENTION_SET {
namespace {

using FarRows = Far<(1 << 14), 2>;
constexpr int64_t kRowsAhead = 64;  // asked for; where it is a block, all passes over one share the asking

// Give `then` rows that a kernel may read, and their stride: where they lie, or copied as floats.
template <class Then>
void lay(const Tile& tile, const Array& rows, int64_t first, int64_t count, int64_t width, float* room,
         bool copy, Then then) {
    const Task& task = tile.task;
    visit(rows, place(rows, task.memory, task.group, first), [&](auto* from) {
        if (!copy && Tile::lies_well(rows, width)) return then(from, rows.stride[2]);
        for (int64_t r = 0; r < count; ++r) {
            float* to = room + r * padded(width);
            widen(from + r * rows.stride[2], rows.stride[3], width, 1.0f, to, padded(width));
        }
        return then((const float*)room, padded(width));
    });
}

Change change_of(const Tile& tile, int64_t i, int64_t first, int64_t count, bool masked) {
    const Problem& p = tile.problem;
    const Row& row = tile.rows[i];
    Change by = {tile.paired ? float(p.scale) : 1.0f, 0.0f, float(p.softcap), nullptr, nullptr};
    if (p.offset.data) {
        visit(p.offset, place(p.offset, row.b, row.h, row.t),
              [&](auto* from) { by.offset = widened(*from) * float(p.scale); });
    }
    if (p.bias.data) {
        int64_t stride = p.bias.stride[3];
        visit(p.bias, place(p.bias, row.b, row.h, row.t) + first * stride, [&](auto* from) {
            // Each row is a stream of its own, too short in a block for the processor to foresee.
            for (int64_t r = count; stride == 1 && r < 2 * count; r += 64 / sizeof *from)
                __builtin_prefetch(from + r);
            if constexpr (std::is_same_v<decltype(from), const float*>)
                if (stride == 1) return void(by.bias = from);
            widen(from, stride, count, 1.0f, tile.bias, count);
            by.bias = tile.bias;
        });
    }
    if (masked) by.visible = tile.visible + i * tile.visible_step;
    return by;
}

// Add rows one by one to each query that sees them.
void add_carefully(const Tile& tile, const float* value, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < tile.task.count; ++i) {
        float* sums = tile.sums + i * tile.value_width;
        for (int64_t r = 0; r < count; ++r) {
            float weight = tile.scores_of(i)[r];
            if (weight == kHidden) continue;
            for (int64_t j = 0; j < tile.problem.e; ++j) sums[j] += weight * value[r * stride + j];
        }
    }
}

void score_block(const Tile& tile, int64_t first, int64_t count) {
    const Array& key = tile.problem.key;
    int64_t queries = tile.task.count, width = tile.key_width;
    int64_t ahead = tile.block < kRowsAhead ? tile.block : kRowsAhead;
    if (tile.task.part && first + count >= tile.task.end) ahead = 0;  // what follows is another thread's
#if defined(__AVX512BF16__)
    if (tile.paired) {
        const Brain* from = (const Brain*)key.data + place(key, tile.task.memory, tile.task.group, first);
        if (worth_turning(queries, width / 2))
            return score_turned<Paired>(queries, tile.pairs, width, from, key.stride[2], count, tile.panel,
                                        tile.scores, tile.step());
        return score<Paired>(queries, tile.pairs, width, from, key.stride[2], count, tile.scores,
                             tile.step());
    }
#endif
    lay(tile, key, first, count, tile.problem.d, tile.key, false, [&](auto* from, int64_t stride) {
        typedef std::remove_const_t<std::remove_pointer_t<decltype(from)>> T;
        if (worth_turning(queries, width))
            return score_turned<Single<T>>(queries, tile.query, width, from, stride, count, tile.panel,
                                           tile.scores, tile.step());
        if constexpr (std::is_same_v<T, float>)
            if (tile.far)
                return score<Single<T, FarRows>>(queries, tile.query, width, from, stride, count, tile.scores,
                                             tile.step(), ahead * stride);
        score<Single<T>>(queries, tile.query, width, from, stride, count, tile.scores, tile.step());
    });
}

void read_block(Tile& tile, int64_t first, int64_t count, bool careful) {
    const Problem& p = tile.problem;
    int64_t queries = tile.task.count;
    bool masked = p.visible.data || has_holes(p.rows);
    if (masked && !tile.look(first, count)) return;
    score_block(tile, first, count);
    for (int64_t i = 0; i < queries; ++i) {
        float* scores = tile.scores_of(i);
        change(scores, count, change_of(tile, i, first, count, masked));
        float factor = weigh(scores, count, tile.most + i, tile.total + i, careful);
        if (factor == 1.0f) continue;
        float* sums = tile.sums + i * tile.value_width;
        for (int64_t j = 0; j < tile.value_width; j += kLanes) store(sums + j, load(sums + j) * all(factor));
    }
    lay(tile, p.value, first, count, p.e, tile.value, careful, [&](auto* value, int64_t stride) {
        if (careful) return add_carefully(tile, (const float*)(const void*)value, stride, count);
        if constexpr (std::is_same_v<decltype(value), const float*>)
            if (tile.streams)
                return add_values<FarRows>(queries, tile.scores, tile.step(), value, stride, count, tile.sums,
                                       tile.value_width);
        add_values<Near>(queries, tile.scores, tile.step(), value, stride, count, tile.sums,
                         tile.value_width);
    });
}

void write(const Problem& p, const Row& row, const float* sums, float most, float total) {
    float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    visit(p.output, place(p.output, row.b, row.h, row.t), [&](auto* at) {
        typedef std::remove_const_t<std::remove_pointer_t<decltype(at)>> T;
        narrow_row(sums, inverse, p.e, (T*)at, p.output.stride[3]);
    });
    if (!p.lse) return;
    float offset = 0.0f;  // below a cap it is in the scores already
    if (p.offset.data && p.softcap == 0 && CROSSATTENTION_MUTANT != 7)
        visit(p.offset, place(p.offset, row.b, row.h, row.t),
              [&](auto* from) { offset = widened(*from) * float(p.scale); });
    float lse = total == 0.0f ? -__builtin_inff() : most + logf(total) + offset;
    p.lse[(row.b * p.h + row.h) * p.t + row.t] = lse;
}

}  // namespace

void run(const Problem& problem, const Task& task, const int64_t* sequences, float* scratch) {
    Tile tile(problem, task, sequences, scratch);
    for (int time = 0; time < 2; ++time) {
        bool careful = time == 1;
        tile.begin();
        int64_t rows = careful && tile.block > kBlock ? kBlock : tile.block;
        for (int64_t first = task.begin; first < task.end; first += rows)
            read_block(tile, first, task.end - first < rows ? task.end - first : rows, careful);
        if (CROSSATTENTION_MUTANT == 6) break;
        if (!(tile.hides || problem.bias.data) || tile.is_finite()) break;
    }
    int64_t width = tile.value_width;
    for (int64_t i = 0; i < task.count && !task.part; ++i)
        write(problem, tile.rows[i], tile.sums + i * width, tile.most[i], tile.total[i]);
}

void join(const Problem& problem, const Task& task, const int64_t* sequences, int64_t parts) {
    Row rows[kTile];
    int64_t width = padded(problem.e), size = task.count * (width + 2);
    name_rows(problem, task, sequences, rows);
    for (int64_t i = 0; i < task.count; ++i) {
        float* sums = task.part + i * width;
        float most = -__builtin_inff(), total = 0.0f;
        for (int64_t k = 0; k < parts; ++k) {
            float top = task.part[k * size + task.count * width + i];
            most = top > most ? top : most;
        }
        for (int64_t k = 0; k < parts; ++k) {
            const float* part = task.part + k * size;
            float top = part[task.count * width + i], factor = top == most ? 1.0f : expf(top - most);
            if (CROSSATTENTION_MUTANT == 5) factor = 1.0f;
            total += part[task.count * (width + 1) + i] * factor;
            const float* from = part + i * width;
            for (int64_t j = 0; j < width; ++j)
                sums[j] = k == 0 ? from[j] * factor : sums[j] + from[j] * factor;
        }
        write(problem, rows[i], sums, most, total);
    }
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
