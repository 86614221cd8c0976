/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device (src/backends/sim/sim.h), as tests use it. */
#ifndef LC_TESTS_SIM_DEVICE_H
#define LC_TESTS_SIM_DEVICE_H

#include "backends/sim/counters.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[4096];

/* Chooses the device of what follows; NULL: the CPU. A device reads its schedule when it is opened. */
static inline void use(const char *device, const char *schedule)
{
    setenv("LIGHTC_ACCELERATOR", device ? device : "cpu", 1);
    if (schedule) setenv("LIGHTC_SIM", schedule, 1);
}

static inline void find_plugin(void)
{
    char path[4200];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    snprintf(folder, sizeof folder, "%s/../lib", bin ? bin : "build/bin");
    snprintf(path, sizeof path, "%s/liblightc_sim.so", folder);
    if (access(path, R_OK) != 0) SKIP("liblightc_sim.so is not built");
    setenv("LIGHTC_BACKEND_PATH", folder, 1);
    setenv("LIGHTC_KERNELS", "reference", 1);
    unsetenv("LIGHTC_SIM_FAIL");
    unsetenv("LIGHTC_SIM_WITHOUT");
}

static inline void *symbol_of_plugin(const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/liblightc_sim.so", folder);
    void *library = dlopen(path, RTLD_NOW), *symbol = library ? dlsym(library, name) : NULL;
    CHECK(symbol != NULL);
    return symbol;
}

static inline lc_sim_counters counters(int device)
{
    lc_sim_counters c = {0};
    lc_sim_counters_of_fn *of;
    *(void **)&of = symbol_of_plugin("lc_sim_counters_of");
    of(device, &c);
    return c;
}

#endif
