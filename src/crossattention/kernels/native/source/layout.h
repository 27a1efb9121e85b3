// What is read, as plain numbers: the one description that the caller fills in and all parts share.
//
// Every field is eight bytes wide, so that the caller may write them one after the other. Strides
// count elements, and an axis that is shared by all has stride 0. Sizes and strides are written once
// for all readings that share them, and what each brings is filled in.
#pragma once

#include <cstdint>

// A deliberate fault, compiled in by number, for tests that must notice it. 0 is none.
#if !defined(CROSSATTENTION_MUTANT)
#define CROSSATTENTION_MUTANT 0
#endif

namespace crossattention {

enum Dtype : int64_t { kFloat = 0, kBrain = 1, kHalf = 2, kBool = 3, kLong = 4 };

struct Array {
    const void* data;  // null: not given
    int64_t dtype;
    int64_t stride[4];
};

// Take `count` of anything in as few passes as hold `most` each, of equal size: `then(first, some)`.
template <class Then>
inline __attribute__((always_inline)) void in_passes(int64_t count, int64_t most, Then then) {
    int64_t passes = (count + most - 1) / most;
    for (int64_t pass = 0, first = 0; pass < passes; ++pass) {
        int64_t some = (count - first + passes - pass - 1) / (passes - pass);
        then(first, some);
        first += some;
    }
}

// Whether rows before the last real one may be hidden; lengths say all by where a task ends.
constexpr bool has_holes(const Array& rows) { return rows.data && rows.dtype != kLong; }

// What a reading brings: where everything lies, in the order of the arrays below.
struct Given {
    const void *query, *key, *value, *visible, *bias, *offset, *rows, *output;
    float* lse;            // contiguous, or null
    const int64_t* owner;  // [b], or null: sequence i reads memory i
    double scale;
    int64_t threads;
};

// query [b, h, t, d], key [m, g, s, d], value [m, g, s, e] -> output [b, h, t, e], lse [b, h, t].
struct Problem {
    int64_t b, m, h, g, t, s, d, e;
    double softcap;        // 0: none
    int64_t instructions;  // an index of `Set`
    Array query, key, value;
    Array visible, bias, offset;  // [b, h, t, s], [b, h, t, s], [b, h, t, 1]
    Array rows;                   // [m, s] of bools, or lengths [m]
    Array output;
    // From `Given`; a caller does not write these.
    float* lse;
    const int64_t* owner;
    double scale;
    int64_t threads;
};

enum Set : int64_t { kPortable = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Brain = 3 };

// One query row: which sequence, head and position.
struct Row {
    int64_t b, h, t;
};

// What one thread does at a time: some query rows of one memory and key head, over some of its rows.
struct Task {
    int64_t memory, group;
    int64_t first, count;  // query rows, folded: sequence, then head of the group, then position
    int64_t begin, end;    // memory rows
    float* part;           // null: finish; else leave sums [count, width], maxima and totals here
};

// Most query rows of a task, and memory rows of a block, or of one that few query rows read where it
// lies; multiples of every vector's width. A longer block is a longer stream from memory.
constexpr int64_t kTile = 48;
constexpr int64_t kBlock = 256;
constexpr int64_t kFew = 6;
constexpr int64_t kStream = 2048;
constexpr int64_t kPad = 16;
constexpr int64_t kFarFloats = 1 << 20;  // a reading's keys and values beyond the nearer caches
constexpr int64_t kStreamFloats = 3 << 20;  // and beyond the last, where other layers' lie as well
// Most words of rows that are turned on their side, and floats of 32 such rows.
constexpr int64_t kPanelWords = 64;
constexpr int64_t kPanelRoom = 32 * kPanelWords;

constexpr int64_t padded(int64_t width) { return (width + kPad - 1) / kPad * kPad; }

// Floats that a task needs for itself.
constexpr int64_t scratch(const Problem& p) {
    int64_t widths = padded(p.d) + padded(p.e);
    int64_t tile = kTile * (widths + padded(p.d) / 2 + kBlock + kPad + 2 + kBlock / 4);
    return tile + kBlock * widths + kStream + kPanelRoom;
}

// `sequences` are those that read the task's memory.
using Run = void (*)(const Problem&, const Task&, const int64_t* sequences, float* scratch);

// Join the parts of one task's query rows, each over some of the memory's rows.
using Join = void (*)(const Problem&, const Task&, const int64_t* sequences, int64_t parts);

// output = rows weightᵀ + bias, then no less than 0 if `relu`, then + rest; floats, but for the weights.
struct Map {
    int64_t n, x, y;  // x a multiple of kPad
    const float* rows;   // [n, x]
    const void* weight;  // [y, x], of kFloat, kBrain or kHalf, whose rows lie `stride` apart
    int64_t dtype, stride;
    const float *bias, *rest;  // [y]; [n, y]; or null
    int64_t relu;
    float* output;  // [n, y]
    int64_t threads;
    int64_t instructions;
    // Outputs belong to so many groups of equal size, and each group maps rows of its own: row i of
    // group j lies i * row + j * group floats behind the first.
    int64_t groups, row, group;
};

// Outputs that a thread takes at a time.
constexpr int64_t kMapBlock = 32;

// Map to the outputs from `begin` to `end`, at most kMapBlock.
using MapSome = void (*)(const Map&, int64_t begin, int64_t end);

struct Functions {
    Run run;
    Join join;
    MapSome map;
};

}  // namespace crossattention
