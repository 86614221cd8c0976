/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and steps of several devices (devices.h). */
#include "parallel/devices/devices_impl.h"
#include "engine/run/run.h"
#include "base/grow.h"
#include "engine/plan/plan.h"
#include "module/tensors.h"
#include "optim/state_buffers.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

#define WORTH_THREADS (1 << 20) /* from this many bytes on, the devices copy, not the program's thread */

/* ---- devices ---- */

/* On an accelerator, device i is the i-th from the host graph's on. */
static lc_status make_graph(lc__devices *d, int i)
{
    char name[LC__DEVICE_NAME];
    lc_device on = *d->host->on;
    lc_graph_args o = d->host->options;
    int all = d->host->threads, share = all / d->n + (i < all % d->n);
    if (!lc__on_host(&on)) on.index += i;
    o.device = lc__device_name(&on, name);
    o.threads = share > 1 ? share : 1;
    LC_TRY(lc_graph_new_with(&d->graphs[i], &o));
    d->graphs[i]->devices = d;
    d->graphs[i]->device = i;
    d->graphs[i]->loss_weight = &d->weights[i];
    d->weights[i] = 1;
    return LC_OK;
}

lc_status lc__devices_new(lc_graph *host, int n, bool copies, lc__devices **out)
{
    lc_status status = LC_OK;
    *out = NULL;
    if (host->options.tune)
        return lc_fail(LC_ERR_UNSUPPORTED, "tune: kernels are timed one at a time, but %d devices run at once; drop it",
                       n);
    lc__devices *d = calloc(1, sizeof *d);
    if (!d) return lc_fail(LC_ERR_MEMORY, "out of memory: %d devices", n);
    d->host = host;
    d->n = n;
    d->copies = copies;
    d->graphs = calloc((size_t)n, sizeof(lc_graph *));
    d->weights = calloc((size_t)n, sizeof *d->weights);
    d->trees = calloc((size_t)n, sizeof(lc__tree *));
    d->plans = calloc((size_t)n, sizeof(lc_plan *));
    d->sources = calloc((size_t)n * (size_t)(n + 1), sizeof(void *));
    if (!d->graphs || !d->weights || !d->trees || !d->plans || !d->sources) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: %d devices", n);
        goto done;
    }
    for (int i = 0; i < n; i++) LC_TRY_GOTO(status, done, make_graph(d, i));
    LC_TRY_GOTO(status, done, lc__team_new(n, &d->team));
    host->parts = d;
    host->parts_ops = &lc__devices_parts;
    *out = d;
    d = NULL;
done:
    lc__devices_free(d);
    return status;
}

/* ---- handles ---- */

static void drop_trees(lc__devices *d)
{
    for (int i = 0; d->trees && i < d->n; i++) {
        lc__tree_free(d->trees[i]);
        d->trees[i] = NULL;
    }
}

static void drop_handles(lc__devices *d)
{
    for (int k = 0; k < d->n_entries; k++) {
        lc__device_entry *e = &d->entries[k];
        if (e->original->replicas == e->replicas) e->original->replicas = NULL;
        for (int i = 0; e->replicas && i < d->n; i++) lc_tensor_unref(e->replicas[i]);
        free(e->replicas);
        lc_tensor_unref(e->original);
    }
    for (int k = 0; k < d->n_flats; k++) {
        lc__shared_flat *f = &d->flats[k];
        for (int i = 0; f->copies && i <= d->n; i++) lc__staging_free(&f->copies[i], d->graphs[i < d->n ? i : 0]->on);
        for (int i = 0; f->of && i < d->n; i++) lc__flat_unref(f->of[i]);
        free(f->copies);
        free(f->of);
        lc__flat_unref(f->host);
    }
    lc__staging_free(&d->sent, d->host->on);
    d->n_entries = d->n_flats = 0;
    d->copied_bytes = d->sent_bytes = 0;
    drop_trees(d);
}

void lc__devices_free(lc__devices *d)
{
    if (!d) return;
    lc__devices_leave(d);
    if (d->host->parts == d) d->host->parts = NULL;
    lc__team_free(d->team);
    drop_handles(d);
    for (int i = 0; d->graphs && i < d->n; i++) lc_graph_free(d->graphs[i]);
    free(d->graphs);
    free(d->weights);
    free(d->trees);
    free(d->plans);
    free(d->sources);
    free(d->optimizers);
    free(d->entries);
    free(d->flats);
    free(d);
}

static lc_status add_entry(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    lc__devices *d = ctx;
    (void)path, (void)owner;
    LC_TRY(lc__grow(&d->entries, &d->cap_entries, d->n_entries, 1, "the tensors of several devices"));
    d->entries[d->n_entries++] =
        (lc__device_entry){.original = lc_tensor_ref(t->tensor), .is_buffer = !t->is_parameter};
    return LC_OK;
}

/* The gradients of a parameter's flat buffer, on every device. */
static lc_status flat_of(lc__devices *d, lc_flat *host, lc__shared_flat **out)
{
    for (int k = 0; k < d->n_flats; k++)
        if (d->flats[k].host == host) {
            *out = &d->flats[k];
            return LC_OK;
        }
    LC_TRY(lc__grow_one(&d->flats, d->n_flats, "the gradients of several devices"));
    lc_flat **of = calloc((size_t)d->n, sizeof *of);
    lc__staging *copies = calloc((size_t)d->n + 1, sizeof *copies);
    *out = &d->flats[d->n_flats++];
    **out = (lc__shared_flat){.host = host, .of = of, .copies = copies};
    __atomic_fetch_add(&host->refs, 1, __ATOMIC_RELAXED);
    LC_TRY(lc__graph_add_flat(d->host, host));
    if (!of || !copies) return lc_fail(LC_ERR_MEMORY, "out of memory: the gradients of %d devices", d->n);
    for (int i = d->copies ? 0 : 1; i < d->n; i++) {
        LC_TRY(lc__flat_replica(host, d->graphs[i]->on, &of[i]));
        LC_TRY(lc__staging_reserve(&copies[i], d->graphs[i]->on, host->gradient->bytes));
    }
    LC_TRY(lc__staging_reserve(&copies[d->n], d->host->on, host->gradient->bytes));
    return LC_OK;
}

/* Device i's handle of a tensor. */
static lc_status make_handle(lc__devices *d, const lc__device_entry *e, const lc__shared_flat *flat, int i,
                             lc_tensor **out)
{
    lc_tensor *of = e->original, *t;
    if (lc__is_copy(d, e, i))
        LC_TRY(lc__tensor_new_on(d->graphs[i]->on, of->type.dtype, of->type.ndim, of->type.shape, of->layout, out));
    else
        LC_TRY(lc__tensor_range(of, 0, &of->type, of->layout, out));
    t = *out;
    LC_TRY(lc__tensor_seen_as(t, of));
    lc_tensor_set_requires_grad(t, of->requires_grad);
    if (!flat || !flat->of[i]) return LC_OK;
    t->flat = flat->of[i];
    t->flat_index = of->flat_index;
    t->flat->parameters[of->flat_index] = t;
    t->flat->trained[of->flat_index] = t->requires_grad;
    __atomic_fetch_add(&t->flat->refs, 1, __ATOMIC_RELAXED);
    return LC_OK;
}

static lc_status make_trees(lc__devices *d)
{
    drop_trees(d);
    for (int i = 0; d->tree && i < d->n; i++) {
        LC_TRY(lc__tree_of_device(d->graphs[i], d->tree, &d->trees[i]));
        for (int k = 0; k < d->n_flats; k++) LC_TRY(lc__tree_add_flat(d->trees[i], lc__flat_on(&d->flats[k], i)));
    }
    return LC_OK;
}

static lc_status make_handles(lc__devices *d)
{
    drop_handles(d);
    LC_TRY(lc_module_visit(d->module, add_entry, d));
    for (int i = 0; i < d->n_others; i++) {
        lc_module_tensor other = {.tensor = d->others[i], .is_parameter = true};
        LC_TRY(add_entry(d, NULL, NULL, &other));
    }
    for (int k = 0; k < d->n_entries; k++) {
        lc__device_entry *e = &d->entries[k];
        lc_tensor *t = e->original;
        lc__shared_flat *flat = NULL;
        if (d->n_optimizers > 0 && t->requires_grad) LC_TRY(lc__flat_of(t, &e->flat));
        e->flat = t->flat;
        e->device_data = t->device_data;
        if (d->n_optimizers > 0 && t->flat) LC_TRY(flat_of(d, t->flat, &flat));
        e->replicas = calloc((size_t)d->n, sizeof(lc_tensor *));
        if (!e->replicas) return lc_fail(LC_ERR_MEMORY, "out of memory: the tensors of %d devices", d->n);
        for (int i = d->copies ? 0 : 1; i < d->n; i++) LC_TRY(make_handle(d, e, flat, i, &e->replicas[i]));
        t->replicas = e->replicas;
        t->read_only = !e->is_buffer;
        if (lc__is_copy(d, e, d->n - 1)) d->copied_bytes += t->bytes;
        e->at = d->sent_bytes;
        d->sent_bytes += lc__is_sent(d, e, d->n - 1) ? (t->bytes + 255) & ~(size_t)255 : 0;
    }
    if (d->sent_bytes) LC_TRY(lc__staging_reserve(&d->sent, d->host->on, d->sent_bytes));
    return make_trees(d);
}

/* Whether a tensor has moved since its handles were made, or has become trained. */
static bool is_stale(const lc__devices *d, const lc__device_entry *e)
{
    const lc_tensor *t = e->original;
    return t->replicas != e->replicas || t->device_data != e->device_data || t->flat != e->flat ||
           (d->n_optimizers > 0 && t->requires_grad && !t->flat);
}

static lc_status ensure_handles(lc__devices *d)
{
    for (int k = 0; k < d->n_entries; k++)
        if (is_stale(d, &d->entries[k])) return make_handles(d);
    return LC_OK;
}

typedef struct comparison {
    const lc__devices *d;
    int k;
} comparison;

static lc_status compare(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    comparison *c = ctx;
    (void)path, (void)owner;
    return c->k < c->d->n_entries && c->d->entries[c->k++].original == t->tensor ? LC_OK : LC_STOP;
}

static bool same_others(const lc__devices *d, lc_tensor *const *others, int n)
{
    if (n != d->n_others) return false;
    for (int i = 0; i < n; i++)
        if (others[i] != d->others[i]) return false;
    return true;
}

lc_status lc__devices_set_module(lc__devices *d, lc_module *m, lc_tensor *const *others, int n)
{
    comparison c = {.d = d};
    bool as_before = same_others(d, others, n);
    if (n > LC__DEVICES_OTHERS) return lc_fail(LC_ERR_INTERNAL, "too many tensors for several devices");
    LC_TRY(lc__module_fill(m));
    lc__devices_leave(d);
    d->parts = 0;
    if (d->module != m) d->n_optimizers = 0;
    d->module = m;
    for (int i = 0; i < n; i++) d->others[i] = others[i];
    d->n_others = n;
    lc_status same = lc_module_visit(m, compare, &c);
    return same == LC_OK && as_before && c.k + n == d->n_entries ? ensure_handles(d) : make_handles(d);
}

lc_status lc__devices_set_optimizers(lc__devices *d, lc_optimizer *const *optimizers, int n)
{
    bool first = d->n_optimizers == 0;
    lc_optimizer **list = realloc(d->optimizers, ((size_t)n + 1) * sizeof *list);
    if (!list) return lc_fail(LC_ERR_MEMORY, "out of memory: the optimizers of %d devices", d->n);
    d->optimizers = list;
    d->n_optimizers = n;
    for (int i = 0; i < n; i++) {
        list[i] = optimizers[i];
        LC_TRY(lc__optimizer_prepare(optimizers[i]));
    }
    return first ? make_handles(d) : ensure_handles(d);
}

lc_status lc__devices_set_tree(lc__devices *d, const lc__tree *tree)
{
    d->tree = tree;
    return make_trees(d);
}

/* ---- a step ---- */

/* From a device whose memory the host cannot reach to the host, where the others get it. A copy that fails is reported
 * by the device's next call. */
static void fetch(lc__devices *d)
{
    /* The others may still copy the values before: a step that failed has waited for nothing. */
    for (int i = 1; i < d->n; i++) (void)!lc__device_wait(d->graphs[i]->on);
    for (int k = 0; k < d->n_entries; k++) {
        const lc__device_entry *e = &d->entries[k];
        if (!lc__is_sent(d, e, d->n - 1)) continue;
        (void)!lc__staging_read(&d->sent, d->host->on, e->at, e->original->device_data, e->original->bytes);
    }
    (void)!lc__staging_wait(&d->sent, d->host->on);
}

static void refresh(void *ctx, int i)
{
    lc__devices *d = ctx;
    for (int k = 0; k < d->n_entries; k++) {
        const lc__device_entry *e = &d->entries[k];
        lc_tensor *to = e->replicas[i];
        if (!to || !lc__is_copy(d, e, i)) continue;
        if (lc__is_sent(d, e, i))
            (void)!lc__staging_write(&d->sent, to->on, e->at, to->device_data, to->bytes);
        else
            lc__copy_value(to, e->original);
    }
}

static void update_handles(lc__devices *d)
{
    for (int k = 0; k < d->n_entries; k++)
        for (int i = 0; i < d->n; i++)
            if (d->entries[k].replicas[i])
                lc_tensor_set_requires_grad(d->entries[k].replicas[i], d->entries[k].original->requires_grad);
    for (int k = 0; k < d->n_flats; k++)
        for (int i = 0; i < d->n; i++)
            if (d->flats[k].of[i]) memset(d->flats[k].of[i]->has_gradient, 0, (size_t)d->flats[k].host->n);
    if (d->sent_bytes && d->parts > 1) fetch(d);
    if (d->copied_bytes >= WORTH_THREADS)
        lc__team_run(d->team, d->parts, refresh, d);
    else
        for (int i = 0; i < d->parts; i++) refresh(d, i);
}

lc_status lc__devices_begin(lc__devices *d, int parts, bool of_chunks)
{
    lc__devices_leave(d);
    LC_TRY(lc__graph_flush(d->host));
    LC_TRY(ensure_handles(d));
    d->parts = parts;
    update_handles(d);
    lc_status s = LC_OK;
    lc__current = NULL;
    for (int i = 0; i < parts && s >= 0; i++) {
        lc_graph *g = d->graphs[i];
        if (g->recording) (void)!lc_step_end(g); /* after a step that failed */
        s = lc_step_begin(g, d->host->rng.step, of_chunks ? d->host->rng.micro_batch : (uint64_t)i);
        g->evaluates = d->host->no_grad;
        lc__graph_modes(g);
        g->backwards = 0;
        lc__current = NULL;
    }
    lc__current = d->host;
    /* Device 0 runs on this thread, so an observer of the host's graph can observe it, too. */
    d->graphs[0]->observe = d->host->observe;
    d->graphs[0]->observe_ctx = d->host->observe_ctx;
    return s;
}

lc_graph *lc__devices_enter(lc__devices *d, int i, double weight)
{
    d->weights[i] = weight;
    lc__graph_enter(d->graphs[i]);
    return d->graphs[i];
}

void lc__devices_leave(lc__devices *d)
{
    if (lc__current && lc__current->devices == d) lc__graph_enter(d->host);
}

static void execute(void *ctx, int i)
{
    lc__devices *d = ctx;
    lc_graph *g = d->graphs[i];
    if (d->plans[i] && lc__graph_execute(g, d->plans[i]) < 0) return; /* the graph keeps the error */
    if (d->reduces) lc__devices_read_gradients(d, i);
    if (d->plans[i] || d->reduces) (void)!lc__step_failed(g, lc__device_arrived(g));
}

/* Adds the devices' work to the statistics of the host's graph. */
static void add_stats(lc__devices *d, const lc_graph *g, const lc_plan *p, int64_t hits, int64_t misses)
{
    d->host->stats.flops += p ? p->flops : 0;
    d->host->stats.hits += g->stats.hits - hits;
    d->host->stats.misses += g->stats.misses - misses;
    if (g->stats.planned_bytes > d->host->stats.planned_bytes) {
        d->host->stats.planned_bytes = g->stats.planned_bytes;
        d->host->stats.lower_bound = g->stats.lower_bound;
    }
}

static int64_t step_bytes(const lc_graph *g)
{
    return (int64_t)g->arena_committed + lc__peers_bytes(g);
}

/* A graph may use what the others have not taken. */
static void limit_graph(const lc__devices *d, lc_graph *g)
{
    int64_t left = d->max_bytes - step_bytes(d->host) + step_bytes(g);
    if (!d->max_bytes) return;
    for (int i = 0; i < d->n; i++) left -= step_bytes(d->graphs[i]);
    g->options.max_bytes = left > 0 ? left : 1; /* 0 would mean no bound */
    g->memory_limit = d->host->memory_limit;
}

void lc__devices_limit(lc__devices *d, int64_t bytes)
{
    d->max_bytes = bytes;
    limit_graph(d, d->host);
}

/* last: the step ends with this. */
static lc_status run_recorded(lc__devices *d, lc__keeps keeps, bool last, int64_t *backwards)
{
    lc_status s = LC_OK;
    *backwards = 0;
    lc__devices_leave(d);
    LC_TRY(lc__graph_flush(d->host)); /* the state of the host's gradients: zeroed, or added to */
    for (int i = 0; i < d->parts && s >= 0; i++) {
        lc_graph *g = lc__devices_enter(d, i, d->weights[i]);
        int64_t hits = g->stats.hits, misses = g->stats.misses;
        limit_graph(d, g);
        if (last) s = lc__graph_regions_closed(g);
        if (s >= 0) s = lc__graph_plan(g, keeps, &d->plans[i]);
        add_stats(d, g, d->plans[i], hits, misses);
        if (g->backwards > *backwards) *backwards = g->backwards;
    }
    lc__devices_leave(d);
    limit_graph(d, d->host);
    d->reduces = last && (*backwards || d->tree) && d->parts > (d->copies ? 0 : 1);
    if (s >= 0) lc__team_run(d->team, d->parts, execute, d);
    for (int i = 0; i < d->parts && s >= 0; i++) {
        s = lc_step_status(d->graphs[i]);
        if (s < 0 && d->parts > 1) s = lc_fail_context(s, "device %d", i);
        if (keeps == LC__KEEPS_ALL) lc__graph_ran(d->graphs[i]);
    }
    return s;
}

lc_status lc__devices_flush(lc__devices *d)
{
    int64_t backwards;
    return run_recorded(d, LC__KEEPS_ALL, false, &backwards);
}

lc_status lc__devices_run(lc__devices *d)
{
    int64_t backwards;
    int parts = d->parts;
    lc_status s = run_recorded(d, d->tree ? d->host->sync_keeps : LC__KEEPS_NAMED, true, &backwards);
    for (int i = 0; i < parts; i++) d->graphs[i]->recording = false;
    if (s >= 0 && d->reduces) lc__devices_reduce(d);
    for (int k = 0; k < d->n_entries && s >= 0 && d->copies && parts; k++) {
        const lc__device_entry *e = &d->entries[k];
        if (e->is_buffer) lc__copy_value(e->original, e->replicas[0]);
    }
    d->host->backwards += backwards;
    d->parts = 0;
    return s;
}

/* ---- memory ---- */

static void add_host(const lc__devices *d, lc_device_memory *m)
{
    for (int k = 0; k < d->n_entries; k++)
        *(d->entries[k].is_buffer ? &m->buffers : &m->parameters) += (int64_t)d->entries[k].original->bytes;
    for (int k = 0; k < d->n_flats; k++) m->gradients += (int64_t)d->flats[k].host->gradient->bytes;
    if (d->tree) m->gradients += lc__tree_bytes(d->tree);
    for (int i = 0; i < d->n_optimizers; i++) m->optimizer_state += lc__optimizer_bytes(d->optimizers[i]);
    m->activations += (int64_t)d->host->arena_committed;
    m->workspace += (int64_t)d->host->scratch_bytes;
}

static void add_device(const lc__devices *d, int i, lc_device_memory *m)
{
    for (int k = 0; k < d->n_entries; k++) {
        const lc_tensor *r = d->entries[k].replicas[i];
        if (r && !r->base) *(d->entries[k].is_buffer ? &m->buffers : &m->parameters) += (int64_t)r->bytes;
    }
    for (int k = 0; k < d->n_flats; k++)
        if (d->flats[k].of[i]) m->gradients += (int64_t)d->flats[k].of[i]->gradient->bytes;
    if (d->trees[i]) m->gradients += lc__tree_bytes(d->trees[i]);
    m->activations += (int64_t)d->graphs[i]->arena_committed;
    m->workspace += (int64_t)d->graphs[i]->scratch_bytes;
}

void lc__devices_memory(const lc__devices *d, int i, lc_device_memory *m)
{
    *m = (lc_device_memory){0};
    if (i == (d->copies ? -1 : 0)) add_host(d, m);
    if (i >= 0 && i < d->n) add_device(d, i, m);
}

void lc__devices_add_memory(const lc__devices *d, lc_device_memory *m)
{
    for (int i = 0; i < d->n; i++) add_device(d, i, m);
}
