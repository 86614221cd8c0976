/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a graph and of its steps. */
#include "base/args.h"
#include "engine/run/run.h"
#include "builtin.h"
#include "base/float_traps.h"
#include "base/grow.h"
#include "base/handle.h"
#include "engine/plan/tune.h"
#include "engine/plan/plan.h"

#include <lightc/random.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int default_threads(const lc_device *on)
{
    int n = on->ops->max_threads ? on->ops->max_threads() : 1;
    return n > 0 ? n : 1;
}

/* Reads an environment variable that has two values, the first of which is the default. */
static lc_status read_switch(const char *name, const char *no, const char *yes, bool *on)
{
    const char *value = getenv(name);
    *on = value && strcmp(value, yes) == 0;
    if (*on || !value || !*value || strcmp(value, no) == 0) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "%s=%s in the environment is invalid; it must be \"%s\" or \"%s\"", name, value, no,
                   yes);
}

/* Pools are never NULL: a node without operands still points at their start, and NULL plus 0 is undefined in C. */
static lc_status make_pools(lc_graph *g)
{
    lc_tape *tapes[] = {&g->tape, &g->ir};
    for (int i = 0; i < 2; i++) {
        lc_tape *t = tapes[i];
        uint32_t none = 0;
        LC_TRY(lc__grow(&t->in, &t->cap_in, 0, 1, "the record of a step"));
        LC_TRY(lc__grow(&t->ints, &t->cap_ints, 0, 1, "the record of a step"));
        LC_TRY(lc__grow(&t->sources, &none, 0, 1, "the record of a step"));
        LC_TRY(lc__grow(&t->floats, &t->cap_floats, 0, 1, "the record of a step"));
    }
    return lc__grow(&g->externals, &g->cap_externals, 0, 1, "the record of a step");
}

static void free_pools(lc_graph *g)
{
    lc_tape *tapes[] = {&g->tape, &g->ir};
    for (int i = 0; i < 2; i++) {
        free(tapes[i]->nodes);
        free(tapes[i]->sites);
        free(tapes[i]->in);
        free(tapes[i]->ints);
        free(tapes[i]->floats);
        free(tapes[i]->sources);
    }
    free(g->externals);
}

static lc_status check_storage(const lc_graph_args *a)
{
    bool low = a->autocast == LC_BF16 || a->autocast == LC_F16;
    bool all = a->storage == LC_BF16 || a->storage == LC_F16 || a->storage == LC_F64;
    if (a->autocast && !low)
        return lc_fail(LC_ERR_ARGUMENT, "a graph's autocast must be LC_BF16, LC_F16 or 0 (none), not %s",
                       lc_dtype_name(a->autocast));
    if (a->storage && a->storage != LC_F32 && !all)
        return lc_fail(LC_ERR_ARGUMENT, "a graph's storage must be LC_BF16, LC_F16, LC_F64 or 0 (f32), not %s",
                       lc_dtype_name(a->storage));
    if (low && all) return lc_fail(LC_ERR_ARGUMENT, "a graph has either autocast or storage, not both");
    return LC_OK;
}

lc_status lc_graph_new_with(lc_graph **out, const lc_graph_args *args)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    LC__TAKE_IF_GIVEN(options, lc_graph, lc_graph_args, args);
    if (options.threads < 0 || options.max_plans < 1 || options.max_bytes < 0)
        return lc_fail(LC_ERR_ARGUMENT,
                       "a graph's threads are %d, max_plans %d and max_bytes %lld; max_plans must be at least 1, and "
                       "none negative",
                       options.threads, options.max_plans, (long long)options.max_bytes);
    LC_TRY(check_storage(&options));
    if ((unsigned)options.matmul_precision > LC_MATMUL_MEDIUM)
        return lc_fail(LC_ERR_ARGUMENT, "a graph has no matmul_precision %d", (int)options.matmul_precision);
    const lc_device *on;
    LC_TRY(lc__device_choose(options.device, &on));
    options.device = NULL; /* `on` says it, whatever becomes of the text */
    lc_graph *g = calloc(1, sizeof *g);
    if (!g) return lc_fail(LC_ERR_MEMORY, "out of memory for a graph");
    g->recorder = (lc__recorder){LC__MARK_OF(GRAPH), &lc__graph_host};
    if (options.storage == LC_F32) options.storage = 0;
    g->options = options;
    g->low = options.storage ? options.storage : options.autocast ? options.autocast : LC_BF16;
    g->on = on;
    g->passes = lc__builtin->passes;
    g->threads = g->options.threads > 0 ? g->options.threads : default_threads(on);
    g->rng.seed = g->options.seed;
    /* Tensors remember graph and generation. A new graph may have the address of a freed one, so its generations must
     * not start at the same number. */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    g->generation = (uint32_t)lc_random_key((uint64_t)now.tv_nsec, (uint64_t)now.tv_sec);
    g->next_uid = 1;
    g->dump_path = getenv("LIGHTC_PLAN_DUMP");
    g->profile = g->dump_path != NULL;
    lc_status status = read_switch("LIGHTC_PLAN", "on", "off", &g->plan_off);
    if (status >= 0) status = read_switch("LIGHTC_NAN_CHECK", "0", "1", &g->nan_check);
    if (status >= 0) status = read_switch("LIGHTC_KERNELS", "fast", "reference", &g->reference_only);
    if (status >= 0) status = read_switch("LIGHTC_HOST_FALLBACK", "0", "1", &g->host_fallback);
    g->nan_check |= g->options.nan_check;
    if (status >= 0) status = on->ops->kernel_set(on->context, &g->kernel_set);
    if (status >= 0 && on->ops->lowers_products && on->ops->lowers_products(g->kernel_set))
        g->products = options.matmul_precision;
    if (status >= 0) status = lc__tuning_new(g->options.tune, on->ops, g->kernel_set, g->threads, &g->tuning);
    if (status >= 0) status = lc__dump_check(g);
    if (status >= 0) status = make_pools(g);
    if (status >= 0) status = on->ops->arena_reserve(on->context, &g->arena, &g->arena_reserved);
    if (status >= 0) {
        status = on->ops->arena_reserve(on->context, &g->scratch, &g->scratch_reserved);
        if (status < 0) on->ops->arena_release(on->context, g->arena, g->arena_reserved);
    }
    if (status < 0) {
        free_pools(g);
        lc__tuning_free(g->tuning);
        free(g);
        return status;
    }
    *out = g;
    return LC_OK;
}

void lc_graph_free(lc_graph *g)
{
    if (!g) return;
    LC__IS_OR_NULL(g, GRAPH, );
    if (g->dump_path) lc__dump_plans(g);
    if (lc__current == g) lc__current = NULL;
    lc__graph_free_kept(g);
    for (int i = 0; i < g->n_plans; i++) lc__plan_free(g->plans[i]);
    for (int i = 0; i < g->n_flats; i++) lc__flat_unref(g->flats[i]);
    for (int a = 0; a < LC_ARENAS; a++) {
        for (uint32_t i = 0; i < g->arenas[a].n_slabs; i++) free(g->arenas[a].slabs[i]);
        free(g->arenas[a].slabs);
    }
    free_pools(g);
    g->on->ops->arena_release(g->on->context, g->arena, g->arena_reserved);
    lc__tuning_free(g->tuning);
    lc__peers_free(g);
    g->on->ops->arena_release(g->on->context, g->scratch, g->scratch_reserved);
    free(g->values);
    free(g->random_sites);
    free(g->plans);
    free(g->chain);
    free(g->starts);
    free(g->flats);
    lc__mark_clear(&g->recorder.mark);
    free(g);
}

void lc__graph_observe(lc_graph *g, lc_span_fn *fn, void *ctx)
{
    g->observe = fn;
    g->observe_ctx = ctx;
}

int lc_graph_threads(const lc_graph *g)
{
    LC__IS(g, GRAPH, 0);
    return g->threads;
}
void lc_graph_get_stats(const lc_graph *g, lc_graph_stats *out)
{
    LC__IS(g, GRAPH, );
    LC__NEEDS(out, );
    *out = g->stats;
}

static void start_segment(lc_graph *g)
{
    g->node_0 = g->tape.n_nodes;
    g->in_0 = g->tape.n_in;
    g->int_0 = g->tape.n_ints;
    g->float_0 = g->tape.n_floats;
    g->ext_0 = g->n_externals;
    g->value_0 = g->n_values;
    /* Expect what followed the same segment last time. */
    uint64_t previous = g->last ? g->last->uid : 0;
    g->expect = NULL;
    for (int i = 0; i < g->n_plans; i++)
        if (g->plans[i]->previous == previous && (!g->expect || g->plans[i]->last_used > g->expect->last_used))
            g->expect = g->plans[i];
    /* A plan is followed only if all its records fit, so that following it needs no checks; otherwise recording is
     * slower. */
    const lc_plan *p = g->expect;
    lc_tape *t = &g->tape;
    if (p &&
        (p->node_0 + p->n_nodes > t->cap_nodes || p->in_0 + p->n_in > t->cap_in || p->int_0 + p->n_ints > t->cap_ints ||
         p->float_0 + p->n_floats > t->cap_floats || p->value_0 + p->n_values > g->cap_values))
        g->expect = NULL;
}

lc_status lc_step_begin(lc_graph *g, uint64_t step, uint64_t micro_batch)
{
    LC__IS(g, GRAPH, LC_ERR_ARGUMENT);
    if (g->recording) return lc_fail(LC_ERR_STATE, "lc_step_begin: the previous step was not ended with lc_step_end");
    if (lc__current && lc__current != g && lc__current->recording)
        return lc_fail(LC_ERR_STATE, "lc_step_begin: this thread is recording into another graph");
    if (g->arena_dropped)
        LC_TRY(g->on->ops->arena_commit(g->on->context, g->arena, g->arena_reserved, g->arena_committed));
    g->arena_dropped = false;
    lc__graph_free_kept(g);
    lc__current = g;
    g->recording = true;
    g->generation++;
    g->arenas[g->generation % LC_ARENAS].used = 0;
    g->rng.step = step;
    g->rng.micro_batch = micro_batch;
    g->status = LC_OK;
    memset(g->open, 0, sizeof g->open);
    g->any_open = 0;
    g->evaluates = false;
    g->autocast = g->options.autocast || g->options.storage;
    lc__graph_modes(g);
    g->sync_keeps = LC__KEEPS_NAMED;
    g->region = g->n_regions = 0;
    g->tape.n_nodes = g->tape.n_in = g->tape.n_ints = g->tape.n_floats = 0;
    g->n_values = g->n_externals = g->n_random_sites = 0;
    lc__graph_chunk(g, -1);
    g->n_chain = 0;
    g->last = NULL;
    start_segment(g);
    return LC_OK;
}

lc_status lc__graph_plan(lc_graph *g, lc__keeps keeps, lc_plan **plan)
{
    *plan = NULL;
    if (g->status != LC_OK) return lc_step_status(g);
    g->stats.recorded = g->tape.n_nodes;
    return g->tape.n_nodes == g->node_0 ? LC_OK : lc__graph_prepare(g, keeps, plan);
}

void lc__graph_ran(lc_graph *g)
{
    start_segment(g);
}

lc_status lc__graph_execute(lc_graph *g, lc_plan *plan)
{
    return lc__step_failed(g, lc__execute(g, plan));
}

static lc_status run_segment(lc_graph *g, lc__keeps keeps)
{
    LC__WITHOUT_TRAPS();
    lc_plan *p;
    LC_TRY(lc__graph_prepare(g, keeps, &p));
    return lc__graph_execute(g, p);
}

lc_status lc_step_run(lc_graph *g)
{
    LC__IS(g, GRAPH, LC_ERR_ARGUMENT);
    if (g->recording) LC_TRY(lc__graph_regions_closed(g));
    return lc__graph_run_step(g, LC__KEEPS_NAMED);
}

lc_status lc__graph_run_step(lc_graph *g, lc__keeps keeps)
{
    LC__WITHOUT_TRAPS();
    lc_plan *plan;
    if (!g->recording) return lc_fail(LC_ERR_STATE, "lc_step_run: no step is being recorded");
    LC_TRY(lc__graph_plan(g, keeps, &plan));
    if (plan) LC_TRY(lc__graph_execute(g, plan));
    if (plan) start_segment(g);
    return lc__peers_settle(g);
}

void lc__graph_drop_arena(lc_graph *g)
{
    if (g->recording) return;
    g->generation++;
    g->on->ops->arena_drop(g->on->context, g->arena, g->arena_committed);
    g->arena_dropped = true;
}

lc_status lc_step_end(lc_graph *g)
{
    LC__IS(g, GRAPH, LC_ERR_ARGUMENT);
    if (!g->recording) return lc_fail(LC_ERR_STATE, "lc_step_end: no step is being recorded");
    g->recording = false;
    return lc__graph_regions_closed(g);
}

lc_status lc__graph_flush(lc_graph *g)
{
    if (!g->recording || g->tape.n_nodes == g->node_0) return LC_OK;
    if (g->status != LC_OK) return lc_step_status(g);
    LC_TRY(run_segment(g, LC__KEEPS_ALL));
    start_segment(g);
    return LC_OK;
}
