/* SPDX-License-Identifier: Apache-2.0 */
/* Backends in shared objects, and what they find in the library. */
#define _GNU_SOURCE
#include "device/device.h"
#include "base/library.h"

#include "base/args.h"
#include "builtin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A name is part of a path, so it holds no slash. */
static lc_status check_name(const char *name)
{
    if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == 0) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "accelerator is \"%.60s\"; the name of a backend has only a-z, 0-9 and _", name);
}

enum { PATH = 4096 };

/* *named: in the folder of LIGHTC_BACKEND_PATH; otherwise dlopen looks for it. */
static lc_status path_of(const char *name, char path[PATH], bool *named)
{
    const char *folder = getenv("LIGHTC_BACKEND_PATH");
    *named = folder && *folder;
    int n = snprintf(path, PATH, "%s%sliblightc_%s.so", *named ? folder : "", *named ? "/" : "", name);
    return n < PATH ? LC_OK : lc_fail(LC_ERR_CONFIG, "LIGHTC_BACKEND_PATH is too long");
}

bool lc__device_has_plugin(const char *name)
{
    char path[PATH];
    bool named;
    return path_of(name, path, &named) >= 0 && named && access(path, F_OK) == 0;
}

static lc_status open_file(const char *name, void **library)
{
    char path[PATH];
    bool named;
    LC_TRY(path_of(name, path, &named));
    if (lc__library_open(path, RTLD_NOW | RTLD_LOCAL, library) == LC_OK) return LC_OK;
    return lc_fail(
        LC_ERR_CONFIG,
        "accelerator is \"%s\"; it must be auto, cpu or the name of a backend, and that backend cannot be loaded: "
        "%s%s",
        name, lc_error_message(), named ? "" : "; set LIGHTC_BACKEND_PATH to the folder that has it");
}

lc_status lc__backend_take(const char *name, const lc_backend_ops *given, const lc_backend_ops **out)
{
    lc_backend_ops full = {0};
    LC_TRY(lc__ops_take(&full, sizeof full, given, offsetof(lc_backend_ops, program_begin), "a backend",
                        "LC_BACKEND_OPS_INIT"));
    if (!full.name || strcmp(full.name, name) != 0)
        return lc_fail(LC_ERR_CONFIG, "liblightc_%s.so has a backend with another name, %s", name,
                       full.name ? full.name : "none");
    lc_backend_ops *copy = malloc(sizeof *copy);
    if (!copy) return lc_fail(LC_ERR_MEMORY, "out of memory for a backend");
    *copy = full;
    *out = copy;
    return LC_OK;
}

lc_status lc__device_plugin(const char *name, const lc_backend_ops **out)
{
    void *library;
    *out = NULL;
    LC_TRY(check_name(name));
    LC_TRY(open_file(name, &library));
    lc_backend_entry_fn *entry;
    *(void **)&entry = dlsym(library, LC_BACKEND_SYMBOL);
    lc_status status = LC_ERR_CONFIG;
    const lc_backend_ops *given = NULL;
    if (!entry)
        (void)lc_fail(status, "liblightc_%s.so is not a backend of lightc: it has no " LC_BACKEND_SYMBOL, name);
    else if ((given = entry(lc__builtin->plugins)))
        status = lc__backend_take(name, given, out);
    if (status >= 0) return LC_OK;
    dlclose(library);
    return lc_fail_context(status, "accelerator=%s", name);
}

const lc_op *lc__op_find(const char *name)
{
    for (const lc_op *const *const *list = lc__builtin->operators; *list; list++)
        for (const lc_op *const *op = *list; *op; op++)
            if (!strcmp((*op)->name, name)) return *op;
    return NULL;
}
