// The plain C interface: choose the instruction set, hand tasks to threads, join the parts.
#include <omp.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

#include "plan.h"

namespace crossattention {

#define CROSSATTENTION_DECLARE(set)                                            \
    namespace set {                                                            \
    void run(const Problem&, const Task&, const int64_t*, float*);             \
    void join(const Problem&, const Task&, const int64_t*, int64_t);           \
    void map(const Map&, int64_t, int64_t);                                    \
    }
CROSSATTENTION_DECLARE(portable)
#if defined(CROSSATTENTION_X86)
CROSSATTENTION_DECLARE(avx2)
CROSSATTENTION_DECLARE(avx512)
CROSSATTENTION_DECLARE(avx512bf16)
#endif

namespace {

bool runs_here(int64_t set) {
#if defined(CROSSATTENTION_X86)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("f16c");
    if (set == kAvx2) return avx2;
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (set == kAvx512) return avx512;
    if (set == kAvx512Brain) return avx512 && __builtin_cpu_supports("avx512bf16");
#endif
    return set == kPortable;
}

Functions functions_of(int64_t set) {
#if defined(CROSSATTENTION_X86)
    if (set == kAvx512Brain) return {avx512bf16::run, avx512bf16::join, avx512bf16::map};
    if (set == kAvx512) return {avx512::run, avx512::join, avx512::map};
    if (set == kAvx2) return {avx2::run, avx2::join, avx2::map};
#endif
    (void)set;
    return {portable::run, portable::join, portable::map};
}

// A thread's own room, kept from call to call and given back when the thread ends.
struct Room {
    float* floats = nullptr;
    int64_t size = 0;

    float* of(int64_t wanted) {
        if (wanted > size) {
            free(floats);
            size = 0;
            floats = (float*)aligned_alloc(64, size_t((wanted * 4 + 63) / 64 * 64));
            if (!floats) throw std::bad_alloc();
            size = wanted;
        }
        return floats;
    }
    ~Room() { free(floats); }
};
thread_local Room room;

// A thread's own tasks, the same ones at each call of a decoder, as they may still lie in its cache;
// who is done takes from the others.
struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
};

// Below this many multiply-adds, waking another thread costs more than it gives.
constexpr int64_t kWorthThreads = 1 << 17;

void read(const Problem& p) {
    Functions functions = functions_of(p.instructions);
    Readers readers(p);
    Plan plan(p, readers);
    int64_t count = int64_t(plan.tasks.size()), tiles = int64_t(plan.whole.size());
    int64_t threads = plan.work < kWorthThreads ? 1 : p.threads < count ? p.threads : count;
    threads = threads > 0 ? threads : 1;
    std::vector<Share> shares(static_cast<size_t>(threads));
    for (int64_t k = 0; k < threads; ++k) {
        shares[size_t(k)].next = count * k / threads;
        shares[size_t(k)].end = count * (k + 1) / threads;
    }
    bool failed = false;
    auto sequences = [&](const Task& task) {
        return readers.order.data() + readers.start[size_t(task.memory)];
    };
#pragma omp parallel num_threads(int(threads)) if (threads > 1)
    {
        float* own = nullptr;
        try {
            own = room.of(scratch(p));
        } catch (const std::bad_alloc&) {
#pragma omp atomic write
            failed = true;
        }
        int64_t me = omp_get_thread_num();
        for (int64_t k = 0; k < threads; ++k) {
            Share& share = shares[size_t((me + k) % threads)];
            for (int64_t i; own && (i = share.next++) < share.end;) {
                const Task& task = plan.tasks[size_t(i)];
                functions.run(p, task, sequences(task), own);
            }
        }
#pragma omp barrier
        if (count > tiles)  // the same for all threads
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; ++i) {
            const Task& task = plan.whole[size_t(i)];
            if (task.part) functions.join(p, task, sequences(task), plan.parts[size_t(i)]);
        }
    }
    if (failed) throw std::bad_alloc();
}

// Put together what all readings of a layout share, and what this one brings.
Problem posed(const void* layout, const Given& given) {
    Problem p;
    memcpy(&p, layout, offsetof(Problem, lse));
    const void* data[] = {given.query, given.key,    given.value, given.visible,
                          given.bias,  given.offset, given.rows,  given.output};
    Array* arrays[] = {&p.query, &p.key, &p.value, &p.visible, &p.bias, &p.offset, &p.rows, &p.output};
    for (size_t i = 0; i < std::size(data); ++i) arrays[i]->data = data[i];
    p.lse = given.lse;
    p.owner = given.owner;
    p.scale = given.scale;
    p.threads = given.threads;
    return p;
}

// Why nothing can be read, as the caller is told.
enum Fault : int64_t { kNone = 0, kNoRoom = 1, kNoLength = 2, kNoOwner = 3, kNowhere = 4 };

// What a layout cannot know: numbers that were freed, and what owners and lengths say today.
Fault fault_of(const Problem& p) {
    if (p.d && !(p.query.data && p.key.data)) return kNowhere;
    if (p.e && !p.value.data) return kNowhere;
    for (int64_t i = 0; p.owner && i < p.b; ++i)
        if (p.owner[i] < 0 || p.owner[i] >= p.m) return kNoOwner;
    const int64_t* lengths = p.rows.dtype == kLong ? (const int64_t*)p.rows.data : nullptr;
    for (int64_t i = 0; lengths && i < p.m; ++i) {
        int64_t length = lengths[i * p.rows.stride[0]];
        if (length < 0 || length > p.s) return kNoLength;
    }
    return kNone;
}

void map(const Map& p) {
    Functions functions = functions_of(p.instructions);
    int64_t blocks = (p.y + kMapBlock - 1) / kMapBlock, worth = p.n * p.x * p.y < kWorthThreads ? 1 : p.threads;
    int64_t threads = worth < blocks ? worth : blocks;
#pragma omp parallel for schedule(static) num_threads(int(threads)) if (threads > 1)
    for (int64_t i = 0; i < blocks; ++i)
        functions.map(p, i * kMapBlock, i + 1 < blocks ? (i + 1) * kMapBlock : p.y);
}

}  // namespace
}  // namespace crossattention

extern "C" {

// Names the source that this library was built from.
__attribute__((visibility("default"))) const char* crossattention_source() { return CROSSATTENTION_SOURCE; }

// Whether this processor has the instruction set, and this library was built with it.
__attribute__((visibility("default"))) int64_t crossattention_runs_here(int64_t set) {
    return crossattention::runs_here(set);
}

// Read; 0, or the fault for which nothing was read.
__attribute__((visibility("default"))) int64_t crossattention_read(const void* layout,
                                                                   const crossattention::Given* given) {
    using namespace crossattention;
    Problem problem = posed(layout, *given);
    Fault fault = fault_of(problem);
    try {
        if (!fault) read(problem);
    } catch (const std::bad_alloc&) {
        return kNoRoom;
    }
    return fault;
}

// Map few rows; there is at least one.
__attribute__((visibility("default"))) void crossattention_map(const crossattention::Map* map) {
    crossattention::map(*map);
}
}
