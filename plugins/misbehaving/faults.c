/* Plugins that are wrong before an op is reached: compiled once for each FAULT, `cc -DFAULT=WRONG_MAGIC …`. */

#include "squall_plugin.h"

#define WRONG_MAGIC 1      /* The table is none. */
#define OTHER_MAJOR 2      /* It is of another ABI. */
#define NEWER_MINOR 3      /* It has fields that are not known yet: no fault. */
#define SHORT_TABLE 4      /* It ends before what version 1.0 has. */
#define NULL_TABLE 5       /* There is none: the plugin cannot serve this host. */
#define NO_ENTRY 6         /* The symbol is missing. */
#define INIT_FAILS 7
#define MISSING_FUNCTION 8 /* An op that cannot be prepared. */
#define DUPLICATE_OP 9     /* An op that squall has from the same library. */
#define DUPLICATE_KERNEL 10

#ifndef FAULT
#error "say which: -DFAULT=WRONG_MAGIC"
#endif

#if FAULT == INIT_FAILS
#define INIT init
static int32_t init(const squall_host *host, squall_error *error) {
    return squall_fail(error, SQUALL_UNSUPPORTED, "squall %s is not to its taste", host->version);
}
#else
#define INIT NULL
#endif

#if FAULT == DUPLICATE_OP
#define PREPARE prepare
static int32_t prepare(const squall_op *op, const squall_call *const *calls, uint32_t count, const squall_prepare *p,
                       squall_work *work, squall_error *error) {
    (void)op, (void)calls, (void)count, (void)p, (void)work;
    return squall_fail(error, SQUALL_FAILED, "never asked");
}
#else
#define PREPARE NULL
#endif

#if FAULT == DUPLICATE_KERNEL
static int32_t host_form(const squall_kernel *kernel, const squall_args *args, const squall_grid *grid, squall_error *error) {
    (void)kernel, (void)args, (void)grid, (void)error;
    return SQUALL_OK;
}

static const squall_kernel kernel = {
    .header = SQUALL_HEADER(squall_kernel),
    .name = "scale",
    .summary = "squall has one",
    .example = "",
    .host = host_form,
};
static const squall_kernel *const kernels[] = {&kernel};
#endif

#if FAULT == MISSING_FUNCTION || FAULT == DUPLICATE_OP
static const squall_op op = {
    .header = SQUALL_HEADER(squall_op),
    .name = FAULT == DUPLICATE_OP ? "all_reduce" : "unprepared",
    .summary = "",
    .library = FAULT == DUPLICATE_OP ? "host" : "faults",
    .device = "host",
    .example = "",
    .flags = SQUALL_OP_FLAG_SINGLE_PROCESS,
    .prepare = PREPARE,
};
static const squall_op *const ops[] = {&op};
#endif

static const struct {
    struct squall_plugin known;
    uint64_t not_yet; /* of a later minor version */
} table = {
    .known =
        {
            .header =
                {
                    FAULT == WRONG_MAGIC ? 0x464C457F : SQUALL_MAGIC,
                    FAULT == OTHER_MAJOR ? SQUALL_ABI_MAJOR + 1 : SQUALL_ABI_MAJOR,
                    FAULT == NEWER_MINOR ? SQUALL_ABI_MINOR + 1 : SQUALL_ABI_MINOR,
                    FAULT == NEWER_MINOR ? sizeof table : FAULT == SHORT_TABLE ? 40 : sizeof(struct squall_plugin),
                },
            .name = "faults",
            .version = "0.1.0",
            .init = INIT,
#if FAULT == MISSING_FUNCTION || FAULT == DUPLICATE_OP
            .ops = ops,
            .op_count = 1,
#endif
#if FAULT == DUPLICATE_KERNEL
            .kernels = kernels,
            .kernel_count = 1,
#endif
        },
    .not_yet = 1,
};

#if FAULT == NO_ENTRY
SQUALL_EXPORT const void *another_entry(void);
SQUALL_EXPORT const void *another_entry(void) {
    return &table;
}
#else
SQUALL_EXPORT const struct squall_plugin *squall_plugin(const squall_host *host) {
    (void)host;
    return FAULT == NULL_TABLE ? NULL : &table.known;
}
#endif
