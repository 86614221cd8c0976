/* SPDX-License-Identifier: Apache-2.0 */
/* The list of opened devices. */
#include "device/device.h"

#include "base/handle.h"
#include "builtin.h"

#include <lightc/graph.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, NAME = 32 };

/* In the lowest of the rooms that use it. */
const lc__builtins *lc__builtin;

/* A device in the list never changes, so that it is used without the lock. */
static struct {
    pthread_mutex_t lock;
    lc_device list[MOST];
    int n;
    const lc_backend_ops *loaded[MOST];
    int n_loaded;
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What this thread has chosen: a trainer during a run, and a fabric as long as it lives. */
static _Thread_local const lc_device *chosen;

const lc_device *lc__host_device(void)
{
    return lc__builtin->host;
}

/* "sim:1" -> "sim" and 1. */
static lc_status split(const char *name, char kind[NAME], int *index)
{
    size_t n = strcspn(name, ":");
    char *end = NULL;
    long number = name[n] ? strtol(name + n + 1, &end, 10) : 0;
    if (!n || n >= NAME || (name[n] && (end == name + n + 1 || *end)) || number < 0 || number >= MOST)
        return lc_fail(LC_ERR_CONFIG,
                       "\"%.60s\" is not a device; one is named by its kind, and a number if it is not "
                       "the first: \"cpu\", \"cuda:1\"",
                       name);
    memcpy(kind, name, n);
    kind[n] = 0;
    *index = (int)number;
    return LC_OK;
}

static lc_status count_of(const lc_backend_ops *ops, int *count)
{
    *count = 1;
    return ops->count ? ops->count(count) : LC_OK;
}

static lc_status check_index(const lc_backend_ops *ops, int index)
{
    int count;
    LC_TRY(count_of(ops, &count));
    if (index < count) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "there is no %s:%d; this machine has %d of these devices", ops->name, index, count);
}

/* The backend of that name, with the lock held. */
static lc_status load(const char *kind, const lc_backend_ops **out)
{
    *out = lc__builtin->host->ops;
    if (!strcmp(kind, (*out)->name)) return LC_OK;
    for (int i = 0; i < devices.n_loaded; i++) {
        *out = devices.loaded[i];
        if (!strcmp(kind, (*out)->name)) return LC_OK;
    }
    if (devices.n_loaded == MOST) return lc_fail(LC_ERR_CONFIG, "%d backends have been loaded already", MOST);
    LC_TRY(lc__device_plugin(kind, out));
    devices.loaded[devices.n_loaded++] = *out;
    return LC_OK;
}

static lc_status find(const char *kind, int index, const lc_device **out)
{
    const lc_backend_ops *ops;
    for (int i = 0; i < devices.n; i++) {
        *out = &devices.list[i];
        if (devices.list[i].index == index && !strcmp(devices.list[i].ops->name, kind)) return LC_OK;
    }
    if (devices.n == MOST) return lc_fail(LC_ERR_CONFIG, "%d devices have been opened already", MOST);
    LC_TRY(load(kind, &ops));
    LC_TRY(check_index(ops, index));
    lc_device *d = &devices.list[devices.n];
    *d = (lc_device){.ops = ops, .index = index};
    if (ops->open) LC_TRY(ops->open(index, &d->context));
    devices.n++;
    *out = d;
    return LC_OK;
}

lc_status lc__device_find(const char *name, const lc_device **out)
{
    char kind[NAME];
    int index = 0;
    *out = lc__builtin->host;
    LC_TRY(split(name, kind, &index));
    if (!strcmp(kind, lc__builtin->host->ops->name)) return check_index(lc__builtin->host->ops, index);
    pthread_mutex_lock(&devices.lock);
    lc_status status = find(kind, index, out);
    pthread_mutex_unlock(&devices.lock);
    return status;
}

lc_status lc__device_count(const char *name, int *count)
{
    char kind[NAME];
    int index;
    const lc_backend_ops *ops;
    *count = 0;
    LC_TRY(split(name, kind, &index));
    pthread_mutex_lock(&devices.lock);
    lc_status status = load(kind, &ops);
    pthread_mutex_unlock(&devices.lock);
    LC_TRY(status);
    LC_TRY(check_index(ops, index));
    return count_of(ops, count);
}

lc_status lc__device_choose(const char *name, const lc_device **out)
{
    return name && strcmp(name, "auto") != 0 ? lc__device_find(name, out) : lc__device_default(out);
}

lc_status lc__device_default(const lc_device **out)
{
    const char *name = getenv("LIGHTC_ACCELERATOR");
    *out = chosen ? chosen : lc__builtin->host;
    if (chosen || !name || !*name || !strcmp(name, "auto")) return LC_OK;
    lc_status status = lc__device_find(name, out);
    return status < 0 ? lc_fail_context(status, "environment variable LIGHTC_ACCELERATOR") : status;
}

const lc_device *lc__device_use(const lc_device *on)
{
    const lc_device *before = chosen;
    chosen = on;
    return before;
}

const char *lc__device_name(const lc_device *d, char name[LC__DEVICE_NAME])
{
    int n = snprintf(name, LC__DEVICE_NAME, "%.32s", d->ops->name);
    if (d->index) snprintf(name + n, LC__DEVICE_NAME - (size_t)n, ":%d", d->index);
    return name;
}

lc_status lc__device_reach(const lc_device *on, uint64_t mark)
{
    bool reached;
    LC_TRY(on->ops->reached(on->context, mark, &reached));
    return reached ? LC_OK : on->ops->wait(on->context, mark);
}

lc_status lc__device_wait(const lc_device *on)
{
    uint64_t mark;
    LC_TRY(on->ops->mark(on->context, &mark));
    return lc__device_reach(on, mark);
}

/* By way of the host. */
static lc_status copy_between(const lc_device *to_on, char *to, const lc_device *from_on, const char *from,
                              size_t bytes)
{
    char middle[1 << 16];
    for (size_t at = 0; at < bytes; at += sizeof middle) {
        size_t n = bytes - at < sizeof middle ? bytes - at : sizeof middle;
        LC_TRY(lc__device_copy(lc__builtin->host, middle, from_on, from + at, n));
        LC_TRY(lc__device_copy(to_on, to + at, lc__builtin->host, middle, n));
    }
    return LC_OK;
}

lc_status lc__device_copy(const lc_device *to_on, void *to, const lc_device *from_on, const void *from, size_t bytes)
{
    if (!bytes) return LC_OK;
    if (lc__on_host(to_on) && lc__on_host(from_on)) {
        memcpy(to, from, bytes);
        return LC_OK;
    }
    if (to_on == from_on) return to_on->ops->copy(to_on->context, to, from, bytes);
    if (!lc__on_host(to_on) && !lc__on_host(from_on)) return copy_between(to_on, to, from_on, from, bytes);
    const lc_device *on = lc__on_host(to_on) ? from_on : to_on;
    LC_TRY(on->ops->copy(on->context, to, from, bytes));
    return lc__device_wait(on);
}

lc_status lc_device_describe(const char *device, lc_device_info *out)
{
    const lc_device *d;
    const void *set;
    LC__NEEDS(device, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_device_info){0};
    LC_TRY(lc__device_find(device, &d));
    LC_TRY(lc__device_count(device, &out->devices));
    LC_TRY(d->ops->kernel_set(d->context, &set));
    if (d->ops->describe) d->ops->describe(set, out->kernels, sizeof out->kernels);
    if (d->ops->features) d->ops->features(out->features, sizeof out->features);
    return LC_OK;
}
