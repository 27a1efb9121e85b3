// Weights: what is hidden becomes -inf, and the softmax goes on from block to block.
//
//     score = cap * tanh((score + offset) / cap) + bias, or -inf
//     most' = max(most, scores),  total' = total * exp(most - most') + sum exp(scores - most')
//
// A query row whose total is 0 has seen nothing. Paper: Milakov & Gimelshein 2018.
#pragma once

#include "convert.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

// Marks a hidden row for whoever must not multiply it; only written when asked for.
constexpr float kHidden = -1.0f;

// What changes a query row's scores of one block; null where nothing does.
struct Change {
    float scale;   // 1 where the query is scaled already
    float offset;  // scaled, added below the cap
    float cap;     // 0: none
    const float* bias;
    const uint8_t* visible;
};

// A bias of -inf hides, also where the score is not finite.
inline void add_bias(float* scores, int64_t rows, const float* bias) {
    const float hidden = -__builtin_inff();
    int64_t r = 0;
    for (; r + kLanes <= rows; r += kLanes) {
        Floats more = load(bias + r);
        store(scores + r, more == all(hidden) ? more : load(scores + r) + more);
    }
    for (; r < rows; ++r) scores[r] = bias[r] == hidden ? hidden : scores[r] + bias[r];
}

inline void change(float* scores, int64_t rows, const Change& by) {
    if (by.scale != 1.0f)
        for (int64_t r = 0; r < rows; r += kLanes) store(scores + r, load(scores + r) * all(by.scale));
    if (by.cap > 0) {
        Floats unit = all(1.0f / by.cap);
        for (int64_t r = 0; r < rows; r += kLanes)
            store(scores + r, hyperbolic_tangent((load(scores + r) + all(by.offset)) * unit) * all(by.cap));
    }
    const float hidden = -__builtin_inff();
    if (by.bias) add_bias(scores, rows, by.bias);
    if (by.visible && CROSSATTENTION_MUTANT != 4)
        for (int64_t r = 0; r < rows; ++r) scores[r] = by.visible[r] ? scores[r] : hidden;
    for (int64_t r = rows; r % kPad; ++r) scores[r] = hidden;
}

// Turn scores into weights; return the factor for whatever was added before.
inline float weigh(float* scores, int64_t rows, float* most, float* total, bool mark) {
    Floats top = all(*most);
    for (int64_t r = 0; r < rows; r += kLanes) top = larger(load(scores + r), top);
    float now = largest(top), factor = 1.0f;
    if (now != *most && *total != 0.0f) factor = exponential(all(*most - now))[0];
    Floats from = all(now > -__builtin_inff() ? now : 0.0f), added = {};
    for (int64_t r = 0; r < rows; r += kLanes) {
        Floats score = load(scores + r), weight = exponential(score - from);
        added += weight;
        store(scores + r, mark ? (score == all(-__builtin_inff()) ? all(kHidden) : weight) : weight);
    }
    *most = now;
    *total = *total * (CROSSATTENTION_MUTANT == 3 ? 1.0f : factor) + sum(added);
    return factor;
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
