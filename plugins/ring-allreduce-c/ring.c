/* `all_reduce` by the ring algorithm, between the ranks of one process. See README.md. */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "squall_plugin.h"

/* Reductions of elements: `into` becomes `into` combined with `from`. What is not a number loses to one in MAX and MIN. */

typedef void reduce(void *into, const void *from, size_t count, uint32_t reduction);
typedef void divide(void *data, size_t count, uint32_t by);

/* Integers wrap, so they are added and multiplied as WRAPS, an unsigned type. */
#define ELEMENTS(NAME, T, WRAPS)                                                                                    \
    static void reduce_##NAME(void *into, const void *from, size_t count, uint32_t reduction) {                     \
        T *x = into;                                                                                                \
        const T *y = from;                                                                                          \
        switch (reduction) {                                                                                        \
        case SQUALL_REDUCTION_PROD:                                                                                 \
            for (size_t i = 0; i < count; i++) x[i] = (T)((WRAPS)x[i] * (WRAPS)y[i]);                               \
            break;                                                                                                  \
        case SQUALL_REDUCTION_MAX:                                                                                  \
            for (size_t i = 0; i < count; i++) x[i] = x[i] >= y[i] || y[i] != y[i] ? x[i] : y[i];                   \
            break;                                                                                                  \
        case SQUALL_REDUCTION_MIN:                                                                                  \
            for (size_t i = 0; i < count; i++) x[i] = x[i] <= y[i] || y[i] != y[i] ? x[i] : y[i];                   \
            break;                                                                                                  \
        default: /* SUM, and AVG before its division */                                                             \
            for (size_t i = 0; i < count; i++) x[i] = (T)((WRAPS)x[i] + (WRAPS)y[i]);                               \
            break;                                                                                                  \
        }                                                                                                           \
    }                                                                                                               \
    static void divide_##NAME(void *data, size_t count, uint32_t by) {                                              \
        T *x = data;                                                                                                \
        for (size_t i = 0; i < count; i++) x[i] /= (T)by;                                                           \
    }

ELEMENTS(f32, float, float)
ELEMENTS(f64, double, double)
ELEMENTS(i32, int32_t, uint32_t)
ELEMENTS(i64, int64_t, uint64_t)

static const struct type {
    size_t size;
    reduce *reduce;
    divide *divide;
} types[] = {
    [SQUALL_DTYPE_F32] = {4, reduce_f32, divide_f32},
    [SQUALL_DTYPE_F64] = {8, reduce_f64, divide_f64},
    [SQUALL_DTYPE_I32] = {4, reduce_i32, divide_i32},
    [SQUALL_DTYPE_I64] = {8, reduce_i64, divide_i64},
};

/* One rank's side of one all_reduce. */
struct ring {
    const struct squall_abort *abort;
    struct type type;
    uint32_t reduction, rank, size;
    uint64_t count;
    const char *send;
    char *recv;       /* Where it works: chunks are pulled from the left neighbour's, and the right one pulls from here. */
    const char *left; /* The left neighbour's `recv`. */
    /* How many phases each has completed, counted from the first step of the job: taking `send` over is one, and so is each chunk. */
    _Atomic uint64_t *mine;
    const _Atomic uint64_t *lefts, *rights;
    uint64_t done;
};

/* Chunk `c` of the elements: the first ones are longer by one if need be. */
static size_t chunk(const struct ring *ring, uint32_t c, size_t *count) {
    uint64_t part = ring->count / ring->size, rest = ring->count % ring->size;
    *count = (size_t)(part + (c < rest));
    return (size_t)(part * c + (c < rest ? c : rest)) * ring->type.size;
}

/* Waits until a neighbour has completed `phases`, unless the ranks are aborted. */
static int32_t await(const struct ring *ring, const _Atomic uint64_t *neighbour, uint64_t phases) {
    while (atomic_load_explicit(neighbour, memory_order_acquire) < phases) {
        if (ring->abort->is_aborted(ring->abort)) return SQUALL_ABORTED;
        thrd_yield();
    }
    return SQUALL_OK;
}

static void complete(struct ring *ring) {
    ring->done += 1;
    atomic_store_explicit(ring->mine, ring->done, memory_order_release);
}

/* A step. A rank overwrites nothing that its right neighbour still needs: the chunk that it completes in phase p, that neighbour reads in
 * phase p + 1. It is overwritten in phase p + size, which begins when the left neighbour has completed p + size - 1, and so the left
 * one's left neighbour p + size - 2, and so on round the ring to the right neighbour, which has then completed p + 1. */
static int32_t enqueue(void *state, const squall_stream *stream, squall_error *error) {
    struct ring *ring = state;
    const uint32_t size = ring->size, rank = ring->rank;
    (void)stream; /* a host's stream: what was enqueued before is done */
    if (ring->count == 0) return SQUALL_OK;
    if (ring->send != ring->recv) memcpy(ring->recv, ring->send, (size_t)ring->count * ring->type.size);
    complete(ring);
    for (uint32_t phase = 0; phase < 2 * (size - 1); phase++) {
        const int gathers = phase >= size - 1;
        const uint32_t step = gathers ? phase - (size - 1) : phase + 1; /* how far back from `rank` the chunk is */
        size_t count, at = chunk(ring, (rank + size - step) % size, &count);
        if (await(ring, ring->lefts, ring->done) != SQUALL_OK) {
            return squall_fail(error, SQUALL_ABORTED, "aborted in phase %u", (unsigned)phase);
        }
        if (gathers) {
            memcpy(ring->recv + at, ring->left + at, count * ring->type.size);
        } else {
            ring->type.reduce(ring->recv + at, ring->left + at, count, ring->reduction);
            /* The last one to touch the chunk before it goes round. */
            if (ring->reduction == SQUALL_REDUCTION_AVG && phase == size - 2) {
                ring->type.divide(ring->recv + at, count, size);
            }
        }
        complete(ring);
    }
    /* The memory is the next task's once the right neighbour has read it. */
    if (await(ring, ring->rights, ring->done) != SQUALL_OK) {
        return squall_fail(error, SQUALL_ABORTED, "aborted at the end");
    }
    return SQUALL_OK;
}

static int32_t prepare(const squall_op *op, const squall_call *const *calls, uint32_t count, const squall_prepare *prepare,
                       squall_work *work, squall_error *error) {
    (void)op;
    (void)count; /* 1, since SQUALL_OP_FLAG_GROUPS is not set */
    const squall_call *call = calls[0];
    /* In the order of squall's own all_reduce. */
    const squall_arg *buffer = &call->args->values[0], *send = &call->args->values[1];
    const squall_arg *recv = &call->args->values[2], *reduction = &call->args->values[3];
    if (buffer->kind == SQUALL_ARG_KIND_BUFFER) send = recv = buffer;

    const uint32_t rank = call->args->comm_rank, size = call->args->comm_size;
    const uint32_t left = (rank + size - 1) % size, right = (rank + 1) % size;
    const uint64_t *all;
    uint64_t flag;
    int32_t status = prepare->peer_pointers(prepare, call->comm, recv->ptr, &all, error);
    if (status != SQUALL_OK) return status;
    const uint64_t lefts_recv = all[left];
    status = prepare->alloc(prepare, sizeof(_Atomic uint64_t), &flag, error); /* zero */
    if (status != SQUALL_OK) return status;
    status = prepare->peer_pointers(prepare, call->comm, flag, &all, error);
    if (status != SQUALL_OK) return status;

    struct ring *ring = malloc(sizeof *ring);
    if (!ring) return squall_fail(error, SQUALL_FAILED, "no memory for the state of a ring");
    *ring = (struct ring){
        .abort = prepare->abort,
        .type = types[recv->dtype],
        .reduction = (uint32_t)reduction->number,
        .rank = rank,
        .size = size,
        .count = recv->len,
        .send = (const char *)(uintptr_t)send->ptr,
        .recv = (char *)(uintptr_t)recv->ptr,
        .left = (const char *)(uintptr_t)lefts_recv,
        .mine = (_Atomic uint64_t *)(uintptr_t)flag,
        .lefts = (const _Atomic uint64_t *)(uintptr_t)all[left],
        .rights = (const _Atomic uint64_t *)(uintptr_t)all[right],
    };
    work->state = ring;
    work->enqueue = enqueue;
    work->destroy = free;
    return SQUALL_OK;
}

static const squall_op all_reduce = {
    .header = SQUALL_HEADER(squall_op),
    .name = "all_reduce",
    .summary = "every rank gets the reduction of all ranks' elements, passed around a ring",
    .library = "ring",
    .device = "host",
    .example = "manifest = 1\n"
               "[pipeline]\nname = \"ring\"\n"
               "[world]\ndevices = \"host:0..2\"\n"
               "[buffer.x]\ndtype = \"f32\"\nshape = [4]\ninit = { fill = \"rank\" }\nsave = \"x-{rank}.npy\"\n"
               "[[task]]\nop = \"all_reduce\"\nlibrary = \"ring\"\nargs = { buffer = \"x\", reduce = \"sum\" }\n",
    .flags = SQUALL_OP_FLAG_SINGLE_PROCESS,
    .dtypes = SQUALL_BIT(SQUALL_DTYPE_F32) | SQUALL_BIT(SQUALL_DTYPE_F64) | SQUALL_BIT(SQUALL_DTYPE_I32) |
              SQUALL_BIT(SQUALL_DTYPE_I64),
    .prepare = prepare,
};

static const squall_op *const ops[] = {&all_reduce};

static const struct squall_plugin plugin = {
    .header = SQUALL_HEADER(struct squall_plugin),
    .name = "ring-allreduce-c",
    .version = "0.1.0",
    .ops = ops,
    .op_count = 1,
};

SQUALL_EXPORT const struct squall_plugin *squall_plugin(const squall_host *host) {
    (void)host;
    return &plugin;
}
