/* SPDX-License-Identifier: Apache-2.0 */
/* conv, conv_input_grad and conv_weight_grad in one, two and three dimensions, in f32 and bf16, on oneDNN's convolution
 * primitives.
 *
 * Activations are dense channels-last, and the library gets them so. Weights are stored as O,k..,I; the library chooses
 * its own blocked layout for them, into and out of which they are reordered in scratch (small against the convolution).
 * To add a variant: write a build function and a kernel for it at the end of the file. */
#include "backends/cpu/onednn/conv_shape.h"
#include "backends/cpu/onednn/kernels.h"
#include "backends/cpu/onednn/prepared.h"
#include "backends/cpu/parallel.h"

#include <string.h>

/* Below this many multiply-adds a convolution is not cut into chunks (and so runs on one thread). */
#define CHUNK_MIN_WORK   ((int64_t)1 << 20)
#define MAX_CHUNKS       16
#define MAX_PARTIAL_SUMS 16
#define MIN_PARTIAL_SUMS 4

static double multiplications(const lc__conv_shape *c)
{
    double work = (double)c->n * (double)c->out_channels * (double)(c->in_channels / c->groups);
    for (int i = 0; i < c->nd; i++) work *= (double)(c->out_size[i] * c->kernel[i]);
    return work;
}

/* The number of images in a part of the batch, which depends only on the shape. A weight gradient keeps one sum per
 * part, so it is cut into few if sums are large compared to the images. */
static int64_t images_per_chunk(const lc__conv_shape *c, bool weight_grad)
{
    if (multiplications(c) < (double)CHUNK_MIN_WORK) return c->n;
    int64_t chunks = MAX_CHUNKS;
    if (weight_grad) {
        int64_t sum = lc__conv_image_size(c->nd, c->out_channels * (c->in_channels / c->groups), c->kernel);
        int64_t images = c->n * (lc__conv_image_size(c->nd, c->in_channels, c->in_size) +
                                 lc__conv_image_size(c->nd, c->out_channels, c->out_size));
        chunks = images / 8 / sum;
        if (chunks > MAX_PARTIAL_SUMS) chunks = MAX_PARTIAL_SUMS;
        if (chunks < MIN_PARTIAL_SUMS) chunks = MIN_PARTIAL_SUMS;
    }
    return (c->n + chunks - 1) / chunks;
}

static dnnl_status_t image_md(lc__md *md, dnnl_data_type_t type, int nd, int64_t n, int64_t channels,
                              const int64_t *size)
{
    static const dnnl_format_tag_t tags[] = {dnnl_nwc, dnnl_nhwc, dnnl_ndhwc};
    int64_t dims[5] = {n, channels};
    memcpy(dims + 2, size, (size_t)nd * sizeof *size);
    return lc__dnnl_md_tag(md, type, nd + 2, dims, tags[nd - 1]);
}

/* Weights [g,O/g,I/g,k..], or [O,I,k..] without groups, stored as O,k..,I; with `any`, in the library's preferred
 * layout. */
static dnnl_status_t weights_md(lc__md *md, dnnl_data_type_t type, const lc__conv_shape *c, bool any)
{
    int64_t dims[6], strides[6], stride = c->in_channels / c->groups;
    int at = c->groups > 1, nd = c->nd;
    for (int i = nd - 1; i >= 0; i--) {
        dims[at + 2 + i] = c->kernel[i];
        strides[at + 2 + i] = stride;
        stride *= c->kernel[i];
    }
    dims[at] = c->out_channels / c->groups;
    strides[at] = stride;
    dims[at + 1] = c->in_channels / c->groups;
    strides[at + 1] = 1;
    if (at) {
        dims[0] = c->groups;
        strides[0] = stride * dims[1];
    }
    return lc__dnnl_md_strided(md, type, at + 2 + nd, dims, any ? NULL : strides);
}

typedef enum kind { FORWARD, INPUT_GRAD, WEIGHT_GRAD } kind;

/* The memory descriptors of a convolution. */
typedef struct mds {
    dnnl_data_type_t x_type, w_type, y_type; /* a gradient of weights is computed in f32 */
    lc__md x, w, w_lib, bias, y;
    lc__md w_low;          /* the result that such a gradient is rounded to, in bf16; else NULL */
    lc__md rest_x, rest_y; /* of the images after the last whole chunk */
    dnnl_primitive_desc_t rest_pd;
    int64_t relu, rest_relu; /* elements of y and rest_y, if a relu follows; else 0 */
} mds;

static bool is_point(const lc__conv_shape *c)
{
    for (int i = 0; i < c->nd; i++)
        if (c->kernel[i] != 1) return false;
    return true;
}

/* To gather the pixels of a strided 1x1 window, oneDNN's own kernel copies whole vectors of channels, and if the
 * channels do not fill them it asks for less memory than it writes (seen in 2.6, 3 channels, weight gradient). */
static bool writes_beyond(const lc__conv_shape *c)
{
    bool strided = false;
    for (int i = 0; i < c->nd; i++) strided |= c->window.stride[i] > 1;
    return is_point(c) && strided && c->in_channels / c->groups % 16;
}

/* The library's kernel for 1x1 windows and bf16 computes wrong numbers and writes beyond its operands if channels do
 * not fill vectors, for some numbers of pixels (seen in 2.6 with AVX512_BF16: 5 x 6, 3 channels of which one is made).
 */
static bool has_ragged_points(const lc__conv_shape *c)
{
    return is_point(c) && (c->in_channels / c->groups % 16 || c->out_channels / c->groups % 16);
}

/* Whether each tap of the kernel reads a pixel somewhere. To the gradient of one that reads only padding, which is 0,
 * oneDNN's kernels for bf16 add another's (seen in 2.6, three dimensions, the middle one 1 with a kernel of 3). */
static bool every_tap_reaches(const lc__conv_shape *c)
{
    for (int i = 0; i < c->nd; i++) {
        for (int64_t tap = 0; tap < c->kernel[i]; tap++) {
            bool reaches = false;
            int64_t at = tap * c->window.dilation[i] - c->window.padding[i];
            for (int64_t o = 0; o < c->out_size[i] && !reaches; o++, at += c->window.stride[i])
                reaches = at >= 0 && at < c->in_size[i];
            if (!reaches) return false;
        }
    }
    return true;
}

/* Nor do they read the right pixels if the depth has a stride and a padding (seen in 2.6 with AVX512_BF16). */
static bool steps_over_padding(const lc__conv_shape *c)
{
    return c->nd == 3 && c->window.stride[0] > 1 && c->window.padding[0];
}

static bool is_wrong_in_bf16(const lc__conv_shape *c, kind what)
{
    return has_ragged_points(c) || (what == WEIGHT_GRAD && (!every_tap_reaches(c) || steps_over_padding(c)));
}

static dnnl_status_t make_pd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, kind what, lc__cmd x, lc__cmd w,
                             lc__cmd bias, lc__cmd y, const lc__conv_shape *c, const lc__dnnl_post *post,
                             const char *avoid)
{
    switch (what) {
    case FORWARD:
        return lc__dnnl_conv(pd, engine, x, w, bias, y, &c->window, post, avoid);
    case INPUT_GRAD:
        return lc__dnnl_conv_input_grad(pd, engine, x, w, y, &c->window);
    default:
        return lc__dnnl_conv_weight_grad(pd, engine, x, w, y, &c->window, writes_beyond(c) ? "jit_1x1" : NULL);
    }
}

/* The places of x or dx, w or dw, y or dy for the three kinds. */
static const lc__dnnl_operand x_at[] = {[FORWARD] = {LC_DNNL_IN, 0, 0, 0, 0},
                                        [INPUT_GRAD] = {LC_DNNL_OUT, 0, 0, 0, 0},
                                        [WEIGHT_GRAD] = {LC_DNNL_IN, 1, 0, 0, 0}};
static const lc__dnnl_operand w_at[] = {[FORWARD] = {LC_DNNL_IN, 1, 0, 0, LC_DNNL_NO_CHUNKS},
                                        [INPUT_GRAD] = {LC_DNNL_IN, 1, 0, 0, LC_DNNL_NO_CHUNKS},
                                        [WEIGHT_GRAD] = {LC_DNNL_OUT, 0, 0, 0, LC_DNNL_NO_CHUNKS}};
static const lc__dnnl_operand y_at[] = {[FORWARD] = {LC_DNNL_OUT, 0, 0, 0, 1},
                                        [INPUT_GRAD] = {LC_DNNL_IN, 0, 0, 0, 1},
                                        [WEIGHT_GRAD] = {LC_DNNL_IN, 0, 0, 0, 1}};
static const int x_arg[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_SRC, DNNL_ARG_SRC};
static const int w_arg[] = {DNNL_ARG_WEIGHTS, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_WEIGHTS};
static const int y_arg[] = {DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_DST};

/* Appends one primitive on the images that x and y describe, with its weights at `w`. Takes `pd`. */
static dnnl_status_t add_primitive(lc__dnnl_plan *plan, kind what, const mds *d, lc__cmd x, lc__cmd y, int64_t relu,
                                   dnnl_primitive_desc_t pd, lc__dnnl_operand w)
{
    dnnl_status_t status = lc__dnnl_add(plan, pd, true, true);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, x_arg[what], x, x_at[what]);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, w_arg[what], d->w_lib, w);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, y_arg[what], y, y_at[what]);
    if (status == dnnl_success && relu) lc__dnnl_relu(plan, relu);
    if (status == dnnl_success && d->bias) {
        lc__dnnl_operand bias = {LC_DNNL_IN, 2, 0, 0, LC_DNNL_NO_CHUNKS};
        status = lc__dnnl_bind(plan, DNNL_ARG_BIAS, d->bias, bias);
    }
    return status;
}

/* Appends the convolution itself: of the chunks, and of the rest of the batch. Takes `pd` and d->rest_pd. */
static dnnl_status_t add_convolution(lc__dnnl_plan *plan, kind what, mds *d, dnnl_primitive_desc_t pd,
                                     lc__dnnl_operand w)
{
    dnnl_status_t status = add_primitive(plan, what, d, d->x, d->y, d->relu, pd, w);
    dnnl_primitive_desc_t rest = d->rest_pd;
    if (status != dnnl_success || !rest) return status;
    d->rest_pd = NULL;
    status = add_primitive(plan, what, d, d->rest_x, d->rest_y, d->rest_relu, rest, w);
    plan->step[plan->n_steps - 1].rest = true;
    return status;
}

/* Appends a reorder of the weights into the library's layout, and the convolution. Takes `pd`. */
static dnnl_status_t add_with_weights(lc__dnnl_plan *plan, kind what, mds *d, dnnl_primitive_desc_t pd)
{
    lc__dnnl_operand w = w_at[what];
    if (!dnnl_memory_desc_equal(d->w_lib, d->w)) {
        lc__dnnl_operand scratch = {LC_DNNL_SCRATCH, 0, 0, 0, LC_DNNL_NO_CHUNKS};
        scratch.offset = lc__dnnl_scratch(plan, dnnl_memory_desc_get_size(d->w_lib));
        dnnl_status_t status = lc__dnnl_add_reorder(plan, d->w, w, d->w_lib, scratch, false);
        if (status != dnnl_success) {
            dnnl_primitive_desc_destroy(pd);
            return status;
        }
        w = scratch;
    }
    return add_convolution(plan, what, d, pd, w);
}

/* Appends a gradient that is rounded once: the sums of the parts in f32, and their sum, which is then converted. Takes
 * `pd`. dnnl_unimplemented if the library's reorders cannot add. */
static dnnl_status_t add_low_weight_grad(lc__dnnl_plan *plan, const lc_call *call, mds *d, dnnl_primitive_desc_t pd,
                                         int64_t n_parts)
{
    lc__dnnl_operand sums = {LC_DNNL_SCRATCH, 0, 0, 0, 2}, total = {LC_DNNL_SCRATCH, 0, 0, 0, LC_DNNL_NO_CHUNKS};
    size_t each = (dnnl_memory_desc_get_size(d->w_lib) + 63) & ~(size_t)63;
    sums.offset = lc__dnnl_scratch(plan, each * (size_t)n_parts);
    total.offset = lc__dnnl_scratch(plan, dnnl_memory_desc_get_size(d->w));
    for (int64_t i = 0; n_parts > 1 && i < n_parts; i++) plan->chunk_offset[i][2] = i * (int64_t)(each / sizeof(float));
    dnnl_status_t status = add_convolution(plan, WEIGHT_GRAD, d, pd, sums);
    sums.column = LC_DNNL_NO_CHUNKS;
    for (int64_t i = 0; i < n_parts && status == dnnl_success; i++) {
        status = lc__dnnl_add_reorder(plan, d->w_lib, sums, d->w, total, i > 0);
        sums.offset += each;
    }
    if (status != dnnl_success) return status;
    return lc__dnnl_add_reorder(plan, d->w, total, d->w_low, w_at[WEIGHT_GRAD], call->accumulate);
}

/* Appends the gradient of the weights, and its reorder from the library's layout; sums of parts of the batch are added
 * in their order. Takes `pd`. dnnl_unimplemented if there are several parts and the library's reorder cannot add. */
static dnnl_status_t add_weight_grad(lc__dnnl_plan *plan, const lc_call *call, const lc__conv_shape *c, mds *d,
                                     dnnl_primitive_desc_t pd)
{
    lc__dnnl_operand out = w_at[WEIGHT_GRAD], sums = {LC_DNNL_SCRATCH, 0, 0, 0, 2};
    int64_t n_parts = plan->n_chunks + (d->rest_pd != NULL);
    bool parts = n_parts > 1, blocked = !dnnl_memory_desc_equal(d->w_lib, d->w);
    if (d->w_low) return add_low_weight_grad(plan, call, d, pd, n_parts);
    if (!parts && !blocked && !call->accumulate) return add_convolution(plan, WEIGHT_GRAD, d, pd, out);
    size_t each = (dnnl_memory_desc_get_size(d->w_lib) + 63) & ~(size_t)63;
    sums.offset = lc__dnnl_scratch(plan, each * (size_t)n_parts);
    for (int64_t i = 0; parts && i < n_parts; i++) plan->chunk_offset[i][2] = i * (int64_t)(each / sizeof(float));
    dnnl_status_t status = add_convolution(plan, WEIGHT_GRAD, d, pd, sums);
    sums.column = LC_DNNL_NO_CHUNKS;
    if (parts || blocked) {
        lc__dnnl_operand first = sums;
        for (int64_t i = 0; i < n_parts && status == dnnl_success; i++) {
            status = lc__dnnl_add_reorder(plan, d->w_lib, sums, d->w, out, i || call->accumulate);
            sums.offset += each;
        }
        if (parts || status != dnnl_unimplemented || !call->accumulate) return status;
        sums.offset = lc__dnnl_scratch(plan, dnnl_memory_desc_get_size(d->w));
        status = lc__dnnl_add_reorder(plan, d->w_lib, first, d->w, sums, false);
    }
    plan->add_scratch = true;
    plan->add_offset = sums.offset;
    plan->add_count = lc__conv_image_size(c->nd, c->out_channels * (c->in_channels / c->groups), c->kernel);
    return status;
}

/* Those of the call: images of a chunk, those of the rest of the batch, weights, bias. */
static dnnl_status_t describe(mds *d, const lc__conv_shape *c, int64_t images, int64_t rest, const lc_view *bias)
{
    dnnl_status_t status = image_md(&d->x, d->x_type, c->nd, images, c->in_channels, c->in_size);
    if (status == dnnl_success) status = image_md(&d->y, d->y_type, c->nd, images, c->out_channels, c->out_size);
    if (status == dnnl_success && rest)
        status = image_md(&d->rest_x, d->x_type, c->nd, rest, c->in_channels, c->in_size);
    if (status == dnnl_success && rest)
        status = image_md(&d->rest_y, d->y_type, c->nd, rest, c->out_channels, c->out_size);
    if (status == dnnl_success) status = weights_md(&d->w, d->w_type, c, false);
    if (status == dnnl_success && bias)
        status = lc__dnnl_md_strided(&d->bias, lc__dnnl_type(bias->dtype), 1, &c->out_channels, &(int64_t){1});
    return status;
}

/* A descriptor of the whole convolution, with weights in the library's layout if that is supported. */
static dnnl_status_t choose_layout(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, kind what, const mds *d,
                                   const lc__conv_shape *c, const lc__dnnl_post *post, const char *avoid)
{
    lc__md any = NULL;
    dnnl_status_t status = weights_md(&any, d->w_type, c, true);
    if (status == dnnl_success) status = make_pd(pd, engine, what, d->x, any, d->bias, d->y, c, post, avoid);
    if (status == dnnl_unimplemented) status = make_pd(pd, engine, what, d->x, d->w, d->bias, d->y, c, post, avoid);
    lc__dnnl_md_free(any);
    return status;
}

static void free_mds(mds *d)
{
    lc__md all[] = {d->x, d->w, d->w_lib, d->w_low, d->bias, d->y, d->rest_x, d->rest_y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) lc__dnnl_md_free(all[i]);
    if (d->rest_pd) dnnl_primitive_desc_destroy(d->rest_pd);
}

static dnnl_status_t build_cut(const lc_call *call, bool probe, kind what, const char *avoid, bool cut,
                               lc__dnnl_plan **out)
{
    lc__conv_shape c;
    mds d = {0};
    const lc_view *x = what == FORWARD ? &call->in[0] : what == INPUT_GRAD ? &call->out[0] : &call->in[1];
    const lc_view *w = what == WEIGHT_GRAD ? &call->out[0] : &call->in[1];
    const lc_view *y = what == FORWARD ? &call->out[0] : &call->in[0];
    if (!lc__dnnl_takes_types(call) || !lc__conv_describe(call, &c, x, w, y)) return dnnl_unimplemented;
    if (x->dtype != LC_F32 && is_wrong_in_bf16(&c, what)) return dnnl_unimplemented;
    /* With groups, the library describes kernels for bf16 that it cannot make (seen in 2.6 with AVX512_BF16, four
     * channels in a group and an activation): whether it can is tried. */
    if (x->dtype != LC_F32 && c.groups > 1) probe = false;
    bool low = what == WEIGHT_GRAD && w->dtype != LC_F32;
    const lc_view *bias = what == FORWARD && call->n_in > 2 && call->in[2].ndim >= 0 ? &call->in[2] : NULL;
    d.x_type = lc__dnnl_type(x->dtype);
    d.w_type = what == WEIGHT_GRAD ? dnnl_f32 : lc__dnnl_type(w->dtype);
    d.y_type = lc__dnnl_type(y->dtype);
    lc__dnnl_post post = {0, false};
    if (what == FORWARD && call->n_int > 2 + 3 * c.nd) post.activation = (int)call->ints[2 + 3 * c.nd];
    if (post.activation < 0 || post.activation > 3) return dnnl_unimplemented;
    const bool relu = post.activation == 1; /* lc__dnnl_relu */
    if (relu) post.activation = 0;

    /* A call that cannot be cut is left to the library's own threads, unless its sums would depend on their number. */
    int threads = call->threads < 1 ? 1 : call->threads;
    int64_t images = cut ? images_per_chunk(&c, what == WEIGHT_GRAD) : c.n, chunks = c.n / images, rest = c.n % images;
    bool small = multiplications(&c) < (double)CHUNK_MIN_WORK;
    int inside = chunks > 1 || small || call->deterministic || what == WEIGHT_GRAD ? 1 : threads;
    int before = lc__dnnl_set_threads(inside);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = lc__dnnl_new(out, probe, inside, threads, chunks);
    lc__dnnl_plan *plan = *out;
    for (int64_t i = 0; status == dnnl_success && chunks > 1 && i <= chunks; i++) {
        plan->chunk_offset[i][0] = i * images * lc__conv_image_size(c.nd, c.in_channels, c.in_size);
        plan->chunk_offset[i][1] = i * images * lc__conv_image_size(c.nd, c.out_channels, c.out_size);
    }
    if (status == dnnl_success) status = describe(&d, &c, images, rest, bias);
    if (relu) d.relu = images * lc__conv_image_size(c.nd, c.out_channels, c.out_size);
    if (relu) d.rest_relu = d.relu / images * rest;
    if (status == dnnl_success && low) status = weights_md(&d.w_low, lc__dnnl_type(w->dtype), &c, false);
    if (status == dnnl_success) status = choose_layout(&pd, plan->engine, what, &d, &c, &post, avoid);
    if (status == dnnl_success) {
        dnnl_query_t query = what == WEIGHT_GRAD ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
        status = lc__dnnl_md_copy(&d.w_lib, dnnl_primitive_desc_query_md(pd, query, 0));
        if (status == dnnl_success && rest)
            status = make_pd(&d.rest_pd, plan->engine, what, d.rest_x, d.w_lib, d.bias, d.rest_y, &c, &post, avoid);
        if (status == dnnl_success)
            status =
                what == WEIGHT_GRAD ? add_weight_grad(plan, call, &c, &d, pd) : add_with_weights(plan, what, &d, pd);
        else
            dnnl_primitive_desc_destroy(pd);
    }
    lc__dnnl_set_threads(before);
    free_mds(&d);
    return status;
}

/* Cut along the batch, if the library supports that. */
static dnnl_status_t build(const lc_call *call, bool probe, kind what, const char *avoid, lc__dnnl_plan **out)
{
    dnnl_status_t status = build_cut(call, probe, what, avoid, true, out);
    if (status != dnnl_unimplemented) return status;
    lc__dnnl_free(*out);
    *out = NULL;
    return build_cut(call, probe, what, avoid, false, out);
}

static dnnl_status_t build_forward(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    return build(call, probe, FORWARD, NULL, out);
}

static dnnl_status_t build_forward_direct(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    return build(call, probe, FORWARD, "brg", out);
}

static dnnl_status_t build_input_grad(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    /* run_input_grad adds the bias to f32. */
    if (call->n_in > 2 && call->in[2].ndim >= 0 && (call->out[0].dtype != LC_F32 || call->in[2].dtype != LC_F32))
        return dnnl_unimplemented;
    return build(call, probe, INPUT_GRAD, NULL, out);
}

static dnnl_status_t build_weight_grad(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    return build(call, probe, WEIGHT_GRAD, NULL, out);
}

bool lc__onednn_conv_prefers_direct(const lc_call *call)
{
    const lc_view *w = &call->in[1], *y = &call->out[0];
    if (w->ndim < 3 || y->ndim != w->ndim) return false;
    bool point = true;
    for (int i = 2; i < w->ndim; i++) point &= w->shape[i] == 1;
    return point || w->shape[1] < 16 || y->shape[y->ndim - 1] <= 4;
}

typedef struct bias_job {
    float *data;
    const float *bias;
    int64_t channels;
} bias_job;

static void add_bias(const void *context, int64_t begin, int64_t end, int thread)
{
    const bias_job *j = context;
    const float *restrict bias = j->bias;
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        float *restrict data = j->data + p * j->channels;
        for (int64_t i = 0; i < j->channels; i++) data[i] += bias[i];
    }
}

/* Adds the bias of a transposed convolution, one number per channel of dx; oneDNN's primitive has none. */
static void run_input_grad(const lc_call *call)
{
    lc__dnnl_run(call);
    if (call->n_in < 3 || call->in[2].ndim < 0) return;
    const lc_view *out = &call->out[0];
    bias_job j = {out->data, call->in[2].data, out->shape[1]};
    int64_t pixels = out->shape[0];
    for (int i = 2; i < out->ndim; i++) pixels *= out->shape[i];
    lc__parallel_for(call->threads, pixels, lc__block_size(8 * j.channels, 1), add_bias, &j);
}

#define KERNEL(variant)                                                                                                \
    static bool supports_##variant(const lc_call *call)                                                                \
    {                                                                                                                  \
        return lc__dnnl_supports(call, build_##variant);                                                               \
    }                                                                                                                  \
    static lc_status prepare_##variant(lc_call *call)                                                                  \
    {                                                                                                                  \
        return lc__dnnl_prepare(call, build_##variant);                                                                \
    }
KERNEL(forward)
KERNEL(forward_direct)
KERNEL(input_grad)
KERNEL(weight_grad)

const lc_kernel lc__onednn_conv = {"onednn_conv", LC_WANT_CHANNELS_LAST, 0, supports_forward, prepare_forward,
                                   lc__dnnl_run,  lc__dnnl_release};
const lc_kernel lc__onednn_conv_direct = {"onednn_conv_direct",    LC_WANT_CHANNELS_LAST,  0,
                                          supports_forward_direct, prepare_forward_direct, lc__dnnl_run,
                                          lc__dnnl_release};
const lc_kernel lc__onednn_conv_input_grad = {"onednn_conv_input_grad", LC_WANT_CHANNELS_LAST, 0,
                                              supports_input_grad,      prepare_input_grad,    run_input_grad,
                                              lc__dnnl_release};
const lc_kernel lc__onednn_conv_weight_grad = {"onednn_conv_weight_grad", LC_WANT_CHANNELS_LAST, LC_KERNEL_ACCUMULATES,
                                               supports_weight_grad,      prepare_weight_grad,   lc__dnnl_run,
                                               lc__dnnl_release};
