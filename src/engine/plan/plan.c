/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: their cache, and how one is made.
 *
 * A segment is looked up by comparing its records in full; a hash only orders the candidates. On a miss the passes run
 * one after the other (`passes`, below). Everything a replay needs is allocated here, once. */
#include "engine/plan/plan.h"
#include "engine/plan/plan_impl.h"
#include "base/clock.h"
#include "base/grow.h"
#include "engine/plan/passes.h"

#include <lightc/random.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (256 * 1024)

/* ---- memory of a build ---- */

void *lc__build_alloc(lc_build *b, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (!b->n_blocks || b->block_used + bytes > b->block_size) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        void *block = calloc(1, size);
        if (!block || lc__grow(&b->blocks, &b->cap_blocks, b->n_blocks, 1, "the plan of a step") < 0) {
            free(block);
            lc_fail(LC_ERR_MEMORY, "out of memory while planning the step");
            return NULL;
        }
        b->blocks[b->n_blocks++] = block;
        b->block_used = 0;
        b->block_size = size;
    }
    void *p = (char *)b->blocks[b->n_blocks - 1] + b->block_used;
    b->block_used += bytes;
    return p;
}

uint32_t lc__build_value(lc_build *b, const lc_type *type)
{
    const lc_ir_value made = {.type = *type, .storage = -1, .exact = LC_ABSENT}; /* type may be another value's */
    if (lc__grow(&b->values, &b->cap_values, b->n_values, 1, "the plan of a step") < 0) return LC_ABSENT;
    b->values[b->n_values] = made;
    return b->n_values++;
}

static void build_free(lc_build *b)
{
    for (int i = 0; i < b->n_blocks; i++) free(b->blocks[i]);
    free(b->blocks);
    free(b->values);
    free(b->storages);
    free(b->calls);
}

/* The device may still run the plan. */
static void block_free(lc_plan *p)
{
    lc_block *k = &p->block;
    const lc_backend_ops *ops = p->on->ops;
    for (int i = 0; i < k->n_stretches; i++)
        if (k->stretches[i].program) ops->program_free(p->on->context, k->stretches[i].program);
    free(k->stretches);
    if (k->device) ops->free(p->on->context, k->device, k->bytes);
    if (k->ahead) ops->free(p->on->context, k->ahead, k->bytes);
    if (k->slots) ops->host_free(p->on->context, k->slots, LC_SLOTS * k->bytes);
    free(k->uploads);
}

void lc__plan_free(lc_plan *p)
{
    if (!p) return;
    if (!lc__on_host(p->on)) (void)!p->on->ops->wait(p->on->context, UINT64_MAX);
    block_free(p);
    for (int i = 0; i < p->n_calls; i++)
        if (p->calls[i].call.kernel && p->calls[i].call.kernel->release)
            p->calls[i].call.kernel->release(&p->calls[i].call);
    for (int i = 0; i < p->n_flats; i++) free(p->flats[i].before);
    free(p->flats);
    free(p->writes);
    free(p->written);
    for (int i = 0; i < p->n_copied; i++) lc__flat_unref(p->copied[i]);
    free(p->copied);
    free(p->nodes);
    free(p->node_sites);
    free(p->in);
    free(p->ints);
    free(p->externals);
    free(p->types);
    free(p->requires_grad);
    free(p->locations);
    free(p->calls);
    free(p->views);
    free(p->floats);
    free(p->call_ints);
    free(p->live);
    free(p->linked);
    free(p->patches);
    free(p->sites);
    free(p);
}

/* ---- the key ---- */

static uint64_t hash_words(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    uint64_t w = 0;
    if (bytes) memcpy(&w, p, bytes);
    h = (h ^ w) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

static uint64_t segment_hash(const lc_graph *g, lc__keeps keeps)
{
    uint64_t h = (g->last ? g->last->uid : 0) * 4 + (uint64_t)keeps;
    h = hash_words(h, g->tape.nodes + g->node_0, (g->tape.n_nodes - g->node_0) * sizeof *g->tape.nodes);
    h = hash_words(h, g->tape.in + g->in_0, (g->tape.n_in - g->in_0) * sizeof *g->tape.in);
    h = hash_words(h, g->tape.ints + g->int_0, (g->tape.n_ints - g->int_0) * sizeof *g->tape.ints);
    return hash_words(h, g->externals + g->ext_0, (g->n_externals - g->ext_0) * sizeof *g->externals);
}

/* The accumulation state, the trained parameters and those with low copies must be those that the plan was made for. */
static bool flats_match(const lc_plan *p)
{
    for (int i = 0; i < p->n_flats; i++) {
        const lc_flat_state *s = &p->flats[i];
        if (s->n_low >= 0 && s->n_low != s->flat->n_low) return false;
        if (memcmp(s->trained, s->flat->trained, (size_t)s->flat->n) != 0) return false;
        if (s->before[0] != LC_FLAT_ANY && memcmp(s->before, s->flat->has_gradient, (size_t)s->flat->n) != 0)
            return false;
    }
    return true;
}

static bool records_match(const lc_graph *g, const lc_plan *p)
{
    return p->n_nodes == g->tape.n_nodes - g->node_0 && p->n_in == g->tape.n_in - g->in_0 &&
           p->n_ints == g->tape.n_ints - g->int_0 && p->n_externals == g->n_externals - g->ext_0 &&
           lc__same_bytes(p->nodes, g->tape.nodes + g->node_0, p->n_nodes * sizeof *p->nodes) &&
           lc__same_bytes(p->in, g->tape.in + g->in_0, p->n_in * sizeof *p->in) &&
           lc__same_bytes(p->ints, g->tape.ints + g->int_0, p->n_ints * sizeof *p->ints) &&
           lc__same_bytes(p->externals, g->externals + g->ext_0, p->n_externals * sizeof *p->externals);
}

static lc_plan *find(lc_graph *g, lc__keeps keeps)
{
    uint32_t n_nodes = g->tape.n_nodes - g->node_0;
    uint64_t peers = lc__peers_key(g); /* an address does not identify them, since it may be reused */
    lc_plan *p = g->expect;
    /* The segment followed this plan to its end: nothing is left to compare. */
    if (p && p->keeps == keeps && p->peers == peers && p->n_nodes == n_nodes &&
        p->n_externals == g->n_externals - g->ext_0 && flats_match(p))
        return p;
    uint64_t hash = segment_hash(g, keeps), previous = g->last ? g->last->uid : 0;
    for (int i = 0; i < g->n_plans; i++) {
        p = g->plans[i];
        if (p->hash == hash && p->previous == previous && p->keeps == keeps && p->peers == peers &&
            records_match(g, p) && flats_match(p))
            return p;
    }
    return NULL;
}

/* ---- making a plan ---- */

static void *copy_of(const void *data, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p && bytes) memcpy(p, data, bytes);
    return p;
}

static lc_status copy_key(lc_graph *g, lc_plan *p, lc__keeps keeps)
{
    p->uid = g->next_uid++;
    p->previous = g->last ? g->last->uid : 0;
    p->hash = segment_hash(g, keeps);
    p->keeps = keeps;
    p->peers = lc__peers_key(g);
    p->node_0 = g->node_0;
    p->n_nodes = g->tape.n_nodes - g->node_0;
    p->in_0 = g->in_0;
    p->n_in = g->tape.n_in - g->in_0;
    p->int_0 = g->int_0;
    p->n_ints = g->tape.n_ints - g->int_0;
    p->float_0 = g->float_0;
    p->n_floats = g->tape.n_floats - g->float_0;
    p->ext_0 = g->ext_0;
    p->n_externals = g->n_externals - g->ext_0;
    p->value_0 = g->value_0;
    p->n_values = g->n_values - g->value_0;
    p->nodes = copy_of(g->tape.nodes + g->node_0, p->n_nodes * sizeof *p->nodes);
    p->node_sites = copy_of(g->tape.sites + g->node_0, p->n_nodes * sizeof *p->node_sites);
    p->in = copy_of(g->tape.in + g->in_0, p->n_in * sizeof *p->in);
    p->ints = copy_of(g->tape.ints + g->int_0, p->n_ints * sizeof *p->ints);
    p->externals = copy_of(g->externals + g->ext_0, p->n_externals * sizeof *p->externals);
    p->types = calloc(p->n_values + 1, sizeof *p->types);
    p->requires_grad = calloc(p->n_values + 1, sizeof *p->requires_grad);
    p->locations = calloc(p->n_values + 1, sizeof *p->locations);
    if (!p->nodes || !p->node_sites || !p->in || !p->ints || !p->externals || !p->types || !p->requires_grad ||
        !p->locations)
        return lc_fail(LC_ERR_MEMORY, "out of memory while planning the step");
    for (uint32_t v = 0; v < p->n_values; v++) {
        p->types[v] = g->values[p->value_0 + v]->type;
        p->requires_grad[v] = g->values[p->value_0 + v]->requires_grad;
    }
    return LC_OK;
}

static lc_status check_memory(lc_build *b)
{
    const lc_graph *g = b->g;
    const lc_plan *p = b->plan;
    size_t want = p->arena_0 + p->arena_bytes;
    int64_t may = g->options.max_bytes - lc__peers_bytes(g);
    /* Querying the available memory takes longer than planning a small step. */
    if (g->options.max_bytes <= 0 && want <= g->arena_committed) return LC_OK;
    size_t have = g->options.max_bytes <= 0 ? g->on->ops->available(g->on->context) + g->arena_committed
                  : may > 0                 ? (size_t)may
                                            : 0;
    if (want <= have && want <= g->arena_reserved) return LC_OK;
    const double mib = 1048576, needs = (double)want / mib, bound = (double)p->lower_bound / mib;
    char raise[96] = "";
    if (g->memory_limit) /* rounded up, so that the step runs with this limit */
        snprintf(raise, sizeof raise, ", or raise memory_limit to %.1fMiB or more",
                 ceil(((double)g->memory_limit / mib - (double)have / mib + needs) * 10) / 10);
    else if (g->options.max_bytes > 0)
        snprintf(raise, sizeof raise, ", or raise max_bytes");
    return lc_fail(LC_ERR_MEMORY,
                   "the step needs %.1f MiB for intermediate results (lower bound %.1f MiB), but only %.1f MiB are "
                   "available; use a smaller batch or lc_checkpoint_begin%s",
                   needs, bound, (double)have / mib, raise);
}

/* clang-format off */
static const lc_pass passes[] = {
    {LC_PHASE_EXPAND, lc__expand},
    {LC_PHASE_EXPAND, lc__assign_storage_types},
    {LC_PHASE_FUSE, lc__drop_dead},
    {LC_PHASE_FUSE, lc__fuse_patterns},
    {LC_PHASE_FUSE, lc__fuse_elementwise},
    {LC_PHASE_FUSE, lc__compute_again},
    {LC_PHASE_FUSE, lc__read_rounded},
    {LC_PHASE_LOWER, lc__lower},
    {LC_PHASE_LOWER, lc__share_memory},
    {LC_PHASE_LOWER, lc__assign_arena},
    {LC_PHASE_LOWER, check_memory},
    {LC_PHASE_LOWER, lc__make_program},
    {LC_PHASES, NULL},
};
/* clang-format on */

static lc_status run_phase(lc_build *b, const lc_pass *list, lc_phase phase)
{
    for (const lc_pass *pass = list; pass && pass->run; pass++)
        if (pass->phase == phase) LC_TRY(pass->run(b));
    return LC_OK;
}

static lc_status run_passes(lc_build *b)
{
    for (lc_phase phase = 0; phase < LC_PHASES; phase++) {
        if (phase == LC_PHASE_FUSE && !b->optimize) continue;
        LC_TRY(run_phase(b, passes, phase));
        LC_TRY(run_phase(b, b->g->passes, phase));
        for (const lc_peer *p = b->g->peers; p; p = p->next) LC_TRY(run_phase(b, p->ops->passes, phase));
    }
    return LC_OK;
}

static lc_status make(lc_graph *g, lc__keeps keeps, lc_plan **out)
{
    lc_status status = LC_OK;
    uint32_t n_values = g->n_values, used = g->arenas[g->generation % LC_ARENAS].used;
    lc_build b = {.g = g, .optimize = !g->plan_off};
    lc_plan *p = b.plan = calloc(1, sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory while planning the step");
    p->on = g->on;
    LC_TRY_GOTO(status, done, copy_key(g, p, keeps));
    p->arena_0 = g->last ? g->last->arena_0 + g->last->arena_bytes : 0;
    g->expanding = true;
    LC_TRY_GOTO(status, done, run_passes(&b));
    for (int i = 0; i < p->n_calls; i++) p->flops += lc__call_flop(&p->calls[i].call);
    lc__tuning_keep(g->tuning);
    if (p->arena_0 + p->arena_bytes > g->arena_committed) g->arena_committed = p->arena_0 + p->arena_bytes;
done:
    g->expanding = false;
    /* Forget the values that only the expansion used. */
    for (uint32_t v = n_values; v < g->n_values; v++) g->values[v]->graph = NULL;
    g->n_values = n_values;
    g->arenas[g->generation % LC_ARENAS].used = used;
    build_free(&b);
    if (status < 0) {
        lc__plan_free(p);
        p = NULL;
    }
    *out = p;
    return status;
}

/* ---- the cache ---- */

static bool in_chain(const lc_graph *g, const lc_plan *p)
{
    for (int i = 0; i < g->n_chain; i++)
        if (g->chain[i] == p) return true;
    return false;
}

/* The plan to evict, or -1: of two at random the one that has not been used for longer. If the oldest always went,
 * batch sizes that repeat in the same order, more of them than the cache holds, would never find their plan. */
static int victim(const lc_graph *g)
{
    int found = -1;
    for (uint64_t tries = 0, seen = 0; seen < 2 && tries < 8; tries++) {
        int i = (int)lc_random_below(g->clock, tries, (uint64_t)g->n_plans);
        if (in_chain(g, g->plans[i])) continue;
        if (found < 0 || g->plans[i]->last_used < g->plans[found]->last_used) found = i;
        seen++;
    }
    for (int i = 0; i < g->n_plans && found < 0; i++)
        if (!in_chain(g, g->plans[i])) found = i;
    return found;
}

static lc_status insert(lc_graph *g, lc_plan *p)
{
    int old = g->n_plans >= g->options.max_plans ? victim(g) : -1;
    if (old >= 0) {
        lc__plan_free(g->plans[old]);
        g->plans[old] = g->plans[--g->n_plans];
        g->stats.evictions++;
    }
    LC_TRY(lc__grow(&g->plans, &g->cap_plans, g->n_plans, 1, "the plan of a step"));
    g->plans[g->n_plans++] = p;
    return LC_OK;
}

static void report_span(const lc_graph *g, int64_t start)
{
    lc_span s = {.kind = LC_SPAN_PLAN,
                 .name = "plan",
                 .owner = "[Engine]",
                 .start_ns = start,
                 .end_ns = lc__now_ns(),
                 .ndim = -1};
    g->observe(g->observe_ctx, &s);
}

/* The plan of the segment: from the cache, or a new one. */
static lc_status get(lc_graph *g, lc__keeps keeps, lc_plan **out)
{
    lc_plan *p = *out = find(g, keeps);
    if (p) {
        g->stats.hits++;
    } else {
        int64_t start = g->observe ? lc__now_ns() : 0;
        if (g->dump_path) lc__dump_missed(g, keeps);
        LC_TRY(make(g, keeps, &p));
        if (g->observe) report_span(g, start);
        lc_status status = insert(g, p);
        if (status < 0) lc__plan_free(p);
        if (status < 0) return status;
        *out = p;
        g->stats.misses++;
        if ((int64_t)p->arena_bytes > g->stats.planned_bytes) {
            g->stats.planned_bytes = (int64_t)p->arena_bytes;
            g->stats.lower_bound = (int64_t)p->lower_bound;
        }
        g->stats.scratch_bytes = (int64_t)g->scratch_bytes;
        g->stats.plans = g->n_plans;
    }
    p->last_used = ++g->clock;
    return lc__grow(&g->chain, &g->cap_chain, g->n_chain, 1, "the plan of a step");
}

lc_status lc__graph_prepare(lc_graph *g, lc__keeps keeps, lc_plan **plan)
{
    lc_plan *p;
    *plan = NULL;
    if (lc__step_failed(g, get(g, keeps, &p)) < 0) return lc_step_status(g);
    g->chain[g->n_chain++] = p;
    g->last = p;
    g->stats.nodes = p->n_calls;
    g->stats.flops += p->flops;
    if (p->zero_grad)
        for (int i = 0; i < g->n_flats; i++) memset(g->flats[i]->has_gradient, 0, (size_t)g->flats[i]->n);
    for (int i = 0; i < p->n_flats; i++)
        memcpy(p->flats[i].flat->has_gradient, p->flats[i].after, (size_t)p->flats[i].flat->n);
    *plan = p;
    return LC_OK;
}

lc_status lc__graph_load_tuning(lc_graph *g, const lc_state *root)
{
    bool changed = g->tuning->changed;
    g->tuning->changed = false;
    LC_TRY(lc__tuning_load(g->tuning, root));
    if (g->tuning->changed) {
        for (int i = 0; i < g->n_plans; i++) lc__plan_free(g->plans[i]);
        g->n_plans = g->n_chain = 0;
        g->last = g->expect = NULL;
    }
    g->tuning->changed |= changed;
    return LC_OK;
}
