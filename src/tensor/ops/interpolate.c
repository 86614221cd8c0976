/* SPDX-License-Identifier: Apache-2.0 */
/* Resampling of images: nearest and bilinear interpolation; pixel shuffle, which is views alone. */
#include "tensor/ops/nn_util.h"

/* Where a place of the result comes from, along one dimension. */
typedef struct taps {
    int64_t at[2];
    double weight[2];
} taps;

/* ints: mode align_corners ...; floats: factor per dimension, 0 = from the sizes. */
static taps taps_of(const lc_call *c, int dim, int64_t in, int64_t out, int64_t i)
{
    double factor = c->floats[dim], step = factor > 0 ? 1 / factor : (double)in / (double)out;
    taps r = {{0, 0}, {1, 0}};
    if (c->ints[0] == LC_NEAREST) {
        int64_t at = (int64_t)floor((double)i * step);
        r.at[0] = r.at[1] = at < in - 1 ? at : in - 1;
        return r;
    }
    double place;
    if (c->ints[1])
        place = out > 1 ? (double)i * ((double)(in - 1) / (double)(out - 1)) : 0;
    else
        place = ((double)i + 0.5) * step - 0.5;
    if (place < 0) place = 0;
    int64_t first = (int64_t)place;
    if (first > in - 1) first = in - 1;
    r.at[0] = first;
    r.at[1] = first < in - 1 ? first + 1 : first;
    r.weight[1] = place - (double)first < 1 ? place - (double)first : 1;
    r.weight[0] = 1 - r.weight[1];
    return r;
}

#define LC_TEMPLATE "tensor/ops/interpolate.inl"
#include "tensor/ops/for_floats.h"

static lc_status interpolate_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 1, 1, 4, 2));
    LC_TRY(lc__check_float(call, 0, "x"));
    const lc_type *x = call->in[0];
    if (x->ndim != 4) return lc_fail(LC_ERR_SHAPE, "x must have 4 dimensions [N,C,H,W], has %d", x->ndim);
    if (call->ints[0] != LC_NEAREST && call->ints[0] != LC_BILINEAR)
        return lc_fail(LC_ERR_ARGUMENT, "mode must be LC_NEAREST or LC_BILINEAR");
    if (call->ints[1] && call->ints[0] == LC_NEAREST)
        return lc_fail(LC_ERR_ARGUMENT, "align_corners needs LC_BILINEAR");
    if (x->shape[2] < 1 || x->shape[3] < 1) return lc_fail(LC_ERR_SHAPE, "x is empty");
    if (call->ints[2] < 1 || call->ints[3] < 1)
        return lc_fail(LC_ERR_SHAPE, "the result would be empty; give .size or .scale");
    call->out[0] = *x;
    call->out[0].shape[2] = call->ints[2];
    call->out[0].shape[3] = call->ints[3];
    return LC_OK;
}

static lc_status interpolate_grad(lc_grad *g)
{
    const int64_t *size = lc_tensor_shape(g->in[0]) + 2;
    if (g->need[0])
        g->din[0] = lc_op_call(&lc__op_interpolate_backward, LC_IN(g->dout[0]),
                               LC_ATTRS(g->ints[0], g->ints[1], size[0], size[1]), g->n_float, g->floats, LC_HERE);
    return LC_OK;
}

LC_NN_KERNEL(interpolate)
LC_NN_KERNEL(interpolate_backward)
const lc_op lc__op_interpolate = {.name = "interpolate",
                                  .n_out = 1,
                                  .infer = interpolate_infer,
                                  .grad = interpolate_grad,
                                  .kernel = &interpolate_kernel};
/* Its attributes and shapes are those of interpolate the other way round. */
const lc_op lc__op_interpolate_backward = {.name = "interpolate_backward",
                                           .flags = LC_OP_NO_GRAD,
                                           .n_out = 1,
                                           .infer = interpolate_infer,
                                           .kernel = &interpolate_backward_kernel};

lc_tensor *lc_interpolate_at(lc_tensor *x, lc_interpolate_args args, lc_site site)
{
    double scale[2] = {0, 0};
    int64_t size[2] = {args.size[0], args.size[1]};
    if (!size[0] && !size[1] && !lc__unusable(x) && lc_tensor_ndim(x) == 4) {
        scale[0] = args.scale[0];
        scale[1] = args.scale[1] != 0 ? args.scale[1] : args.scale[0];
        for (int i = 0; i < 2; i++) {
            double n = floor((double)lc_tensor_dim(x, 2 + i) * scale[i]);
            size[i] = n >= 1 && n < (double)INT32_MAX ? (int64_t)n : 0;
        }
    }
    return lc_op_call(&lc__op_interpolate, LC_IN(x), LC_ATTRS(args.mode, args.align_corners, size[0], size[1]), 2,
                      scale, site);
}

lc_tensor *lc_pixel_shuffle_at(lc_tensor *x, int64_t r, lc_site site)
{
    if (lc__unusable(x) || lc_tensor_ndim(x) < 3 || r < 1) return lc__reshape(x, 0, NULL, site);
    const int64_t *s = lc_tensor_shape(x);
    int n = lc_tensor_ndim(x), lead = n - 3;
    if (lead > 3) return lc__reshape(x, 0, NULL, site);
    int64_t split[LC_MAX_DIMS], order[LC_MAX_DIMS], joined[LC_MAX_DIMS];
    for (int d = 0; d < lead; d++) split[d] = joined[d] = s[d], order[d] = d;
    /* [C,r,r,H,W] -> [C,H,r,W,r] */
    const int64_t parts[5] = {s[lead] / (r * r), r, r, s[lead + 1], s[lead + 2]};
    static const int to[5] = {0, 3, 1, 4, 2};
    for (int i = 0; i < 5; i++) split[lead + i] = parts[i], order[lead + i] = lead + to[i];
    joined[lead] = parts[0];
    joined[lead + 1] = s[lead + 1] * r;
    joined[lead + 2] = s[lead + 2] * r;
    /* Channels that r*r does not divide make the reshape fail, which then names the operator and the shapes. */
    x = lc__reshape(x, n + 2, split, site);
    x = lc_op_call(&lc__op_permute, LC_IN(x), n + 2, order, LC_NONE, site);
    return lc__reshape(x, n, joined, site);
}

lc_tensor *lc_pixel_unshuffle_at(lc_tensor *x, int64_t r, lc_site site)
{
    if (lc__unusable(x) || lc_tensor_ndim(x) < 3 || r < 1) return lc__reshape(x, 0, NULL, site);
    const int64_t *s = lc_tensor_shape(x);
    int n = lc_tensor_ndim(x), lead = n - 3;
    if (lead > 3) return lc__reshape(x, 0, NULL, site);
    int64_t split[LC_MAX_DIMS], order[LC_MAX_DIMS], joined[LC_MAX_DIMS];
    for (int d = 0; d < lead; d++) split[d] = joined[d] = s[d], order[d] = d;
    /* [C,H,r,W,r] -> [C,r,r,H,W] */
    const int64_t parts[5] = {s[lead], s[lead + 1] / r, r, s[lead + 2] / r, r};
    static const int to[5] = {0, 2, 4, 1, 3};
    for (int i = 0; i < 5; i++) split[lead + i] = parts[i], order[lead + i] = lead + to[i];
    joined[lead] = s[lead] * r * r;
    joined[lead + 1] = parts[1];
    joined[lead + 2] = parts[3];
    x = lc__reshape(x, n + 2, split, site);
    x = lc_op_call(&lc__op_permute, LC_IN(x), n + 2, order, LC_NONE, site);
    return lc__reshape(x, n, joined, site);
}
