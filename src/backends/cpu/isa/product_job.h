/* SPDX-License-Identifier: Apache-2.0 */
/* One product of matrices in f32 and 16 bits, as matmul, linear (product.c) and convolutions in 16 bits (conv_low.c)
 * have it: out = activation(x * y + bias), and what was fused with it (epilogue.h). product_job.c has the loops.
 *
 * Use: set what is not set by the plan; lc__job_plan; lc__job_floats of scratch; lc__job_run. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_JOB_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_JOB_H

#include "backends/cpu/isa.h"
#include "backends/cpu/isa/epilogue.h"
#include "backends/cpu/product.h"

typedef struct product_job product_job;

/* Rows of a tile of results, a multiple of those of a strip, and columns of a panel. */
#if defined(LC_ISA_AMX)
#define JOB_ROWS  32
#define JOB_PANEL (2 * VW)
#elif defined(LC_ISA_PAIRS)
#define JOB_ROWS  16
#define JOB_PANEL (3 * VW)
#else
#define JOB_ROWS  12
#define JOB_PANEL (2 * VW)
#endif

/* Numbers of a factor that is not a matrix: floats, or the numbers of bf16 that are multiplied in pairs. */
#if defined(LC_ISA_PAIRS)
typedef uint16_t packed;
#else
typedef float packed;
#endif

/* Copies a part of such a factor, as product_panels.h does with matrices. */
typedef void pack_fn(const product_job *j, int64_t k, int64_t depth, int64_t first, int64_t end, packed *to);

struct product_job {
    lc__product p;
    lc_dtype x_type, y_type, out_type;
    bool low;    /* some operand or result is in 16 bits, or is multiplied so */
    int halves;  /* pairs.h: the numbers of bf16 that stand for one of a factor, 1 or 2 */
    bool rounds; /* something that pieces write or read is in 16 bits: they compute in f32 elsewhere */
    /* OPTIONAL: they make the panels of columns [first, end), copy rows [first, end) to places row_step apart, and say
     * where a row of the result begins, for which `rounds` is set. */
    pack_fn *pack_panels, *pack_rows;
    int64_t (*row_at)(const product_job *j, int64_t row);
    const void *context;
    bool accumulate;
    const void *x, *y;
    const float *bias;
    void *out;
    float *scratch;
    epilogue after;
    /* Set by the plan. */
    int64_t work;     /* multiplications */
    int64_t depth;    /* of a block of k */
    bool direct;      /* tiles of results that are rounded go to their place, with the bias */
    bool whole;       /* others are computed in scratch for all of them, not for a piece */
    bool shared;      /* panels are made first, not by pieces */
    bool in_place;    /* y's whole panels are read where they are, not copied */
    bool strips;      /* x is copied into strips */
    int64_t row_step; /* x is copied into rows that are so far apart; or 0 */
    bool copied;      /* into either */
    bool own_copy;    /* by pieces, not before them */
    int64_t blocks_at_once;
    int64_t row_block, column_block, row_blocks, column_blocks;
    int64_t at_once; /* columns of a piece that are computed and then finished */
    int64_t panels, panel_floats, shared_floats, own_panels, own_floats, per_thread, sum_floats;
    int64_t k_begin, k_end; /* the range of k whose panels are made */
};

/* Where a piece computes its part of the result: its first number, and the distance of rows. */
typedef struct target {
    float *c;
    uint16_t *rounded; /* instead, if the job is direct, */
    const float *bias; /* and what is added before; or NULL */
    int64_t step;
} target;

/* False if the product is too large. */
bool LC_ISA_NAME(lc__job_plan)(product_job *j);
int64_t LC_ISA_NAME(lc__job_floats)(const product_job *j, int threads);
void LC_ISA_NAME(lc__job_run)(product_job *j, int threads);
#define lc__job_plan   LC_ISA_NAME(lc__job_plan)
#define lc__job_floats LC_ISA_NAME(lc__job_floats)
#define lc__job_run    LC_ISA_NAME(lc__job_run)

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t parts(int64_t n, int64_t part)
{
    return (n + part - 1) / part;
}

static inline int64_t whole(int64_t n, int64_t unit)
{
    return parts(n, unit) * unit;
}

#endif
