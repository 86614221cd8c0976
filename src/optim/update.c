/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of all elementwise update operators: recording one over a group, and running its loop over the segments. */
#include "optim/loop.h"

#include <stdlib.h>

lc_status lc__record_update(const lc_op *op, lc_optimizer *opt, const lc_update *u, int n_state)
{
    lc_tensor *in[4 + LC_MAX_OPTIM_STATE];
    int n_in = 0;
    in[n_in++] = u->parameters;
    in[n_in++] = u->gradients;
    for (int k = 0; k < n_state; k++) in[n_in++] = u->state[k];
    in[n_in++] = u->steps;
    in[n_in++] = u->grad_scale;

    int n_int = LC_U_FIRST + 3 * u->n_segments;
    int64_t *ints = malloc((size_t)n_int * sizeof *ints);
    if (!ints) return lc_fail(LC_ERR_MEMORY, "out of memory for %d parameters", u->n_segments);
    ints[LC_U_SEGMENTS] = u->n_segments;
    ints[LC_U_CLIP] = u->clip_value != NULL;
    ints[LC_U_FLAGS] = opt->flags;
    ints[LC_U_SCALAR] = opt->ops->scalar_state;
    for (int i = 0; i < u->n_segments; i++) {
        int64_t *entry = ints + LC_U_FIRST + 3 * i;
        entry[0] = u->segments[i].offset;
        entry[1] = u->segments[i].count;
        entry[2] = u->segments[i].index;
    }
    lc_op_call_live(op, n_in, in, n_int, ints, LC_MAX_HYPER, u->group->hyper, LC_HERE);
    free(ints);
    return LC_OK;
}

lc_status lc__infer_update(lc_infer *call)
{
    lc_dtype dtype = call->in[0]->dtype;
    if (dtype != LC_F32 && dtype != LC_F64) {
        return lc_fail(LC_ERR_DTYPE, "parameters of type %s cannot be updated; f32 and f64 can", lc_dtype_name(dtype));
    }
    for (int i = 1; i < call->n_in - 2; i++) {
        if (call->in[i]->dtype != dtype) {
            return lc_fail(LC_ERR_DTYPE, "gradients and state must have the parameters' type %s, but input %d has %s",
                           lc_dtype_name(dtype), i, lc_dtype_name(call->in[i]->dtype));
        }
    }
    if (call->in[call->n_in - 2]->dtype != LC_F64) return lc_fail(LC_ERR_DTYPE, "step counts must be f64");
    return LC_OK;
}

static double *step_count(const lc_call *call, int64_t segment)
{
    double *steps = call->in[call->n_in - 2].data;
    return steps + call->ints[LC_U_FIRST + 3 * segment + 2];
}

void lc__update_range(const lc_call *call, int64_t i, int64_t begin, int64_t n, lc__range *r)
{
    const int64_t *entry = call->ints + LC_U_FIRST + 3 * i;
    bool f64 = call->in[0].dtype == LC_F64;
    size_t size = f64 ? 8 : 4, at = (size_t)(entry[0] + begin) * size, number_at = (size_t)entry[2] * size;
    const lc_view *scale = &call->in[call->n_in - 1];
    r->p = (char *)call->in[0].data + at;
    r->g = (const char *)call->in[1].data + at;
    r->number = 0;
    for (int k = 0; k < call->n_in - 4; k++) {
        bool scalar = call->ints[LC_U_SCALAR] >> k & 1;
        r->s[k] = (char *)call->in[2 + k].data + (scalar ? number_at : at);
        if (scalar) r->number = f64 ? *(const double *)r->s[k] : (double)*(const float *)r->s[k];
    }
    r->n = n;
    r->h = call->floats;
    r->flags = (unsigned)call->ints[LC_U_FLAGS];
    r->scale = scale->dtype == LC_F64 ? *(const double *)scale->data : (double)*(const float *)scale->data;
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
    double product = r.number * lc__nadam_mu(r.h, r.step + 1);
    if (call->in[0].dtype == LC_F64)
        *(double *)r.s[2] = product;
    else
        *(float *)r.s[2] = (float)product;
}

void lc__update_finish(const lc_call *call)
{
    for (int64_t i = 0; i < call->ints[LC_U_SEGMENTS]; i++) {
        if (call->op == &lc__op_update_nadam) update_mu_product(call, i);
        *step_count(call, i) += 1;
    }
}

void lc__update_run(const lc_call *call, lc__range_fn *f32, lc__range_fn *f64)
{
    lc__range_fn *loop = call->in[0].dtype == LC_F64 ? f64 : f32;
    for (int64_t i = 0; i < call->ints[LC_U_SEGMENTS]; i++) {
        lc__range r;
        lc__update_range(call, i, 0, call->ints[LC_U_FIRST + 3 * i + 1], &r);
        loop(&r);
    }
    lc__update_finish(call);
}
