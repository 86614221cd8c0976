/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions in f64 and their gradients as products (product_f64.h), whose packing reads patches of images
 * (patches.h). */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/patches.h"
#include "backends/cpu/isa/product_f64.h"
#include "backends/cpu/isa/util.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct part {
    patches from;
    lc__product_f64 product;
} part;

typedef struct job {
    int64_t kernel; /* taps */
    int64_t in_channels, out_channels, groups;
    const double *weights, *dy;
    int64_t n_parts;
    part *parts;
    tap *taps;
} job;

static const double zeros[DEPTH_F64];

/* The pixel that a tap reads, from that channel on; zeros outside. */
static inline const double *pixel_of(const patches *f, const place *p, const tap *t, int64_t channel)
{
    int64_t at = pixel_at(f, p, t);
    return at < 0 ? zeros : (const double *)f->images + at + channel;
}

/* ---- packing ---- */

static const job *job_of(const lc__product_f64 *p)
{
    return p->context;
}

static const patches *patches_of(const lc__product_f64 *p)
{
    return &((const part *)((const char *)p - offsetof(part, product)))->from;
}

/* Rows are places. */
static void pack_patches(const lc__product_f64 *p, int64_t group, int64_t first, int64_t count, int64_t k0,
                         int64_t depth, double *to)
{
    const patches *f = patches_of(p);
    place at = place_of(f, first);
    for (int64_t i = 0; i < count; i += ROWS_F64) {
        int64_t n = count - i < ROWS_F64 ? count - i : ROWS_F64;
        place places[ROWS_F64];
        const double *row[ROWS_F64];
        for (int64_t q = 0; q < n; q++, at = next_place(f, at)) places[q] = at;
        for (int64_t k = 0, run; k < depth; k += run) {
            int64_t t = (k0 + k) / f->channels, channel = (k0 + k) % f->channels;
            run = f->channels - channel < depth - k ? f->channels - channel : depth - k;
            for (int64_t q = 0; q < n; q++)
                row[q] = pixel_of(f, &places[q], &f->taps[t], group * f->channels + channel);
            pack_rows_f64(row, n, ROWS_F64, run, to + i * depth + k * ROWS_F64);
        }
    }
}

/* k runs over places. */
static void pack_patches_by_place(const lc__product_f64 *p, int64_t group, int64_t first, int64_t count, int64_t k0,
                                  int64_t depth, double *to)
{
    const patches *f = patches_of(p);
    place at = place_of(f, k0);
    for (int64_t k = 0; k < depth; k++, at = next_place(f, at)) {
        int64_t t = first / f->channels, channel = first % f->channels;
        for (int64_t n = 0, run; n < count; n += run, t++, channel = 0) {
            run = f->channels - channel < count - n ? f->channels - channel : count - n;
            pack_neighbors_f64(pixel_of(f, &at, &f->taps[t], group * f->channels + channel), n, run, PANEL_F64, k,
                               depth, to);
        }
    }
    pack_end_f64(count, PANEL_F64, depth, to);
}

static void pack_dy(const lc__product_f64 *p, int64_t group, int64_t first, int64_t count, int64_t k0, int64_t depth,
                    double *to)
{
    const job *j = job_of(p);
    const double *from = j->dy + group * p->m + first;
    for (int64_t k = 0; k < depth; k++)
        pack_neighbors_f64(from + (k0 + k) * j->out_channels, 0, count, ROWS_F64, k, depth, to);
    pack_end_f64(count, ROWS_F64, depth, to);
}

/* Columns are channels of the result. */
static void pack_weights(const lc__product_f64 *p, int64_t group, int64_t first, int64_t count, int64_t k0,
                         int64_t depth, double *to)
{
    const double *from = job_of(p)->weights + (group * p->n + first) * p->k + k0, *row[PANEL_F64];
    for (int64_t i = 0; i < count; i += PANEL_F64) {
        int64_t n = count - i < PANEL_F64 ? count - i : PANEL_F64;
        for (int64_t q = 0; q < n; q++) row[q] = from + (i + q) * p->k;
        pack_rows_f64(row, n, PANEL_F64, depth, to + i * depth);
    }
}

/* Columns are channels of dx. */
static void pack_turned_weights(const lc__product_f64 *p, int64_t group, int64_t first, int64_t count, int64_t k0,
                                int64_t depth, double *to)
{
    const job *j = job_of(p);
    const patches *f = patches_of(p);
    for (int64_t k = 0; k < depth; k++) {
        int64_t t = f->taps[(k0 + k) / f->channels].number, o = group * f->channels + (k0 + k) % f->channels;
        pack_neighbors_f64(j->weights + (o * j->kernel + t) * p->n + first, 0, count, PANEL_F64, k, depth, to);
    }
    pack_end_f64(count, PANEL_F64, depth, to);
}

static double *strided_row(const lc__product_f64 *p, int64_t group, int64_t m)
{
    return p->out + result_at(patches_of(p), m) + group * p->n;
}

/* ---- plans ---- */

static lc_status make_job(lc_call *call, const shape *s, int64_t parts, job **out)
{
    int64_t kernel = product_of_3(s->kernel);
    job *j = calloc(1, sizeof *j);
    if (j) {
        *j = (job){.kernel = kernel,
                   .in_channels = s->in_channels,
                   .out_channels = s->out_channels,
                   .groups = s->groups,
                   .n_parts = parts,
                   .parts = calloc((size_t)parts, sizeof *j->parts),
                   .taps = calloc((size_t)(kernel + parts), sizeof *j->taps)};
        call->state = *out = j;
        if (j->parts && j->taps) return LC_OK;
        free(j->parts);
        free(j->taps);
        free(j);
    }
    return lc_fail(LC_ERR_MEMORY, "out of memory: the plan of a convolution");
}

static void release(lc_call *call)
{
    job *j = call->state;
    free(j->parts);
    free(j->taps);
    free(j);
    call->state = NULL;
}

static lc_status conv_prepare(lc_call *call)
{
    shape s = shape_of(call->ints, &call->in[0], &call->in[1], &call->out[0]);
    job *j;
    LC_TRY(make_job(call, &s, 1, &j));
    all_patches(&s, j->taps, &j->parts[0].from);
    int64_t n = s.out_channels / s.groups;
    j->parts[0].product = (lc__product_f64){.items = s.groups,
                                            .m = s.images * product_of_3(s.out),
                                            .n = n,
                                            .k = j->kernel * s.in_channels / s.groups,
                                            .pack_a = pack_patches,
                                            .pack_b = pack_weights,
                                            .item_step = n,
                                            .row_step = s.out_channels,
                                            .context = j,
                                            .bias_step = n,
                                            .activation = (int)call->ints[2 + 3 * call->ints[0]]};
    call->scratch_bytes = lc__product_f64_plan(&j->parts[0].product, call->threads);
    return LC_OK;
}

static lc_status weight_grad_prepare(lc_call *call)
{
    shape s = shape_of(call->ints, &call->in[1], &call->out[0], &call->in[0]);
    job *j;
    LC_TRY(make_job(call, &s, 1, &j));
    all_patches(&s, j->taps, &j->parts[0].from);
    int64_t m = s.out_channels / s.groups, n = j->kernel * s.in_channels / s.groups;
    j->parts[0].product = (lc__product_f64){.items = s.groups,
                                            .m = m,
                                            .n = n,
                                            .k = s.images * product_of_3(s.out),
                                            .pack_a = pack_dy,
                                            .pack_b = pack_patches_by_place,
                                            .item_step = m * n,
                                            .row_step = n,
                                            .context = j};
    call->scratch_bytes = lc__product_f64_plan(&j->parts[0].product, call->threads);
    return LC_OK;
}

static lc_status input_grad_prepare(lc_call *call)
{
    shape s = shape_of(call->ints, &call->out[0], &call->in[1], &call->in[0]);
    int64_t parts = product_of_3(s.stride), n = s.in_channels / s.groups, used = 0;
    job *j;
    LC_TRY(make_job(call, &s, parts, &j));
    for (int64_t i = 0; i < parts; i++) {
        patches *f = &j->parts[i].from;
        int64_t remainder[3] = {i / s.stride[2] / s.stride[1], i / s.stride[2] % s.stride[1], i % s.stride[2]};
        int64_t taps = some_patches(&s, remainder, j->taps + used, f);
        used += taps;
        j->parts[i].product = (lc__product_f64){.items = s.groups,
                                                .m = s.images * product_of_3(f->places),
                                                .n = n,
                                                .k = taps * f->channels,
                                                .pack_a = pack_patches,
                                                .pack_b = pack_turned_weights,
                                                .item_step = n,
                                                .row_step = s.in_channels,
                                                .row = parts > 1 ? strided_row : NULL,
                                                .context = j,
                                                .bias_step = n};
        if (!j->parts[i].product.m) continue; /* a stride larger than the image */
        size_t bytes = lc__product_f64_plan(&j->parts[i].product, call->threads);
        if (bytes > call->scratch_bytes) call->scratch_bytes = bytes;
    }
    return LC_OK;
}

/* ---- kernels ---- */

static void run_parts(const lc_call *call, const lc_view *images, const lc_view *bias)
{
    job *j = call->state;
    for (int64_t i = 0; i < j->n_parts; i++) {
        lc__product_f64 *p = &j->parts[i].product;
        if (!p->m) continue;
        j->parts[i].from.images = images->data;
        p->out = call->out[0].data;
        p->bias = bias && given(bias) ? bias->data : NULL;
        p->accumulate = call->accumulate;
        lc__product_f64_run(p, call->scratch, call->threads);
    }
}

static void conv_run(const lc_call *call)
{
    job *j = call->state;
    j->weights = call->in[1].data;
    run_parts(call, &call->in[0], &call->in[2]);
}

static void weight_grad_run(const lc_call *call)
{
    job *j = call->state;
    j->dy = call->in[0].data;
    run_parts(call, &call->in[1], NULL);
}

/* Channels of a group that make the packing worth it; with fewer, the reference kernel is as fast. */
#define LEAST_CHANNELS 4
/* Remainders; with more, the reference kernel computes the call. */
#define MOST_PARTS 64

static bool supports(const lc_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (given(&call->in[i]) && call->in[i].dtype != LC_F64) return false;
    bool input_grad = call->op == &lc__op_conv_input_grad;
    const lc_view *x = input_grad ? &call->out[0] : &call->in[call->op == &lc__op_conv ? 0 : 1];
    const lc_view *y = call->op == &lc__op_conv ? &call->out[0] : &call->in[0];
    int nd = (int)call->ints[0];
    int64_t groups = call->ints[1 + 3 * nd], parts = 1;
    if (numel(x) < 1 || numel(y) < 1 || call->out[0].dtype != LC_F64) return false;
    for (int i = 0; i < nd; i++) parts *= call->ints[1 + i] < MOST_PARTS ? call->ints[1 + i] : MOST_PARTS;
    if (input_grad && parts > MOST_PARTS) return false;
    return groups == 1 || (x->shape[1] / groups >= LEAST_CHANNELS && y->shape[1] / groups >= LEAST_CHANNELS);
}

static const lc_kernel conv_kernel = {
    .name = "conv_f64_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = supports,
    .prepare = conv_prepare,
    .run = conv_run,
    .release = release,
};

static const lc_kernel input_grad_kernel = {
    .name = "conv_input_grad_f64_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .prepare = input_grad_prepare,
    .run = conv_run,
    .release = release,
};

static const lc_kernel weight_grad_kernel = {
    .name = "conv_weight_grad_f64_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .prepare = weight_grad_prepare,
    .run = weight_grad_run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__conv_f64_kernels)[] = {
    {&lc__op_conv, &conv_kernel},
    {&lc__op_conv_input_grad, &input_grad_kernel},
    {&lc__op_conv_weight_grad, &weight_grad_kernel},
    {NULL, NULL},
};
