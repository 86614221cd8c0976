/* SPDX-License-Identifier: Apache-2.0 */
/* Resampling of images: nearest and bilinear interpolation; pixel shuffle, which consists only of views. */
#include "ops/nn_util.h"
#include "ops/take.h"
#include "record/graph_impl.h"

/* The source elements of a result element, along one dimension. */
typedef struct taps {
    int64_t at[2];
    double weight[2];
} taps;

/* ints: mode align_corners ...; floats: factor per dimension, 0 = from the sizes. */
static taps taps_of(const lc_call *c, int dim, int64_t in, int64_t out, int64_t i)
{
    double factor = c->floats[dim], step = factor > 0 ? 1 / factor : (double)in / (double)out;
    taps r = {{0, 0}, {1, 0}};
    /* As in PyTorch: the same size is the same image and double the size repeats each pixel, whatever the factor. */
    if (out == in) {
        r.at[0] = r.at[1] = i;
        return r;
    }
    if (c->ints[0] == LC_NEAREST) {
        int64_t at = out == 2 * in ? i / 2 : (int64_t)floor((double)i * step);
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

#define LC_TEMPLATE "ops/interpolate.inl"
#include "ops/for_floats.h"

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
        return lc_fail(LC_ERR_SHAPE, "the result would be empty; give .output_size or .scale");
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
/* Attributes and shapes are those of interpolate, in the opposite direction. */
const lc_op lc__op_interpolate_backward = {.name = "interpolate_backward",
                                           .flags = LC_OP_NO_GRAD,
                                           .n_out = 1,
                                           .infer = interpolate_infer,
                                           .kernel = &interpolate_backward_kernel};

lc_tensor *lc_interpolate_at(lc_tensor *x, const lc_interpolate_args *given, lc_site site)
{
    LC__TAKE_OP(args, "interpolate", lc_interpolate, given, site);
    double scale[2] = {0, 0};
    int64_t size[2] = {lc__dims_at(&args.output_size, 0, 0), lc__dims_at(&args.output_size, 1, 0)};
    lc_status status = lc__dims_check(&args.output_size, 2, "output_size");
    if (status >= 0 && args.output_size.n && (args.scale != 0 || args.scale_w != 0))
        status = lc_fail(LC_ERR_ARGUMENT, "give .output_size or .scale, not both");
    if (status < 0 && !lc__unusable(x)) return lc__refuse(status, "interpolate", x, site);
    if (!args.output_size.n && !lc__unusable(x) && lc_tensor_ndim(x) == 4) {
        scale[0] = args.scale;
        scale[1] = args.scale_w != 0 ? args.scale_w : args.scale;
        for (int i = 0; i < 2; i++) {
            double n = floor((double)lc_tensor_dim(x, 2 + i) * scale[i]);
            size[i] = n >= 1 && n < (double)INT32_MAX ? (int64_t)n : 0;
        }
    }
    return lc_op_call(&lc__op_interpolate, LC_IN(x), LC_ATTRS(args.mode, args.align_corners, size[0], size[1]), 2,
                      scale, site);
}

/* ---- pixel shuffle ---- */
/* Whether the last three dimensions can be cut as requested; `unit` divides the channels, or height and width. */
static lc_status check_shuffle(const lc_tensor *x, int64_t factor, bool channels)
{
    if (!x) return lc_fail(LC_ERR_ARGUMENT, "x is NULL");
    int n = lc_tensor_ndim(x);
    if (n < 3 || n + 2 > LC_MAX_DIMS)
        return lc_fail(LC_ERR_SHAPE, "x must have 3 to %d dimensions [..,C,H,W], has %d", LC_MAX_DIMS - 2, n);
    if (factor < 1 || factor > INT16_MAX) return lc_fail(LC_ERR_ARGUMENT, "the factor must be at least 1");
    const int64_t *s = lc_tensor_shape(x) + n - 3;
    if (channels && s[0] % (factor * factor))
        return lc_fail(LC_ERR_SHAPE, "x has %lld channels, which is not a multiple of %lld x %lld", (long long)s[0],
                       (long long)factor, (long long)factor);
    if (!channels && (s[1] % factor || s[2] % factor))
        return lc_fail(LC_ERR_SHAPE, "x is %lld x %lld, which is not divisible by %lld", (long long)s[1],
                       (long long)s[2], (long long)factor);
    return LC_OK;
}

/* Cuts the last three dimensions into five, reorders those, and joins them to three. */
static lc_tensor *shuffle(lc_tensor *x, const int64_t *parts, const int *to, const int64_t *joined, lc_site site)
{
    int n = lc_tensor_ndim(x), lead = n - 3;
    int64_t split[LC_MAX_DIMS], order[LC_MAX_DIMS], shape[LC_MAX_DIMS];
    for (int d = 0; d < lead; d++) split[d] = shape[d] = lc_tensor_dim(x, d), order[d] = d;
    for (int i = 0; i < 5; i++) split[lead + i] = parts[i], order[lead + i] = lead + to[i];
    for (int i = 0; i < 3; i++) shape[lead + i] = joined[i];
    x = lc__reshape(x, n + 2, split, site);
    x = lc_op_call(&lc__op_permute, LC_IN(x), n + 2, order, LC_NONE, site);
    return lc__reshape(x, n, shape, site);
}

lc_tensor *lc_pixel_shuffle_at(lc_tensor *x, int64_t r, lc_site site)
{
    if (!lc__check_tensor(x, "x", "pixel_shuffle", site)) return lc__error_tensor();
    if (lc_tensor_is_error(x)) return x;
    lc_status status = check_shuffle(x, r, true);
    if (status < 0) return lc__refuse(status, "pixel_shuffle", x, site);
    int64_t c = lc_tensor_dim(x, -3) / (r * r), h = lc_tensor_dim(x, -2), w = lc_tensor_dim(x, -1);
    static const int order[5] = {0, 3, 1, 4, 2}; /* [C,r,r,H,W] -> [C,H,r,W,r] */
    return shuffle(x, (int64_t[]){c, r, r, h, w}, order, (int64_t[]){c, h * r, w * r}, site);
}

lc_tensor *lc_pixel_unshuffle_at(lc_tensor *x, int64_t r, lc_site site)
{
    if (!lc__check_tensor(x, "x", "pixel_unshuffle", site)) return lc__error_tensor();
    if (lc_tensor_is_error(x)) return x;
    lc_status status = check_shuffle(x, r, false);
    if (status < 0) return lc__refuse(status, "pixel_unshuffle", x, site);
    int64_t c = lc_tensor_dim(x, -3), h = lc_tensor_dim(x, -2) / r, w = lc_tensor_dim(x, -1) / r;
    static const int order[5] = {0, 2, 4, 1, 3}; /* [C,H,r,W,r] -> [C,r,r,H,W] */
    return shuffle(x, (int64_t[]){c, h, r, w, r}, order, (int64_t[]){c * r * r, h, w}, site);
}
