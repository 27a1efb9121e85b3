// Values: every value row of a block is loaded once and added to several queries held in registers.
//
//     sums[q, j] += sum_r weights[q, r] * value[r, j]
#pragma once

#include "vector.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

// Queries that are held in registers, and the vectors of each at a time.
constexpr int kMixQueries = kLanes == 16 ? 6 : 4;
constexpr int kMixVectors = kLanes == 16 ? 24 : 8;

template <class T, int kQueries, int kVectors>
CROSSATTENTION_INLINE void mix_columns(const float* weights, int64_t step, const T* value, int64_t stride,
                                       int64_t rows, float* sums, int64_t width) {
    Floats sum[kQueries * kVectors];
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kVectors; ++i)
        sum[i] = load(sums + i / kVectors * width + i % kVectors * kLanes);
    for (int64_t r = 0; r < rows; ++r, value += stride) {
        Floats row[kVectors];
        CROSSATTENTION_UNROLL
        for (int v = 0; v < kVectors; ++v) row[v] = load(value + v * kLanes);
        CROSSATTENTION_UNROLL
        for (int q = 0; q < kQueries; ++q) {
            Floats weight = all(weights[q * step + r]);
            CROSSATTENTION_UNROLL
            for (int v = 0; v < kVectors; ++v) sum[q * kVectors + v] += weight * row[v];
        }
    }
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kVectors; ++i)
        store(sums + i / kVectors * width + i % kVectors * kLanes, sum[i]);
}

template <class T, int kQueries, int kVectors>
void mix(const float* weights, int64_t step, const T* value, int64_t stride, int64_t rows, float* sums,
         int64_t width, int64_t column = 0) {
    for (; column + kVectors * kLanes <= width; column += kVectors * kLanes)
        mix_columns<T, kQueries, kVectors>(weights, step, value + column, stride, rows, sums + column, width);
    if constexpr (kVectors > 1) {
        if (column < width)
            mix<T, kQueries, kVectors / 2>(weights, step, value, stride, rows, sums, width, column);
    }
}

template <class T, int kQueries = kMixQueries>
void mix_some(int64_t queries, const float* weights, int64_t step, const T* value, int64_t stride,
              int64_t rows, float* sums, int64_t width) {
    if constexpr (kQueries > 1) {
        if (queries < kQueries)
            return mix_some<T, kQueries - 1>(queries, weights, step, value, stride, rows, sums, width);
    }
    constexpr int kVectors = kQueries * 8 <= kMixVectors ? 8 : kQueries * 4 <= kMixVectors ? 4 : 2;
    mix<T, kQueries, kVectors>(weights, step, value, stride, rows, sums, width);
}

// Add a block's value rows to all queries of a tile, in passes of equal size.
template <class T>
void add_values(int64_t queries, const float* weights, int64_t step, const T* value, int64_t stride,
                int64_t rows, float* sums, int64_t width) {
    int64_t passes = (queries + kMixQueries - 1) / kMixQueries;
    for (int64_t pass = 0, first = 0; pass < passes; ++pass) {
        int64_t count = (queries - first + passes - pass - 1) / (passes - pass);
        mix_some<T>(count, weights + first * step, step, value, stride, rows, sums + first * width, width);
        first += count;
    }
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
