/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device as a backend: its kernels are the operators' reference kernels, launched on its queue. */
#include "backends/sim/sim.h"

#include "backends/driver/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

LC_API lc_sim_counters_of_fn lc_sim_counters_of;
LC_API lc_sim_launch_fn lc_sim_launch;

const lc_backend_host *sim_host;

static lc_status count(int *devices)
{
    const char *fewer = getenv("LIGHTC_SIM_DEVICES");
    *devices = fewer ? atoi(fewer) : LC_SIM_DEVICES;
    return LC_OK;
}

static lc_status open_device(int index, void **device)
{
    return lc__queue_open(sim_host, &sim_driver, index, device);
}

/* ---- kernels ---- */

/* A reference kernel, launched on a device. */
typedef struct launched {
    lc_kernel kernel;
    const lc_kernel *of;
    struct launched *next;
} launched;

static struct {
    pthread_mutex_t lock;
    launched *first;
} kernels = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void run(const lc_call *call)
{
    lc_sim_launch(call, ((const launched *)(const void *)call->kernel)->of);
}

static launched *launched_of(const lc_kernel *of)
{
    pthread_mutex_lock(&kernels.lock);
    launched *l = kernels.first;
    while (l && l->of != of) l = l->next;
    if (!l && (l = malloc(sizeof *l))) {
        *l = (launched){*of, of, kernels.first};
        l->kernel.run = run;
        kernels.first = l;
    }
    pthread_mutex_unlock(&kernels.lock);
    return l;
}

static bool is_left_out(const char *name)
{
    const char *list = getenv("LIGHTC_SIM_WITHOUT");
    size_t n = strlen(name);
    if (list && !strcmp(list, "all")) return true;
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && !strncmp(p, name, n)) return true;
    return false;
}

static lc_status kernel_set(void *device, const void **set)
{
    (void)device;
    *set = &sim_driver;
    return LC_OK;
}

static bool is_half(const lc_view *v)
{
    return v->ndim >= 0 && (v->dtype == LC_F16 || v->dtype == LC_BF16);
}

/* Reference kernels take what their operator's inference takes, which for most operators excludes halves. */
static bool takes_types(const lc_call *call)
{
    enum { MOST = 16 };
    lc_type types[MOST], results[LC_MAX_OUTPUTS] = {{0}};
    const lc_type *in[MOST];
    bool halves = false;
    for (int i = 0; i < call->n_in; i++) halves |= is_half(&call->in[i]);
    for (int i = 0; i < call->n_out; i++) halves |= is_half(&call->out[i]);
    if (!halves || !call->op->infer || call->n_in > MOST) return true;
    for (int i = 0; i < call->n_in; i++) {
        const lc_view *v = &call->in[i];
        types[i] = (lc_type){.dtype = v->dtype, .ndim = v->ndim < 0 ? 0 : v->ndim};
        memcpy(types[i].shape, v->shape, sizeof types[i].shape);
        in[i] = v->ndim < 0 ? NULL : &types[i];
    }
    lc_infer infer = {.op = call->op,
                      .n_in = call->n_in,
                      .in = in,
                      .n_int = call->n_int,
                      .ints = call->ints,
                      .n_float = call->n_float,
                      .floats = call->floats,
                      .n_out = call->n_out,
                      .out = results};
    if (call->op->infer(&infer) < 0) return false;
    for (int i = 0; i < call->n_out; i++)
        if (results[i].dtype != call->out[i].dtype) return false;
    return true;
}

static lc_status find_kernels(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n)
{
    const lc_kernel *of = call->op->kernel;
    (void)set;
    *n = 0;
    if (max < 1 || !of || is_left_out(call->op->name) || !takes_types(call)) return LC_OK;
    if (of->supports && !of->supports(call)) return LC_OK;
    launched *l = launched_of(of);
    if (!l) return sim_host->fail(LC_ERR_MEMORY, "out of memory for a kernel");
    out[0] = &l->kernel;
    *n = 1;
    return LC_OK;
}

static void describe(const void *set, char *text, size_t size)
{
    (void)set;
    snprintf(text, size, "reference");
}

static lc_backend_ops sim_backend = {
    LC__QUEUE_OPS("sim"),         .count = count,       .open = open_device, .kernel_set = kernel_set,
    .find_kernels = find_kernels, .describe = describe,
};

/* As if it had been compiled with headers that know no programs: what follows its vtable must not be read. */
static void leave_out_programs(void)
{
    sim_backend.size = offsetof(lc_backend_ops, program_begin);
    memset((char *)&sim_backend + sim_backend.size, 0xff, sizeof sim_backend - sim_backend.size);
}

LC_API const lc_backend_ops *lc_backend_entry(const lc_backend_host *host);
const lc_backend_ops *lc_backend_entry(const lc_backend_host *host)
{
    sim_host = host;
    if (is_left_out("host_register")) sim_backend.host_register = NULL, sim_backend.host_unregister = NULL;
    if (is_left_out("copy_ahead")) sim_backend.copy_ahead = NULL, sim_backend.copy_arrived = NULL;
    if (is_left_out("programs")) leave_out_programs();
    if (host->abi == LC_BACKEND_ABI) return &sim_backend;
    host->fail(LC_ERR_CONFIG, "the simulated device was built for another version of lightc");
    return NULL;
}

void lc_sim_counters_of(int device, lc_sim_counters *out)
{
    sim_device *d = sim_open(device);
    pthread_mutex_lock(&d->lock);
    *out = d->counters;
    pthread_mutex_unlock(&d->lock);
}

void lc_sim_launch(const lc_call *call, const lc_kernel *kernel)
{
    const unsigned one[3] = {1, 1, 1};
    void *parameters[] = {(void *)(uintptr_t)call};
    sim_stream *queue = lc__queue_stream(call->device);
    if (call->queue != queue) {
        sim_device *d = queue->device;
        pthread_mutex_lock(&d->lock);
        sim_fail(d, "sim:%d: %s is launched on another queue than the device's (lc_call.queue)", d->index,
                 call->op->name);
        pthread_mutex_unlock(&d->lock);
    }
    lc__queue_launch(call, kernel, one, one, 0, parameters);
}
