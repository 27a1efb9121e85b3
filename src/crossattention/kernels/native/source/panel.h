// Scores of many queries: some key rows are turned on their side, so that a lane is a row.
//
//     scores[q, r] = sum_j query[q, j] * panel[j, r],   panel[j, r] = key[r, j]
//
// A sum then never crosses lanes, which for short rows takes as long as the products. Turning is
// paid once for all queries of a tile.
#pragma once

#include "dot.h"
#include "layout.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

constexpr int kPanelVectors = 2;
constexpr int64_t kPanelRows = kPanelVectors * kLanes;
constexpr int kPanelQueries = 12;  // sums in registers: so many times kPanelVectors
static_assert(kPanelRows * kPanelWords <= kPanelRoom, "a panel fits a tile's room");

// Whether so many queries of so many words make turning worth it.
constexpr bool worth_turning(int64_t queries, int64_t words) {
    return kLanes == 16 && queries >= 12 && words <= kPanelWords;
}

// Turn a square of words: rows become columns, first in each quarter of the vectors, then between them.
CROSSATTENTION_INLINE void turn(Floats* square) {
#if defined(__AVX512F__)
    __m512 x[16], y[16];
    CROSSATTENTION_UNROLL
    for (int i = 0; i < 16; i += 2) {
        x[i] = _mm512_unpacklo_ps((__m512)square[i], (__m512)square[i + 1]);
        x[i + 1] = _mm512_unpackhi_ps((__m512)square[i], (__m512)square[i + 1]);
    }
    CROSSATTENTION_UNROLL
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; ++k) {
            __m512d a = _mm512_castps_pd(x[i + k]), b = _mm512_castps_pd(x[i + k + 2]);
            y[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            y[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    CROSSATTENTION_UNROLL
    for (int c = 0; c < 4; ++c) {
        __m512 a = _mm512_shuffle_f32x4(y[c], y[c + 4], 0x88), d = _mm512_shuffle_f32x4(y[c], y[c + 4], 0xdd);
        __m512 b = _mm512_shuffle_f32x4(y[c + 8], y[c + 12], 0x88);
        __m512 e = _mm512_shuffle_f32x4(y[c + 8], y[c + 12], 0xdd);
        square[c] = (Floats)_mm512_shuffle_f32x4(a, b, 0x88);
        square[c + 8] = (Floats)_mm512_shuffle_f32x4(a, b, 0xdd);
        square[c + 4] = (Floats)_mm512_shuffle_f32x4(d, e, 0x88);
        square[c + 12] = (Floats)_mm512_shuffle_f32x4(d, e, 0xdd);
    }
#else
    (void)square;
#endif
}

// Lay kPanelRows rows of some words on their side; the last one stands for those that are not there.
template <class Way>
void lay_panel(const typename Way::Key* key, int64_t stride, int64_t rows, int64_t words, float* panel) {
    for (int64_t first = 0; first < kPanelRows; first += kLanes)
        for (int64_t j = 0; j < words; j += kLanes) {
            Floats square[kLanes];
            for (int64_t i = 0; i < kLanes; ++i) {
                int64_t row = first + i < rows ? first + i : rows - 1;
                square[i] = Way::words_of(key + row * stride + j * Way::kEach);
            }
            turn(square);
            for (int64_t i = 0; i < kLanes; ++i) store(panel + (j + i) * kPanelRows + first, square[i]);
        }
}

template <class Way, int kQueries>
void meet_panel(const typename Way::Query* query, int64_t width, const float* panel, int64_t words,
                float* scores, int64_t step) {
    Floats sum[kQueries * kPanelVectors] = {};
    for (int64_t j = 0; j < words; ++j) {
        Floats rows[kPanelVectors];
        CROSSATTENTION_UNROLL
        for (int v = 0; v < kPanelVectors; ++v) rows[v] = load(panel + j * kPanelRows + v * kLanes);
        CROSSATTENTION_UNROLL
        for (int q = 0; q < kQueries; ++q) {
            auto x = Way::word_of(query + q * width + j * Way::kEach);
            CROSSATTENTION_UNROLL
            for (int v = 0; v < kPanelVectors; ++v)
                sum[q * kPanelVectors + v] = Way::add_words(sum[q * kPanelVectors + v], x, rows[v]);
        }
    }
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kPanelVectors; ++i)
        store(scores + i / kPanelVectors * step + i % kPanelVectors * kLanes, sum[i]);
}

template <class Way, int kQueries = kPanelQueries>
void meet_some(int64_t queries, const typename Way::Query* query, int64_t width, const float* panel,
               int64_t words, float* scores, int64_t step) {
    if constexpr (kQueries > 1) {
        if (queries < kQueries)
            return meet_some<Way, kQueries - 1>(queries, query, width, panel, words, scores, step);
    }
    meet_panel<Way, kQueries>(query, width, panel, words, scores, step);
}

// Score all queries of a tile against a block; `panel` is room for kPanelRows rows of words.
template <class Way>
void score_turned(int64_t queries, const typename Way::Query* query, int64_t width,
                  const typename Way::Key* key, int64_t stride, int64_t rows, float* panel, float* scores,
                  int64_t step) {
    int64_t words = width / Way::kEach;
    for (int64_t r = 0; r < rows; r += kPanelRows) {
        lay_panel<Way>(key + r * stride, stride, rows - r, words, panel);
        in_passes(queries, kPanelQueries, [&](int64_t first, int64_t count) {
            meet_some<Way>(count, query + first * width, width, panel, words, scores + first * step + r,
                           step);
        });
    }
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
