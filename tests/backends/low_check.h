/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose operands or results are stored in 16 bits, against the reference kernel in f32 on the same numbers: a
 * result may differ by one rounding, and by what sums in f32 may. Every instruction set of this machine, and the same
 * bits for any number of threads.
 *
 *   kernel_case c = case_of(&lc__op_matmul); ... as for check_case
 *   check_low(&c, LC_BF16, false);
 */
#ifndef LC_LOW_CHECK_H
#define LC_LOW_CHECK_H

#include "kernel_check.h"

#include "base/half.h"

/* Elements from the first to the last one. */
static int64_t view_span(const lc_view *v)
{
    int64_t last = 0;
    for (int d = 0; d < v->ndim; d++) last += (v->shape[d] - 1) * v->stride[d];
    return last + 1;
}

static float number_at(lc_dtype dtype, const void *data, int64_t i)
{
    if (dtype == LC_F32) return ((const float *)data)[i];
    uint16_t bits = ((const uint16_t *)data)[i];
    return dtype == LC_BF16 ? lc__bf16_to_f32(bits) : lc__f16_to_f32(bits);
}

/* The largest relative error of a rounding. */
static double roundoff(lc_dtype dtype)
{
    return dtype == LC_BF16 ? 0x1p-8 : dtype == LC_F16 ? 0x1p-11 : 0;
}

/* The number that an operand counts as. */
static float counted(const kernel_case *c, int operand, float x)
{
    if (!(c->rounded >> operand & 1)) return x;
    return c->rounded_to == LC_BF16 ? lc__bf16_to_f32(lc__f32_to_bf16(x)) : lc__f16_to_f32(lc__f32_to_f16(x));
}

/* The same call in f32. */
static kernel_case in_f32(const kernel_case *c)
{
    kernel_case f32 = *c;
    f32.rounded = 0;
    for (int i = 0; i < c->n_in; i++) {
        if (c->in[i].dtype == LC_BOOL) f32.storage[i] = NULL; /* it stays that of c */
        if (c->in[i].ndim < 0 || c->in[i].dtype == LC_BOOL) continue;
        int64_t n = view_span(&c->in[i]);
        float *values = malloc((size_t)n * sizeof *values + 64);
        for (int64_t k = 0; k < n; k++) values[k] = counted(c, i, number_at(c->in[i].dtype, c->storage[i], k));
        f32.in[i].dtype = LC_F32;
        f32.in[i].data = f32.storage[i] = values;
    }
    return f32;
}

static void compare_low(const kernel_case *c, int output, const float *want, double added, const char *who)
{
    const lc_view *v = &c->out[output];
    int64_t n = view_numel(v);
    double largest = 0, unit = roundoff(v->dtype);
    for (int64_t i = 0; i < n; i++)
        if (isfinite(want[i])) largest = fmax(largest, fabs((double)want[i] + added));
    for (int64_t i = 0; i < n; i++) {
        double got = (double)number_at(v->dtype, v->data, i), sum = (double)want[i] + added;
        if (got == sum || fabs(got - sum) <= unit * fabs(sum) + c->of_largest * largest + 1e-7) continue;
        TEST_FAIL("%s of %s in %s: output %d at %lld of %lld is %.9g, wanted %.9g (largest %g)", who, c->op->name,
                  lc_dtype_name(v->dtype), output, (long long)i, (long long)n, got, sum, largest);
    }
}

static void run_low(kernel_case *c, const lc_kernel *kernel, int threads, bool accumulate)
{
    lc_call call = call_of(c, kernel, threads);
    call.accumulate = accumulate;
    lc_status status = kernel->prepare ? kernel->prepare(&call) : LC_OK;
    if (status != LC_OK) TEST_FAIL("%s: prepare: %s", kernel->name, lc_error_message());
    size_t bytes = (call.scratch_bytes + 63) / 64 * 64 + 64;
    call.scratch = aligned_alloc(64, bytes);
    memset(call.scratch, 0xff, bytes);
    for (int k = 0; k < c->n_out; k++) {
        int64_t n = view_numel(&c->out[k]);
        memset(c->out[k].data, 0xff, (size_t)n * lc_dtype_size(c->out[k].dtype));
        for (int64_t i = 0; accumulate && k == 0 && i < n; i++) put_value(c->out[k].dtype, c->out[k].data, i, 10);
    }
    kernel->run(&call);
    free(call.scratch);
    if (kernel->release) kernel->release(&call);
}

/* One kernel with one, two and three threads. */
static void check_low_kernel(kernel_case *c, const lc_kernel *kernel, float *const *want, bool accumulate)
{
    void *first[LC_MAX_OUTPUTS] = {NULL};
    if (accumulate) CHECK(kernel->flags & LC_KERNEL_ACCUMULATES);
    for (int threads = 1; threads <= 3; threads++) {
        run_low(c, kernel, threads, accumulate);
        for (int k = 0; k < c->n_out; k++) {
            size_t bytes = (size_t)view_numel(&c->out[k]) * lc_dtype_size(c->out[k].dtype);
            if (threads == 1) {
                compare_low(c, k, want[k], accumulate && k == 0 ? 10 : 0, kernel->name);
                first[k] = malloc(bytes);
                memcpy(first[k], c->out[k].data, bytes);
            } else if (memcmp(first[k], c->out[k].data, bytes)) {
                TEST_FAIL("%s of %s: output %d differs between 1 and %d threads", kernel->name, c->op->name, k,
                          threads);
            }
        }
    }
    for (int k = 0; k < c->n_out; k++) free(first[k]);
}

/* The results of the reference kernel; sets the outputs of `c`, in the type `out`. */
static void reference_of(kernel_case *c, lc_dtype out, float **want)
{
    kernel_case f32 = in_f32(c);
    infer_outputs(&f32);
    run_kernel(&f32, f32.op->kernel, 1);
    c->n_out = f32.n_out;
    for (int k = 0; k < c->n_out; k++) {
        want[k] = f32.out[k].data;
        c->out[k] = f32.out[k];
        c->out[k].dtype = out;
        c->out[k].data = aligned_alloc(64, ((size_t)view_numel(&c->out[k]) * lc_dtype_size(out) + 127) / 64 * 64);
    }
    for (int i = 0; i < c->n_in; i++) free(f32.storage[i]);
}

static void release_low(kernel_case *c, float **want)
{
    for (int k = 0; k < c->n_out; k++) free(want[k]), free(c->out[k].data);
    for (int i = 0; i < c->n_in; i++) free(c->storage[i]);
}

/* Releases the case. */
static inline void check_low(kernel_case *c, lc_dtype out, bool accumulate)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16", "amx"};
    float *want[LC_MAX_OUTPUTS];
    reference_of(c, out, want);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        if (!isa) continue;
        lc_call call = call_of(c, NULL, 1);
        const lc_kernel *kernel = lc__isa_kernel(isa, &call);
        if (!kernel && c->may_lack) continue;
        if (c->rounded && kernel && !(kernel->flags & LC_KERNEL_ROUNDS)) TEST_FAIL("%s does not round", kernel->name);
        if (!kernel) TEST_FAIL("%s has no kernel for %s of %s", sets[s], c->op->name, lc_dtype_name(c->in[0].dtype));
        check_low_kernel(c, kernel, want, accumulate);
    }
    release_low(c, want);
}

#endif
