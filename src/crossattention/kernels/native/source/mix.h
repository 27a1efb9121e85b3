// Values: every value row of a block is loaded once and added to several queries held in registers.
//
//     sums[q, j] += sum_r weights[q, r] * value[r, j]
#pragma once

#include "layout.h"
#include "vector.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

// Queries that are held in registers, and the vectors of each at a time.
constexpr int kMixQueries = kLanes == 16 ? 6 : 4;
constexpr int kMixVectors = kLanes == 16 ? 24 : 8;

// Two vectors of a row. Brain floats are not widened one by one: of two in a word, the lower is moved
// up and the upper is left where it is, so that even columns lie in one vector and odd ones in the other.
template <class T>
struct Two {
    static void load_row(const T* from, Floats& first, Floats& second) {
        first = load(from);
        second = load(from + kLanes);
    }
    static void apart(Floats&, Floats&) {}
    static void together(Floats&, Floats&) {}
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
template <>
struct Two<Brain> {
    static void load_row(const Brain* from, Floats& even, Floats& odd) {
        Words pairs;
        memcpy(&pairs, from, sizeof pairs);
        even = (Floats)(pairs << 16);
        odd = (Floats)(pairs & 0xffff0000u);
    }
    static void apart(Floats& a, Floats& b) { unzip(a, b); }
    static void together(Floats& even, Floats& odd) { zip(even, odd); }
};
#endif

template <class T, class Fetch, int kQueries, int kVectors>
CROSSATTENTION_INLINE void mix_columns(const float* weights, int64_t step, const T* value, int64_t stride,
                                       int64_t rows, float* sums, int64_t width) {
    Floats sum[kQueries * kVectors];
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kVectors; ++i)
        sum[i] = load(sums + i / kVectors * width + i % kVectors * kLanes);
    CROSSATTENTION_UNROLL
    for (int i = 0; i + 1 < kQueries * kVectors && kVectors > 1; i += 2) Two<T>::apart(sum[i], sum[i + 1]);
    for (int64_t r = 0; r < rows; ++r, value += stride) {
        Floats row[kVectors];
        CROSSATTENTION_UNROLL
        for (int v = 0; v < kVectors; ++v) Fetch::fetch(value + v * kLanes, v);
        CROSSATTENTION_UNROLL
        for (int v = 0; v + 1 < kVectors; v += 2) Two<T>::load_row(value + v * kLanes, row[v], row[v + 1]);
        if (kVectors == 1) row[0] = load(value);
        CROSSATTENTION_UNROLL
        for (int q = 0; q < kQueries; ++q) {
            Floats weight = all(weights[q * step + r]);
            CROSSATTENTION_UNROLL
            for (int v = 0; v < kVectors; ++v) sum[q * kVectors + v] += weight * row[v];
        }
    }
    CROSSATTENTION_UNROLL
    for (int i = 0; i + 1 < kQueries * kVectors && kVectors > 1; i += 2) Two<T>::together(sum[i], sum[i + 1]);
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kVectors; ++i)
        store(sums + i / kVectors * width + i % kVectors * kLanes, sum[i]);
}

template <class T, class Fetch, int kQueries, int kVectors>
void mix(const float* weights, int64_t step, const T* value, int64_t stride, int64_t rows, float* sums,
         int64_t width, int64_t column = 0) {
    for (; column + kVectors * kLanes <= width; column += kVectors * kLanes)
        mix_columns<T, Fetch, kQueries, kVectors>(weights, step, value + column, stride, rows, sums + column,
                                                  width);
    if constexpr (kVectors > 1) {
        if (column < width)
            mix<T, Fetch, kQueries, kVectors / 2>(weights, step, value, stride, rows, sums, width, column);
    }
}

template <class T, class Fetch, int kQueries = kMixQueries>
void mix_some(int64_t queries, const float* weights, int64_t step, const T* value, int64_t stride,
              int64_t rows, float* sums, int64_t width) {
    if constexpr (kQueries > 1) {
        if (queries < kQueries)
            return mix_some<T, Fetch, kQueries - 1>(queries, weights, step, value, stride, rows, sums, width);
    }
    constexpr int kVectors = kQueries * 8 <= kMixVectors ? 8 : kQueries * 4 <= kMixVectors ? 4 : 2;
    int64_t few = width % (kVectors * kLanes) ? 64 : rows;
    for (int64_t r = 0; r < rows; r += few)
        mix<T, Fetch, kQueries, kVectors>(weights + r, step, value + r * stride, stride,
                                          rows - r < few ? rows - r : few, sums, width);
}

// Add a block's value rows to all queries of a tile, in passes of equal size.
template <class Fetch, class T>
void add_values(int64_t queries, const float* weights, int64_t step, const T* value, int64_t stride,
                int64_t rows, float* sums, int64_t width) {
    in_passes(queries, kMixQueries, [&](int64_t first, int64_t count) {
        mix_some<T, Fetch>(count, weights + first * step, step, value, stride, rows, sums + first * width,
                           width);
    });
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
