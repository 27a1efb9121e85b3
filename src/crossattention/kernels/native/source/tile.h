// A tile: some query rows of one memory and key head, beside the room they need.
#pragma once

#include "dot.h"
#include "weigh.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

// Say which query rows a task has: sequence by sequence, head by head, position by position.
inline void name_rows(const Problem& p, const Task& task, const int64_t* sequences, Row* rows) {
    int64_t shared = p.h / p.g, at = task.first % p.t, head = task.first / p.t % shared;
    const int64_t* sequence = sequences + task.first / (p.t * shared);
    for (int64_t i = 0; i < task.count; ++i) {
        rows[i] = {*sequence, task.group * shared + head, at};
        if (CROSSATTENTION_MUTANT == 8) rows[i].h = head * p.g + task.group;
        if (++at < p.t) continue;
        at = 0;
        if (++head < shared) continue;
        head = 0;
        ++sequence;
    }
}

struct Tile {
    const Problem& problem;
    const Task& task;
    Row rows[kTile];
    int64_t key_width, value_width;  // padded
    float *query, *sums, *most, *total, *scores, *key, *value, *bias, *panel;
    Brain* pairs;  // the query as it is stored, unscaled, where `paired`
    bool paired;
    uint8_t* visible;
    int64_t block;         // memory rows at a time
    int64_t visible_step;  // 0: one for all query rows
    bool far;              // whether rows are floats, and more than the nearer caches hold
    bool streams;          // whether they are more than all caches hold, and each is met once
    bool hides = false;    // whether any row was hidden from any query row

    Tile(const Problem& p, const Task& t, const int64_t* sequences, float* room)
        : problem(p), task(t), key_width(padded(p.d)), value_width(padded(p.e)) {
        name_rows(p, t, sequences, rows);
        auto take = [&room](int64_t count) {
            float* given = room;
            room += count;
            return given;
        };
        query = take(kTile * key_width);
        pairs = (Brain*)take(kTile * key_width / 2);
        sums = t.part ? t.part : take(kTile * (value_width + 2));
        most = sums + t.count * value_width;
        total = most + t.count;
        scores = take(kTile * (kBlock + kPad));
        key = take(kBlock * key_width);
        value = take(kBlock * value_width);
        bias = take(kStream);
        panel = take(kPanelRoom);
        visible = (uint8_t*)take(kTile * kBlock / 4);
        paired = Paired::kHere && p.query.dtype == kBrain && p.key.dtype == kBrain &&
                 p.d % Paired::kWidth == 0 && p.key.stride[3] == 1;
        block = block_rows();
        int64_t floats = p.m * p.g * p.s * (p.d + p.e);
        far = p.key.dtype == kFloat && p.value.dtype == kFloat && floats >= kFarFloats;
        streams = far && floats >= kStreamFloats && task.count == 1;
        const int64_t* step = p.visible.stride;
        visible_step = p.visible.data && (step[0] || step[1] || step[2]) ? block : 0;
    }

    int64_t step() const { return block + kPad; }

    float* scores_of(int64_t row) const { return scores + row * step(); }

    void begin() {
        for (int64_t i = 0; i < task.count; ++i) {
            const Row& row = rows[i];
            int64_t at = place(problem.query, row.b, row.h, row.t), stride = problem.query.stride[3];
            if (paired) {
                const Brain* from = (const Brain*)problem.query.data + at;
                Brain* to = pairs + i * key_width;
                if (stride == 1 && problem.d)  // nothing may lie at no address
                    memcpy(to, from, size_t(problem.d) * sizeof(Brain));
                else
                    for (int64_t j = 0; j < problem.d; ++j) to[j] = from[j * stride];
            } else {
                visit(problem.query, at, [&](auto* from) {
                    widen(from, stride, problem.d, float(problem.scale), query + i * key_width, key_width);
                });
            }
            most[i] = -__builtin_inff();
            total[i] = 0.0f;
        }
        memset(sums, 0, size_t(task.count * value_width) * sizeof(float));
    }

    // Note what is visible of a block; return whether anything is.
    bool look(int64_t first, int64_t count) {
        int64_t looks = visible_step ? task.count : 1, seen = 0;
        for (int64_t i = 0; i < looks; ++i) {
            uint8_t* to = visible + i * visible_step;
            look_up(problem.visible, place(problem.visible, rows[i].b, rows[i].h, rows[i].t),
                    problem.visible.stride[3], first, count, to);
            if (has_holes(problem.rows)) {
                const uint8_t* real = (const uint8_t*)problem.rows.data;
                real += task.memory * problem.rows.stride[0] + first * problem.rows.stride[1];
                for (int64_t r = 0; r < count; ++r) to[r] &= real[r * problem.rows.stride[1]];
            }
            for (int64_t r = 0; r < count; ++r) seen += to[r];
        }
        hides = hides || seen < looks * count;
        return seen > 0;
    }

    // Whether a softmax over what is known so far gives numbers.
    bool is_finite() const {
        Floats odd = {};
        for (int64_t i = 0; i < task.count * value_width; i += kLanes) odd += load(sums + i) - load(sums + i);
        return sum(odd) == 0.0f;
    }

    // Whether a kernel may read rows where they lie.
    static bool lies_well(const Array& rows, int64_t width) {
        return rows.stride[3] == 1 && width % kPad == 0;
    }

private:
    int64_t block_rows() const {
        int64_t width = key_width + value_width;
        bool in_place = lies_well(problem.key, problem.d) && lies_well(problem.value, problem.e);
        if (task.count <= kFew && in_place) return kStream / (task.count < 3 ? 1 : 2);
        if (task.count <= kFew) return kBlock;  // each row is met once anyway
        int64_t fitting = 16384 / (width > 0 ? width : 1) / kPad * kPad;  // 64 KiB of floats
        return fitting < 64 ? 64 : fitting > kBlock ? kBlock : fitting;
    }

    static void look_up(const Array& visible, int64_t offset, int64_t stride, int64_t first, int64_t count,
                        uint8_t* to) {
        if (!visible.data) {
            memset(to, 1, size_t(count));
            return;
        }
        const uint8_t* from = (const uint8_t*)visible.data + offset + first * stride;
        if (stride == 1)
            memcpy(to, from, size_t(count));
        else
            for (int64_t r = 0; r < count; ++r) to[r] = from[r * stride];
    }
};

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
