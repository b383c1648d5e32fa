/*
 * squall_plugin.h: kernels and collectives of your own for squall.
 *
 * Squall runs a pipeline of tasks on several devices at once. A RANK is one participant: a thread with a device (`host:0`, `cuda:1`) and
 * its memory. A COMMUNICATOR is a set of ranks that meet. A KERNEL computes on one rank's memory; an OP may talk to other ranks, and one
 * that all ranks of a communicator enter together is a collective. A plugin is a shared library with kernels and ops. Squall opens
 * it when a manifest (`[[plugin]] path = "libmine.so"`) or the command line (`--plugin libmine.so`) names it.
 *
 * This file is all that a plugin needs. It is C11 and C++17, and links with nothing of squall. The smallest plugin:
 *
 *     #include "squall_plugin.h"
 *
 *     static const struct squall_plugin plugin = {
 *         .header = SQUALL_HEADER(struct squall_plugin), .name = "mine", .version = "0.1.0",
 *     };
 *
 *     SQUALL_EXPORT const struct squall_plugin *squall_plugin(const squall_host *host) {
 *         (void)host;
 *         return &plugin;
 *     }
 *
 *     cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -o libmine.so mine.c
 *
 * RULES, which both sides keep:
 *
 * - Versions. Whoever has the same SQUALL_ABI_MAJOR understands the other, whichever minor is newer.
 * - Tables are the structs that begin with a squall_header. A minor version appends fields to them and changes nothing else, so a
 *   reader touches only bytes below the writer's `struct_size`: what lies beyond is absent, as is a null pointer. Ask SQUALL_HAS(table,
 *   field) before you use a field of squall's that a minor version after 1.0 brought. Structs without a header are frozen.
 * - Enums are integers. A reader refuses those that it does not know. Fields called `reserved` are 0.
 * - Text is UTF-8 and ends with a zero byte. Where text may be null, its comment says so. Arrays may be null if their count is 0.
 * - Status. A function that can fail returns SQUALL_OK, or another SQUALL_… status after it has put words in the squall_error that
 *   it was given (`return squall_fail(error, SQUALL_FAILED, "…", …);`). Functions that the plugin calls fail the same way; hand on what they
 *   return, with the error they filled in.
 * - Nothing unwinds across these functions: no C++ exception, no longjmp.
 * - Ownership. What a plugin's tables point to stays where it is, and as it is, for the life of the process: squall never closes a
 *   library. What squall points to in a call is squall's, and ends with the call unless its comment says otherwise.
 * - Threads. [any]: any thread, several at once. [rank]: the thread of one rank, in which its device is current; several ranks at once.
 *   [abort]: whichever thread aborts, at any time. Mutable globals are therefore shared between ranks.
 * - A step allocates nothing and waits for nothing but the other ranks of its op: `enqueue` and kernels run in every step, all else
 *   runs once, before the first.
 */

#ifndef SQUALL_PLUGIN_H
#define SQUALL_PLUGIN_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SQUALL_MAGIC UINT32_C(0x4C4C5153) /* `SQLL`, read as a little-endian number. */
#define SQUALL_ABI_MAJOR UINT32_C(1)      /* What both sides must share. */
#define SQUALL_ABI_MINOR UINT32_C(0)      /* Counts the fields that were appended. */
#define SQUALL_ENTRY "squall_plugin"      /* The one symbol that a plugin exports. */
#define SQUALL_MAX_PARAMS UINT32_C(64)    /* The most parameters that a kernel or an op may have. */
#define SQUALL_NO_PARAM UINT32_MAX        /* In squall_error.param: no parameter is at fault. In `share`: there is no whole. */
#define SQUALL_NO_PLACE UINT64_MAX        /* In `share`: the part does not lie within the whole. */

/* Makes a function visible outside the library. For the entry alone: compile the rest with -fvisibility=hidden. */
#if defined(_WIN32)
#define SQUALL_EXPORT __declspec(dllexport)
#else
#define SQUALL_EXPORT __attribute__((visibility("default")))
#endif

/* The header of a static table: `static const squall_op op = { .header = SQUALL_HEADER(squall_op), … }`. */
#define SQUALL_HEADER(type) {SQUALL_MAGIC, SQUALL_ABI_MAJOR, SQUALL_ABI_MINOR, (uint32_t)sizeof(type)}

/* Whether the writer of `*table` knew of `field`. A field that is a pointer may still be null. */
#define SQUALL_HAS(table, field) \
    ((size_t)((const char *)(&(table)->field + 1) - (const char *)(table)) <= (table)->header.struct_size)

/* A value's bit in a set of dtypes or reductions: `SQUALL_BIT(SQUALL_DTYPE_F32) | SQUALL_BIT(SQUALL_DTYPE_F64)`. */
#define SQUALL_BIT(value) (UINT32_C(1) << (value))

/* What functions return. */
enum {
    SQUALL_OK = 0,            /* Done. */
    SQUALL_FAILED = 1,        /* It failed. */
    SQUALL_ABORTED = 2,       /* Released by an abort: not to blame. */
    SQUALL_DEADLINE = 3,      /* The deadline passed. */
    SQUALL_OUT_OF_MEMORY = 4, /* The device's memory does not suffice: squall_error.bytes were asked for. */
    SQUALL_LOST = 5,          /* The device can be used no more by this process. */
    SQUALL_UNSUPPORTED = 6,   /* It cannot be done at all. */
    SQUALL_ARGUMENT = 7       /* An argument is wrong: squall_error.param says which. */
};

/* Types of elements. */
enum {
    SQUALL_DTYPE_F16 = 0,  /* IEEE 754 half precision. */
    SQUALL_DTYPE_BF16 = 1, /* bfloat16. */
    SQUALL_DTYPE_F32 = 2,
    SQUALL_DTYPE_F64 = 3,
    SQUALL_DTYPE_I8 = 4,
    SQUALL_DTYPE_U8 = 5,
    SQUALL_DTYPE_I32 = 6,
    SQUALL_DTYPE_U32 = 7,
    SQUALL_DTYPE_I64 = 8,
    SQUALL_DTYPE_U64 = 9
};

/* How a collective combines the ranks' elements: the index of the word that an argument named `reduce` holds. Integers wrap; an integer
 * average divides the wrapped sum toward zero; `min` and `max` of floats ignore a NaN where another rank has a number. */
enum {
    SQUALL_REDUCTION_SUM = 0,
    SQUALL_REDUCTION_PROD = 1,
    SQUALL_REDUCTION_MAX = 2,
    SQUALL_REDUCTION_MIN = 3,
    SQUALL_REDUCTION_AVG = 4 /* The sum divided by the number of ranks. */
};

/* What a parameter takes: squall_param.kind. */
enum {
    SQUALL_PARAM_KIND_BUFFER = 0, /* A range of a buffer. */
    SQUALL_PARAM_KIND_SCALAR = 1, /* A number: a constant, or a buffer of one element that is read when the task runs. */
    SQUALL_PARAM_KIND_SIZE = 2,   /* A length or count, not negative. */
    SQUALL_PARAM_KIND_WORD = 3,   /* One of the parameter's words. */
    SQUALL_PARAM_KIND_FLAG = 4,   /* True or false. */
    SQUALL_PARAM_KIND_RANK = 5,   /* A rank of the task's communicator. */
    SQUALL_PARAM_KIND_LIST = 6,   /* A list of whole numbers. */
    SQUALL_PARAM_KIND_MATRIX = 7  /* For ops: whole numbers, a row and a column for each rank, row after row. */
};

/* What is done with a buffer: squall_param.mode and squall_description.access. */
enum {
    SQUALL_MODE_READ = 0,
    SQUALL_MODE_WRITE = 1, /* Nothing of it is read. */
    SQUALL_MODE_READ_WRITE = 2
};

/* What stands for an argument that is not given: squall_param.presence. */
enum {
    SQUALL_PRESENCE_REQUIRED = 0, /* Nothing: it must be given. */
    SQUALL_PRESENCE_OPTIONAL = 1, /* Nothing: it is absent. */
    SQUALL_PRESENCE_DIM = 2,      /* The length of axis `dim` of the buffer `of`. */
    SQUALL_PRESENCE_LEN = 3,      /* The number of elements of the buffer `of`. */
    SQUALL_PRESENCE_SHAPE_OF = 4, /* The shape of the buffer `of`, as a list. */
    SQUALL_PRESENCE_FALSE = 5     /* False, for a flag. */
};

/* What an argument is: squall_arg.kind. In brackets, the fields that hold it. */
enum {
    SQUALL_ARG_KIND_ABSENT = 0, /* Not given. */
    SQUALL_ARG_KIND_BUFFER = 1, /* A range of a buffer; for a scalar parameter, the one element to read when the task runs.
                                   [dtype, ptr or (buffer, offset), len, shape, axes] */
    SQUALL_ARG_KIND_INT = 2,    /* A whole number, for a scalar parameter. [number, real] */
    SQUALL_ARG_KIND_FLOAT = 3,  /* Another number, for a scalar parameter. [real] */
    SQUALL_ARG_KIND_SIZE = 4,   /* A length. [number] */
    SQUALL_ARG_KIND_WORD = 5,   /* The index of a word. [number] */
    SQUALL_ARG_KIND_FLAG = 6,   /* 0 or 1. [number] */
    SQUALL_ARG_KIND_RANK = 7,   /* A rank of the communicator. [number] */
    SQUALL_ARG_KIND_LIST = 8    /* Whole numbers. [list, len] */
};

/* What an axis of a kernel's grid must cover: squall_cover.kind. */
enum {
    SQUALL_COVER_KIND_LEN = 0,  /* The elements of the buffer `param`. */
    SQUALL_COVER_KIND_SIZE = 1, /* The size `param`. */
    SQUALL_COVER_KIND_DIM = 2,  /* Axis `dim` of the buffer `param`. */
    SQUALL_COVER_KIND_ANY = 3   /* Nothing: the kernel strides over its data. */
};

/* Bits of squall_op.flags. */
enum {
    SQUALL_OP_FLAG_GROUPS = 1,        /* It may stand in a group with others of its library. */
    SQUALL_OP_FLAG_CAPTURES = 2,      /* It may be captured in a graph and replayed. */
    SQUALL_OP_FLAG_SINGLE_PROCESS = 4 /* All ranks of its communicators must be in one process: it reaches their memory. */
};

/* Bits of squall_kernel.flags. */
enum {
    SQUALL_KERNEL_FLAG_LOOPS = 1 /* Each thread of the CUDA form loops over axis x: fewer blocks may be launched than the grid says. */
};

/* What every table begins with. Never changes. */
typedef struct squall_header {
    uint32_t magic;       /* SQUALL_MAGIC. */
    uint32_t abi_major;   /* SQUALL_ABI_MAJOR of the writer. */
    uint32_t abi_minor;   /* SQUALL_ABI_MINOR of the writer. */
    uint32_t struct_size; /* Bytes of the table, as its writer knows it. */
} squall_header;

/* Why a function failed. The caller makes it before the call: `param` is SQUALL_NO_PARAM, all else 0. Frozen. */
typedef struct squall_error {
    uint32_t param;  /* With SQUALL_ARGUMENT: the index of the parameter at fault, or SQUALL_NO_PARAM. */
    uint32_t member; /* With SQUALL_ARGUMENT from squall_op.prepare: the index of the call at fault. */
    uint64_t bytes;  /* With SQUALL_OUT_OF_MEMORY: the bytes that were asked for, or 0. */
    char text[768];  /* What went wrong, one line. Squall adds which plugin, task and rank it was. */
    char help[240];  /* A concrete mend, or nothing. */
} squall_error;

/* What squall offers to the plugin as a whole. Stays for the life of the process. */
typedef struct squall_host {
    squall_header header;
    const char *version; /* Squall's, as `0.1.0`. */
    /* A feature by name; null where this host does not have it. 1.0 has none. [any] */
    const void *(*feature)(const char *id);
} squall_host;

typedef struct squall_op squall_op;
typedef struct squall_kernel squall_kernel;

/* What a plugin brings. No typedef, since the entry function has its name. */
struct squall_plugin {
    squall_header header;
    const char *name; /* For listings and errors. */
    const char *version;
    const squall_op *const *ops;
    const squall_kernel *const *kernels;
    uint32_t op_count;
    uint32_t kernel_count;
    /* Called once, before all else but the entry. Fails if the plugin cannot work here. May be null. [any] */
    int32_t (*init)(const squall_host *host, squall_error *error);
    /* A feature by name; null where the plugin does not have it. May be null itself. [any] */
    const void *(*feature)(const char *id);
};

/* The one symbol that a plugin exports. Called once; returns the plugin's table, or null where it cannot serve this host. [any] */
SQUALL_EXPORT const struct squall_plugin *squall_plugin(const squall_host *host);

/* One parameter of a kernel or an op. */
typedef struct squall_param {
    squall_header header;
    const char *name;         /* In `args` of a task: `args = { data = "x" }`. */
    const char *doc;          /* A few words for listings. */
    uint32_t kind;            /* SQUALL_PARAM_KIND_… */
    uint32_t mode;            /* A buffer's: SQUALL_MODE_… */
    uint32_t dtypes;          /* Of a buffer or a scalar: the dtypes that it may have, a SQUALL_BIT each. 0 where `same` says it. */
    uint32_t presence;        /* SQUALL_PRESENCE_… */
    const char *same;         /* The parameter whose dtype it has, or null. */
    const char *of;           /* The parameter that `presence` refers to, or null. */
    const char *const *words; /* Of SQUALL_PARAM_KIND_WORD. */
    uint32_t word_count;
    uint32_t dim; /* The axis of SQUALL_PRESENCE_DIM. */
} squall_param;

/* One argument. Which fields hold something, `kind` says. Frozen. */
typedef struct squall_arg {
    uint32_t kind;         /* SQUALL_ARG_KIND_… */
    uint32_t dtype;        /* A buffer's: SQUALL_DTYPE_… */
    uint64_t number;       /* A size, the index of a word, a flag, a rank; the bits of a whole number as int64_t. */
    double real;           /* A number, whole or not. */
    uint64_t ptr;          /* A buffer's address on the device; 0 while tasks are described. On a host: `(float *)(uintptr_t)arg->ptr`. */
    uint64_t buffer;       /* A buffer's number in the job, while tasks are described; 0 in squall_op.prepare. */
    uint64_t offset;       /* The first element of the range in its buffer, while tasks are described; 0 in squall_op.prepare. */
    uint64_t len;          /* Elements of a buffer's range, or of a list. */
    const uint64_t *shape; /* The lengths of a buffer's axes, row-major. */
    const int64_t *list;   /* A list's numbers. */
    uint32_t axes;         /* How many axes. */
    uint32_t reserved;
} squall_arg;

/* The arguments of a task. */
typedef struct squall_args {
    squall_header header;
    const squall_arg *values; /* One a parameter, in the order of the parameters. */
    uint32_t count;
    uint32_t comm_rank; /* This rank in the task's communicator; 0 for a kernel. */
    uint32_t comm_size; /* Ranks in the task's communicator; 1 for a kernel. */
    uint32_t reserved;
} squall_args;

/* An argument by the name of its parameter: squall_prepare.op. Frozen. */
typedef struct squall_named_arg {
    const char *name;
    squall_arg value;
} squall_named_arg;

/* A kernel's grid. Frozen. */
typedef struct squall_grid {
    uint64_t threads[3]; /* Threads that are wanted on each axis. */
    uint32_t block[3];   /* Threads of a block on each axis. Whole blocks are launched. */
    uint32_t reserved;
} squall_grid;

/* Where an op says what it touches and which ranks it needs: squall proves with it, before any device, that no rank waits for ever. The
 * functions return nothing: what is wrong with what they are told, squall says when squall_op.describe has returned. Called in describe,
 * on its thread. */
typedef struct squall_description squall_description;
struct squall_description {
    squall_header header;
    void *cx; /* Squall's own. */
    /* The op touches elements first .. first + count of the argument of parameter `param`; `mode` is of SQUALL_MODE_…. */
    void (*access)(const squall_description *d, uint32_t param, uint64_t first, uint64_t count, uint32_t mode);
    /* All ranks of the communicator come together, for `op` or, where that is null, for the op itself. What must be equal on all of them
     * is told next, in the same order on all, by the six functions below. `op` and all names stay where they are for good. */
    void (*collective)(const squall_description *d, const char *op);
    void (*number)(const squall_description *d, const char *name, int64_t value);
    void (*real)(const squall_description *d, const char *name, double value); /* Need not be whole; compared by its bits. */
    void (*dtype)(const squall_description *d, const char *name, uint32_t value);
    void (*word)(const squall_description *d, const char *name, const char *value); /* `value` stays for good, too. */
    void (*numbers)(const squall_description *d, const char *name, const int64_t *values, uint64_t count); /* Copied. */
    /* This rank's part of a whole that the ranks divide in rank order: `part` elements of parameter `part_param`, of `whole` elements of
     * `whole_param` (SQUALL_NO_PARAM on a rank that has no whole), and where in the whole the part begins if it lies within it, else
     * SQUALL_NO_PLACE. */
    void (*share)(const squall_description *d, uint32_t part_param, uint64_t part, uint32_t whole_param, uint64_t whole,
                  uint64_t place);
    /* `count` elements go to rank `peer` of the communicator, which must receive them. */
    void (*send)(const squall_description *d, uint32_t peer, uint64_t count, uint32_t dtype);
    /* `count` elements come from rank `peer`. */
    void (*recv)(const squall_description *d, uint32_t peer, uint64_t count, uint32_t dtype);
};

/* A kernel or an op that squall made ready, to be enqueued by squall_stream.enqueue; it ends with the squall_work. */
typedef struct squall_inner squall_inner;

/* One op of a group, bound to a rank's memory. */
typedef struct squall_call {
    squall_header header;
    const squall_op *op;
    const char *task;        /* The task's name, for messages. */
    const squall_args *args; /* With addresses. */
    /* Where the part of each rank of the communicator begins, in elements, and at the end where the last one ends: comm_size + 1 numbers.
     * Null where the parts are equal, or nothing is divided. */
    const uint64_t *parts;
    uint32_t comm; /* The communicator, for squall_prepare's functions. */
    uint32_t reserved;
} squall_call;

/* A communicator, as squall_prepare.comm tells of it. Frozen. */
typedef struct squall_comm {
    const char *name;        /* In the manifest. */
    const uint32_t *members; /* World ranks of those that this rank meets in it, by rank in the communicator. */
    const uint32_t *parts;   /* Of each world rank: the part of the communicator that it is in. */
    const uint32_t *ranks;   /* Of each world rank: its rank in its part. */
    uint32_t size;           /* How many members. */
    uint32_t rank;           /* This rank in the communicator. */
} squall_comm;

/* Bytes that a rank gave to the others. Frozen. */
typedef struct squall_blob {
    const void *bytes;
    uint64_t len;
} squall_blob;

/* Whether the ranks are being aborted. Stays as long as the squall_work that was prepared with it. */
typedef struct squall_abort squall_abort;
struct squall_abort {
    squall_header header;
    void *cx; /* Squall's own. */
    /* 1 once they are. What waits for other ranks asks again and again, and returns SQUALL_ABORTED. [any] */
    int32_t (*is_aborted)(const squall_abort *abort);
};

/* What squall_op.prepare is given. Its functions are called during that call, on its thread. */
typedef struct squall_prepare squall_prepare;
struct squall_prepare {
    squall_header header;
    void *cx;                  /* Squall's own. */
    const char *device;        /* The rank's: `cuda:1`. */
    const char *device_kind;   /* `host` or `cuda`. */
    const squall_abort *abort; /* Tells of aborts. */
    uint64_t nanoseconds;      /* When to give up: so many from the call. */
    uint32_t rank;             /* This rank of the world. */
    uint32_t world;            /* Ranks of the world. */
    uint32_t comms;            /* Communicators; 0 is the world. */
    uint32_t captures;         /* 1 if the device can capture a step. */
    /* Tells of a communicator. What `out` points to is squall's until prepare ends. */
    int32_t (*comm)(const squall_prepare *p, uint32_t comm, squall_comm *out, squall_error *error);
    /* Zeroed memory on the device, aligned to 256 bytes, freed with the work. */
    int32_t (*alloc)(const squall_prepare *p, uint64_t bytes, uint64_t *ptr, squall_error *error);
    /* Zeroed memory that both the host and the device reach, freed with the work. */
    int32_t (*alloc_staging)(const squall_prepare *p, uint64_t bytes, uint64_t *ptr, void **host, squall_error *error);
    /* Makes a launch of a kernel of the plugin's ready: of the host's form or the CUDA source, as the device is. The table stays where it
     * is for good; it need not be one that the plugin lists. */
    int32_t (*kernel)(const squall_prepare *p, const squall_kernel *kernel, const squall_arg *values, uint32_t count,
                      const squall_grid *grid, squall_inner **inner, squall_error *error);
    /* Makes one of the op's `uses` ready, by the device's own library. Arguments that are not named get their defaults. */
    int32_t (*op)(const squall_prepare *p, const char *name, uint32_t comm, const squall_named_arg *args, uint32_t count,
                  squall_inner **inner, squall_error *error);
    /* Gives `len` bytes of `mine` to all ranks of the communicator and gets everyone's, by rank: `size` blobs, squall's until the next call of
     * this function or the end of prepare. For small values, of at most a MiB. All ranks call it equally often; it waits for them. */
    int32_t (*exchange)(const squall_prepare *p, uint32_t comm, const void *mine, uint64_t len, const squall_blob **all,
                        squall_error *error);
    /* Gets everyone's address of what `ptr` is to this rank, by rank of the communicator, after this device was given access to theirs;
     * squall's until the next call of this function or the end of prepare. For ops with SQUALL_OP_FLAG_SINGLE_PROCESS. It waits as
     * exchange does. */
    int32_t (*peer_pointers)(const squall_prepare *p, uint32_t comm, uint64_t ptr, const uint64_t **all, squall_error *error);
};

/* The rank's stream, for the time of a call. */
typedef struct squall_stream squall_stream;
struct squall_stream {
    squall_header header;
    void *cx;        /* Squall's own. */
    const char *api; /* Whose handle `handle` gives: `cuda` (a CUstream) or `host`. */
    /* The backend's handle. Ask where it is needed: a backend may have to note before it where the stream is, which costs a GPU some
       microseconds. */
    uint64_t (*handle)(const squall_stream *s);
    /* Enqueues what squall_prepare.kernel or squall_prepare.op made. */
    int32_t (*enqueue)(const squall_stream *s, squall_inner *inner, squall_error *error);
    /* Copies bytes in stream order, within the device's memory and its staging memory, between places that do not overlap. */
    int32_t (*copy)(const squall_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, squall_error *error);
};

/* What a plugin made ready: squall has written `header` and nulls, the plugin fills in the rest. */
typedef struct squall_work {
    squall_header header;
    void *state;       /* The plugin's own. */
    void *abort_state; /* The plugin's own, for `abort`; it must stay until `destroy`. */
    /* Puts the work on the stream; on a host it may as well do it here, to its end. Called once a step; may be captured if the op says
     * so. Allocates nothing. For a kernel's host form, `stream` is null. [rank] */
    int32_t (*enqueue)(void *state, const squall_stream *stream, squall_error *error);
    /* What the work found wrong while it ran, if that shows only after the fact: returns 1 and at most `capacity` bytes of text with its
     * zero, once, else 0. May be null. [rank] */
    int32_t (*failure)(void *state, char *text, uint32_t capacity);
    /* Frees the state; nothing is called after it. May be null. [any] */
    void (*destroy)(void *state);
    /* Makes work in flight leave its stream soon. Never blocks; may come while enqueue runs; more calls change nothing. May be null, if
     * enqueue asks squall_abort.is_aborted. [abort] */
    void (*abort)(void *abort_state);
} squall_work;

/* An op, as one library serves it on one kind of device. A plugin gives a library ops of its own, or serves squall's: `all_reduce`,
 * `all_gather`, `broadcast`, … by another library, which a task picks with `library = "NAME"`. */
struct squall_op {
    squall_header header;
    /* In manifests. If it is the name of one of squall's own ops, that has its parameters and is described by squall: `params` and `describe`
     * are null, and arguments come in the order that `squall list ops` shows. */
    const char *name;
    const char *summary; /* One line for listings. */
    const char *library; /* The same for all ops that may stand in one group; a name of the plugin's own. */
    const char *device;  /* The kind of device: `host` or `cuda`. Make a table for each kind that the op runs on. */
    const char *example; /* A manifest that runs the op at any number of ranks, without a [[plugin]]; for listings and tests. */
    const squall_param *const *params;
    const char *const *uses; /* Squall's own ops that it prepares inside itself, on the same communicator. */
    const void *data;        /* The plugin's own. */
    uint32_t param_count;    /* At most SQUALL_MAX_PARAMS. */
    uint32_t use_count;
    uint32_t flags;      /* SQUALL_OP_FLAG_… bits. */
    uint32_t alignment;  /* Every range begins at a multiple of so many bytes, a power of two up to 256; 0 is as 1. */
    uint32_t multiple;   /* Every range has a multiple of so many elements; 0 is as 1. */
    uint32_t dtypes;     /* That buffers may have, a SQUALL_BIT each; 0 for all. */
    uint32_t reductions; /* That it knows, a SQUALL_BIT each; 0 for all. */
    uint32_t reserved;
    /* What the op with these arguments touches and which ranks it needs, for any rank of any world, without a device: the same arguments
     * always give the same answer. Null: it treats all ranks alike; buffers are accessed whole, and every argument must match on all
     * ranks. [any] */
    int32_t (*describe)(const squall_op *op, const squall_args *args, const squall_description *to, squall_error *error);
    /* How it serves these arguments, in words that follow on `op … by …`: at most `capacity` bytes of text with its zero. `parts` as in
     * squall_call. May be null. [any] */
    void (*served_as)(const squall_op *op, const squall_args *args, const uint64_t *parts, char *text, uint32_t capacity);
    /* Makes a group of `count` ops of this library, or a lone one, ready to be enqueued step after step: fills `work`. This op is that of
     * the first call. Called in the same order on all ranks of a communicator, before the first step. If it fails, squall asks nothing
     * of `work`: free what was made. [rank] */
    int32_t (*prepare)(const squall_op *op, const squall_call *const *calls, uint32_t count, const squall_prepare *prepare,
                       squall_work *work, squall_error *error);
};

/* What an axis of a grid must cover. Frozen. */
typedef struct squall_cover {
    uint32_t kind;     /* SQUALL_COVER_KIND_… */
    uint32_t dim;      /* The axis of SQUALL_COVER_KIND_DIM. */
    const char *param; /* The parameter, or null. */
} squall_cover;

/* Two parameters that may be the very same range, since an element is read only in the thread that writes it. Frozen. */
typedef struct squall_in_place {
    const char *written;
    const char *read;
} squall_in_place;

/* A kernel. Each thread of the grid owns the element that `covers` names for its coordinates, and writes no other. Grids are rounded up to
 * whole blocks: a kernel checks its bounds, and threads beyond the data do nothing. The same arguments give the same bits. */
struct squall_kernel {
    squall_header header;
    const char *name;    /* In manifests. */
    const char *summary; /* One line for listings. */
    const char *example; /* A manifest that runs it at any number of ranks, without a [[plugin]]; for listings and tests. */
    const squall_param *const *params;
    const squall_cover *covers;       /* What the grid must cover, axis by axis. */
    const squall_in_place *in_place;  /* The pairs that may be one range. */
    const char *cuda_source;          /* CUDA C++, or null; what it may use is told with squall's kernels. */
    const char *cuda_entry;           /* The name of its `__device__` function. */
    const char *const *cuda_failures; /* What it may find wrong, a message each; `{}` stands for the number that it gives. */
    const void *data;                 /* The plugin's own. */
    uint32_t param_count;             /* At most SQUALL_MAX_PARAMS. */
    uint32_t cover_count;             /* At most 3. */
    uint32_t in_place_count;
    uint32_t flags; /* SQUALL_KERNEL_FLAG_… bits. */
    uint32_t cuda_failure_count;
    uint32_t cuda_scratch; /* Bytes of device memory that each task has for itself, zero before the first launch. */
    /* Whether the arguments obey the rules between them, such as shapes that must agree. May be null. [any] */
    int32_t (*check)(const squall_kernel *kernel, const squall_args *args, squall_error *error);
    /* The form for host devices: what the grid's threads compute, and no more. Never blocks, allocates nothing. May be null. [rank] */
    int32_t (*host)(const squall_kernel *kernel, const squall_args *args, const squall_grid *grid, squall_error *error);
    /* In place of `host`, makes a launch ready once: fills `work` as squall_op.prepare does. `args` and what they point to stay until `work`
     * is destroyed. May be null. [rank] */
    int32_t (*host_ready)(const squall_kernel *kernel, const squall_args *args, const squall_grid *grid, squall_work *work,
                          squall_error *error);
};

/* Words of a failure, cut if they are too long; returns `status`: `return squall_fail(error, SQUALL_FAILED, "no %s", name);`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline int32_t squall_fail(squall_error *error, int32_t status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

#ifdef __cplusplus
}
#endif

#endif
