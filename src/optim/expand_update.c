/* SPDX-License-Identifier: Apache-2.0 */
/* Clipping, updates and gradients: expands the macros of macros.c into operators. */
#include "optim/expand_update.h"

#include "base/status.h"
#include "base/number.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "optim/clip.h"
#include "optim/state_buffers.h"
#include "tensor/slice.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

/* The parameters of a group, or of one of its units, that have a gradient, as ranges of the flat buffers. If sharded,
 * as ranges of this rank's slice, including empty ones, since updates are counted on every rank. */
static int segments_of(const lc_param_group *group, const lc_flat_state *state, const lc__unit *u, int64_t first_index,
                       lc_segment *out)
{
    int n = 0;
    for (int i = 0; i < group->n_parameters; i++) {
        lc_tensor *p = group->parameters[i];
        int k = p->flat_index;
        if (p->flat != state->flat || !state->after[k] || !p->requires_grad ||
            (u && (k < u->first || k >= u->first + u->n)))
            continue;
        lc_segment *s = &out[n++];
        *s = (lc_segment){
            .parameter = p, .offset = state->flat->offset[k], .count = lc__numel(&p->type), .index = first_index + i};
        const lc__sharding *sharding = state->flat->sharding;
        if (!u || !sharding) continue;
        const int64_t begin = s->offset;
        s->count = lc__slice_of(sharding, u, begin, s->count, &s->offset);
        if (s->count) s->first = u->offset + sharding->rank * u->slice + s->offset - begin;
    }
    return n;
}

/* Room for the segments of all parameters. */
static lc_status prepare(lc_build *b, lc_optimizer *opt, lc_segment **segments)
{
    int n = 0;
    LC_TRY(lc__optimizer_prepare(opt));
    for (int i = 0; i < opt->n_groups; i++) n += opt->groups[i].n_parameters;
    *segments = lc__build_alloc(b, (size_t)n * sizeof **segments);
    return *segments ? LC_OK : LC_ERR_MEMORY;
}

/* Adds (input, offset, count) for the gradients of all parameters in one flat buffer. */
static void squares_of(const lc_optimizer *opt, const lc_flat_state *state, int input, lc_segment *segments,
                       int64_t *ints, int *n_int)
{
    const lc__sharding *sharding = state->flat->sharding;
    bool sliced = sharding && sharding->gradient;
    for (int k = 0; k < (sharding ? sharding->n_units : 1); k++) {
        const lc__unit *u = sharding ? &sharding->units[k] : NULL;
        int64_t slice = !u ? 0 : sliced ? u->at : u->offset + sharding->rank * u->slice;
        for (int i = 0; i < opt->n_groups; i++) {
            int count = segments_of(&opt->groups[i], state, u, 0, segments);
            for (int s = 0; s < count; s++) {
                if (!segments[s].count) continue;
                ints[(*n_int)++] = input;
                ints[(*n_int)++] = slice + segments[s].offset;
                ints[(*n_int)++] = segments[s].count;
            }
        }
    }
}

lc_status lc__expand_clip_norm(lc_build *b, const lc_node *n)
{
    lc_graph *g = b->g;
    lc_optimizer *opt = (lc_optimizer *)(uintptr_t)g->tape.ints[n->int_at];
    uint32_t unscale = g->tape.in[n->in_at];
    lc_segment *segments;
    LC_TRY(prepare(b, opt, &segments));
    int n_int = LC__CLIP_FIRST;
    for (int i = 0; i < opt->n_groups; i++) n_int += 3 * opt->groups[i].n_parameters;
    int64_t *ints = lc__build_alloc(b, (size_t)n_int * sizeof *ints);
    lc_tensor **in = lc__build_alloc(b, ((size_t)opt->n_ranges + 1) * sizeof *in);
    if (!ints || !in) return LC_ERR_MEMORY;
    ints[LC__CLIP_DTYPE] = g->tape.ints[n->int_at + 1];
    ints[LC__CLIP_PEER] = 0;
    ints[LC__CLIP_UNSCALE] = unscale != LC_ABSENT;
    ints[LC__CLIP_ONLY_FINITE] = g->tape.ints[n->int_at + 3];
    n_int = LC__CLIP_FIRST;
    for (int i = 0; i < opt->n_ranges; i++) {
        lc_flat_state *state;
        LC_TRY(lc__expand_flat_state(b, opt->ranges[i].flat, &state));
        const lc__sharding *sharding = state->flat->sharding;
        in[i] = sharding && sharding->gradient ? sharding->gradient : state->flat->gradient;
        squares_of(opt, state, i, segments, ints, &n_int);
        for (lc_peer *p = sharding ? g->peers : NULL; p; p = p->next)
            if (p->ops->add_up) ints[LC__CLIP_PEER] = (int64_t)(uintptr_t)p;
    }
    int n_in = opt->n_ranges;
    if (unscale != LC_ABSENT) in[n_in++] = g->values[unscale];
    lc_tensor *out[LC_MAX_OUTPUTS];
    const lc_op *op = ints[LC__CLIP_PEER] ? &lc__op_clip_over_ranks : &lc__op_clip_coefficient;
    lc_op_call_n(op, n_in, in, n_int, ints, 2, g->tape.floats + n->float_at, out, LC_HERE);
    lc__expand_produce(g, n->first_out);
    b->keep[n->first_out + 1] = true; /* the factor: the step may run before its update is recorded */
    return g->status;
}

/* The state of one flat buffer of parameters, or of this rank's slice of one unit of it; gives its master weights. */
static lc_tensor *states_of(const lc_optimizer *opt, const lc_flat *flat, const lc__unit *u, lc_tensor *states[])
{
    const lc__state_range *r = lc__optimizer_range(opt, flat);
    int64_t begin = r->begin + (u ? u->at : 0), count = u ? u->slice : r->count;
    memcpy(states, opt->state, sizeof opt->state);
    for (int k = 0; (u || opt->n_ranges > 1) && k < LC_MAX_OPTIM_STATE; k++)
        if (opt->state[k] && !(opt->ops->scalar_state >> k & 1))
            states[k] = lc__expand_range(opt->state[k], begin, count);
    return u && r->master ? lc__expand_range(r->master, u->at, u->slice) : r->master;
}

/* The update of all groups, or of the parameters of one unit, in the flat buffers or this rank's slice. *any: something
 * was updated. */
static lc_status update(lc_build *b, const lc_node *n, lc_flat_state *state, lc_segment *segments, lc_tensor *scale,
                        const lc__unit *u, bool *any)
{
    lc_graph *g = b->g;
    lc_optimizer *opt = (lc_optimizer *)(uintptr_t)g->tape.ints[n->int_at];
    const lc_flat *flat = state->flat;
    const lc__sharding *sharding = flat->sharding;
    lc_tensor *parameters = flat->parameter, *gradients = flat->gradient, *states[LC_MAX_OPTIM_STATE], *master = NULL;
    int64_t index = 0;
    *any = false;
    for (int i = 0; i < opt->n_groups; i++) {
        lc_param_group *group = &opt->groups[i];
        int count = segments_of(group, state, u, index, segments);
        index += group->n_parameters;
        if (!count) continue;
        if (sharding && !*any) {
            int64_t slice = u->offset + sharding->rank * u->slice;
            parameters = sharding->parameter ? lc__expand_range(sharding->parameter, u->at, u->slice)
                                             : lc__expand_range(flat->parameter, slice, u->slice);
            gradients = sharding->gradient ? lc__expand_range(sharding->gradient, u->at, u->slice)
                                           : lc__expand_range(flat->gradient, slice, u->slice);
        }
        if (!*any) master = states_of(opt, flat, sharding ? u : NULL, states);
        *any = true;
        lc_update update = {.group = group,
                            .parameters = parameters,
                            .gradients = gradients,
                            .grad_scale = scale,
                            .steps = opt->steps,
                            .state = states,
                            .n_segments = count,
                            .segments = segments,
                            .clip_value = g->tape.ints[n->int_at + 2] ? &group->hyper[LC_HYPER_CLIP_VALUE] : NULL,
                            .skips = g->tape.ints[n->int_at + 4],
                            .master = master};
        unsigned before = lc__error_count();
        lc_status status = lc__said(opt->ops->update(opt, &update), before);
        if (status < 0) return lc_fail_context(status, "%s", opt->ops->name);
        LC_TRY(g->status);
        for (int s = 0; s < count; s++) LC_TRY(lc__expand_wrote(b, segments[s].parameter));
    }
    return LC_OK;
}

static lc_status next_bucket(lc_build *b, lc_flat *flat, lc__unit *u, bool *any)
{
    *any = false;
    for (lc_peer *p = b->g->peers; p; p = p->next)
        if (p->ops->next_bucket) return p->ops->next_bucket(p, b, flat, u, any);
    return lc_fail(LC_ERR_INTERNAL, "an update by buckets, but no peer sums gradients");
}

/* This rank's slice of a unit (NULL: of all units) has been updated. */
static lc_status updated(lc_build *b, lc_flat *flat, const lc__unit *u)
{
    for (lc_peer *p = b->g->peers; p; p = p->next)
        if (p->ops->updated) LC_TRY(p->ops->updated(p, b, flat, u));
    return LC_OK;
}

/* Updates the buckets that have arrived while the last ones are still under way. */
static lc_status update_by_bucket(lc_build *b, const lc_node *n, lc_flat_state *state, lc_segment *segments,
                                  lc_tensor *scale)
{
    bool bucket, any;
    lc__unit u = {0};
    b->plan->by_bucket = true;
    do {
        LC_TRY(next_bucket(b, state->flat, &u, &bucket));
        if (bucket) LC_TRY(update(b, n, state, segments, scale, &u, &any));
    } while (bucket);
    return LC_OK;
}

/* The update of the parameters in one flat buffer. */
static lc_status update_flat(lc_build *b, const lc_node *n, lc_flat_state *state, lc_segment *segments,
                             lc_tensor *scale)
{
    const lc__sharding *sharding = state->flat->sharding;
    bool any, gathers = false;
    if (!sharding && b->g->tape.ints[n->int_at + 3]) return update_by_bucket(b, n, state, segments, scale);
    if (!sharding) return update(b, n, state, segments, scale, NULL, &any);
    for (int k = 0; k < sharding->n_units; k++) {
        const lc__unit *u = &sharding->units[k];
        LC_TRY(update(b, n, state, segments, scale, u, &any));
        if (any && !sharding->parameter) LC_TRY(updated(b, state->flat, u));
        gathers |= any;
    }
    return gathers && !sharding->parameter ? updated(b, state->flat, NULL) : LC_OK;
}

lc_status lc__expand_step(lc_build *b, const lc_node *n)
{
    lc_graph *g = b->g;
    lc_optimizer *opt = (lc_optimizer *)(uintptr_t)g->tape.ints[n->int_at];
    lc_segment *segments;
    LC_TRY(prepare(b, opt, &segments));
    uint32_t factor = g->tape.in[n->in_at];
    lc_tensor *scale = factor == LC_ABSENT ? NULL : g->values[factor];
    if (!scale)
        scale = lc_op_call(&lc__op_scalar, 0, NULL, 1,
                           (int64_t[]){lc__wide_dtype(opt->ranges[0].flat->parameter->type.dtype)}, 1,
                           g->tape.floats + n->float_at, LC_HERE);
    for (int i = 0; i < opt->n_ranges; i++) {
        lc_flat_state *state;
        LC_TRY(lc__expand_flat_state(b, opt->ranges[i].flat, &state));
        LC_TRY(update_flat(b, n, state, segments, scale));
    }
    return LC_OK;
}

lc_status lc__expand_zero_grad(lc_build *b, const lc_node *n)
{
    const lc_optimizer *opt = (const lc_optimizer *)(uintptr_t)b->g->tape.ints[n->int_at];
    for (int i = 0; i < opt->n_groups; i++)
        for (int k = 0; k < opt->groups[i].n_parameters; k++) {
            const lc_tensor *p = opt->groups[i].parameters[k];
            lc_flat_state *state;
            LC_TRY(lc__expand_flat_state(b, p->flat, &state));
            state->after[p->flat_index] = 0;
        }
    return LC_OK;
}

lc_status lc__expand_gradient(lc_build *b, const lc_node *n)
{
    lc_graph *g = b->g;
    lc_tensor *p = g->values[g->tape.in[n->in_at]];
    lc_flat *flat;
    lc_flat_state *state;
    if (p->kind != LC_TENSOR_PERSISTENT || !p->requires_grad)
        return lc_fail(LC_ERR_ARGUMENT, "lc_gradient: only persistent tensors that require a gradient have one");
    LC_TRY(lc__flat_of(p, &flat));
    LC_TRY(lc__expand_flat_state(b, flat, &state));
    bool any = state->after[p->flat_index];
    lc_tensor *sum = any ? flat->gradients[p->flat_index] : lc__zeros_of(p);
    for (lc_peer *peer = any && flat->sharding ? g->peers : NULL; peer; peer = peer->next)
        if (peer->ops->whole_gradient) LC_TRY(peer->ops->whole_gradient(peer, flat, p->flat_index, &sum));
    sum = lc__as(sum, lc__wide_dtype(p->type.dtype));
    sum = lc_op_call(&lc__op_mul_scalar, 1, &sum, 0, NULL, 1, any ? g->tape.floats + n->float_at : (double[]){1},
                     LC_HERE);
    uint32_t unscale = g->tape.in[n->in_at + 1];
    if (any && unscale != LC_ABSENT)
        sum = lc_op_call(&lc__op_mul, 2, (lc_tensor *[]){sum, lc__as(g->values[unscale], sum->type.dtype)}, 0, NULL, 0,
                         NULL, LC_HERE);
    lc__as(sum, p->type.dtype);
    lc__expand_produce(g, n->first_out);
    return g->status;
}
