/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and their gradients with operands in 16 bits, and some gradients of weights in f32, as products
 * (product_job.h) whose factors are patches of images (patches.h). Operands are converted where they are copied;
 * results are rounded once. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/patches.h"
#include "backends/cpu/isa/product_job.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <stdlib.h>

/* Numbers of a patch that are neighbors in the images if all of it is inside. */
typedef struct stretch {
    int64_t begin, end; /* numbers of the patch */
    int64_t offset;     /* of the first one, from the pixel of the place */
} stretch;

typedef struct part {
    product_job job;
    patches from;
    int64_t least[3], most[3]; /* shifts of its taps */
    const stretch *stretches;
    bool empty;    /* no tap reaches these places */
    int64_t numel; /* of the images */
} part;

typedef struct conv {
    int64_t n_parts;
    part *parts;
    tap *taps;
    stretch *stretches;
} conv;

/* ---- patches ---- */

/* Goes through a range of the numbers of a patch. */
typedef struct walk {
    const part *p;
    const place *at;
    bool inside;
    int64_t k, end;
    int64_t base;           /* inside: where the pixel of the place begins */
    const stretch *stretch; /* inside */
    int64_t tap, channel;   /* not inside */
} walk;

static inline walk walk_patch(const part *p, const place *at, int64_t k, int64_t depth)
{
    const patches *f = &p->from;
    walk w = {.p = p, .at = at, .inside = true, .k = k, .end = k + depth, .base = at->image};
    for (int d = 0; d < 3; d++) {
        int64_t i = at->at[d] * f->step[d];
        w.inside &= i + p->least[d] >= 0 && i + p->most[d] < f->size[d];
        w.base = w.base * f->size[d] + i;
    }
    if (w.inside) {
        w.base *= f->pixel;
        w.stretch = p->stretches;
        while (w.stretch->end <= k) w.stretch++;
    } else {
        w.tap = k / f->channels;
        w.channel = k % f->channels;
    }
    return w;
}

/* The next numbers that are neighbors: how many, 0 at the end; *from: where they are, -1 if they are outside. */
static inline int64_t next_run(walk *w, int64_t *from)
{
    const patches *f = &w->p->from;
    int64_t n;
    if (w->k == w->end) return 0;
    if (w->inside) {
        const stretch *s = w->stretch++;
        n = smaller(s->end, w->end) - w->k;
        *from = w->base + s->offset + w->k - s->begin;
    } else {
        n = smaller(f->channels - w->channel, w->end - w->k);
        *from = pixel_at(f, w->at, &f->taps[w->tap++]);
        if (*from >= 0) *from += w->channel;
        w->channel = 0;
    }
    w->k += n;
    return n;
}

#if defined(LC_ISA_PAIRS)
LC_INLINE void copy_vector(const lc_dtype type, const void *from, int64_t at, packed *to)
{
    (void)type;
    *(vh_any *)to = *(const vh_any *)((const packed *)from + at);
}

LC_INLINE void copy_run(const lc_dtype type, const void *from, int64_t at, int64_t n, packed *to)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) copy_vector(type, from, at + i, to + i);
    for (; i < n; i++) to[i] = ((const packed *)from)[at + i];
}
#else
LC_INLINE void copy_vector(const lc_dtype type, const void *from, int64_t at, packed *to)
{
    vstore(to, vget(type, from, at));
}

LC_INLINE void copy_run(const lc_dtype type, const void *from, int64_t at, int64_t n, packed *to)
{
    get_run_of(type, from, at, n, to);
}
#endif

/* Copies a run of a few channels. There may be `room` numbers from `to` on, which are all written later: with room for
 * a vector it is copied as one. */
LC_INLINE void copy_short(const lc_dtype type, const part *p, int64_t from, int64_t n, packed *to, int64_t room)
{
    if (n < VW && room >= VW && from + VW <= p->numel)
        copy_vector(type, p->from.images, from, to);
    else
        copy_run(type, p->from.images, from, n, to);
}

/* Rows are places. */
LC_INLINE void copy_patches_of(const lc_dtype type, const product_job *j, int64_t k, int64_t depth, int64_t first,
                               int64_t end, packed *to)
{
    const part *p = j->context;
    place at = place_of(&p->from, first);
    for (int64_t m = first; m < end; m++, at = next_place(&p->from, at), to += j->row_step) {
        walk w = walk_patch(p, &at, k, depth);
        packed *next = to;
        for (int64_t from, n; (n = next_run(&w, &from)) > 0; next += n) {
            if (from < 0)
                memset(next, 0, (size_t)n * sizeof *next);
            else
                copy_short(type, p, from, n, next, to + j->row_step - next);
        }
    }
}

static void copy_patches(const product_job *j, int64_t k, int64_t depth, int64_t first, int64_t end, packed *to)
{
    STORED(j->x_type, copy_patches_of, j, k, depth, first, end, to);
}

/* ---- panels ---- */

/* Puts neighbors into row k of the panels, from column n on. */
LC_INLINE void put_columns(const lc_dtype type, const void *data, int64_t from, int64_t count, int64_t k, int64_t depth,
                           int64_t n, packed *to)
{
    for (int64_t run; count > 0; count -= run, n += run) {
        packed *row = to + (n / JOB_PANEL * depth + k) * JOB_PANEL + n % JOB_PANEL;
        run = smaller(count, JOB_PANEL - n % JOB_PANEL);
        copy_run(type, data, from, run, row);
        from += run;
    }
}

/* The same for a run of a patch, which may be outside. */
LC_INLINE void put_run_of_patch(const lc_dtype type, const part *p, int64_t from, int64_t count, int64_t k,
                                int64_t depth, int64_t n, packed *to)
{
    packed *row = to + (n / JOB_PANEL * depth + k) * JOB_PANEL + n % JOB_PANEL;
    int64_t rest = JOB_PANEL - n % JOB_PANEL;
    if (from < 0)
        for (int64_t i = 0; i < count; i++) to[((n + i) / JOB_PANEL * depth + k) * JOB_PANEL + (n + i) % JOB_PANEL] = 0;
    else if (count < VW && count <= rest) /* the next row of the panel is written later */
        copy_short(type, p, from, count, row, k + 1 < depth ? rest + JOB_PANEL : rest);
    else
        put_columns(type, p->from.images, from, count, k, depth, n, to);
}

/* Row k of the panels has columns [0, n): zeros fill the last panel. */
static inline void end_columns(int64_t k, int64_t depth, int64_t n, packed *to)
{
    packed *row = to + (n / JOB_PANEL * depth + k) * JOB_PANEL;
    for (int64_t i = n % JOB_PANEL; i && i < JOB_PANEL; i++) row[i] = 0;
}

/* k runs over places, columns are numbers of their patches. */
LC_INLINE void columns_of_patches(const lc_dtype type, const product_job *j, int64_t k0, int64_t depth, int64_t first,
                                  int64_t end, packed *to)
{
    const part *p = j->context;
    place at = place_of(&p->from, k0);
    /* The next row of places is fetched meanwhile. */
    const int64_t row = p->from.step[1] * p->from.size[2] * p->from.pixel, line = 64 / (int64_t)stored_size(type);
    for (int64_t k = 0; k < depth; k++, at = next_place(&p->from, at)) {
        walk w = walk_patch(p, &at, first, end - first);
        int64_t n = 0;
        for (int64_t from, count; (count = next_run(&w, &from)) > 0; n += count) {
            put_run_of_patch(type, p, from, count, k, depth, n, to);
            for (int64_t i = 0; i < count; i += line)
                __builtin_prefetch(stored_at(type, p->from.images, from + row + i));
        }
        end_columns(k, depth, n, to);
    }
}

static void pack_patches(const product_job *j, int64_t k, int64_t depth, int64_t first, int64_t end, packed *to)
{
    STORED(j->y_type, columns_of_patches, j, k, depth, first, end, to);
}

/* k runs over taps and channels of dy, columns are channels of dx. */
LC_INLINE void columns_of_weights(const lc_dtype type, const product_job *j, int64_t k0, int64_t depth, int64_t first,
                                  int64_t end, packed *to)
{
    const part *p = j->context;
    const patches *f = &p->from;
    for (int64_t k = 0; k < depth; k++) {
        int64_t t = f->taps[(k0 + k) / f->channels].number, o = (k0 + k) % f->channels;
        put_columns(type, j->y, o * j->p.yk + t * j->p.n + first, end - first, k, depth, 0, to);
        end_columns(k, depth, end - first, to);
    }
}

static void pack_weights(const product_job *j, int64_t k, int64_t depth, int64_t first, int64_t end, packed *to)
{
    STORED(j->y_type, columns_of_weights, j, k, depth, first, end, to);
}

static int64_t row_at(const product_job *j, int64_t row)
{
    const part *p = j->context;
    return result_at(&p->from, row);
}

/* ---- plans ---- */

static void release(lc_call *call)
{
    conv *c = call->state;
    if (!c) return;
    free(c->parts);
    free(c->taps);
    free(c->stretches);
    free(c);
    call->state = NULL;
}

static lc_status make_conv(lc_call *call, int64_t parts, int64_t taps)
{
    conv *c = call->state = calloc(1, sizeof *c);
    if (c) {
        c->n_parts = parts;
        c->parts = calloc((size_t)parts, sizeof *c->parts);
        c->taps = calloc((size_t)(taps + parts), sizeof *c->taps);
        c->stretches = calloc((size_t)(taps + parts), sizeof *c->stretches);
        if (c->parts && c->taps && c->stretches) return LC_OK;
        release(call);
    }
    return lc_fail(LC_ERR_MEMORY, "out of memory: the plan of a convolution");
}

/* Joins taps that are neighbors in memory into stretches, and finds the least and the largest shift. */
static void join_taps(part *p, int64_t taps, stretch *to)
{
    const patches *f = &p->from;
    stretch *last = NULL;
    p->stretches = to;
    for (int64_t t = 0; t < taps; t++) {
        const int64_t *shift = f->taps[t].shift;
        int64_t offset = 0;
        for (int d = 0; d < 3; d++) {
            offset = offset * f->size[d] + shift[d];
            p->least[d] = t ? smaller(p->least[d], shift[d]) : shift[d];
            p->most[d] = t ? larger(p->most[d], shift[d]) : shift[d];
        }
        offset *= f->pixel;
        if (last && last->offset + last->end - last->begin == offset) {
            last->end += f->channels;
        } else {
            last = to++;
            *last = (stretch){t * f->channels, (t + 1) * f->channels, offset};
        }
    }
}

static lc_status plan_part(lc_call *call, part *p, bool bias)
{
    product_job *j = &p->job;
    j->low = true;
    j->halves = 1;
    j->context = p;
    j->rounds |= j->out_type != LC_F32;
    j->p.bias = bias;
    if (!lc__job_plan(j)) return lc_fail(LC_ERR_INTERNAL, "the convolution is too large");
    size_t bytes = (size_t)(lc__job_floats(j, call->threads) + (bias ? j->p.n : 0)) * sizeof(float);
    if (bytes > call->scratch_bytes) call->scratch_bytes = bytes;
    return LC_OK;
}

static lc_status conv_prepare(lc_call *call)
{
    const lc_view *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    shape s = shape_of(call->ints, x, w, y);
    int64_t taps = product_of_3(s.kernel), k = taps * s.in_channels;
    LC_TRY(make_conv(call, 1, taps));
    conv *c = call->state;
    part *p = c->parts;
    all_patches(&s, c->taps, &p->from);
    join_taps(p, taps, c->stretches);
    p->job = (product_job){.p = {.m = s.images * product_of_3(s.out),
                                 .n = s.out_channels,
                                 .k = k,
                                 .xm = k,
                                 .xk = 1,
                                 .yk = 1,
                                 .yn = k,
                                 .activation = (int)call->ints[2 + 3 * call->ints[0]]},
                           .x_type = x->dtype,
                           .y_type = w->dtype,
                           .out_type = y->dtype,
                           .pack_rows = copy_patches};
    return plan_part(call, p, given(&call->in[2]));
}

static lc_status weight_grad_prepare(lc_call *call)
{
    const lc_view *dy = &call->in[0], *x = &call->in[1], *dw = &call->out[0];
    shape s = shape_of(call->ints, x, dw, dy);
    int64_t taps = product_of_3(s.kernel);
    LC_TRY(make_conv(call, 1, taps));
    conv *c = call->state;
    part *p = c->parts;
    all_patches(&s, c->taps, &p->from);
    join_taps(p, taps, c->stretches);
    p->job = (product_job){.p = {.m = s.out_channels,
                                 .n = taps * s.in_channels,
                                 .k = s.images * product_of_3(s.out),
                                 .xm = 1,
                                 .xk = s.out_channels},
                           .x_type = dy->dtype,
                           .y_type = x->dtype,
                           .out_type = dw->dtype,
                           .pack_panels = pack_patches};
    return plan_part(call, p, false);
}

static lc_status input_grad_prepare(lc_call *call)
{
    const lc_view *dy = &call->in[0], *w = &call->in[1], *dx = &call->out[0];
    shape s = shape_of(call->ints, dx, w, dy);
    int64_t parts = product_of_3(s.stride), kernel = product_of_3(s.kernel), used = 0;
    LC_TRY(make_conv(call, parts, kernel));
    conv *c = call->state;
    for (int64_t i = 0; i < parts; i++) {
        part *p = &c->parts[i];
        int64_t remainder[3] = {i / s.stride[2] / s.stride[1], i / s.stride[2] % s.stride[1], i % s.stride[2]};
        int64_t taps = some_patches(&s, remainder, c->taps + used, &p->from);
        join_taps(p, taps, c->stretches + used);
        p->empty = taps == 1 && p->from.taps[0].shift[0] >= s.out[0]; /* of several, the first may be outside */
        used += taps;
        p->job = (product_job){.p = {.m = s.images * product_of_3(p->from.places),
                                     .n = s.in_channels,
                                     .k = taps * s.out_channels,
                                     .xm = taps * s.out_channels,
                                     .xk = 1,
                                     .yk = kernel * s.in_channels,
                                     .yn = 1},
                               .x_type = dy->dtype,
                               .y_type = w->dtype,
                               .out_type = dx->dtype,
                               .rounds = parts > 1,
                               .row_at = parts > 1 ? row_at : NULL,
                               .pack_rows = copy_patches,
                               .pack_panels = pack_weights};
        if (p->job.p.m) LC_TRY(plan_part(call, p, given(&call->in[2]))); /* 0: a stride larger than the image */
    }
    return LC_OK;
}

/* ---- kernels ---- */

/* Places that no tap reaches: only the bias. */
static void fill_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const product_job *j = context;
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        int64_t at = row_at(j, m);
        if (j->bias)
            put_run(j->out_type, j->out, at, j->p.n, j->bias);
        else
            memset(stored_at(j->out_type, j->out, at), 0, (size_t)j->p.n * stored_size(j->out_type));
    }
}

/* images: what patches are of; x, y: the factors that are matrices. */
static void run_parts(const lc_call *call, const lc_view *images, const void *x, const void *y, const lc_view *bias)
{
    conv *c = call->state;
    for (int64_t i = 0; i < c->n_parts; i++) {
        part *p = &c->parts[i];
        product_job *j = &p->job;
        if (!j->p.m) continue;
        p->from.images = images->data;
        p->numel = numel(images);
        j->x = x;
        j->y = y;
        j->out = call->out[0].data;
        j->accumulate = call->accumulate;
        j->scratch = call->scratch;
        if (j->p.bias) {
            float *to = j->scratch + lc__job_floats(j, call->threads);
            get_run(bias->dtype, bias->data, 0, j->p.n, to);
            j->bias = to;
        }
        if (p->empty)
            lc__parallel_for(call->threads, j->p.m, lc__block_size(2 * j->p.n, 1), fill_rows, j);
        else
            lc__job_run(j, call->threads);
    }
}

static void conv_run(const lc_call *call)
{
    run_parts(call, &call->in[0], NULL, call->in[1].data, &call->in[2]);
}

static void weight_grad_run(const lc_call *call)
{
    run_parts(call, &call->in[1], call->in[0].data, NULL, NULL);
}

/* Remainders; with more, passes that round operands in f32 compute the call. */
#define MOST_PARTS 64

/* Whether a gradient of weights of f32 is computed in less time than by oneDNN, whose kernels lose where rows of
 * results are short (measured on Zen 5 with AVX-512 and AVX2, oneDNN 2.6.3). */
static bool pays_in_f32(const lc_call *call, const lc_view *dy, const lc_view *w)
{
    return call->op == &lc__op_conv_weight_grad && call->ints[0] == 2 && call->ints[1] > 1 && w->shape[1] >= 256 &&
           w->shape[2] > 1 && dy->shape[3] <= 8;
}

static bool supports(const lc_call *call)
{
    bool low = call->out[0].dtype != LC_F32, input_grad = call->op == &lc__op_conv_input_grad;
    const lc_view *x = input_grad ? &call->out[0] : &call->in[call->op == &lc__op_conv ? 0 : 1];
    const lc_view *y = call->op == &lc__op_conv ? &call->out[0] : &call->in[0];
    const lc_view *w = call->op == &lc__op_conv_weight_grad ? &call->out[0] : &call->in[1];
    int nd = (int)call->ints[0];
    double work = (double)numel(w);
    int64_t parts = 1;
    if (!is_stored(call->out[0].dtype) || call->ints[1 + 3 * nd] != 1 || numel(x) < 1 || numel(y) < 1) return false;
    for (int i = 0; i < call->n_in; i++) {
        if (!given(&call->in[i])) continue;
        if (!is_stored(call->in[i].dtype)) return false;
        low |= call->in[i].dtype != LC_F32;
    }
    low |= pays_in_f32(call, y, w);
#if defined(LC_ISA_PAIRS)
    if (call->in[0].dtype != LC_BF16 || call->in[1].dtype != LC_BF16) return false;
#endif
    for (int i = 0; i < nd; i++) parts *= call->ints[1 + i] < MOST_PARTS ? call->ints[1 + i] : MOST_PARTS;
    work *= (double)numel(x) + (double)numel(y);
    return low && (!input_grad || parts <= MOST_PARTS) && work < 0x1p55;
}

static const lc_kernel conv_kernel = {
    .name = "conv_low_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = supports,
    .prepare = conv_prepare,
    .run = conv_run,
    .release = release,
};

static const lc_kernel input_grad_kernel = {
    .name = "conv_input_grad_low_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = supports,
    .prepare = input_grad_prepare,
    .run = conv_run,
    .release = release,
};

static const lc_kernel weight_grad_kernel = {
    .name = "conv_weight_grad_low_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .prepare = weight_grad_prepare,
    .run = weight_grad_run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__conv_low_kernels)[] = {
    {&lc__op_conv, &conv_kernel},
    {&lc__op_conv_input_grad, &input_grad_kernel},
    {&lc__op_conv_weight_grad, &weight_grad_kernel},
    {NULL, NULL},
};
