/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of batch normalization, relu and max pooling in one; see batch_norm_pool.h. */
#include "backends/cpu/isa/batch_norm_pool.h"

#include "backends/cpu/isa/lists.h"
#include "backends/cpu/parallel.h"

/* ---- sums of f32: of the pixels that won ---- */
/* Adds the sums of a row of pooled pixels to t1 and t2. */
static void sum_row(const job *j, int64_t r, float *t1, float *t2)
{
    const sizes *z = &j->z;
    const float *m = j->parameters, *s = m + j->lanes, *b = s + j->lanes, *dys = j->dy;
    const pixels p = pixels_of(LC_F32, j, r);
    int64_t c = 0;
    for (; c + VW <= z->c; c += VW) {
        vf a1 = vzero(), a2 = vzero(), vm = vload(m + c), vs = vload(s + c), vb = vload(b + c);
        for (int64_t q = 0; q < z->ow; q++) {
            const int64_t at = p.at + q * z->c + c, x = 2 * q * z->c + c;
            vf v = vget(LC_F32, p.x[0], x);
            for (int k = 1; k < 4; k++) v = vpick(vwhere_bytes(j->index + at, k), vget(LC_F32, p.x[k], x), v);
            const vf d = v - vm, g = vkeep(vwhere_not_le(VALL, vscaled(d, vs, vb), vzero()), vload(dys + at));
            a1 += g;
            a2 += g * d;
        }
        vstore(t1 + c, vload(t1 + c) + a1);
        vstore(t2 + c, vload(t2 + c) + a2);
    }
    for (; c < z->c; c++) {
        float a1 = 0, a2 = 0;
        for (int64_t q = 0; q < z->ow; q++) {
            const int64_t at = p.at + q * z->c + c;
            float d = get(LC_F32, p.x[j->index[at] & 3], 2 * q * z->c + c) - m[c];
            float g = scaled(d, s[c], b[c]) <= 0.f ? 0.f : dys[at];
            a1 += g;
            a2 += g * d;
        }
        t1[c] += a1;
        t2[c] += a2;
    }
}

static void sum_winners(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const sizes *z = &j->z;
    /* The sums of one row of pixels, then of the block. */
    float *t1 = j->partial + begin / z->rows_per_block * 2 * z->c, *t2 = t1 + z->c;
    (void)thread;
    memset(t1, 0, (size_t)(2 * z->c) * sizeof *t1);
    for (int64_t r = begin; r < end; r++) sum_row(j, r, t1, t2);
}

static void total_of_winners(const job *j, int threads, double *sum1, double *sum2)
{
    const int64_t channels = j->z.c;
    lc__parallel_for(threads, j->z.rows, j->z.rows_per_block, sum_winners, j);
    for (int64_t c = 0; c < channels; c++) sum1[c] = sum2[c] = 0;
    for (int64_t k = 0; k < j->z.blocks; k++) {
        for (int64_t c = 0; c < channels; c++) {
            sum1[c] += j->partial[k * 2 * channels + c];
            sum2[c] += j->partial[k * 2 * channels + channels + c];
        }
    }
}

/* ---- sums of 16 bits: in the order in which the backward of a batch norm by itself adds ---- */
/* If a sum differed in its last bit, dx might be rounded to the next number. That order is of wide rows (wide.h). */
#define MOST_FOLD 256

/* Where a run of pixels of x belongs: the element of its window's result, and its place in it; -1: it has none. */
typedef struct members {
    int64_t at[SUM_ROWS * MOST_FOLD];
    int8_t place[SUM_ROWS * MOST_FOLD];
} members;

static void find_members(const sizes *z, int64_t first, int64_t n, members *of)
{
    int64_t row = first / z->w, w = first % z->w;
    for (int64_t i = 0; i < n; row++, w = 0) {
        const int64_t h = row % z->h, end = z->w - w < n - i ? z->w : w + n - i;
        const int64_t covered = h / 2 < z->oh ? (2 * z->ow < end ? 2 * z->ow : end) : 0;
        int64_t at = ((row / z->h * z->oh + h / 2) * z->ow + w / 2) * z->c;
        const int8_t left = (int8_t)(h % 2 * 2), right = (int8_t)(left + 1);
        if (w % 2 && w < covered) {
            of->at[i] = at;
            of->place[i++] = right;
            at += z->c;
            w++;
        }
        for (; w + 1 < covered; w += 2, i += 2, at += z->c) {
            of->at[i] = of->at[i + 1] = at;
            of->place[i] = left;
            of->place[i + 1] = right;
        }
        if (w < covered) {
            of->at[i] = at;
            of->place[i++] = left;
            w++;
        }
        for (; w < end; w++, i++) {
            of->at[i] = 0;
            of->place[i] = -1;
        }
    }
}

/* Adds the sums over pixel f of some wide rows, of which the first begins at element `x`, to those of its lanes. dy
 * counts where a pixel won and was positive. */
LC_INLINE void sum_channels(const lc_dtype t, const job *j, const members *of, int64_t f, int64_t rows, int64_t x,
                            int64_t c, float *t1, float *t2, const int width)
{
    const float *m = j->parameters + c, *s = m + j->lanes, *b = s + j->lanes;
    vf vm[2], vs[2], vb[2], a1[2], a2[2];
    for (int u = 0; u < width; u++) {
        vm[u] = vload(m + u * VW);
        vs[u] = vload(s + u * VW);
        vb[u] = vload(b + u * VW);
        a1[u] = a2[u] = vzero();
    }
    for (int64_t i = 0; i < rows; i++, x += j->lanes, f += j->wide->fold) {
        for (int u = 0; u < width; u++) {
            const int64_t at = of->at[f] + c + u * VW;
            const vf d = vget(t, j->x, x + c + u * VW) - vm[u];
            const vmask won = vwhere_bytes(j->index + at, of->place[f]);
            const vf g = vkeep(vwhere_not_le(won, vscaled(d, vs[u], vb[u]), vanishing(t)), vget(t, j->dy, at));
            a1[u] += g;
            a2[u] += g * d;
        }
    }
    for (int u = 0; u < width; u++) {
        vstore(t1 + c + u * VW, vload(t1 + c + u * VW) + a1[u]);
        vstore(t2 + c + u * VW, vload(t2 + c + u * VW) + a2[u]);
    }
}

LC_INLINE void sum_pixels(const lc_dtype t, const job *j, const members *of, int64_t f, int64_t rows, int64_t x,
                          float *t1, float *t2)
{
    const int64_t channels = j->z.c;
    const float *m = j->parameters, *s = m + j->lanes, *b = s + j->lanes;
    int64_t c = 0;
    for (; c + 2 * VW <= channels; c += 2 * VW) sum_channels(t, j, of, f, rows, x, c, t1, t2, 2);
    for (; c + VW <= channels; c += VW) sum_channels(t, j, of, f, rows, x, c, t1, t2, 1);
    for (; c < channels; c++) {
        float a1 = 0, a2 = 0;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t member = f + i * j->wide->fold, at = of->at[member] + c;
            const float d = get(t, j->x, x + i * j->lanes + c) - m[c];
            const bool counts = j->index[at] == of->place[member] && !(scaled(d, s[c], b[c]) <= vanishing_number(t));
            const float g = counts ? get(t, j->dy, at) : 0.f;
            a1 += g;
            a2 += g * d;
        }
        t1[c] += a1;
        t2[c] += a2;
    }
}

/* Adds the sums of the first `number` pixels of some wide rows to those of their lanes. The rows that come next are
 * fetched meanwhile: numbers of a lane are far apart. */
LC_INLINE void sum_rows_of(const lc_dtype t, const job *j, int64_t first, int64_t rows, int64_t number, float *t1,
                           float *t2)
{
    const int64_t fold = j->wide->fold, c = j->z.c, bytes = rows * c * (int64_t)stored_size(t);
    members of;
    find_members(&j->z, first * fold, (rows - 1) * fold + number, &of);
    for (int64_t f = 0; f < number; f++) {
        const char *next = (const char *)stored_at(t, j->x, (first + rows) * fold * c) + f * bytes;
        for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + i);
        sum_pixels(t, j, &of, f, rows, (first * fold + f) * c, t1 + f * c, t2 + f * c);
    }
}

LC_INLINE void sum_block_of(const lc_dtype t, const job *j, int64_t block)
{
    const wide *w = j->wide;
    float *t1 = j->partial + block * 2 * w->lanes, *t2 = t1 + w->lanes;
    const int64_t first = block * w->rows_per_block;
    const int64_t end = w->rows - first < w->rows_per_block ? w->rows : first + w->rows_per_block;
    memset(t1, 0, (size_t)(2 * w->lanes) * sizeof *t1);
    for (int64_t r = first; r < end; r += SUM_ROWS)
        sum_rows_of(t, j, r, end - r < SUM_ROWS ? end - r : SUM_ROWS, w->fold, t1, t2);
    if (block == w->blocks - 1 && w->tail) sum_rows_of(t, j, w->rows, 1, w->tail / w->c, t1, t2);
}

static void sum_blocks(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        if (j->dtype == LC_BF16)
            sum_block_of(LC_BF16, j, k);
        else
            sum_block_of(LC_F16, j, k);
    }
}

static void total_in_order(const job *j, int threads, double *lane_sums, double *sum1, double *sum2)
{
    const wide *w = j->wide;
    lc__parallel_for(threads, w->blocks, 1, sum_blocks, j);
    wide_total(w, j->partial, 2 * w->lanes, lane_sums, sum1);
    wide_total(w, j->partial + w->lanes, 2 * w->lanes, lane_sums, sum2);
}

/* ---- dx ---- */
#define WRITTEN_AHEAD 512 /* bytes */

/* dx under a row of pooled pixels, of channels from c on; to: of the first four pixels. A gradient of -0 becomes 0, as
 * by the backward of a pooling, which adds it to 0. */
LC_INLINE void write_channels(const lc_dtype t, const job *j, const pixels *p, void *const *to, int64_t c,
                              const int width)
{
    const float *m = j->parameters + c, *s = m + j->lanes, *b = s + j->lanes, *fx = b + j->lanes, *f1 = fx + j->lanes;
    vf vm[2], vs[2], vb[2], vx[2], v1[2];
    for (int u = 0; u < width; u++) {
        vm[u] = vload(m + u * VW);
        vs[u] = vload(s + u * VW);
        vb[u] = vload(b + u * VW);
        vx[u] = vload(fx + u * VW);
        v1[u] = vload(f1 + u * VW);
    }
    for (int64_t q = 0; q < j->z.ow; q++) {
        const int64_t first = 2 * q * j->z.c + c;
        vf dx[4][2];
        for (int u = 0; u < width; u++) {
            const int64_t at = p->at + q * j->z.c + c + u * VW;
            vmask place[4];
            vf x[4], won = vzero();
            for (int k = 0; k < 4; k++) {
                place[k] = vwhere_bytes(j->index + at, k);
                x[k] = vget(t, p->x[k], first + u * VW) - vm[u];
                won = k ? vpick(place[k], x[k], won) : x[k];
            }
            const vmask positive = vwhere_not_le(VALL, vscaled(won, vs[u], vb[u]), vanishing(t));
            const vf dy = vkeep(positive, vget(t, j->dy, at) + vzero());
            for (int k = 0; k < 4; k++) dx[k][u] = vgradient(vkeep(place[k], dy), vs[u], x[k], vx[u], v1[u]);
        }
        for (int k = 0; k < 4; k++) {
            vfetch_to_write((const char *)stored_at(t, to[k], first) + WRITTEN_AHEAD);
            if (width == 2)
                vput_two(t, to[k], first, dx[k][0], dx[k][1]);
            else
                vput(t, to[k], first, dx[k][0]);
        }
    }
}

LC_INLINE void write_row(const lc_dtype t, const job *j, const pixels *p, void *const *to)
{
    const int64_t channels = j->z.c;
    const float *m = j->parameters, *s = m + j->lanes, *b = s + j->lanes, *fx = b + j->lanes, *f1 = fx + j->lanes;
    int64_t c = 0;
    for (; c + 2 * VW <= channels; c += 2 * VW) write_channels(t, j, p, to, c, 2);
    for (; c + VW <= channels; c += VW) write_channels(t, j, p, to, c, 1);
    for (int64_t first = c, q = 0; first < channels && q < j->z.ow; q++) {
        for (c = first; c < channels; c++) {
            const int64_t at = p->at + q * channels + c, i = 2 * q * channels + c;
            for (int k = 0; k < 4; k++) {
                const float d = get(t, p->x[k], i) - m[c];
                const bool counts = j->index[at] == k && !(scaled(d, s[c], b[c]) <= vanishing_number(t));
                const float g = counts ? get(t, j->dy, at) + 0.f : 0.f;
                put(t, to[k], i, gradient(g, s[c], d, fx[c], f1[c]));
            }
        }
    }
}

/* dx of pixels that no window covers: their gradient is 0. */
LC_INLINE void write_rest(const lc_dtype t, const job *j, int64_t first, int64_t number)
{
    const int64_t channels = j->z.c;
    const float *m = j->parameters, *s = m + j->lanes, *fx = m + 3 * j->lanes, *f1 = fx + j->lanes;
    for (int64_t p = 0; p < number; p++) {
        const int64_t at = first + p * channels;
        for (int64_t c = 0; c < channels; c++)
            put(t, j->dx, at + c, gradient(0.f, s[c], get(t, j->x, at + c) - m[c], fx[c], f1[c]));
    }
}

LC_INLINE void backward_rows_of(const lc_dtype t, const job *j, int64_t begin, int64_t end)
{
    const sizes *z = &j->z;
    const int64_t width = z->w * z->c;
    for (int64_t r = begin; r < end; r++) {
        int64_t top = ((r / z->oh) * z->h + 2 * (r % z->oh)) * width;
        void *dx = stored_at(t, j->dx, top), *below = stored_at(t, dx, width);
        void *const to[4] = {dx, stored_at(t, dx, z->c), below, stored_at(t, below, z->c)};
        const pixels p = pixels_of(t, j, r);
        write_row(t, j, &p, to);
        for (int i = 0; i < 2; i++) write_rest(t, j, top + i * width + 2 * z->ow * z->c, z->w - 2 * z->ow);
        if (r % z->oh == z->oh - 1) write_rest(t, j, top + 2 * width, (z->h - 2 * z->oh) * z->w);
    }
}

static void backward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    STORED(j->dtype, backward_rows_of, j, begin, end);
}

static bool backward_supports(const lc_call *call)
{
    const lc_view *x = &call->in[2];
    return x->ndim == 4 && numel(x) > 0 && call->in[1].dtype == LC_U8 && is_stored(x->dtype) &&
           call->in[0].dtype == x->dtype && call->out[0].dtype == x->dtype && all_f32(&call->in[3], call->n_in - 3) &&
           all_f32(&call->out[1], call->n_out - 1) && two_by_two(call->ints, x, &call->in[0]);
}

static lc_status backward_prepare(lc_call *call)
{
    wide w = wide_of(&call->in[2]);
    const int64_t partial = w.blocks * 2 * w.lanes, winners = sizes_of(&call->in[2], &call->in[0]).blocks * 2 * w.c;
    call->scratch_bytes = (size_t)(w.lanes + 2 * w.c) * sizeof(double) +
                          (size_t)(5 * w.lanes + (partial > winners ? partial : winners)) * sizeof(float);
    return LC_OK;
}

static void backward_run(const lc_call *call)
{
    wide w = wide_of(&call->in[2]);
    double *lane_sums = call->scratch, *sum1 = lane_sums + w.lanes, *sum2 = sum1 + w.c;
    float *parameters = (float *)(sum2 + w.c), *partial = parameters + 5 * w.lanes;
    const float *var = call->in[6].data;
    LC_ISA_NAME(lc__bn_parameters)
    (&w, call->in[5].data, var, call->in[3].data, call->in[4].data, call->floats[0], parameters);
    job j = {.z = sizes_of(&call->in[2], &call->in[0]),
             .wide = &w,
             .lanes = w.lanes,
             .dtype = call->in[2].dtype,
             .x = call->in[2].data,
             .parameters = parameters,
             .dy = call->in[0].data,
             .index = call->in[1].data,
             .partial = partial,
             .dx = call->out[0].data};
    if (j.dtype == LC_F32)
        total_of_winners(&j, call->threads, sum1, sum2);
    else
        total_in_order(&j, call->threads, lane_sums, sum1, sum2);
    LC_ISA_NAME(lc__bn_factors)
    (&w, var, call->floats[0], sum1, sum2, parameters, call->out[1].data, call->out[2].data);
    lc__parallel_for(call->threads, j.z.rows, j.z.rows_per_block, backward_rows, &j);
}

static const lc_kernel backward_kernel = {
    .name = "batch_norm_relu_pool_backward_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = backward_supports,
    .prepare = backward_prepare,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__batch_norm_pool_backward_kernels)[] = {
    {&lc__op_batch_norm_relu_pool_backward, &backward_kernel},
    {NULL, NULL},
};
