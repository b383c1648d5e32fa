/* A plugin with one op and one kernel, whose tables `-DCHANGE=…` spoils before squall reads them; and what its op does when it is made ready is
 * the status `-DPREPARE=…`. With `-DENQUEUE=…` it makes a work, whose steps come to that status, and whose `abort` does `-DABORT=…`. It begins
 * once, and fails if it is begun again. For tests of how plugins are read and called. */
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "squall_plugin.h"

#ifndef PREPARE
#define PREPARE SQUALL_OK
#endif
#ifndef CHANGE
#define CHANGE (void)0
#endif

/* What a step of its work comes to, and what stops it. */
#ifdef ENQUEUE
#ifndef ABORT
#define ABORT (void)0
#endif
static int32_t until_aborted(const squall_abort *abort);
static void forever(void);

static int32_t enqueue(void *state, const squall_stream *stream, squall_error *error) {
    const squall_abort *aborted = state;
    (void)aborted, (void)stream, (void)error;
    return ENQUEUE;
}

static void stop(void *state) {
    (void)state;
    ABORT;
}
#endif

/* A step that lasts until it is aborted, and a thread that never comes back. */
static int32_t until_aborted(const squall_abort *abort) {
    while (!abort->is_aborted(abort)) thrd_yield();
    return SQUALL_ABORTED;
}

static void forever(void) {
    for (;;) thrd_yield();
}

/* Lists and values of more bytes than there is memory. */
static inline int32_t exchanges_much(const squall_prepare *p, squall_error *error) {
    const squall_blob *all;
    return p->exchange(p, 0, "abc", UINT64_C(1) << 60, &all, error);
}

static inline int32_t lists_much(const squall_prepare *p, squall_error *error) {
    static const int64_t numbers[1];
    squall_named_arg list = {.name = "buffer", .value = {.kind = SQUALL_ARG_KIND_LIST, .list = numbers, .len = UINT64_C(1) << 57}};
    squall_inner *inner;
    return p->op(p, "all_reduce", 0, &list, 1, &inner, error);
}

static inline int32_t matches_much(const squall_op *op, const squall_args *args, const squall_description *d, squall_error *error) {
    static const int64_t numbers[1];
    (void)op, (void)args, (void)error;
    d->collective(d, "spoiled_op");
    d->numbers(d, "x", numbers, UINT64_C(1) << 57);
    return SQUALL_OK;
}

/* The last rank fails, and the others wait for it whatever they are told. */
static inline int32_t last_fails(const squall_prepare *p, squall_error *error) {
    const squall_blob *all;
    if (p->rank == 1) return squall_fail(error, SQUALL_FAILED, "the last fails");
    while (p->exchange(p, 0, "", 0, &all, error) != SQUALL_OK) thrd_yield();
    return SQUALL_OK;
}

static int32_t nothing(void *state, const squall_stream *stream, squall_error *error) {
    (void)state, (void)stream, (void)error;
    return SQUALL_OK;
}

/* The first rank exchanges something, and the other has nothing to do with it. */
static inline int32_t one_exchanges(const squall_prepare *p, squall_work *work, squall_error *error) {
    const squall_blob *all;
    work->enqueue = nothing;
    return p->rank == 0 ? p->exchange(p, 0, "", 0, &all, error) : SQUALL_OK;
}

static inline int32_t with_help(squall_error *error) {
    strcpy(error->help, "do this instead");
    return squall_fail(error, SQUALL_FAILED, "a bad \033[2J thing");
}

/* What memory from another thread than the rank's comes to. */
static int elsewhere(void *p) {
    const squall_prepare *prepare = p;
    uint64_t ptr;
    return prepare->alloc(prepare, 8, &ptr, 0);
}

static int32_t from_another_thread(const squall_prepare *p) {
    thrd_t thread;
    int status = SQUALL_OK;
    if (thrd_create(&thread, elsewhere, (void *)p) == thrd_success) thrd_join(thread, &status);
    return status;
}

static squall_kernel kernel;

/* What a launch of the plugin's kernel comes to, with an argument of that kind for its buffer, of 8 elements. */
static int32_t launch(const squall_prepare *p, uint32_t kind, uint64_t threads, uint32_t block, squall_error *error) {
    static uint64_t shape = 8;
    squall_arg args[] = {{.kind = kind, .dtype = SQUALL_DTYPE_F32, .len = 8, .shape = &shape, .axes = 1}, {.kind = SQUALL_ARG_KIND_ABSENT}};
    squall_grid grid = {.threads = {threads, 1, 1}, .block = {block, 1, 1}};
    squall_inner *inner;
    if (p->alloc(p, 32, &args[0].ptr, error) != SQUALL_OK) return SQUALL_OK;
    return p->kernel(p, &kernel, args, 2, &grid, &inner, error);
}

static int32_t init(const squall_host *squall, squall_error *error) {
    static int begun;
    (void)squall;
    return begun++ == 0 ? SQUALL_OK : squall_fail(error, SQUALL_FAILED, "begun %d times", begun);
}

static int32_t prepare(const squall_op *op, const squall_call *const *calls, uint32_t count, const squall_prepare *p,
                       squall_work *work, squall_error *error) {
    (void)op, (void)calls, (void)count, (void)p, (void)error, (void)from_another_thread, (void)launch;
    (void)until_aborted, (void)forever, (void)work;
#ifdef ENQUEUE
    work->enqueue = enqueue;
    work->abort = stop;
    work->state = (void *)p->abort;
#endif
    return PREPARE;
}

static int32_t host(const squall_kernel *kernel, const squall_args *args, const squall_grid *grid, squall_error *error) {
    (void)kernel, (void)args, (void)grid, (void)error;
    return SQUALL_OK;
}

static squall_param x = {
    .header = SQUALL_HEADER(squall_param),
    .name = "x",
    .doc = "a buffer",
    .kind = SQUALL_PARAM_KIND_BUFFER,
    .mode = SQUALL_MODE_READ_WRITE,
    .dtypes = SQUALL_BIT(SQUALL_DTYPE_F32),
};
static squall_param n = {
    .header = SQUALL_HEADER(squall_param),
    .name = "n",
    .doc = "its length",
    .kind = SQUALL_PARAM_KIND_SIZE,
    .presence = SQUALL_PRESENCE_LEN,
    .of = "x",
};
static const squall_param *params[] = {&x, &n};
static const char *uses[] = {"all_reduce"};
static squall_cover covers[] = {{.kind = SQUALL_COVER_KIND_LEN, .param = "x"}};
static squall_in_place pairs[] = {{.written = "x", .read = "x"}};

static squall_op op = {
    .header = SQUALL_HEADER(squall_op),
    .name = "spoiled_op",
    .summary = "an op",
    .library = "spoiled",
    .device = "host",
    .example = "",
    .params = params,
    .param_count = 2,
    .uses = uses,
    .use_count = 1,
    .prepare = prepare,
};
static squall_kernel kernel = {
    .header = SQUALL_HEADER(squall_kernel),
    .name = "spoiled_kernel",
    .summary = "a kernel",
    .example = "",
    .params = params,
    .param_count = 2,
    .covers = covers,
    .cover_count = 1,
    .in_place = pairs,
    .in_place_count = 1,
    .host = host,
};
static const squall_op *ops[] = {&op};
static const squall_kernel *kernels[] = {&kernel};
static struct squall_plugin plugin = {
    .header = SQUALL_HEADER(struct squall_plugin),
    .name = "tables",
    .version = "1",
    .ops = ops,
    .op_count = 1,
    .kernels = kernels,
    .kernel_count = 1,
    .init = init,
};

SQUALL_EXPORT const struct squall_plugin *squall_plugin(const squall_host *squall) {
    (void)squall;
    CHANGE;
    return &plugin;
}
