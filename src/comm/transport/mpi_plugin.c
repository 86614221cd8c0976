/* SPDX-License-Identifier: Apache-2.0 */
/* "mpi": opens the plug-in liblightc_mpi (src/comm/mpi), so that lightc itself needs no MPI. */
#define _GNU_SOURCE /* dladdr */
#include "comm/comm_internal.h"
#include "base/handle.h"
#include "base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "liblightc_mpi.so"

/* Next to this library, or to the program that it is linked into. */
static bool next_to(char *path, size_t size)
{
    Dl_info here;
    if (!dladdr((void *)(uintptr_t)lc_comm_mpi, &here) || !here.dli_fname) return false;
    const char *slash = strrchr(here.dli_fname, '/');
    if (!slash ||
        (size_t)snprintf(path, size, "%.*s/" FILE_NAME, (int)(slash - here.dli_fname), here.dli_fname) >= size)
        return false;
    return access(path, R_OK) == 0;
}

/* Open MPI opens parts of its own that need its symbols, hence GLOBAL; its threads and handlers need its code until the
 * end, hence NODELETE. */
static lc_status open_plugin(void **out)
{
    char near[PATH_MAX];
    const char *path = getenv("LIGHTC_MPI_PLUGIN");
    if (!path || !*path) path = next_to(near, sizeof near) ? near : FILE_NAME;
    if (lc__library_open(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE, out) == LC_OK) return LC_OK;
    return lc_fail(
        LC_ERR_UNSUPPORTED,
        "this lightc was built without MPI, or its plug-in cannot be found: %s. Build lightc with libopenmpi-dev "
        "installed, or build only the plug-in (share/lightc/mpi/README.md) and name it in LIGHTC_MPI_PLUGIN",
        lc_error_message());
}

typedef lc_status world_fn(lc_comm **out);

static lc_status find_world(world_fn **out)
{
    void *plugin = NULL;
    LC_TRY(open_plugin(&plugin));
    const char *version = dlsym(plugin, "lc_comm_mpi_version");
    *(void **)out = dlsym(plugin, "lc_comm_mpi_world");
    if (!version || !*out) return lc_fail(LC_ERR_FORMAT, FILE_NAME " is not lightc's plug-in for MPI");
    if (strcmp(version, LC_VERSION_STRING) != 0)
        return lc_fail(LC_ERR_UNSUPPORTED, FILE_NAME " was built for lightc %.20s, but this is %s; build it again",
                       version, LC_VERSION_STRING);
    return LC_OK;
}

bool lc__mpi_is_there(void)
{
    world_fn *world;
    return find_world(&world) >= 0;
}

lc_status lc_comm_mpi(lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    world_fn *world = NULL;
    *out = NULL;
    LC_TRY(find_world(&world));
    return world(out);
}
