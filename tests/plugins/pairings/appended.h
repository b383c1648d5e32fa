/* The ABI as a later minor version might have it: the host and the plugin have a function more each. */

#include "squall_plugin.h"

typedef struct next_host {
    squall_header header;
    const char *version;
    const void *(*feature)(const char *id);
    int32_t (*answer)(void); /* new */
} next_host;

typedef struct next_plugin {
    squall_header header;
    const char *name;
    const char *version;
    const squall_op *const *ops;
    const squall_kernel *const *kernels;
    uint32_t op_count;
    uint32_t kernel_count;
    int32_t (*init)(const squall_host *host, squall_error *error);
    const void *(*feature)(const char *id);
    int32_t (*answered)(void); /* new: what the host's `answer` gave, or -1 without one */
} next_plugin;
