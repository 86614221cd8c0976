/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of all elementwise update operators: recording one over a group, and running its loop over the segments. */
#include "base/number.h"
#include "optim/loop.h"
#include "optim/master.h"
#include "optim/stochastic.h"

#include <stdlib.h>

lc_status lc__record_update(const lc_op *op, lc_optimizer *opt, const lc_update *u, int n_state)
{
    lc_tensor *in[LC__UPDATE_INPUTS + LC_MAX_OPTIM_STATE];
    int n_in = 0;
    in[n_in++] = u->parameters;
    in[n_in++] = u->gradients;
    for (int k = 0; k < n_state; k++) in[n_in++] = u->state[k];
    in[n_in++] = u->steps;
    in[n_in++] = u->grad_scale;
    in[n_in++] = u->master;
    in[n_in++] = NULL; /* keep_low.c */

    int n_int = LC_U_FIRST + LC_S_INTS * u->n_segments;
    int64_t *ints = malloc((size_t)n_int * sizeof *ints);
    if (!ints) return lc_fail(LC_ERR_MEMORY, "out of memory for %d parameters", u->n_segments);
    ints[LC_U_SEGMENTS] = u->n_segments;
    ints[LC_U_CLIP] = u->clip_value != NULL;
    ints[LC_U_FLAGS] = opt->flags;
    ints[LC_U_SCALAR] = opt->ops->scalar_state;
    ints[LC_U_SKIPS] = u->skips;
    for (int i = 0; i < u->n_segments; i++) {
        int64_t *entry = ints + LC_U_FIRST + LC_S_INTS * i;
        entry[LC_S_OFFSET] = u->segments[i].offset;
        entry[LC_S_COUNT] = u->segments[i].count;
        entry[LC_S_INDEX] = u->segments[i].index;
        entry[LC_S_FIRST] = u->segments[i].first;
        entry[LC_S_LOW] = 0;
    }
    lc_op_call_live(op, n_in, in, n_int, ints, LC_MAX_HYPER, u->group->hyper, LC_HERE);
    free(ints);
    return LC_OK;
}

lc_status lc__infer_update(lc_infer *call)
{
    lc_dtype dtype = call->in[0]->dtype;
    if (!lc_dtype_is_float(dtype))
        return lc_fail(LC_ERR_DTYPE, "parameters of type %s cannot be updated; floating-point numbers can",
                       lc_dtype_name(dtype));
    const int n_state = call->n_in - LC__UPDATE_INPUTS;
    for (int i = 1; i < 2 + n_state; i++) {
        lc_dtype needed = lc__wide_dtype(dtype);
        if (i == 1 && call->in[i]->dtype == dtype) continue;
        if (call->in[i]->dtype != needed)
            return lc_fail(LC_ERR_DTYPE, "%s of parameters of type %s must have type %s, but input %d has %s",
                           i == 1 ? "gradients" : "the state", lc_dtype_name(dtype), lc_dtype_name(needed), i,
                           lc_dtype_name(call->in[i]->dtype));
    }
    if (call->in[2 + n_state]->dtype != LC_F64) return lc_fail(LC_ERR_DTYPE, "step counts must be f64");
    return LC_OK;
}

/* The inputs after the state. */
static const lc_view *steps_of(const lc_call *call)
{
    return &call->in[call->n_in - 4];
}
static const lc_view *scale_of(const lc_call *call)
{
    return &call->in[call->n_in - 3];
}
static const lc_view *master_of(const lc_call *call)
{
    return &call->in[call->n_in - 2];
}

uint16_t *lc__update_low(const lc_call *call, int64_t i, int64_t begin)
{
    const int64_t *entry = lc__update_segment(call, i);
    uint16_t *low = call->in[call->n_in - 1].data;
    return low && entry[LC_S_LOW] ? low + entry[LC_S_OFFSET] + begin : NULL;
}

static double *step_count(const lc_call *call, int64_t segment)
{
    double *steps = steps_of(call)->data;
    return steps + lc__update_segment(call, segment)[LC_S_INDEX];
}

bool lc__update_skipped(const lc_call *call)
{
    const lc_view *scale = scale_of(call);
    return call->ints[LC_U_SKIPS] && !isfinite(lc__load_number(scale->data, scale->dtype));
}

void lc__update_range(const lc_call *call, int64_t i, int64_t begin, int64_t n, lc__range *r)
{
    const int64_t *entry = lc__update_segment(call, i);
    lc_dtype dtype = call->in[0].dtype, of_state = lc__wide_dtype(dtype);
    size_t at = (size_t)(entry[LC_S_OFFSET] + begin), width = lc_dtype_size(dtype), of_number = lc_dtype_size(of_state);
    const lc_view *scale = scale_of(call);
    r->p = (char *)call->in[0].data + at * width;
    r->g = (const char *)call->in[1].data + at * lc_dtype_size(call->in[1].dtype);
    r->number = 0;
    for (int k = 0; k < call->n_in - LC__UPDATE_INPUTS; k++) {
        bool scalar = call->ints[LC_U_SCALAR] >> k & 1;
        r->s[k] = (char *)call->in[2 + k].data + (scalar ? (size_t)entry[LC_S_INDEX] : at) * of_number;
        if (scalar) r->number = lc__load_number(r->s[k], of_state);
    }
    r->n = n;
    r->h = call->floats;
    r->flags = (unsigned)call->ints[LC_U_FLAGS];
    r->scale = lc__load_number(scale->data, scale->dtype);
    r->clip = call->ints[LC_U_CLIP] ? call->floats[LC_HYPER_CLIP_VALUE] : INFINITY;
    r->sign = r->flags & LC_OPT_MAXIMIZE ? -1 : 1;
    r->step = *step_count(call, i);
}

/* NAdam's product of momenta is whole on every rank, so it is updated for all parameters, even those of which this rank
 * updates nothing. */
static void update_mu_product(const lc_call *call, int64_t i)
{
    lc__range r;
    lc__update_range(call, i, 0, 1, &r);
    lc__store_number(r.s[2], call->in[4].dtype, r.number * lc__nadam_mu(r.h, r.step + 1));
}

void lc__update_finish(const lc_call *call)
{
    for (int64_t i = 0; i < call->ints[LC_U_SEGMENTS]; i++) {
        if (call->op == &lc__op_update_nadam) update_mu_product(call, i);
        *step_count(call, i) += 1;
    }
}

/* Rounds elements from `begin` on of segment i. */
static void put_halves(const lc_call *call, int64_t i, int64_t begin, const lc__range *r, void *parameters,
                       const float *value)
{
    const lc_dtype dtype = call->in[0].dtype;
    const int64_t *entry = lc__update_segment(call, i), first = entry[LC_S_FIRST] + begin;
    if (!(r->flags & LC_OPT_STOCHASTIC_ROUNDING)) {
        for (int64_t k = 0; k < r->n; k++) lc__set_number(parameters, dtype, k, (double)value[k]);
        return;
    }
    const lc__rng_stream stream = lc__rounding_stream(call, entry[LC_S_INDEX], r->step);
    for (int64_t k = 0; k < r->n; k++) lc__store_random(parameters, dtype, k, value[k], &stream, first + k);
}

/* Parameters of 16 bits, or their master weights, are computed as f32 and rounded once. */
static void update_halves(const lc_call *call, int64_t i, int64_t count, lc__range_fn *f32)
{
    enum { BLOCK = 1024 };
    float p[BLOCK], g[BLOCK];
    const lc_dtype dtype = call->in[0].dtype;
    float *master = master_of(call)->data;
    const int64_t *entry = lc__update_segment(call, i);
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        lc__range r;
        lc__update_range(call, i, begin, count - begin < BLOCK ? count - begin : BLOCK, &r);
        void *parameters = r.p;
        float *m = p;
        if (master) m = master + entry[LC_S_OFFSET] + begin;
        for (int64_t k = 0; k < r.n; k++)
            m[k] = master ? lc__master_of(parameters, dtype, k, m) : (float)lc__number_at(parameters, dtype, k);
        for (int64_t k = 0; k < r.n; k++) g[k] = (float)lc__number_at(r.g, call->in[1].dtype, k);
        r.p = m, r.g = g;
        f32(&r);
        put_halves(call, i, begin, &r, parameters, m);
    }
}

static void put_low(const lc_call *call, int64_t i, const lc__range *r)
{
    uint16_t *low = lc__update_low(call, i, 0);
    const lc_dtype dtype = call->in[call->n_in - 1].dtype;
    for (int64_t k = 0; low && k < r->n; k++) lc__set_number(low, dtype, k, (double)((const float *)r->p)[k]);
}

void lc__update_run(const lc_call *call, lc__range_fn *f32, lc__range_fn *f64)
{
    const lc_dtype dtype = call->in[0].dtype;
    if (lc__update_skipped(call)) return;
    for (int64_t i = 0; i < call->ints[LC_U_SEGMENTS]; i++) {
        int64_t count = lc__update_segment(call, i)[LC_S_COUNT];
        lc__range r;
        if (dtype != LC_F32 && dtype != LC_F64) {
            update_halves(call, i, count, f32);
            continue;
        }
        lc__update_range(call, i, 0, count, &r);
        (dtype == LC_F64 ? f64 : f32)(&r);
        put_low(call, i, &r);
    }
    lc__update_finish(call);
}
