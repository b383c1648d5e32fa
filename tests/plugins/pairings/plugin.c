/* A plugin of the first ABI, or with -DNEXT of the next. */

#include "appended.h"

#ifdef NEXT
static int32_t seen;

static int32_t init(const squall_host *host, squall_error *error) {
    (void)error;
    const next_host *next = (const next_host *)(const void *)host;
    seen = SQUALL_HAS(next, answer) && next->answer ? next->answer() : -1;
    return SQUALL_OK;
}

/* So that a host of the first ABI can be asked what the plugin saw. */
static const void *feature(const char *id) {
    return id ? &seen : NULL;
}

static int32_t answered(void) {
    return seen;
}

static const next_plugin plugin = {
    .header = {SQUALL_MAGIC, SQUALL_ABI_MAJOR, SQUALL_ABI_MINOR + 1, sizeof plugin},
    .name = "next",
    .version = "0.2.0",
    .init = init,
    .feature = feature,
    .answered = answered,
};
#else
static const struct squall_plugin plugin = {
    .header = SQUALL_HEADER(struct squall_plugin), .name = "first", .version = "0.1.0",
};
#endif

SQUALL_EXPORT const struct squall_plugin *squall_plugin(const squall_host *host) {
    (void)host;
    return (const struct squall_plugin *)(const void *)&plugin;
}
