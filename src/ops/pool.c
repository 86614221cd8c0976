/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: maximum, average, and average over a grid of given size. */
#include "ops/nn_util.h"
#include "ops/take.h"

/* The nine attributes of max_pool2d. */
typedef struct window {
    int64_t kh, kw, sh, sw, ph, pw, dh, dw, ceil;
} window;

static window window_of(const int64_t *i)
{
    return (window){i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8]};
}

/* A range of x that is averaged. */
typedef struct cell {
    int64_t h0, h1, w0, w1;
    double divisor;
} cell;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ints: kh kw sh sw ph pw ceil count_include_pad divisor. The window is first cut at the end of the padding
 * (count_include_pad counts that size), then at the end of x. */
static cell average_cell(const int64_t *i, int64_t H, int64_t W, int64_t oh, int64_t ow)
{
    int64_t h0 = oh * i[2] - i[4], w0 = ow * i[3] - i[5];
    int64_t h1 = smaller(h0 + i[0], H + i[4]), w1 = smaller(w0 + i[1], W + i[5]);
    int64_t padded = (h1 - h0) * (w1 - w0);
    cell r = {larger(h0, 0), smaller(h1, H), larger(w0, 0), smaller(w1, W), 0};
    int64_t inside = larger(r.h1 - r.h0, 0) * larger(r.w1 - r.w0, 0);
    r.divisor = (double)(i[8] ? i[8] : i[7] ? padded : inside);
    if (inside == 0) r.divisor = 1;
    return r;
}

static cell adaptive_cell(int64_t H, int64_t W, int64_t OH, int64_t OW, int64_t oh, int64_t ow)
{
    cell r = {oh * H / OH, ((oh + 1) * H + OH - 1) / OH, ow * W / OW, ((ow + 1) * W + OW - 1) / OW, 0};
    r.divisor = (double)((r.h1 - r.h0) * (r.w1 - r.w0));
    return r;
}

static void put_index(const lc_view *index, int64_t at, int64_t place)
{
    if (index->dtype == LC_U8)
        ((uint8_t *)index->data)[at] = (uint8_t)place;
    else
        ((int32_t *)index->data)[at] = (int32_t)place;
}

#define LC_TEMPLATE "ops/pool.inl"
#include "ops/for_floats.h"

/* ---- inference ---- */
static lc_status check_image(const lc_infer *call, int i, const char *name)
{
    LC_TRY(lc__check_float(call, i, name));
    if (call->in[i]->ndim == 4) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "%s must have 4 dimensions [N,C,H,W], has %d", name, call->in[i]->ndim);
}

/* The number of windows that fit into n; with `ceil` the last may extend beyond it, but must start inside x or its left
 * padding. */
static lc_status windows(int64_t n, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil,
                         int64_t *out)
{
    if (kernel < 1 || stride < 1 || dilation < 1)
        return lc_fail(LC_ERR_ARGUMENT, "kernel, stride and dilation must be at least 1");
    if (kernel > INT32_MAX || stride > INT32_MAX || dilation > INT32_MAX)
        return lc_fail(LC_ERR_ARGUMENT, "kernel, stride or dilation is out of range");
    if (pad < 0 || pad > kernel / 2)
        return lc_fail(LC_ERR_ARGUMENT, "padding must be between 0 and half the kernel, is %lld for a kernel of %lld",
                       (long long)pad, (long long)kernel);
    int64_t reach = dilation * (kernel - 1) + 1;
    int64_t free = n + 2 * pad - reach + (ceil ? stride - 1 : 0);
    if (free < 0)
        return lc_fail(LC_ERR_SHAPE, "the kernel spans %lld elements, but x has %lld with its padding",
                       (long long)reach, (long long)(n + 2 * pad));
    *out = free / stride + 1;
    if (ceil && (*out - 1) * stride >= n + pad) --*out;
    if (*out < 1) return lc_fail(LC_ERR_SHAPE, "every window would start outside x");
    return LC_OK;
}

static lc_status max_windows(const int64_t *i, int64_t H, int64_t W, int64_t *out)
{
    LC_TRY(windows(H, i[0], i[2], i[4], i[6], i[8] != 0, &out[0]));
    return windows(W, i[1], i[3], i[5], i[7], i[8] != 0, &out[1]);
}

static lc_status average_windows(const int64_t *i, int64_t H, int64_t W, int64_t *out)
{
    LC_TRY(windows(H, i[0], i[2], i[4], 1, i[6] != 0, &out[0]));
    if (i[8] < 0) return lc_fail(LC_ERR_ARGUMENT, "divisor must not be negative");
    return windows(W, i[1], i[3], i[5], 1, i[6] != 0, &out[1]);
}

/* dy's planes with the size H, W given as the last two ints. */
static lc_status image_like(lc_infer *call, const int64_t *size)
{
    if (size[0] < 1 || size[1] < 1) return lc_fail(LC_ERR_SHAPE, "the result would be empty");
    call->out[0] = *call->in[0];
    call->out[0].shape[2] = size[0];
    call->out[0].shape[3] = size[1];
    return LC_OK;
}

static lc_status check_windows(const lc_type *dy, const int64_t *want)
{
    if (dy->shape[2] == want[0] && dy->shape[3] == want[1]) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "dy must be %lld x %lld", (long long)want[0], (long long)want[1]);
}

static lc_status max_pool2d_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 1, 1, 9, 0));
    LC_TRY(check_image(call, 0, "x"));
    const lc_type *x = call->in[0];
    lc_type *y = &call->out[0];
    *y = *x;
    LC_TRY(max_windows(call->ints, x->shape[2], x->shape[3], y->shape + 2));
    call->out[1] = *y;
    call->out[1].dtype = call->ints[0] > 255 || call->ints[0] * call->ints[1] > 255 ? LC_I32 : LC_U8;
    return LC_OK;
}

static lc_status max_pool2d_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 3, 11, 0));
    LC_TRY(check_image(call, 0, "dy"));
    if (call->in[1]->dtype != LC_U8 && call->in[1]->dtype != LC_I32)
        return lc_fail(LC_ERR_DTYPE, "index must be u8 or i32, is %s", lc_dtype_name(call->in[1]->dtype));
    LC_TRY(lc__check_shape(call, 1, "index", 4, call->in[0]->shape));
    int64_t want[2];
    LC_TRY(max_windows(call->ints, call->ints[9], call->ints[10], want));
    LC_TRY(check_windows(call->in[0], want));
    return image_like(call, call->ints + 9);
}

static lc_status avg_pool2d_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 1, 1, 9, 0));
    LC_TRY(check_image(call, 0, "x"));
    call->out[0] = *call->in[0];
    return average_windows(call->ints, call->in[0]->shape[2], call->in[0]->shape[3], call->out[0].shape + 2);
}

static lc_status avg_pool2d_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 1, 1, 11, 0));
    LC_TRY(check_image(call, 0, "dy"));
    int64_t want[2];
    LC_TRY(average_windows(call->ints, call->ints[9], call->ints[10], want));
    LC_TRY(check_windows(call->in[0], want));
    return image_like(call, call->ints + 9);
}

static lc_status adaptive_avg_pool2d_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 1, 1, 2, 0));
    LC_TRY(check_image(call, 0, "x"));
    if (call->in[0]->shape[2] < 1 || call->in[0]->shape[3] < 1) return lc_fail(LC_ERR_SHAPE, "x is empty");
    return image_like(call, call->ints);
}

static lc_status adaptive_avg_pool2d_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 1, 1, 2, 0));
    LC_TRY(check_image(call, 0, "dy"));
    return image_like(call, call->ints);
}

/* ---- gradients ---- */
/* ints of the forward call followed by x's H and W. */
static lc_tensor *backward(const lc_op *op, const lc_grad *g, int n_in, lc_tensor *const *in)
{
    int64_t ints[11];
    memcpy(ints, g->ints, 9 * sizeof *ints);
    memcpy(ints + 9, lc_tensor_shape(g->in[0]) + 2, 2 * sizeof *ints);
    return lc_op_call(op, n_in, in, 11, ints, LC_NONE, LC_HERE);
}

static lc_status max_pool2d_grad(lc_grad *g)
{
    if (g->need[0] && g->dout[0]) g->din[0] = backward(&lc__op_max_pool2d_backward, g, LC_IN(g->dout[0], g->out[1]));
    return LC_OK;
}

static lc_status avg_pool2d_grad(lc_grad *g)
{
    if (g->need[0]) g->din[0] = backward(&lc__op_avg_pool2d_backward, g, LC_IN(g->dout[0]));
    return LC_OK;
}

static lc_status adaptive_avg_pool2d_grad(lc_grad *g)
{
    if (g->need[0])
        g->din[0] = lc_op_call(&lc__op_adaptive_avg_pool2d_backward, LC_IN(g->dout[0]), 2,
                               lc_tensor_shape(g->in[0]) + 2, LC_NONE, LC_HERE);
    return LC_OK;
}

LC_NN_KERNEL(max_pool2d)
LC_NN_KERNEL(max_pool2d_backward)
LC_NN_KERNEL(avg_pool2d)
LC_NN_KERNEL(avg_pool2d_backward)
LC_NN_KERNEL(adaptive_avg_pool2d)
LC_NN_KERNEL(adaptive_avg_pool2d_backward)
const lc_op lc__op_max_pool2d = {
    .name = "max_pool2d", .n_out = 2, .infer = max_pool2d_infer, .grad = max_pool2d_grad, .kernel = &max_pool2d_kernel};
const lc_op lc__op_max_pool2d_backward = {.name = "max_pool2d_backward",
                                          .flags = LC_OP_NO_GRAD,
                                          .n_out = 1,
                                          .infer = max_pool2d_backward_infer,
                                          .kernel = &max_pool2d_backward_kernel};
const lc_op lc__op_avg_pool2d = {
    .name = "avg_pool2d", .n_out = 1, .infer = avg_pool2d_infer, .grad = avg_pool2d_grad, .kernel = &avg_pool2d_kernel};
const lc_op lc__op_avg_pool2d_backward = {.name = "avg_pool2d_backward",
                                          .flags = LC_OP_NO_GRAD,
                                          .n_out = 1,
                                          .infer = avg_pool2d_backward_infer,
                                          .kernel = &avg_pool2d_backward_kernel};
const lc_op lc__op_adaptive_avg_pool2d = {.name = "adaptive_avg_pool2d",
                                          .n_out = 1,
                                          .infer = adaptive_avg_pool2d_infer,
                                          .grad = adaptive_avg_pool2d_grad,
                                          .kernel = &adaptive_avg_pool2d_kernel};
const lc_op lc__op_adaptive_avg_pool2d_backward = {.name = "adaptive_avg_pool2d_backward",
                                                   .flags = LC_OP_NO_GRAD,
                                                   .n_out = 1,
                                                   .infer = adaptive_avg_pool2d_backward_infer,
                                                   .kernel = &adaptive_avg_pool2d_backward_kernel};

/* ---- public functions ---- */
/* Images come as [N,C,H,W]; [C,H,W] gets a batch of one, and signals [..,L] a height of one. */
static lc_tensor *to_image(lc_tensor *x, bool signal, bool *changed, lc_site site)
{
    *changed = false;
    if (lc__unusable(x)) return x;
    int n = lc_tensor_ndim(x), full = signal ? 3 : 4;
    if (n != full && n != full - 1) return x;
    const int64_t *s = lc_tensor_shape(x);
    *changed = n != 4;
    if (!*changed) return x;
    int64_t shape[4] = {n == full ? s[0] : 1, s[n == full], signal ? 1 : s[n - 2], s[n - 1]};
    return lc__reshape(x, 4, shape, site);
}

/* y of an image made by to_image, with as many dimensions as x had. */
static lc_tensor *from_image(lc_tensor *y, lc_tensor *x, bool signal, lc_site site)
{
    if (lc__unusable(y)) return y;
    int n = lc_tensor_ndim(x);
    const int64_t *s = lc_tensor_shape(y);
    int64_t shape[4];
    int count = 0;
    if (n == (signal ? 3 : 4)) shape[count++] = s[0];
    shape[count++] = s[1];
    if (!signal) shape[count++] = s[2];
    shape[count++] = s[3];
    return lc__reshape(y, count, shape, site);
}

/* kh kw sh sw ph pw */
static void common_ints(const lc_pool_args *a, bool signal, int64_t *i)
{
    int64_t kw = a->kernel_w && !signal ? a->kernel_w : a->kernel;
    i[0] = signal ? 1 : a->kernel;
    i[1] = kw;
    i[2] = signal ? 1 : lc__dims_at(&a->stride, 0, a->kernel);
    i[3] = lc__dims_at(&a->stride, signal ? 0 : 1, kw);
    i[4] = signal ? 0 : lc__dims_at(&a->padding, 0, 0);
    i[5] = lc__dims_at(&a->padding, signal ? 0 : 1, 0);
}

static const char *const pool_titles[2][2] = {{"avg_pool2d", "avg_pool1d"}, {"max_pool2d", "max_pool1d"}};

static lc_tensor *record_pool(bool maximum, bool signal, lc_tensor *x, const lc_pool_args *a, lc_site site)
{
    int64_t ints[9];
    bool changed;
    lc_status status = lc__dims_check(&a->stride, signal ? 1 : 2, "stride");
    if (status >= 0) status = lc__dims_check(&a->padding, signal ? 1 : 2, "padding");
    if (status >= 0) status = lc__dims_check(&a->dilation, signal ? 1 : 2, "dilation");
    if (status < 0 && !lc__unusable(x)) return lc__refuse(status, pool_titles[maximum][signal], x, site);
    common_ints(a, signal, ints);
    if (maximum) {
        ints[6] = signal ? 1 : lc__dims_at(&a->dilation, 0, 1);
        ints[7] = lc__dims_at(&a->dilation, signal ? 0 : 1, 1);
        ints[8] = a->ceil_mode;
    } else {
        ints[6] = a->ceil_mode;
        ints[7] = !a->exclude_pad;
        ints[8] = a->divisor;
    }
    if (signal && !lc__unusable(x) && lc_tensor_ndim(x) != 2 && lc_tensor_ndim(x) != 3)
        return lc__refuse(
            lc_fail(LC_ERR_SHAPE, "x must have 2 or 3 dimensions [N,C,L] or [C,L], has %d", lc_tensor_ndim(x)),
            pool_titles[maximum][true], x, site);
    lc_tensor *image = to_image(x, signal, &changed, site), *out[2];
    lc_op_call_n(maximum ? &lc__op_max_pool2d : &lc__op_avg_pool2d, LC_IN(image), 9, ints, LC_NONE, out, site);
    return changed ? from_image(out[0], x, signal, site) : out[0];
}

lc_tensor *lc_max_pool2d_at(lc_tensor *x, const lc_pool_args *given, lc_site site)
{
    LC__TAKE_OP(args, "max_pool2d", lc_pool, given, site);
    return record_pool(true, false, x, &args, site);
}

lc_tensor *lc_avg_pool2d_at(lc_tensor *x, const lc_pool_args *given, lc_site site)
{
    LC__TAKE_OP(args, "avg_pool2d", lc_pool, given, site);
    return record_pool(false, false, x, &args, site);
}

lc_tensor *lc_max_pool1d_at(lc_tensor *x, const lc_pool_args *given, lc_site site)
{
    LC__TAKE_OP(args, "max_pool1d", lc_pool, given, site);
    return record_pool(true, true, x, &args, site);
}

lc_tensor *lc_avg_pool1d_at(lc_tensor *x, const lc_pool_args *given, lc_site site)
{
    LC__TAKE_OP(args, "avg_pool1d", lc_pool, given, site);
    return record_pool(false, true, x, &args, site);
}

lc_tensor *lc_adaptive_avg_pool2d_at(lc_tensor *x, int64_t h, int64_t w, lc_site site)
{
    bool changed;
    lc_tensor *image = to_image(x, false, &changed, site), *y;
    if (!lc__unusable(image) && lc_tensor_ndim(image) == 4) {
        int64_t H = lc_tensor_dim(image, 2), W = lc_tensor_dim(image, 3);
        if (!h) h = H;
        if (!w) w = W;
        /* Cells of equal size are faster as average pooling; a single cell is a mean. */
        if (h == 1 && w == 1 && H > 0 && W > 0) {
            y = lc_op_call(&lc__op_mean, LC_IN(image), LC_ATTRS(1, 2, 2, 3), LC_NONE, site);
            return changed ? from_image(y, x, false, site) : y;
        }
        if (h > 0 && w > 0 && H > 0 && W > 0 && H % h == 0 && W % w == 0) {
            y = lc_op_call(&lc__op_avg_pool2d, LC_IN(image), LC_ATTRS(H / h, W / w, H / h, W / w, 0, 0, 0, 1, 0),
                           LC_NONE, site);
            return changed ? from_image(y, x, false, site) : y;
        }
    }
    y = lc_op_call(&lc__op_adaptive_avg_pool2d, LC_IN(image), LC_ATTRS(h, w), LC_NONE, site);
    return changed ? from_image(y, x, false, site) : y;
}
