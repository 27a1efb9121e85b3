// Who reads what, and in which pieces.
//
// A task is some query rows of one memory and key head. Where there are too few of them for the
// threads, each memory is cut into parts, which are joined by their log-sum-exp.
#pragma once

#include <memory>
#include <vector>

#include "layout.h"

namespace crossattention {

// Which query sequences read each memory: of memory i, order[start[i]] to order[start[i + 1] - 1].
struct Readers {
    std::vector<int64_t> start, order;

    explicit Readers(const Problem& p) : start(size_t(p.m) + 1), order(size_t(p.b)) {
        auto owner = [&p](int64_t i) { return p.owner ? p.owner[CROSSATTENTION_MUTANT == 2 ? 0 : i] : i; };
        for (int64_t i = 0; i < p.b; ++i) ++start[size_t(owner(i)) + 1];
        for (size_t i = 0; i < size_t(p.m); ++i) start[i + 1] += start[i];
        std::vector<int64_t> next(start.begin(), start.end() - 1);
        for (int64_t i = 0; i < p.b; ++i) order[size_t(next[size_t(owner(i))]++)] = i;
    }
};

// One after the last real row of a memory.
inline int64_t end_of(const Problem& p, int64_t memory) {
    if (!p.rows.data) return p.s;
    int64_t end = p.s, at = memory * p.rows.stride[0];
    if (p.rows.dtype == kLong) {
        end = ((const int64_t*)p.rows.data)[at];
    } else {
        const uint8_t* real = (const uint8_t*)p.rows.data + at;
        while (end > 0 && !real[(end - 1) * p.rows.stride[1]]) --end;
    }
    if (CROSSATTENTION_MUTANT == 1 && end > 0) --end;  // the last real row is passed over
    return end;
}

struct Plan {
    std::vector<Task> whole;  // one for each tile
    std::vector<Task> tasks;  // its parts
    std::vector<int64_t> parts;
    std::unique_ptr<float[]> room;
    int64_t work = 0;

    Plan(const Problem& p, const Readers& readers) {
        int64_t shared = p.h / p.g * p.t;
        for (int64_t memory = 0; memory < p.m; ++memory) {
            int64_t queries = (readers.start[size_t(memory) + 1] - readers.start[size_t(memory)]) * shared;
            if (!queries) continue;
            int64_t end = end_of(p, memory);
            work += queries * p.g * end * (p.d + p.e);
            for (int64_t group = 0; group < p.g; ++group)
                in_passes(queries, kTile, [&](int64_t first, int64_t count) {
                    whole.push_back({memory, group, first, count, 0, end, nullptr});
                });
        }
        cut(p);
    }

private:
    // Cut memories where there are fewer than two tiles for each thread.
    void cut(const Problem& p) {
        int64_t wanted = p.threads > 1 ? 2 * p.threads : 1, tiles = int64_t(whole.size());
        int64_t most = tiles && tiles < wanted ? (wanted + tiles - 1) / tiles : 1, size = 0;
        for (const Task& task : whole) {
            int64_t long_enough = (task.end - task.begin) / kBlock;
            parts.push_back(long_enough < 2 ? 1 : most < long_enough ? most : long_enough);
            if (parts.back() > 1) size += parts.back() * task.count * (padded(p.e) + 2);
        }
        if (size) room.reset(new float[size_t(size)]);
        float* free_room = room.get();
        for (size_t i = 0; i < whole.size(); ++i) {
            int64_t rows = whole[i].end;
            for (int64_t k = 0; k < parts[i]; ++k) {
                Task part = whole[i];
                auto border = [&](int64_t at) { return (rows * at / parts[i] + kPad / 2) / kPad * kPad; };
                part.begin = border(k);
                part.end = k + 1 == parts[i] ? rows : border(k + 1);
                if (parts[i] > 1) {
                    part.part = free_room;
                    if (k == 0) whole[i].part = free_room;
                    free_room += part.count * (padded(p.e) + 2);
                }
                tasks.push_back(part);
            }
        }
    }
};

}  // namespace crossattention
