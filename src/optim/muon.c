/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Muon: momentum whose matrix is replaced by the nearest orthogonal one, approximately, by five steps of a
 * Newton-Schulz iteration (K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024).
 *
 * Per matrix: one operator updates the momentum and gives the normalized update, recorded products do the iteration,
 * and another operator applies the result. As in PyTorch the iteration works on numbers rounded to bfloat16. They are
 * kept in the parameters' type: products and sums are computed in that type and rounded once. */
#include "base/number.h"
#include "optim/loop.h"
#include "optim/master.h"
#include "optim/stochastic.h"

#include <lightc/ops_math.h>
#include <lightc/ops_nn.h>
#include <string.h>

/* Hyperparameters after lr and weight_decay. */
enum { H_MOMENTUM = 2, H_EPS = 3, H_NS_STEPS = 4 };
/* Ints of both operators. */
enum { M_CLIP = 0, M_SKIPS, M_FLAGS, M_OFFSET, M_INDEX, M_ROWS, M_COLUMNS, M_INTS };

static const double coefficients[3] = {3.4445, -4.7750, 2.0315};

/* The nearest bfloat16, halves to even. */
static double to_bf16(double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (f != f) return value;
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
    memcpy(&f, &bits, 4);
    return f;
}

static double get(const lc_view *v, int64_t i)
{
    return lc__number_at(v->data, v->dtype, i);
}

static void put(const lc_view *v, int64_t i, double value)
{
    lc__set_number(v->data, v->dtype, i, value);
}

/* lc_update.skips */
static bool skipped(const lc_call *c, const lc_view *scale)
{
    return c->ints[M_SKIPS] && !isfinite(get(scale, 0));
}

/* ---- (gradients, momentum_buffer, grad_scale) -> normalized update [rows, columns] ---- */

static void run_momentum(const lc_call *c)
{
    const lc_view *g = &c->in[0], *buf = &c->in[1], *x = &c->out[0];
    const int64_t n = c->ints[M_ROWS] * c->ints[M_COLUMNS], at = c->ints[M_OFFSET];
    const double momentum = c->floats[H_MOMENTUM], scale = get(&c->in[2], 0);
    const double clip = c->ints[M_CLIP] ? c->floats[LC_HYPER_CLIP_VALUE] : INFINITY;
    const bool nesterov = c->ints[M_FLAGS] & LC_OPT_NESTEROV;
    const double sign = c->ints[M_FLAGS] & LC_OPT_MAXIMIZE ? -1 : 1;
    double sum = 0;
    if (skipped(c, &c->in[2])) {
        memset(x->data, 0, (size_t)n * lc_dtype_size(x->dtype));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double d = scale * get(g, at + i);
        d = sign * CLAMP(d, -clip, clip);
        double m = get(buf, at + i);
        m += (1 - momentum) * (d - m);
        put(buf, at + i, m);
        double u = to_bf16(nesterov ? d + momentum * (m - d) : m);
        put(x, i, u);
        sum += u * u;
    }
    double norm = to_bf16(sqrt(sum));
    if (norm < c->floats[H_EPS]) norm = c->floats[H_EPS];
    for (int64_t i = 0; i < n; i++) put(x, i, to_bf16(get(x, i) / norm));
}

static lc_status check_type(const lc_infer *call)
{
    lc_dtype dtype = call->in[0]->dtype;
    if (lc_dtype_is_float(dtype)) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "parameters of type %s cannot be updated; floating-point numbers can",
                   lc_dtype_name(dtype));
}

static lc_status infer_momentum(lc_infer *call)
{
    LC_TRY(check_type(call));
    call->out[0] = (lc_type){
        .dtype = lc__wide_dtype(call->in[0]->dtype), .ndim = 2, .shape = {call->ints[M_ROWS], call->ints[M_COLUMNS]}};
    return LC_OK;
}

static const lc_kernel momentum_kernel = {
    .name = "reference", .layout = LC_WANT_ROW_MAJOR, .flags = LC_KERNEL_SERIAL, .run = run_momentum};
const lc_op lc__op_muon_momentum = {
    .name = "muon_momentum",
    .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
    .n_out = 1,
    .infer = infer_momentum,
    .mutated_inputs = 1u << 1,
    .kernel = &momentum_kernel,
};

/* ---- (x, y) -> bfloat16(a x + b y); y may be absent ---- */

static void run_combine(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->in[1], *out = &c->out[0];
    const double a = c->floats[0], b = c->floats[1];
    for (int64_t i = 0; i < out->shape[0]; i++) {
        for (int64_t j = 0; j < out->shape[1]; j++) {
            double v = a * get(x, i * x->stride[0] + j * x->stride[1]);
            if (y->data) v += b * get(y, i * y->stride[0] + j * y->stride[1]);
            put(out, i * out->stride[0] + j * out->stride[1], to_bf16(v));
        }
    }
}

static lc_status infer_combine(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

static const lc_kernel combine_kernel = {
    .name = "reference", .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_combine};
const lc_op lc__op_muon_combine = {
    .name = "muon_combine",
    .flags = LC_OP_NO_GRAD,
    .n_out = 1,
    .infer = infer_combine,
    .kernel = &combine_kernel,
};

/* ---- (parameters, update, steps, grad_scale, master or nothing): decay and subtract ---- */

static void run_apply(const lc_call *c)
{
    const lc_view *p = &c->in[0], *x = &c->in[1];
    const int64_t rows = c->ints[M_ROWS], columns = c->ints[M_COLUMNS], at = c->ints[M_OFFSET];
    const double lr = c->floats[LC_H_LR], keep = 1 - lr * c->floats[LC_H_WEIGHT_DECAY];
    const double r = (double)rows, k = (double)columns;
    const double ratio =
        c->ints[M_FLAGS] & LC_OPT_MATCH_RMS_ADAMW ? 0.2 * sqrt(r > k ? r : k) : sqrt(r > k ? r / k : 1);
    float *master = c->in[4].data;
    if (skipped(c, &c->in[3])) return;
    double *updates = (double *)c->in[2].data + c->ints[M_INDEX];
    const bool random = c->ints[M_FLAGS] & LC_OPT_STOCHASTIC_ROUNDING && lc__is_half(p->dtype);
    const lc__rng_stream stream = random ? lc__rounding_stream(c, c->ints[M_INDEX], *updates) : (lc__rng_stream){0};
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            int64_t e = at + i * columns + j;
            const double less = lr * ratio * get(x, i * x->stride[0] + j * x->stride[1]);
            if (!master && random)
                lc__store_random(p->data, p->dtype, e, (float)(get(p, e) * keep - less), &stream, i * columns + j);
            else if (!master)
                put(p, e, get(p, e) * keep - less);
            else
                lc__master_store(p->data, p->dtype, e, master,
                                 (float)((double)lc__master_of(p->data, p->dtype, e, master) * keep - less));
        }
    }
    *updates += 1;
}

static const lc_kernel apply_kernel = {
    .name = "reference", .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_apply};
static lc_status infer_apply(lc_infer *call)
{
    return check_type(call);
}
const lc_op lc__op_muon_apply = {
    .name = "muon_apply",
    .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
    .n_out = 0,
    .infer = infer_apply,
    .mutated_inputs = 1u << 0 | 1u << 2 | 1u << 4,
    .kernel = &apply_kernel,
};

/* ---- the optimizer ---- */

static lc_tensor *combine(lc_tensor *x, double a, lc_tensor *y, double b)
{
    return lc_op_call(&lc__op_muon_combine, 2, (lc_tensor *[]){x, y}, 0, NULL, 2, (double[]){a, b}, LC_HERE);
}

/* X <- a X + (b A + c A A) X with A = X X^T, on the orientation with fewer rows. */
static lc_tensor *orthogonalize(lc_tensor *x, bool transposed, int steps)
{
    if (transposed) x = lc_transpose(x, 0, 1);
    for (int i = 0; i < steps; i++) {
        lc_tensor *gram = combine(lc_matmul(x, lc_transpose(x, 0, 1)), 1, NULL, 0);
        lc_tensor *factor = combine(gram, coefficients[1], lc_matmul(gram, gram), coefficients[2]);
        x = combine(x, coefficients[0], lc_matmul(factor, x), 1);
    }
    return transposed ? lc_transpose(x, 0, 1) : x;
}

static lc_status update(lc_optimizer *opt, const lc_update *u)
{
    for (int i = 0; i < u->n_segments; i++) {
        const lc_segment *s = &u->segments[i];
        int64_t ints[M_INTS];
        ints[M_CLIP] = u->clip_value != NULL;
        ints[M_SKIPS] = u->skips;
        ints[M_FLAGS] = opt->flags;
        ints[M_OFFSET] = s->offset;
        ints[M_INDEX] = s->index;
        ints[M_ROWS] = lc_tensor_dim(s->parameter, 0);
        ints[M_COLUMNS] = lc_tensor_dim(s->parameter, 1);
        lc_tensor *x =
            lc_op_call_live(&lc__op_muon_momentum, 3, (lc_tensor *[]){u->gradients, u->state[0], u->grad_scale}, M_INTS,
                            ints, LC_MAX_HYPER, u->group->hyper, LC_HERE);
        x = orthogonalize(x, ints[M_ROWS] > ints[M_COLUMNS], (int)u->group->hyper[H_NS_STEPS]);
        lc_op_call_live(&lc__op_muon_apply, 5, (lc_tensor *[]){u->parameters, x, u->steps, u->grad_scale, u->master},
                        M_INTS, ints, LC_MAX_HYPER, u->group->hyper, LC_HERE);
    }
    return LC_OK;
}

static lc_status accept(const lc_optimizer *opt, const lc_tensor *parameter)
{
    (void)opt;
    if (lc_tensor_ndim(parameter) == 2) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT,
                   "Muon trains matrices only, and a parameter has %d dimensions; pass it only matrices (.parameters), "
                   "and the others to another optimizer",
                   lc_tensor_ndim(parameter));
}

static lc_status check(const lc_optimizer *opt)
{
    double steps;
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc__check_at_least(opt, "weight_decay", 0));
    LC_TRY(lc__check_at_least(opt, "momentum", 0));
    LC_TRY(lc_optimizer_get(opt, -1, "ns_steps", &steps));
    if (!(steps >= 0 && steps < 100)) {
        return lc_fail(LC_ERR_ARGUMENT, "Muon: ns_steps is %g, must be in [0, 100)", steps);
    }
    return LC_OK;
}

static const char *const hyper_names[] = {"lr", "weight_decay", "momentum", "eps", "ns_steps", NULL};
static const double hyper_defaults[] = {1e-3, 0.1, 0.95, 1e-7, 5};
static const char *const state_names[] = {"momentum_buffer", NULL};
static const lc_optimizer_ops muon_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "Muon",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = state_names,
    .update = update,
    .check = check,
    .accept = accept,
};

static const lc_optimizer_ops *variant(const double *hyper, unsigned flags)
{
    (void)hyper, (void)flags;
    return &muon_ops;
}

const lc__optimizer_class lc__class_muon = {
    .name = "Muon",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .flags = LC_OPT_NESTEROV,
    .allowed = LC_OPT_NESTEROV | LC_OPT_MAXIMIZE | LC_OPT_MATCH_RMS_ADAMW,
    .variant = variant,
};

lc_optimizer *lc_muon_with(const lc_muon_args *args)
{
    LC__TAKE(a, lc_muon, lc_muon_args, args, NULL);
    const double values[] = {a.momentum, a.eps, (double)a.ns_steps};
    unsigned flags = (a.no_nesterov ? 0 : LC_OPT_NESTEROV) | (a.match_rms_adamw ? LC_OPT_MATCH_RMS_ADAMW : 0);
    return lc__optimizer_construct(&lc__class_muon, LC_OPTIMIZER_COMMON(a), values, LC_COUNT_OF(values), flags);
}
