/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a rank holds, and its limit (memory_limit). The needs of a module and its optimizers are known before a
 * step has run: gradients and optimizer state then have addresses but no pages. Intermediate results are known when a
 * step is planned, before it runs. */
#include "base/c_locale.h"
#include "core/trainer/memory_limit.h"
#include "base/grow.h"
#include "base/number.h"
#include "core/hooks/profiling.h"
#include "core/input/input.h"
#include "core/options/options.h"
#include "core/split/device_parts.h"
#include "base/handle.h"
#include "parallel/devices/devices.h"
#include "record/graph_impl.h"
#include "tensor/low.h"
#include "tensor/slice.h"
#include "parallel/tree/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int64_t bytes_held(const lc_tensor *t)
{
    int64_t begin, count;
    lc__tensor_slice(t, &begin, &count);
    return count * (int64_t)lc_dtype_size(t->type.dtype);
}

/* Usually one for each data type. */
typedef struct flat_set {
    const lc_flat **v;
    int n;
} flat_set;

/* *is_new: it was not in the set. */
static lc_status add_once(flat_set *set, const lc_flat *flat, bool *is_new)
{
    *is_new = false;
    for (int i = 0; i < set->n; i++)
        if (set->v[i] == flat) return LC_OK;
    LC_TRY(lc__grow_one(&set->v, set->n, "counting the memory of a module"));
    set->v[set->n++] = flat;
    *is_new = true;
    return LC_OK;
}

typedef struct walk {
    lc_device_memory *m;
    flat_set seen;
    int64_t whole; /* bytes of all sliced parameters when whole */
} walk;

static int64_t elements_of(const lc_flat *flat)
{
    return flat->sharding && flat->sharding->gradient ? flat->sharding->count : flat->count;
}

static lc_status add_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    walk *w = ctx;
    const lc_flat *flat = mt->is_parameter ? mt->tensor->flat : NULL;
    (void)path, (void)owner;
    *(mt->is_parameter ? &w->m->parameters : &w->m->buffers) += bytes_held(mt->tensor);
    if (mt->tensor->is_slice) w->whole += lc__numel(&mt->tensor->type) * (int64_t)lc_dtype_size(mt->tensor->type.dtype);
    bool is_new;
    if (!flat) return LC_OK;
    LC_TRY(add_once(&w->seen, flat, &is_new));
    if (is_new) w->m->parameters += lc__low_bytes(flat);
    if (is_new) w->m->gradients += elements_of(flat) * (int64_t)lc_dtype_size(flat->gradient->type.dtype);
    return LC_OK;
}

/* The state of an optimizer, also if it has none yet. */
static lc_status add_state(const lc_optimizer *opt, int64_t *bytes)
{
    flat_set seen = {0};
    int64_t count = 0;
    bool is_new;
    lc_status status = LC_OK;
    for (int g = 0; g < opt->n_groups; g++)
        for (int i = 0; i < opt->groups[g].n_parameters; i++) {
            const lc_flat *flat = opt->groups[g].parameters[i]->flat;
            if (!flat) continue;
            LC_TRY_GOTO(status, done, add_once(&seen, flat, &is_new));
            if (!is_new) continue;
            const lc_dtype dtype = flat->parameter->type.dtype, wide = lc__wide_dtype(dtype);
            int64_t more = (flat->sharding ? flat->sharding->count : flat->count) * (int64_t)lc_dtype_size(wide);
            count += more;
            if (dtype != wide && opt->flags & LC_OPT_MASTER_WEIGHTS) *bytes += more;
        }
    for (int k = 0; opt->ops->state_names && opt->ops->state_names[k]; k++)
        *bytes += opt->state[k] ? bytes_held(opt->state[k]) : opt->ops->scalar_state >> k & 1 ? 0 : count;
done:
    free(seen.v);
    return status;
}

static lc_status count(const lc_graph *g, lc_module *m, const lc_optimizers *optimizers, const lc__devices *devices,
                       lc_device_memory *out, int64_t *whole)
{
    walk w = {.m = out};
    *out = (lc_device_memory){0};
    lc_status status = lc_module_visit(m, add_tensor, &w);
    free(w.seen.v);
    LC_TRY(status);
    out->gradients += lc__peers_bytes(g);
    for (int i = 0; i < optimizers->n; i++)
        LC_TRY(add_state(optimizers->optimizers[i].optimizer, &out->optimizer_state));
    out->activations = (int64_t)g->arena_committed;
    out->workspace = (int64_t)g->scratch_bytes;
    if (devices) lc__devices_add_memory(devices, out);
    *whole = w.whole;
    return LC_OK;
}

/* Linux's VmHWM, which pages that were never written are not part of. */
static int64_t process_peak(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}

lc_status lc_trainer_memory(const lc_trainer *t, lc_device_memory *out)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    int64_t whole;
    *out = (lc_device_memory){0};
    if (!t->m || !t->graph) return lc_fail(LC_ERR_STATE, "lc_trainer_memory: nothing has run yet");
    LC_TRY(count(t->graph, t->m, &t->optimizers, lc__device_parts_devices(t), out, &whole));
    if (t->input->train.loader) {
        lc_loader_times loader;
        lc_dataloader_times(t->input->train.loader, &loader);
        out->loader = loader.bytes;
    }
    out->process = process_peak();
    return LC_OK;
}

void lc__memory_profile(lc_trainer *t)
{
    lc_device_memory m;
    if (lc_trainer_memory(t, &m) < 0) return;
    const struct {
        const char *name;
        int64_t bytes;
    } kinds[] = {{"parameters", m.parameters}, {"gradients", m.gradients},     {"optimizer state", m.optimizer_state},
                 {"buffers", m.buffers},       {"activations", m.activations}, {"workspace", m.workspace},
                 {"loader", m.loader}};
    int64_t planned = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        lc__profile_memory(t, kinds[i].name, kinds[i].bytes);
        planned += kinds[i].bytes;
    }
    lc__profile_memory(t, "planned", planned);
    /* The rest of the host's memory has code, libraries, stacks, and data of the program. */
    if (lc__on_host(t->graph->on) && m.process > planned) lc__profile_memory(t, "rest", m.process - planned);
    if (m.process) lc__profile_memory(t, "process", m.process);
}

lc_status lc__memory_limit_parse(const char *text, int64_t *bytes)
{
    *bytes = 0;
    if (!text || !*text || (lc__size_read(text, bytes) && *bytes)) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "memory_limit=\"%.60s\"; it must be a size: 512MiB, 1.5GiB (also KiB and TiB; K, M, G and T mean "
                   "the same), or bytes",
                   text);
}

static const char *advice(bool sliced, bool would_fit, const lc__devices *devices)
{
    if (devices)
        return "Fewer devices would need memory for fewer gradients; --strategy sharded spreads them over processes";
    if (sliced && would_fit) return "--gather_parameters false leaves them in slices";
    return sliced ? "More ranks would have smaller slices"
                  : "--strategy sharded with --devices N spreads them over N ranks";
}

/* A rank with slices of the parameters also holds them whole at the end of the run, if it gathers them. It needs them
 * in addition to gradients and optimizer state, but then needs no memory for steps (lc__graph_drop_arena). */
lc_status lc__memory_limit_apply(const char *text, lc_graph *g, lc_module *module, const lc_optimizers *optimizers,
                                 struct lc__devices *devices, bool gathers)
{
    int64_t limit, whole;
    lc_device_memory m;
    LC_TRY(lc__memory_limit_parse(text, &limit));
    if (!limit) return LC_OK;
    LC_TRY(count(g, module, optimizers, devices, &m, &whole));
    const bool sliced = whole > 0;
    if (!gathers) whole = 0;
    int64_t held = m.parameters + m.buffers + m.gradients + m.optimizer_state;
    g->memory_limit = limit;
    g->options.max_bytes = limit - held;
    if (devices) lc__devices_limit(devices, limit - held);
    if (limit > held && limit >= held + whole) return LC_OK;
    char figures[160], more[80] = "";
    bool small = held + whole < 100 << 10 || limit < 100 << 10;
    const double unit = small ? 1024 : 1 << 20;
    const char *name = small ? "KiB" : "MiB";
    lc__snprintf(figures, sizeof figures, "parameters and buffers %.2f, gradients %.2f, optimizer state %.2f",
                 (double)(m.parameters + m.buffers) / unit, (double)m.gradients / unit,
                 (double)m.optimizer_state / unit);
    if (whole) lc__snprintf(more, sizeof more, ", and whole parameters, when the run ends, %.2f", (double)whole / unit);
    return lc_fail(LC_ERR_MEMORY, "a rank needs %.2f %s (%s%s)%s; memory_limit is %.2f %s. %s",
                   (double)(held + whole) / unit, name, figures, more, whole ? "" : " and memory for its steps",
                   (double)limit / unit, name, advice(sliced, limit > held, devices));
}
