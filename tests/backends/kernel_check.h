/* SPDX-License-Identifier: Apache-2.0 */
/* Fast kernels against the operator's reference kernel: one check runs a call on every instruction set of this machine
 * with one, two and three threads, compares the results with the reference, and requires the same bits for any number
 * of threads.
 *
 *   kernel_case c = case_of(&lc__op_softmax);
 *   add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, (int64_t[]){5, 7}, fill_normal, 3.0);
 *   add_int(&c, 1);
 *   check_case(&c);
 *
 * check_case releases all of it. */
#ifndef LC_KERNEL_CHECK_H
#define LC_KERNEL_CHECK_H

#include "test.h"

#include "backends/cpu/isa.h"
#include "base/number.h"
#include "ops/ops.h"

typedef enum check_layout { CHECK_ROW_MAJOR, CHECK_CHANNELS_LAST } check_layout;

typedef struct kernel_case {
    const lc_op *op;
    int n_in, n_out, n_int, n_float;
    lc_view in[12], out[LC_MAX_OUTPUTS];
    void *storage[12];
    int64_t ints[200];
    double floats[32];
    lc_type out_type[LC_MAX_OUTPUTS]; /* inferred unless n_out was set */
    check_layout out_layout;          /* of results with at least 3 dimensions */
    double relative, of_largest;      /* tolerances relative to the element, and to the largest element of its tensor */
    double f64;                       /* the tolerance in f64, relative to the largest element, or, if `of_largest`
                                         is 0, to the element; 0: the same bits */
    bool accumulate;                  /* the first result is added to what is there */
    uint32_t rounded;                 /* as in lc_call */
    lc_dtype rounded_to;
    bool may_lack; /* a missing fast kernel is accepted */
    uint64_t seed;
} kernel_case;

static inline kernel_case case_of(const lc_op *op)
{
    kernel_case c;
    memset(&c, 0, sizeof c);
    c.op = op;
    c.relative = 2e-6;
    c.of_largest = 2e-6;
    c.seed = 88172645463325252ull;
    return c;
}

/* `near`: c.f64 */
static inline kernel_case case_f64(const lc_op *op, double near)
{
    kernel_case c = case_of(op);
    c.f64 = near;
    return c;
}

static inline kernel_case case_in(lc_dtype dtype, const lc_op *op)
{
    return dtype == LC_F64 ? case_f64(op, 2e-14) : case_of(op);
}

/* ---- values ---- */
static double next_uniform(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (double)(*seed >> 11) / 9007199254740992.0;
}

typedef double fill_fn(uint64_t *seed, double scale);

/* Roughly normal, with standard deviation `scale`. */
static inline double fill_normal(uint64_t *seed, double scale)
{
    double sum = 0;
    for (int i = 0; i < 6; i++) sum += next_uniform(seed);
    return (sum - 3) * 1.41421356 * scale;
}

static inline double fill_positive(uint64_t *seed, double scale)
{
    return 0.1 + next_uniform(seed) * scale;
}

/* A whole number in [0, scale). */
static inline double fill_whole(uint64_t *seed, double scale)
{
    return floor(next_uniform(seed) * scale);
}

/* Small whole numbers with many ties. */
static inline double fill_ties(uint64_t *seed, double scale)
{
    return floor(next_uniform(seed) * scale) - floor(scale / 2);
}

static inline void put_value(lc_dtype dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case LC_F32:
        ((float *)data)[i] = (float)value;
        break;
    case LC_F64:
        ((double *)data)[i] = value;
        break;
    case LC_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case LC_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case LC_U8:
    case LC_BOOL:
        ((uint8_t *)data)[i] = (uint8_t)(int64_t)value;
        break;
    case LC_BF16:
    case LC_F16:
        lc__set_number(data, dtype, i, value);
        break;
    default:
        abort();
    }
}

/* ---- operands ---- */
static int64_t view_numel(const lc_view *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->ndim; d++) n *= v->shape[d];
    return n;
}

static lc_view dense_view(lc_dtype dtype, check_layout layout, int ndim, const int64_t *shape)
{
    lc_view v;
    memset(&v, 0, sizeof v);
    v.dtype = dtype;
    v.ndim = ndim;
    int64_t step = 1;
    bool last = layout == CHECK_CHANNELS_LAST && ndim >= 3;
    for (int d = 0; d < ndim; d++) v.shape[d] = shape[d];
    if (last) {
        v.stride[1] = 1;
        step = shape[1];
    }
    for (int d = ndim - 1; d >= 0; d--) {
        if (last && d == 1) continue;
        v.stride[d] = step;
        step *= shape[d];
    }
    return v;
}

/* Returns the new input's view, so that the caller can change its strides. */
static inline lc_view *add_input(kernel_case *c, lc_dtype dtype, check_layout layout, int ndim, const int64_t *shape,
                                 fill_fn *fill, double scale)
{
    lc_view *v = &c->in[c->n_in];
    *v = dense_view(dtype, layout, ndim, shape);
    int64_t n = view_numel(v);
    size_t bytes = (size_t)n * lc_dtype_size(dtype);
    v->data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    for (int64_t i = 0; i < n; i++) put_value(dtype, v->data, i, fill(&c->seed, scale));
    c->storage[c->n_in++] = v->data;
    return v;
}

static inline void add_missing(kernel_case *c)
{
    memset(&c->in[c->n_in], 0, sizeof c->in[0]);
    c->in[c->n_in].ndim = -1;
    c->storage[c->n_in++] = NULL;
}

static inline void add_int(kernel_case *c, int64_t value)
{
    c->ints[c->n_int++] = value;
}

static inline void add_float(kernel_case *c, double value)
{
    c->floats[c->n_float++] = value;
}

/* ---- running ---- */
static const lc_rng_key check_rng = {.seed = 11, .step = 5, .micro_batch = 1};

static lc_call call_of(kernel_case *c, const lc_kernel *kernel, int threads)
{
    return (lc_call){.op = c->op,
                     .kernel = kernel,
                     .n_in = c->n_in,
                     .n_out = c->n_out,
                     .n_int = c->n_int,
                     .n_float = c->n_float,
                     .in = c->in,
                     .out = c->out,
                     .ints = c->ints,
                     .floats = c->floats,
                     .rng = &check_rng,
                     .threads = threads,
                     .deterministic = true,
                     .accumulate = c->accumulate,
                     .rounded = c->rounded,
                     .rounded_to = c->rounded_to};
}

static void run_kernel(kernel_case *c, const lc_kernel *kernel, int threads)
{
    lc_call call = call_of(c, kernel, threads);
    lc_status status = kernel->prepare ? kernel->prepare(&call) : LC_OK;
    if (status != LC_OK) TEST_FAIL("%s: prepare: %s", kernel->name, lc_error_message());
    size_t bytes = (call.scratch_bytes + 63) / 64 * 64 + 64;
    call.scratch = aligned_alloc(64, bytes);
    memset(call.scratch, 0xff, bytes);
    kernel->run(&call);
    free(call.scratch);
    if (kernel->release) kernel->release(&call);
}

static void infer_outputs(kernel_case *c)
{
    if (!c->n_out) {
        lc_type types[12];
        const lc_type *in[12];
        for (int i = 0; i < c->n_in; i++) {
            types[i] = (lc_type){.dtype = c->in[i].dtype, .ndim = c->in[i].ndim};
            for (int d = 0; d < c->in[i].ndim; d++) types[i].shape[d] = c->in[i].shape[d];
            in[i] = c->in[i].ndim < 0 ? NULL : &types[i];
        }
        lc_infer infer = {.op = c->op,
                          .n_in = c->n_in,
                          .in = in,
                          .n_int = c->n_int,
                          .ints = c->ints,
                          .n_float = c->n_float,
                          .floats = c->floats,
                          .n_out = c->op->n_out,
                          .out = c->out_type};
        CHECK_OK(c->op->infer(&infer));
        c->n_out = infer.n_out;
    }
    for (int i = 0; i < c->n_out; i++) {
        const lc_type *t = &c->out_type[i];
        c->out[i] = dense_view(t->dtype, c->out_layout, t->ndim, t->shape);
        size_t bytes = (size_t)view_numel(&c->out[i]) * lc_dtype_size(t->dtype);
        c->out[i].data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    }
}

static void compare_f64(const kernel_case *c, int output, const double *want, const char *who)
{
    const double *got = c->out[output].data;
    int64_t n = view_numel(&c->out[output]);
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (fabs(want[i]) > largest && isfinite(want[i])) largest = fabs(want[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double a = got[i], b = want[i];
        double scale = c->of_largest > 0 ? largest : fabs(b);
        if (b != b ? a != a : isinf(b) ? a == b : fabs(a - b) <= c->f64 * scale + 1e-318) continue;
        TEST_FAIL("%s of %s: output %d at %lld of %lld is %.17g, wanted %.17g (largest %g)", who, c->op->name, output,
                  (long long)i, (long long)n, a, b, largest);
    }
}

static void compare(const kernel_case *c, int output, const void *wanted, const char *who)
{
    const lc_view *v = &c->out[output];
    int64_t n = view_numel(v);
    if (v->dtype == LC_F64 && c->f64 > 0) {
        compare_f64(c, output, wanted, who);
        return;
    }
    if (v->dtype != LC_F32) {
        size_t size = lc_dtype_size(v->dtype);
        for (int64_t i = 0; i < n; i++) {
            if (memcmp((const char *)v->data + (size_t)i * size, (const char *)wanted + (size_t)i * size, size))
                TEST_FAIL("%s of %s: output %d differs at %lld of %lld", who, c->op->name, output, (long long)i,
                          (long long)n);
        }
        return;
    }
    const float *got = v->data, *want = wanted;
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (fabs((double)want[i]) > largest && isfinite(want[i])) largest = fabs((double)want[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double a = (double)got[i], b = (double)want[i];
        if (b != b     ? a != a
            : isinf(b) ? a == b
                       : fabs(a - b) <= c->relative * fabs(b) + c->of_largest * largest + 1e-42)
            continue;
        TEST_FAIL("%s of %s: output %d at %lld of %lld is %.9g, wanted %.9g (largest %g)", who, c->op->name, output,
                  (long long)i, (long long)n, a, b, largest);
    }
}

/* What results hold before a kernel runs. */
static void clear_outputs(kernel_case *c)
{
    for (int i = 0; i < c->n_out; i++) {
        int64_t n = view_numel(&c->out[i]);
        memset(c->out[i].data, 0xff, (size_t)n * lc_dtype_size(c->out[i].dtype));
        for (int64_t k = 0; c->accumulate && i == 0 && k < n; k++)
            put_value(c->out[i].dtype, c->out[i].data, k, (double)(k % 5));
    }
}

static inline void check_case(kernel_case *c)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
    const lc_kernel *before = NULL;
    infer_outputs(c);
    clear_outputs(c);
    run_kernel(c, c->op->kernel, 1);
    void *wanted[LC_MAX_OUTPUTS], *first[LC_MAX_OUTPUTS];
    size_t bytes[LC_MAX_OUTPUTS];
    for (int i = 0; i < c->n_out; i++) {
        bytes[i] = (size_t)view_numel(&c->out[i]) * lc_dtype_size(c->out[i].dtype);
        wanted[i] = malloc(bytes[i] + 1);
        first[i] = malloc(bytes[i] + 1);
        memcpy(wanted[i], c->out[i].data, bytes[i]);
    }
    for (int s = 0; s < 4; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        if (!isa) continue;
        lc_call call = call_of(c, NULL, 1);
        const lc_kernel *kernel = lc__isa_kernel(isa, &call);
        if (!kernel) {
            if (!c->may_lack) TEST_FAIL("%s has no kernel for %s", sets[s], c->op->name);
            continue;
        }
        if (kernel == before) continue;
        before = kernel;
        if (c->accumulate && !(kernel->flags & LC_KERNEL_ACCUMULATES))
            TEST_FAIL("%s of %s does not add", kernel->name, c->op->name);
        for (int threads = 1; threads <= 3; threads++) {
            clear_outputs(c);
            run_kernel(c, kernel, threads);
            for (int i = 0; i < c->n_out; i++) {
                if (threads == 1) {
                    compare(c, i, wanted[i], kernel->name);
                    memcpy(first[i], c->out[i].data, bytes[i]);
                } else if (memcmp(first[i], c->out[i].data, bytes[i])) {
                    TEST_FAIL("%s of %s: output %d differs between 1 and %d threads", kernel->name, c->op->name, i,
                              threads);
                }
            }
        }
    }
    for (int i = 0; i < c->n_out; i++) {
        free(wanted[i]);
        free(first[i]);
        free(c->out[i].data);
    }
    for (int i = 0; i < c->n_in; i++) free(c->storage[i]);
}

#endif
