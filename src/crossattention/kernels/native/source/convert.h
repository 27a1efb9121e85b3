// Rows of any storage and stride to floats, and floats back to any storage, rounded once.
#pragma once

#include "layout.h"
#include "vector.h"

namespace crossattention {
namespace CROSSATTENTION_SET {

inline void narrow(float x, float* to) { *to = x; }

inline void narrow(float x, Brain* to) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t even = (bits >> 16) & 1;
    if (CROSSATTENTION_MUTANT != 9) bits += 0x7fff + even;
    to->bits = x == x ? uint16_t(bits >> 16) : uint16_t(0x7fc0);
}

inline void narrow(float x, Half* to) {
#if defined(__F16C__)
    to->bits = uint16_t(_cvtss_sh(x, 0));
#else
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) {
        to->bits = uint16_t(sign | 0x7e00);
    } else if (rest >= 0x477ff000) {  // rounds to 65536 or more
        to->bits = uint16_t(sign | 0x7c00);
    } else if (rest < 0x38800000) {  // no normal half: adding 1/2 leaves its last bits to be read
        float size;
        memcpy(&size, &rest, 4);
        size += 0.5f;
        memcpy(&rest, &size, 4);
        to->bits = uint16_t(sign | (rest - 0x3f000000));
    } else {
        uint32_t even = (rest >> 13) & 1;
        to->bits = uint16_t(sign | ((rest - 0x38000000 + 0xfff + even) >> 13));
    }
#endif
}

// Call `then` with a pointer of the storage's type.
template <class Then>
inline void visit(const Array& array, int64_t offset, Then then) {
    if (array.dtype == kBrain) return then((const Brain*)array.data + offset);
    if (array.dtype == kHalf) return then((const Half*)array.data + offset);
    return then((const float*)array.data + offset);
}

inline int64_t place(const Array& array, int64_t i, int64_t j, int64_t k) {
    return i * array.stride[0] + j * array.stride[1] + k * array.stride[2];
}

// Widen `count` entries, times a factor, and put zeros behind them up to `width`.
template <class T>
inline void widen(const T* from, int64_t stride, int64_t count, float factor, float* to, int64_t width) {
    int64_t i = 0;
    if (stride == 1)
        for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i) * all(factor));
    for (; i < count; ++i) to[i] = widened(from[i * stride]) * factor;
    for (; i < width; ++i) to[i] = 0.0f;
}

template <class T>
inline void narrow_row(const float* from, float factor, int64_t count, T* to, int64_t stride) {
    if (stride == 1)
        for (int64_t i = 0; i < count; ++i) narrow(from[i] * factor, to + i);
    else
        for (int64_t i = 0; i < count; ++i) narrow(from[i] * factor, to + i * stride);
}

}  // namespace CROSSATTENTION_SET
}  // namespace crossattention
