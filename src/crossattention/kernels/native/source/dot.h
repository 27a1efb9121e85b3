// Scores: every key row of a block is loaded once and met by several queries held in registers.
//
//     scores[q, r] = sum_j query[q, j] * key[r, j]
//
// Widths are multiples of a vector; the last rows of a block are met again rather than passed over,
// so that four sums always stand side by side.
#pragma once

#include "layout.h"
#include "vector.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

// Queries that are held in registers beside four key rows.
constexpr int kDotQueries = kLanes == 16 ? 6 : 2;

// What a pass of queries asks for while it meets rows: those that lie `ahead` floats behind, of each four
// from `first` to before `end`. Passes share the asking, as one alone would wait for memory.
struct Asked {
    int64_t ahead = 0, first = 0, end = 0;

    // What falls to `count` of so many queries, from `from`.
    static Asked share(int64_t ahead, int64_t from, int64_t count, int64_t queries) {
        return {ahead, from * 4 / queries, (from + count) * 4 / queries};
    }
};

// How a query meets rows of a storage: as floats, one lane an entry.
template <class T, class Fetch = Near>
struct Single : Fetch {
    typedef float Query;
    typedef T Key;
    static constexpr int kWidth = kLanes;

    static Floats row_of(const T* from) { return load(from); }
    static Floats query_of(const float* from) { return load(from); }
    static Floats add(Floats sum, Floats query, Floats row) { return sum + query * row; }

    // Of rows on their side (panel.h): a word is an entry.
    static constexpr int kEach = 1;
    static Floats words_of(const T* from) { return load(from); }
    static Floats word_of(const float* from) { return all(*from); }
    static Floats add_words(Floats sum, Floats query, Floats rows) { return sum + query * rows; }
};

// Two entries a lane: products of brain floats are exact in floats, and so are added as floats.
struct Paired : Near {
    typedef Brain Query;
    typedef Brain Key;
    static constexpr int kWidth = 2 * kLanes;
#if defined(__AVX512BF16__)
    static constexpr bool kHere = true;

    static __m512bh row_of(const Brain* from) { return (__m512bh)_mm512_loadu_si512(from); }
    static __m512bh query_of(const Brain* from) { return row_of(from); }
    static Floats add(Floats sum, __m512bh query, __m512bh row) {
        return (Floats)_mm512_dpbf16_ps((__m512)sum, query, row);
    }

    static constexpr int kEach = 2;  // entries of a word
    static Floats words_of(const Brain* from) { return (Floats)_mm512_loadu_si512(from); }
    static __m512bh word_of(const Brain* from) {
        int32_t word;
        memcpy(&word, from, sizeof word);
        return (__m512bh)_mm512_set1_epi32(word);
    }
    static Floats add_words(Floats sum, __m512bh query, Floats rows) {
        return add(sum, query, (__m512bh)rows);
    }
#else
    static constexpr bool kHere = false;
#endif
};

template <class Way, int kQueries, int kRows>
CROSSATTENTION_INLINE void dot_rows(const typename Way::Query* query, int64_t apart, int64_t width,
                                    const typename Way::Key* const* key,
                                    const typename Way::Key* const* asked, float* scores, int64_t step) {
    typedef decltype(Way::row_of(*key)) Row;
    Floats sum[kQueries * kRows];
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kRows; ++i) sum[i] = Floats{};
    for (int64_t j = 0; j < width; j += Way::kWidth) {
        Row row[kRows];
        CROSSATTENTION_UNROLL
        for (int r = 0; r < kRows; ++r) {
            Way::ask(asked[r] + j, j);
            row[r] = Way::row_of(key[r] + j);
        }
        CROSSATTENTION_UNROLL
        for (int q = 0; q < kQueries; ++q) {
            auto x = Way::query_of(query + q * apart + j);
            CROSSATTENTION_UNROLL
            for (int r = 0; r < kRows; ++r) sum[q * kRows + r] = Way::add(sum[q * kRows + r], x, row[r]);
        }
    }
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kRows; i += 4) {
        Four four = sums(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
        memcpy(scores + i / kRows * step + i % kRows, &four, sizeof four);
    }
}

// Rows of few vectors: the queries stay in registers, and rows are met one after the other as they lie.
template <class Way, int kQueries, int kVectors>
void dot_short(const typename Way::Query* query, int64_t apart, const typename Way::Key* key, int64_t stride,
               int64_t rows, float* scores, int64_t step) {
    constexpr int kRows = kQueries == 1 || kQueries == 3 ? 4 : kQueries == 2 ? 2 : 1;
    decltype(Way::query_of(query)) waiting[kQueries * kVectors];
    CROSSATTENTION_UNROLL
    for (int i = 0; i < kQueries * kVectors; ++i)
        waiting[i] = Way::query_of(query + i / kVectors * apart + i % kVectors * Way::kWidth);
    for (int64_t r = 0; r < rows; r += kRows) {
        Floats sum[(kQueries * kRows + 3) / 4 * 4] = {};
        CROSSATTENTION_UNROLL
        for (int i = 0; i < kRows; ++i) {
            const typename Way::Key* from = key + (r + i < rows ? r + i : rows - 1) * stride;
            CROSSATTENTION_UNROLL
            for (int v = 0; v < kVectors; ++v) {
                Way::fetch(from + v * Way::kWidth, v);
                auto row = Way::row_of(from + v * Way::kWidth);
                CROSSATTENTION_UNROLL
                for (int q = 0; q < kQueries; ++q)
                    sum[q * kRows + i] = Way::add(sum[q * kRows + i], waiting[q * kVectors + v], row);
            }
        }
        CROSSATTENTION_UNROLL
        for (int i = 0; i < kQueries * kRows; i += 4) {
            Four four = sums(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
            CROSSATTENTION_UNROLL
            for (int k = i; k < i + 4 && k < kQueries * kRows; ++k)
                scores[k / kRows * step + r + k % kRows] = four[k - i];
        }
    }
}

template <class Way, int kQueries>
void dot(const typename Way::Query* query, int64_t apart, int64_t width, const typename Way::Key* key,
         int64_t stride, int64_t rows, float* scores, int64_t step, Asked asks) {
    if (kLanes == 16 && width == 4 * Way::kWidth)
        return dot_short<Way, kQueries, 4>(query, apart, key, stride, rows, scores, step);
    if (kLanes == 16 && width == 2 * Way::kWidth)
        return dot_short<Way, kQueries, 2>(query, apart, key, stride, rows, scores, step);
    constexpr int kRows = kQueries * 8 <= 4 * kDotQueries ? 8 : 4;
    for (int64_t r = 0; r < rows; r += kRows) {
        const typename Way::Key *from[kRows], *asked[kRows];
        CROSSATTENTION_UNROLL
        for (int i = 0; i < kRows; ++i) {
            from[i] = key + (r + i < rows ? r + i : rows - 1) * stride;
            asked[i] = from[i] + (asks.first <= i % 4 && i % 4 < asks.end ? asks.ahead : 0);
        }
        dot_rows<Way, kQueries, kRows>(query, apart, width, from, asked, scores + r, step);
    }
}

template <class Way, int kQueries = kDotQueries>
void dot_some(int64_t queries, const typename Way::Query* query, int64_t apart, int64_t width,
              const typename Way::Key* key, int64_t stride, int64_t rows, float* scores, int64_t step,
              Asked asks = {}) {
    if constexpr (kQueries > 1) {
        if (queries < kQueries)
            return dot_some<Way, kQueries - 1>(queries, query, apart, width, key, stride, rows, scores, step,
                                               asks);
    }
    dot<Way, kQueries>(query, apart, width, key, stride, rows, scores, step, asks);
}

// Score all queries of a tile against a block, in passes of equal size; rows `ahead` are asked for.
template <class Way>
void score(int64_t queries, const typename Way::Query* query, int64_t width, const typename Way::Key* key,
           int64_t stride, int64_t rows, float* scores, int64_t step, int64_t ahead = 0) {
    in_passes(queries, kDotQueries, [&](int64_t first, int64_t count) {
        dot_some<Way>(count, query + first * width, width, width, key, stride, rows, scores + first * step,
                      step, Asked::share(ahead, first, count, queries));
    });
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
