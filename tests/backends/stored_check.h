/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose operands are stored in 16 bits, against the f32 kernel of the same instruction set on the same numbers:
 * its results, rounded once, are required bit for bit, for one, two and three threads.
 *
 *   kernel_case c = case_of(&lc__op_softmax);
 *   add_input(&c, LC_F32, CHECK_ROW_MAJOR, 2, (int64_t[]){5, 7}, fill_normal, 3.0);
 *   add_int(&c, 1);
 *   check_stored(&c, 1, 1);
 *
 * check_stored releases all of it. */
#ifndef LC_STORED_CHECK_H
#define LC_STORED_CHECK_H

#include "kernel_check.h"

/* Elements of memory that a view reaches. */
static int64_t reach_of(const lc_view *v)
{
    int64_t last = 0;
    for (int d = 0; d < v->ndim; d++) {
        if (!v->shape[d]) return 0;
        last += (v->shape[d] - 1) * v->stride[d];
    }
    return last + 1;
}

static void *memory_for(int64_t n, lc_dtype dtype)
{
    size_t bytes = (size_t)n * lc_dtype_size(dtype);
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    memset(p, 0xff, (bytes + 63) / 64 * 64 + 64);
    return p;
}

/* Makes the f32 operand *v one of `low`, and rounds the f32 numbers. */
static void lower_operand(lc_view *v, lc_dtype low)
{
    float *from = v->data;
    int64_t n = reach_of(v);
    v->data = memory_for(n, low);
    v->dtype = low;
    for (int64_t i = 0; i < n; i++) {
        lc__set_number(v->data, low, i, (double)from[i]);
        from[i] = (float)lc__number_at(v->data, low, i);
    }
}

static const lc_kernel *kernel_for(kernel_case *c, const lc__isa *isa)
{
    lc_call call = call_of(c, NULL, 1);
    const lc_kernel *kernel = lc__isa_kernel(isa, &call);
    if (!kernel) TEST_FAIL("%s has no kernel for %s of %s", isa->name, c->op->name, lc_dtype_name(c->in[0].dtype));
    return kernel;
}

static void compare_stored(const kernel_case *got, const kernel_case *want, int threads, const char *who)
{
    for (int k = 0; k < got->n_out; k++) {
        const lc_view *a = &got->out[k], *b = &want->out[k];
        size_t size = lc_dtype_size(a->dtype);
        for (int64_t i = 0; i < view_numel(a); i++) {
            double rounded = 0, x = lc__number_at(a->data, a->dtype, i), y = lc__number_at(b->data, b->dtype, i);
            lc__set_number(&rounded, a->dtype, 0, y);
            if (memcmp(&rounded, (const char *)a->data + (size_t)i * size, size) && (x == x || y == y))
                TEST_FAIL("%s of %s, %s, %d threads: output %d at %lld of %lld is %.9g, wanted %.9g, rounded", who,
                          got->op->name, lc_dtype_name(got->in[0].dtype), threads, k, (long long)i,
                          (long long)view_numel(a), x, y);
        }
    }
}

static void check_stored_as(kernel_case *c, unsigned low_in, unsigned low_out, lc_dtype low)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
    kernel_case l = *c;
    for (int i = 0; i < c->n_in; i++)
        if (low_in >> i & 1 && c->in[i].ndim >= 0) lower_operand(&l.in[i], low);
    for (int k = 0; k < c->n_out; k++) {
        if (low_out >> k & 1) l.out[k].dtype = low;
        l.out[k].data = memory_for(view_numel(&l.out[k]), l.out[k].dtype);
    }
    /* In pairs attention rounds factors of its products: test_attention_low.c. */
    const int n_sets = c->op == &lc__op_sdpa || c->op == &lc__op_sdpa_backward ? 3 : 4;
    const lc_kernel *before = NULL;
    for (int s = 0; s < n_sets; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        const lc_kernel *kernel = isa ? kernel_for(&l, isa) : NULL;
        if (!kernel || kernel == before) continue;
        before = kernel;
        run_kernel(c, kernel_for(c, isa), 1);
        for (int threads = 1; threads <= 3; threads++) {
            for (int k = 0; k < l.n_out; k++)
                memset(l.out[k].data, 0xff, (size_t)view_numel(&l.out[k]) * lc_dtype_size(l.out[k].dtype));
            run_kernel(&l, kernel, threads);
            compare_stored(&l, c, threads, kernel->name);
        }
    }
    for (int i = 0; i < c->n_in; i++)
        if (l.in[i].data != c->in[i].data) free(l.in[i].data);
    for (int k = 0; k < c->n_out; k++) free(l.out[k].data);
}

/* low_in, low_out: bits of the operands and results that are stored in 16 bits, in bf16 and f16. */
static inline void check_stored(kernel_case *c, unsigned low_in, unsigned low_out)
{
    infer_outputs(c);
    check_stored_as(c, low_in, low_out, LC_F16);
    check_stored_as(c, low_in, low_out, LC_BF16);
    for (int i = 0; i < c->n_in; i++) free(c->storage[i]);
    for (int k = 0; k < c->n_out; k++) free(c->out[k].data);
}

#endif
