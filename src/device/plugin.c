/* SPDX-License-Identifier: Apache-2.0 */
/* Backends in shared objects, and what they find in the library. */
#define _GNU_SOURCE
#include "device/device.h"
#include "base/library.h"

#include "base/args.h"
#include "base/status.h"
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

/* Whether the backend has what it must have: some functions are needed where the host cannot reach its memory, or if it
 * has others. */
static lc_status check_functions(const char *name, const lc_backend_ops *o)
{
    const bool far = !o->host_memory;
    const struct {
        const char *name;
        bool there, needed;
    } list[] = {
        {"arena_reserve", o->arena_reserve, true},
        {"arena_commit", o->arena_commit, true},
        {"arena_drop", o->arena_drop, true},
        {"arena_release", o->arena_release, true},
        {"alloc", o->alloc, true},
        {"reserve", o->reserve, true},
        {"free", o->free, true},
        {"available", o->available, true},
        {"kernel_set", o->kernel_set, true},
        {"find_kernels", o->find_kernels, true},
        {"describe", o->describe, true},
        {"copy", o->copy, far},
        {"host_alloc", o->host_alloc, far},
        {"host_free", o->host_free, far},
        {"mark", o->mark, far},
        {"wait", o->wait, far},
        {"reached", o->reached, far},
        {"copy_arrived", o->copy_arrived, o->copy_ahead},
        {"host_unregister", o->host_unregister, o->host_register},
        {"program_end", o->program_end, o->program_begin},
        {"program_run", o->program_run, o->program_begin},
        {"program_free", o->program_free, o->program_begin},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].needed && !list[i].there)
            return lc_fail(LC_ERR_CONFIG, "liblightc_%s.so has a backend without %s", name, list[i].name);
    return LC_OK;
}

static lc_status take(const char *name, const lc_backend_ops *given, const lc_backend_ops **out)
{
    LC_TRY(lc__backend_take(name, given, out));
    lc_status status = check_functions(name, *out);
    if (status >= 0) return LC_OK;
    free((void *)(uintptr_t)*out);
    *out = NULL;
    return status;
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
    const unsigned before = lc__error_count();
    if (!entry)
        (void)lc_fail(status, "liblightc_%s.so is not a backend of lightc: it has no " LC_BACKEND_SYMBOL, name);
    else if ((given = entry(lc__builtin->plugins)))
        status = take(name, given, out);
    else if (lc__error_since(before) == LC_OK)
        (void)lc_fail(status, "liblightc_%s.so brings no backend, and does not say why", name);
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
