// One vector of floats for the instruction set that is being compiled: load, store, sum, exp, tanh.
//
// Storage is float, brain float or half; arithmetic is float. Nothing here is shared between
// instruction sets: every function is inside the set's own namespace, so that no linker may put
// wide instructions where a narrow processor runs.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace crossattention {
namespace CROSSATTENTION_SET {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

// Small loops over registers are written out: an array that a loop indexes would lie in memory.
#define CROSSATTENTION_UNROLL _Pragma("GCC unroll 24")
#define CROSSATTENTION_INLINE inline __attribute__((always_inline))

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Shorts __attribute__((vector_size(2 * kLanes)));
typedef float Four __attribute__((vector_size(16)));

struct Brain {
    uint16_t bits;
};
struct Half {
    uint16_t bits;
};

inline Floats all(float x) { return x - Floats{}; }  // x - 0 is x, whatever its sign

inline float widened(float x) { return x; }

inline float widened(Brain x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}

inline float widened(Half x) {
#if defined(__F16C__)
    return _cvtsh_ss(x.bits);
#else
    uint32_t sign = uint32_t(x.bits & 0x8000) << 16, rest = uint32_t(x.bits & 0x7fff) << 13;
    float wide, unit = 0x1p112f;  // moves the exponent's zero from 15 to 127
    memcpy(&wide, &rest, 4);
    wide *= unit;
    if (rest >= 0x0f800000) wide = (rest & 0x007fe000) ? __builtin_nanf("") : __builtin_inff();
    uint32_t bits;
    memcpy(&bits, &wide, 4);
    bits |= sign;
    memcpy(&wide, &bits, 4);
    return wide;
#endif
}

inline Floats load(const float* from) {
    Floats x;
    memcpy(&x, from, sizeof x);
    return x;
}

inline Floats load(const Brain* from) {
    Shorts narrow;
    memcpy(&narrow, from, sizeof narrow);
    Words wide = __builtin_convertvector(narrow, Words) << 16;
    return (Floats)wide;
}

inline Floats load(const Half* from) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__AVX2__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
    return Floats{widened(from[0]), widened(from[1]), widened(from[2]), widened(from[3])};
#endif
}

// How rows are asked for before they are met: not at all, where the processor foresees what is read and
// caches hold it; or some bytes ahead, every so many lines, where they come from memory.
struct Near {
    template <class T>
    static void fetch(const T*, int64_t) {}
    template <class T>
    static void ask(const T*, int64_t) {}
};
template <int64_t kAhead, int64_t kLines>
struct Far {
    // `at` counts the row's vectors; no nearer than the second cache, so that more may be under way.
    // Calls of a function that is not inlined, and has no effect that a compiler sees, are left out.
    template <class T>
    static CROSSATTENTION_INLINE void fetch(const T* from, int64_t at) {
        if (at * kLanes * int64_t(sizeof *from) % (64 * kLines) == 0)
            __builtin_prefetch((const char*)from + kAhead, 0, 2);
    }
    // For just what lies there; `at` counts the row's entries.
    template <class T>
    static CROSSATTENTION_INLINE void ask(const T* from, int64_t at) {
        if (at * int64_t(sizeof *from) % 64 == 0) __builtin_prefetch(from, 0, 2);
    }
};

inline void store(float* to, Floats x) { memcpy(to, &x, sizeof x); }

template <int... i>
CROSSATTENTION_INLINE void zip(Floats& a, Floats& b, std::integer_sequence<int, i...>) {
    Floats first = __builtin_shufflevector(a, b, i / 2 + i % 2 * kLanes...);
    b = __builtin_shufflevector(a, b, (i + kLanes) / 2 + i % 2 * kLanes...);
    a = first;
}

template <int... i>
CROSSATTENTION_INLINE void unzip(Floats& a, Floats& b, std::integer_sequence<int, i...>) {
    Floats even = __builtin_shufflevector(a, b, 2 * i...);
    b = __builtin_shufflevector(a, b, 2 * i + 1 ...);
    a = even;
}

// Lay two vectors side by side, lane by lane: a0 b0 a1 b1 ..., and take them apart again.
CROSSATTENTION_INLINE void zip(Floats& a, Floats& b) { zip(a, b, std::make_integer_sequence<int, kLanes>()); }
CROSSATTENTION_INLINE void unzip(Floats& a, Floats& b) {
    unzip(a, b, std::make_integer_sequence<int, kLanes>());
}

// The sums of four vectors, side by side.
inline Four sums(Floats a, Floats b, Floats c, Floats d) {
#if defined(__AVX512F__)
    __m512 ab = _mm512_unpacklo_ps((__m512)a, (__m512)b) + _mm512_unpackhi_ps((__m512)a, (__m512)b);
    __m512 cd = _mm512_unpacklo_ps((__m512)c, (__m512)d) + _mm512_unpackhi_ps((__m512)c, (__m512)d);
    __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512 lanes = _mm512_castpd_ps(low) + _mm512_castpd_ps(high);
    __m256 half = _mm512_castps512_ps256(lanes) + _mm512_extractf32x8_ps(lanes, 1);
    return (Four)(_mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
#elif defined(__AVX2__)
    __m256 ab = _mm256_hadd_ps((__m256)a, (__m256)b), cd = _mm256_hadd_ps((__m256)c, (__m256)d);
    __m256 lanes = _mm256_hadd_ps(ab, cd);
    return (Four)(_mm256_castps256_ps128(lanes) + _mm256_extractf128_ps(lanes, 1));
#else
    Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    Four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
#endif
}

inline float sum(Floats x) {
    Four four = sums(x, Floats{}, Floats{}, Floats{});
    return four[0];
}

inline Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
    return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return a > b ? a : b;
#endif
}

inline float largest(Floats x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float most = x[0];
    for (int i = 1; i < kLanes; ++i) most = x[i] > most ? x[i] : most;
    return most;
#endif
}

// exp(r) for |r| <= ln(2) / 2.
inline Floats near_one(Floats r) {
    Floats y = all(1.9875691500e-4f);
    y = y * r + all(1.3981999507e-3f);
    y = y * r + all(8.3334519073e-3f);
    y = y * r + all(4.1665795894e-2f);
    y = y * r + all(1.6666665459e-1f);
    y = y * r + all(5.0000001201e-1f);
    return y * (r * r) + r + all(1.0f);
}

// exp for x <= 88, within a unit or two of the last place; 0 for -inf, and NaN stays NaN.
inline Floats exponential(Floats x) {
    const Floats high = all(0.693359375f), low = all(-2.12194440e-4f);  // ln(2) in two parts
#if defined(__AVX512F__)
    Floats kept = (Floats)_mm512_max_ps((__m512)all(-104.0f), (__m512)x);
    Floats power = (Floats)_mm512_roundscale_ps((__m512)(kept * all(1.44269504f)), 0x08);
    Floats y = near_one(kept - power * high - power * low);
    return (Floats)_mm512_scalef_ps((__m512)y, (__m512)power);
#else
    const Floats lowest = all(-87.33654f), magic = all(0x1.8p23f);
    Floats kept = x < lowest ? lowest : x;
    Floats shifted = kept * all(1.44269504f) + magic;  // its last bits hold the power of two
    Floats power = shifted - magic;
    Floats y = near_one(kept - power * high - power * low);
    Floats scale = (Floats)(((Words)shifted << 23) + 0x3f800000u);
    return x < lowest ? all(0.0f) : y * scale;
#endif
}

// tanh: a polynomial near 0, where (1 - exp(-2x)) / (1 + exp(-2x)) would cancel.
inline Floats hyperbolic_tangent(Floats x) {
    Floats size = x < all(0.0f) ? -x : x;
    Floats small = exponential(size * all(-2.0f));
    Floats far = (all(1.0f) - small) / (all(1.0f) + small);
    far = x < all(0.0f) ? -far : far;
    Floats z = x * x, y = all(-5.70498872745e-3f);
    y = y * z + all(2.06390887954e-2f);
    y = y * z + all(-5.37397155531e-2f);
    y = y * z + all(1.33314422036e-1f);
    y = y * z + all(-3.33332819422e-1f);
    return size < all(0.625f) ? x + x * z * y : far;
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
