/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalization, relu and max pooling in one; see batch_norm_pool.h. */
#include "backends/cpu/isa/batch_norm_pool.h"

#include "backends/cpu/isa/lists.h"
#include "backends/cpu/parallel.h"

/* Pooling compares numbers that are rounded as those of a batch norm by itself. */
LC_INLINE float normal(const lc_dtype t, float x, float m, float s, float b)
{
    float z = scaled(x - m, s, b);
    return rounded(t, z <= 0.f ? 0.f : z);
}

/* The first maximum wins; a NaN beats every number. */
static inline void take(float v, uint8_t place, float *best, uint8_t *index)
{
    if (v <= *best || *best != *best) return;
    *best = v;
    *index = place;
}

/* The bits of the same numbers, of which none is negative, so that integers have their order. A NaN is the largest. */
LC_INLINE vi normal_bits(const lc_dtype t, vf x, vf m, vf s, vf b)
{
    const vi bits = (vi)vlarger(vzero(), vscaled(x - m, s, b)) & 0x7fffffff;
    if (t == LC_F32) return bits;
    return widen_halves(t == LC_BF16 ? bf16_round((vf)bits) : f16_round((vf)bits));
}

/* The larger one. `later`: where it is b. */
LC_INLINE vi larger_bits(vi a, vi b, vi *later)
{
    *later = b > a;
    return (b & *later) | (a & ~*later);
}

/* Channels from c on of a row. */
LC_INLINE void forward_channels(const lc_dtype t, const job *j, const pixels *p, int64_t c, const int width)
{
    const float *m = j->parameters + c, *s = m + j->lanes, *b = s + j->lanes;
    void *y = stored_at(t, j->y, p->at + c);
    uint8_t *index = j->index + p->at + c;
    vf vm[2], vs[2], vb[2];
    for (int u = 0; u < width; u++) {
        vm[u] = vload(m + u * VW);
        vs[u] = vload(s + u * VW);
        vb[u] = vload(b + u * VW);
    }
    for (int64_t q = 0; q < j->z.ow; q++) {
        const int64_t at = q * j->z.c, x = 2 * at + c;
        for (int u = 0; u < width; u++) {
            vi z[4], in_top, in_below, below;
            for (int k = 0; k < 4; k++) z[k] = normal_bits(t, vget(t, p->x[k], x + u * VW), vm[u], vs[u], vb[u]);
            const vi top = larger_bits(z[0], z[1], &in_top), low = larger_bits(z[2], z[3], &in_below);
            const vi best = larger_bits(top, low, &below);
            const vi place = (below & (2 - in_below)) | (~below & -in_top);
            if (t == LC_F32)
                vstore((float *)y + at + u * VW, (vf)best);
            else
                *(vh_any *)((uint16_t *)y + at + u * VW) = low_halves(best);
            vstore_bytes(index + at + u * VW, place);
        }
    }
}

LC_INLINE void forward_row(const lc_dtype t, const job *j, const pixels *p)
{
    const int64_t channels = j->z.c;
    const float *m = j->parameters, *s = m + j->lanes, *b = s + j->lanes;
    int64_t c = 0;
    for (; c + 2 * VW <= channels; c += 2 * VW) forward_channels(t, j, p, c, 2);
    for (; c + VW <= channels; c += VW) forward_channels(t, j, p, c, 1);
    for (int64_t first = c, q = 0; first < channels && q < j->z.ow; q++) {
        for (c = first; c < channels; c++) {
            const int64_t at = q * channels + c, x = at + q * channels;
            float best = normal(t, get(t, p->x[0], x), m[c], s[c], b[c]);
            uint8_t place = 0;
            for (uint8_t k = 1; k < 4; k++) take(normal(t, get(t, p->x[k], x), m[c], s[c], b[c]), k, &best, &place);
            put(t, j->y, p->at + at, best);
            j->index[p->at + at] = place;
        }
    }
}

LC_INLINE void forward_rows_of(const lc_dtype t, const job *j, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        const pixels p = pixels_of(t, j, r);
        forward_row(t, j, &p);
    }
}

static void forward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    STORED(j->dtype, forward_rows_of, j, begin, end);
}

static bool forward_supports(const lc_call *call)
{
    const lc_view *x = &call->in[0];
    return x->ndim == 4 && numel(x) > 0 && call->out[1].dtype == LC_U8 && is_stored(x->dtype) &&
           call->out[0].dtype == x->dtype && all_f32(call->in + 1, call->n_in - 1) && all_f32(&call->out[2], 2) &&
           two_by_two(call->ints, x, &call->out[0]);
}

static lc_status forward_prepare(lc_call *call)
{
    wide w = wide_of(&call->in[0]);
    call->scratch_bytes = LC_ISA_NAME(lc__bn_statistics_scratch)(&w) + (size_t)(3 * w.lanes) * sizeof(float);
    return LC_OK;
}

static void forward_run(const lc_call *call)
{
    wide w = wide_of(&call->in[0]);
    float *parameters = call->scratch, *mean = call->out[2].data, *var = call->out[3].data;
    LC_ISA_NAME(lc__bn_statistics)(&w, call->threads, &call->in[0], parameters + 3 * w.lanes, mean, var);
    LC_ISA_NAME(lc__bn_parameters)(&w, mean, var, call->in[1].data, call->in[2].data, call->floats[0], parameters);
    job j = {.z = sizes_of(&call->in[0], &call->out[0]),
             .lanes = w.lanes,
             .dtype = call->in[0].dtype,
             .x = call->in[0].data,
             .parameters = parameters,
             .y = call->out[0].data,
             .index = call->out[1].data};
    lc__parallel_for(call->threads, j.z.rows, j.z.rows_per_block, forward_rows, &j);
}

static const lc_kernel forward_kernel = {
    .name = "batch_norm_relu_pool_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = forward_supports,
    .prepare = forward_prepare,
    .run = forward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__batch_norm_pool_kernels)[] = {
    {&lc__op_batch_norm_relu_pool, &forward_kernel},
    {NULL, NULL},
};
