/* A host of the first ABI, or with -DNEXT of the next: loads the plugin that it is given, and says what it and the plugin see. */

#include <dlfcn.h>
#include <string.h>

#include "appended.h"

static const void *feature(const char *id) {
    (void)id;
    return NULL;
}

#ifdef NEXT
static int32_t answer(void) {
    return 42;
}

static const next_host host = {{SQUALL_MAGIC, SQUALL_ABI_MAJOR, SQUALL_ABI_MINOR + 1, sizeof host}, "0.2.0", feature, answer};
#else
static const squall_host host = {SQUALL_HEADER(squall_host), "0.1.0", feature};
#endif

int main(int count, char **args) {
    if (count != 2) return 1;
    void *library = dlopen(args[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return 2;
    const struct squall_plugin *(*entry)(const squall_host *);
    void *symbol = dlsym(library, SQUALL_ENTRY);
    if (!symbol) return 3;
    memcpy(&entry, &symbol, sizeof entry);
    const squall_host *table = (const squall_host *)(const void *)&host;
    const struct squall_plugin *plugin = entry(table);
    if (!plugin || plugin->header.magic != SQUALL_MAGIC || plugin->header.abi_major != SQUALL_ABI_MAJOR) return 4;

    static squall_error error;
    error.param = SQUALL_NO_PARAM;
    if (plugin->init && plugin->init(table, &error) != SQUALL_OK) return 5;
    const int32_t *seen = plugin->feature ? plugin->feature("seen") : NULL;
    printf("%s: the plugin saw %d", plugin->name, seen ? (int)*seen : 0);
#ifdef NEXT
    const next_plugin *next = (const next_plugin *)(const void *)plugin;
    if (SQUALL_HAS(next, answered) && next->answered) {
        printf(", the host %d", (int)next->answered());
    } else {
        printf(", the host nothing");
    }
#endif
    printf("\n");
    return 0;
}
