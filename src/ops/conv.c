/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions in 1, 2 and 3 dimensions, and their two gradients. Each of the three is the gradient of the others;
 * a transposed convolution is the gradient with respect to the input. */
#include "ops/nn_util.h"
#include "ops/take.h"

/* Sizes and strides with three spatial dimensions; those that are missing come first, with size 1. */
typedef struct conv_dims {
    int nd;
    int64_t N, C, O, groups;
    int64_t in[3], out[3], k[3], s[3], p[3], d[3];
    int64_t xn, xc, xs[3], yn, yc, ys[3], wo, wc, ws[3];
} conv_dims;

static conv_dims dims_of(const int64_t *ints, const lc_view *x, const lc_view *w, const lc_view *y)
{
    conv_dims r = {.nd = (int)ints[0], .N = x->shape[0], .C = x->shape[1], .O = y->shape[1]};
    int nd = r.nd;
    r.groups = ints[1 + 3 * nd];
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - nd);
        bool there = from >= 0;
        r.in[i] = there ? x->shape[2 + from] : 1;
        r.out[i] = there ? y->shape[2 + from] : 1;
        r.k[i] = there ? w->shape[2 + from] : 1;
        r.s[i] = there ? ints[1 + from] : 1;
        r.p[i] = there ? ints[1 + nd + from] : 0;
        r.d[i] = there ? ints[1 + 2 * nd + from] : 1;
        r.xs[i] = there ? x->stride[2 + from] : 0;
        r.ys[i] = there ? y->stride[2 + from] : 0;
        r.ws[i] = there ? w->stride[2 + from] : 0;
    }
    r.xn = x->stride[0], r.xc = x->stride[1];
    r.yn = y->stride[0], r.yc = y->stride[1];
    r.wo = w->stride[0], r.wc = w->stride[1];
    return r;
}

#define LC_TEMPLATE "ops/conv.inl"
#include "ops/for_floats.h"

/* ---- inference ---- */
/* Checks the attributes that the three share; `extra` ints follow the groups: 1, or one for each dimension (0). */
static lc_status check_attributes(const lc_infer *call, int extra)
{
    int64_t nd = call->ints[0];
    if (nd < 1 || nd > 3) return lc_fail(LC_ERR_ARGUMENT, "convolutions have 1, 2 or 3 spatial dimensions");
    int64_t want = 2 + 3 * nd + (extra ? extra : nd);
    if (call->n_int != want)
        return lc_fail(LC_ERR_ARGUMENT, "takes %lld integer attributes, got %d", (long long)want, call->n_int);
    for (int i = 0; i < nd; i++) {
        if (call->ints[1 + i] < 1) return lc_fail(LC_ERR_ARGUMENT, "stride must be at least 1");
        if (call->ints[1 + nd + i] < 0) return lc_fail(LC_ERR_ARGUMENT, "padding must not be negative");
        if (call->ints[1 + 2 * nd + i] < 1) return lc_fail(LC_ERR_ARGUMENT, "dilation must be at least 1");
        if (call->ints[1 + i] > INT32_MAX || call->ints[1 + nd + i] > INT32_MAX ||
            call->ints[1 + 2 * nd + i] > INT32_MAX)
            return lc_fail(LC_ERR_ARGUMENT, "stride, padding or dilation is out of range");
    }
    if (call->ints[1 + 3 * nd] < 1) return lc_fail(LC_ERR_ARGUMENT, "groups must be at least 1");
    return LC_OK;
}

static lc_status check_ndim(const lc_type *t, const char *name, int64_t nd)
{
    if (t->ndim == nd + 2) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "%s must have %lld dimensions for a %lld-dimensional convolution, but has %d", name,
                   (long long)nd + 2, (long long)nd, t->ndim);
}

/* Checks that x and w fit, and computes the spatial size of the result. */
static lc_status result_size(const int64_t *ints, const int64_t *in, const int64_t *kernel, int64_t *out)
{
    int64_t nd = ints[0];
    for (int i = 0; i < nd; i++) {
        int64_t reach, padded;
        if (kernel[i] < 1) return lc_fail(LC_ERR_SHAPE, "the kernel is empty");
        if (__builtin_mul_overflow(ints[1 + 2 * nd + i], kernel[i] - 1, &reach) ||
            __builtin_add_overflow(2 * ints[1 + nd + i], in[i], &padded))
            return lc_fail(LC_ERR_SHAPE, "sizes overflow");
        if (padded < reach + 1)
            return lc_fail(LC_ERR_SHAPE, "the kernel spans %lld elements, but x has %lld with its padding",
                           (long long)reach + 1, (long long)padded);
        out[i] = (padded - reach - 1) / ints[1 + i] + 1;
    }
    return LC_OK;
}

static lc_status conv_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 3, -1, 0));
    LC_TRY(check_attributes(call, 1));
    LC_TRY(lc__check_float(call, 0, "x"));
    LC_TRY(lc__check_dtype_of(call, 1, "weight", 0, "x"));
    LC_TRY(lc__check_dtype_of(call, 2, "bias", 0, "x"));
    const lc_type *x = call->in[0], *w = call->in[1];
    int64_t nd = call->ints[0], groups = call->ints[1 + 3 * nd];
    LC_TRY(check_ndim(x, "x", nd));
    LC_TRY(check_ndim(w, "weight", nd));
    if (groups == 1 && w->shape[1] != x->shape[1])
        return lc_fail(LC_ERR_SHAPE, "weight expects %lld input channels, but x has %lld", (long long)w->shape[1],
                       (long long)x->shape[1]);
    if (x->shape[1] % groups)
        return lc_fail(LC_ERR_SHAPE, "x has %lld channels, which do not divide into %lld groups",
                       (long long)x->shape[1], (long long)groups);
    if (w->shape[0] % groups)
        return lc_fail(LC_ERR_SHAPE, "weight has %lld output channels, which do not divide into %lld groups",
                       (long long)w->shape[0], (long long)groups);
    if (w->shape[1] != x->shape[1] / groups)
        return lc_fail(LC_ERR_SHAPE, "weight expects %lld input channels in each of %lld groups, but x has %lld",
                       (long long)w->shape[1], (long long)groups, (long long)(x->shape[1] / groups));
    LC_TRY(lc__check_vector(call, 2, "bias", w->shape[0], "output channels"));
    call->out[0] = *x;
    call->out[0].shape[1] = w->shape[0];
    return result_size(call->ints, x->shape + 2, w->shape + 2, call->out[0].shape + 2);
}

/* The sizes of dy follow from those of x and w; anything else is a bug in the caller, or, for a transposed convolution,
 * an output padding that is too large. */
static lc_status check_dy(const lc_infer *call, const lc_type *dy, const int64_t *in, const int64_t *kernel)
{
    int64_t want[3], nd = call->ints[0];
    LC_TRY(result_size(call->ints, in, kernel, want));
    for (int i = 0; i < nd; i++)
        if (dy->shape[2 + i] != want[i])
            return lc_fail(
                LC_ERR_SHAPE,
                "a result of size %lld in spatial dimension %d needs an input of size %lld, not %lld (output "
                "padding must be smaller than stride or dilation)",
                (long long)in[i], i, (long long)want[i], (long long)dy->shape[2 + i]);
    return LC_OK;
}

static lc_status conv_input_grad_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 3, -1, 0));
    LC_TRY(check_attributes(call, 0));
    LC_TRY(lc__check_float(call, 0, "x"));
    LC_TRY(lc__check_dtype_of(call, 1, "weight", 0, "x"));
    LC_TRY(lc__check_dtype_of(call, 2, "bias", 0, "x"));
    const lc_type *dy = call->in[0], *w = call->in[1];
    int64_t nd = call->ints[0], groups = call->ints[1 + 3 * nd], channels;
    const int64_t *in = call->ints + 2 + 3 * nd;
    LC_TRY(check_ndim(dy, "x", nd));
    LC_TRY(check_ndim(w, "weight", nd));
    if (w->shape[0] != dy->shape[1])
        return lc_fail(LC_ERR_SHAPE, "weight expects %lld input channels, but x has %lld", (long long)w->shape[0],
                       (long long)dy->shape[1]);
    if (w->shape[0] % groups)
        return lc_fail(LC_ERR_SHAPE, "x has %lld channels, which do not divide into %lld groups",
                       (long long)w->shape[0], (long long)groups);
    if (__builtin_mul_overflow(w->shape[1], groups, &channels)) return lc_fail(LC_ERR_SHAPE, "sizes overflow");
    LC_TRY(lc__check_vector(call, 2, "bias", channels, "output channels"));
    call->out[0] = *dy;
    call->out[0].shape[1] = channels;
    for (int i = 0; i < nd; i++) {
        if (in[i] < 1) return lc_fail(LC_ERR_SHAPE, "the result would be empty in spatial dimension %d", i);
        call->out[0].shape[2 + i] = in[i];
    }
    return check_dy(call, dy, in, w->shape + 2);
}

static lc_status conv_weight_grad_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 3, -1, 0));
    LC_TRY(check_attributes(call, 0));
    LC_TRY(lc__check_float(call, 0, "dy"));
    LC_TRY(lc__check_dtype_of(call, 1, "x", 0, "dy"));
    const lc_type *dy = call->in[0], *x = call->in[1];
    int64_t nd = call->ints[0], groups = call->ints[1 + 3 * nd];
    const int64_t *kernel = call->ints + 2 + 3 * nd;
    LC_TRY(check_ndim(dy, "dy", nd));
    LC_TRY(check_ndim(x, "x", nd));
    if (dy->shape[0] != x->shape[0]) return lc_fail(LC_ERR_SHAPE, "dy and x have different batch sizes");
    if (x->shape[1] % groups || dy->shape[1] % groups)
        return lc_fail(LC_ERR_SHAPE, "channels do not divide into %lld groups", (long long)groups);
    LC_TRY(check_dy(call, dy, x->shape + 2, kernel));
    call->out[0] = *dy;
    call->out[0].shape[0] = dy->shape[1];
    call->out[0].shape[1] = x->shape[1] / groups;
    for (int i = 0; i < nd; i++) call->out[0].shape[2 + i] = kernel[i];
    return LC_OK;
}

/* ---- gradients ---- */
/* nd, stride, padding, dilation, groups of `ints`, followed by sizes (or the activation: none). */
static int with_sizes(const int64_t *ints, const int64_t *sizes, int64_t *out)
{
    int n = 2 + 3 * (int)ints[0];
    memcpy(out, ints, (size_t)n * sizeof *out);
    if (!sizes) {
        out[n] = 0;
        return n + 1;
    }
    memcpy(out + n, sizes, (size_t)ints[0] * sizeof *out);
    return n + (int)ints[0];
}

enum { MAX_CONV_INTS = 2 + 4 * 3 };

static lc_tensor *forward(const int64_t *ints, lc_tensor *x, lc_tensor *w)
{
    int64_t a[MAX_CONV_INTS];
    int n = with_sizes(ints, NULL, a);
    return lc_op_call(&lc__op_conv, LC_IN(x, w, NULL), n, a, LC_NONE, LC_HERE);
}

static lc_tensor *input_grad(const int64_t *ints, lc_tensor *dy, lc_tensor *w, lc_tensor *like)
{
    int64_t a[MAX_CONV_INTS];
    int n = with_sizes(ints, lc_tensor_shape(like) + 2, a);
    return lc_op_call(&lc__op_conv_input_grad, LC_IN(dy, w, NULL), n, a, LC_NONE, LC_HERE);
}

static lc_tensor *weight_grad(const int64_t *ints, lc_tensor *dy, lc_tensor *x, lc_tensor *like)
{
    int64_t a[MAX_CONV_INTS];
    int n = with_sizes(ints, lc_tensor_shape(like) + 2, a);
    return lc_op_call(&lc__op_conv_weight_grad, LC_IN(dy, x), n, a, LC_NONE, LC_HERE);
}

static lc_status conv_grad(lc_grad *g)
{
    lc_tensor *x = g->in[0], *w = g->in[1], *dy = g->dout[0];
    if (g->ints[2 + 3 * g->ints[0]])
        return lc_fail(LC_ERR_INTERNAL, "a convolution with a fused activation has no gradient rule");
    if (g->need[0]) g->din[0] = input_grad(g->ints, dy, w, x);
    if (g->need[1]) g->din[1] = weight_grad(g->ints, dy, x, w);
    if (g->need[2]) g->din[2] = lc__sum_but(dy, 1, LC_HERE);
    return LC_OK;
}

static lc_status conv_input_grad_grad(lc_grad *g)
{
    lc_tensor *dy = g->in[0], *w = g->in[1], *ddx = g->dout[0];
    if (g->need[0]) g->din[0] = forward(g->ints, ddx, w);
    if (g->need[1]) g->din[1] = weight_grad(g->ints, dy, ddx, w);
    if (g->need[2]) g->din[2] = lc__sum_but(ddx, 1, LC_HERE);
    return LC_OK;
}

static lc_status conv_weight_grad_grad(lc_grad *g)
{
    lc_tensor *dy = g->in[0], *x = g->in[1], *ddw = g->dout[0];
    if (g->need[0]) g->din[0] = forward(g->ints, x, ddw);
    if (g->need[1]) g->din[1] = input_grad(g->ints, dy, ddw, x);
    return LC_OK;
}

LC_NN_KERNEL(conv)
LC_NN_KERNEL_ADDING(conv_input_grad)
LC_NN_KERNEL_ADDING(conv_weight_grad)
static const char *conv_title(int n_int, const int64_t *ints)
{
    static const char *const titles[] = {"conv1d", "conv2d", "conv3d"};
    return n_int && ints[0] >= 1 && ints[0] <= 3 ? titles[ints[0] - 1] : "conv";
}

/* Users know this operator as a transposed convolution. */
static const char *conv_transpose_title(int n_int, const int64_t *ints)
{
    static const char *const titles[] = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};
    return n_int && ints[0] >= 1 && ints[0] <= 3 ? titles[ints[0] - 1] : "conv_transpose";
}

const lc_op lc__op_conv = {.name = "conv",
                           .inputs = "x weight bias",
                           .title = conv_title,
                           .n_out = 1,
                           .infer = conv_infer,
                           .grad = conv_grad,
                           .kernel = &conv_kernel};
const lc_op lc__op_conv_input_grad = {.name = "conv_input_grad",
                                      .inputs = "x weight bias",
                                      .title = conv_transpose_title,
                                      .n_out = 1,
                                      .infer = conv_input_grad_infer,
                                      .grad = conv_input_grad_grad,
                                      .kernel = &conv_input_grad_kernel};
const lc_op lc__op_conv_weight_grad = {.name = "conv_weight_grad",
                                       .n_out = 1,
                                       .infer = conv_weight_grad_infer,
                                       .grad = conv_weight_grad_grad,
                                       .kernel = &conv_weight_grad_kernel};

/* ---- public functions ---- */
/* Fails unless each list has no, one or nd entries. */
static lc_status check_lists(int nd, const lc_conv_args *args)
{
    LC_TRY(lc__dims_check(&args->stride, nd, "stride"));
    LC_TRY(lc__dims_check(&args->padding, nd, "padding"));
    LC_TRY(lc__dims_check(&args->dilation, nd, "dilation"));
    return lc__dims_check(&args->output_padding, nd, "output_padding");
}

/* nd, stride, padding, dilation, groups, and room for what follows. */
static int attributes(int nd, const lc_conv_args *args, int64_t *ints)
{
    ints[0] = nd;
    for (int i = 0; i < nd; i++) {
        ints[1 + i] = lc__dims_at(&args->stride, i, 1);
        ints[1 + nd + i] = lc__dims_at(&args->padding, i, 0);
        ints[1 + 2 * nd + i] = lc__dims_at(&args->dilation, i, 1);
    }
    ints[1 + 3 * nd] = args->groups;
    return 2 + 3 * nd;
}

/* Adds (or removes) the batch dimension of an image that has none. */
static lc_tensor *batched(lc_tensor *x, bool add, lc_site site)
{
    if (lc__unusable(x)) return x;
    int n = lc_tensor_ndim(x);
    int64_t shape[LC_MAX_DIMS] = {1};
    memcpy(shape + (add ? 1 : 0), lc_tensor_shape(x) + (add ? 0 : 1), (size_t)(add ? n : n - 1) * sizeof *shape);
    return lc__reshape(x, add ? n + 1 : n - 1, shape, site);
}

static lc_tensor *record_conv(int nd, lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site)
{
    int64_t ints[MAX_CONV_INTS];
    int n = attributes(nd, args, ints);
    ints[n++] = 0; /* activation */
    lc_status status = check_lists(nd, args);
    for (int i = 0; i < nd && status >= 0; i++)
        if (lc__dims_at(&args->output_padding, i, 0))
            status = lc_fail(LC_ERR_ARGUMENT, "output padding needs a transposed convolution");
    if (status < 0 && !lc__unusable(x)) return lc__refuse(status, lc__op_conv.title(n, ints), x, site);
    bool single = !lc__unusable(x) && lc_tensor_ndim(x) == nd + 1;
    if (single) x = batched(x, true, site);
    lc_tensor *y = lc_op_call(&lc__op_conv, LC_IN(x, w, args->bias), n, ints, LC_NONE, site);
    return single ? batched(y, false, site) : y;
}

static lc_tensor *record_transposed(int nd, lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site)
{
    int64_t ints[MAX_CONV_INTS];
    int n = attributes(nd, args, ints);
    bool single = !lc__unusable(x) && lc_tensor_ndim(x) == nd + 1;
    if (single) x = batched(x, true, site);
    lc_status status = check_lists(nd, args);
    for (int i = 0; i < nd && status >= 0; i++)
        if (lc__dims_at(&args->output_padding, i, 0) < 0)
            status = lc_fail(LC_ERR_ARGUMENT, "output padding must not be negative");
    if (status < 0 && !lc__unusable(x)) return lc__refuse(status, lc__op_conv_input_grad.title(n, ints), x, site);
    int64_t more[6] = {0}, padded = 0; /* zeros after x, last dimension first */
    for (int i = 0; i < nd; i++) {
        int64_t size = 0, further = lc__dims_at(&args->output_padding, i, 0);
        /* If x or w has another number of dimensions, the operator reports it; the size does not matter. */
        if (!lc__unusable(x) && !lc__unusable(w) && lc_tensor_ndim(x) == nd + 2 && lc_tensor_ndim(w) == nd + 2)
            size = (lc_tensor_dim(x, 2 + i) - 1) * ints[1 + i] - 2 * ints[1 + nd + i] +
                   ints[1 + 2 * nd + i] * (lc_tensor_dim(w, 2 + i) - 1) + further + 1;
        ints[n++] = size;
        /* An output padding of a stride or more (which a dilation allows) is that of a longer x that ends in zeros. */
        if (size > 0 && further < ints[1 + 2 * nd + i]) padded += more[2 * (nd - 1 - i) + 1] = further / ints[1 + i];
    }
    if (padded) x = lc_pad_at(x, 0, 2 * nd, more, site);
    lc_tensor *y = lc_op_call(&lc__op_conv_input_grad, LC_IN(x, w, args->bias), n, ints, LC_NONE, site);
    return single ? batched(y, false, site) : y;
}

#define LC_CONV_FUNCTIONS(nd)                                                                                          \
    lc_tensor *lc_conv##nd##d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *given, lc_site site)                  \
    {                                                                                                                  \
        LC__TAKE_OP(args, "conv" #nd "d", lc_conv, given, site);                                                       \
        return record_conv(nd, x, w, &args, site);                                                                     \
    }                                                                                                                  \
    lc_tensor *lc_conv_transpose##nd##d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *given, lc_site site)        \
    {                                                                                                                  \
        LC__TAKE_OP(args, "conv_transpose" #nd "d", lc_conv, given, site);                                             \
        return record_transposed(nd, x, w, &args, site);                                                               \
    }
LC_CONV_FUNCTIONS(1)
LC_CONV_FUNCTIONS(2)
LC_CONV_FUNCTIONS(3)
