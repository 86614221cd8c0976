/* SPDX-License-Identifier: Apache-2.0 */
/* Parts shared by batch_norm_pool.c and batch_norm_pool_backward.c: batch normalization, relu and max pooling over 2 x
 * 2 windows in one. The normalized activation is never stored: x is read once for the statistics and once for the
 * result, in backward once for the sums and once for dx. Results, and dx of 16 bits, have the bits of a batch norm, a
 * relu and a pooling by themselves. Other windows are left to the reference kernel. */
#ifndef LC_BACKENDS_CPU_ISA_BATCH_NORM_POOL_H
#define LC_BACKENDS_CPU_ISA_BATCH_NORM_POOL_H

#include "backends/cpu/isa/batch_norm.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "ops/ops.h"

typedef struct sizes {
    int64_t n, c, h, w, oh, ow;
    int64_t rows; /* of pooled pixels: n * oh */
    int64_t rows_per_block, blocks;
} sizes;

static inline sizes sizes_of(const lc_view *x, const lc_view *pooled)
{
    sizes s = {x->shape[0], x->shape[1], x->shape[2], x->shape[3], pooled->shape[2], pooled->shape[3], 0, 0, 0};
    s.rows = s.n * s.oh;
    int64_t bytes = 2 * s.w * s.c * 4, least = (s.rows + WIDE_MAX_BLOCKS - 1) / WIDE_MAX_BLOCKS;
    s.rows_per_block = bytes < 65536 ? 65536 / bytes : 1;
    if (s.rows_per_block < least) s.rows_per_block = least;
    s.blocks = (s.rows + s.rows_per_block - 1) / s.rows_per_block;
    return s;
}

/* Windows of 2 x 2 without overlap that do not extend beyond the edge. */
static inline bool two_by_two(const int64_t *k, const lc_view *x, const lc_view *pooled)
{
    return k[0] == 2 && k[1] == 2 && k[2] == 2 && k[3] == 2 && !k[4] && !k[5] && k[6] == 1 && k[7] == 1 &&
           pooled->shape[2] * 2 <= x->shape[2] && pooled->shape[3] * 2 <= x->shape[3];
}

static inline wide wide_of(const lc_view *x)
{
    return wide_make(numel(x) / x->shape[1], x->shape[1]);
}

typedef struct job {
    sizes z;
    const wide *wide;
    int64_t lanes;
    lc_dtype dtype;
    const void *x;
    const float *parameters;
    void *y; /* pooled */
    uint8_t *index;
    const void *dy; /* pooled */
    float *partial; /* sums of each block */
    void *dx;
} job;

/* A row of pooled pixels, and the four pixels under the first of them. */
typedef struct pixels {
    const void *x[4];
    int64_t at; /* the row's first element */
} pixels;

LC_INLINE pixels pixels_of(const lc_dtype t, const job *j, int64_t row)
{
    const sizes *z = &j->z;
    const void *x = stored_at(t, j->x, ((row / z->oh) * z->h + 2 * (row % z->oh)) * z->w * z->c);
    const void *below = stored_at(t, x, z->w * z->c);
    return (pixels){{x, stored_at(t, x, z->c), below, stored_at(t, below, z->c)}, row * z->ow * z->c};
}

#endif
