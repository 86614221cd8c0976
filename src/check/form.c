/* SPDX-License-Identifier: Apache-2.0 */
/* One row, in several types, sizes and plans. */
#include "check/form.h"

#include <stdlib.h>

enum { LARGEST = 20000, SIZES = 16 };

static int64_t numel(const shape *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->n; d++) n *= s->d[d];
    return n;
}

static double draw(const form *f, int k, int64_t i)
{
    uint64_t key = (uint64_t)k + 77;
    double u = lc_random_uniform(key, (uint64_t)i);
    switch (f->kind[k]) {
    case 'p':
        return 0.15 + 2 * u;
    case 'u':
        return 0.05 + 0.9 * u;
    case 'm':
        return u > 0.5;
    case 'i':
        return (double)lc_random_below(key, (uint64_t)i, (uint64_t)f->below[k]);
    default:
        return lc_random_normal(key, (uint64_t)i);
    }
}

static lc_status fill(lc_tensor *t, const form *f, int k)
{
    size_t bytes = (size_t)lc_tensor_numel(t) * lc_dtype_size(lc_tensor_dtype(t));
    void *values = malloc(bytes + 1);
    if (!values) return lc_fail(LC_ERR_MEMORY, "out of memory for operands");
    for (int64_t i = 0; i < lc_tensor_numel(t); i++) lc__set_number(values, lc_tensor_dtype(t), i, draw(f, k, i));
    lc_status status = lc_tensor_write(t, values, bytes);
    free(values);
    return status;
}

static lc_status make_inputs(const form *f, lc_dtype dtype, lc_tensor **in)
{
    for (int k = 0; k < f->n_in; k++) {
        lc_dtype d = f->kind[k] == 'm' ? LC_BOOL : f->kind[k] == 'i' ? LC_I64 : dtype;
        LC_TRY(lc_tensor_new(d, f->in[k].n, f->in[k].d, &in[k]));
        LC_TRY(fill(in[k], f, k));
        lc_tensor_set_requires_grad(in[k], f->grad[k] && lc_dtype_is_float(d));
    }
    return LC_OK;
}

/* What an operator refuses (sizes, types) is not checked. */
static lc_status run_step(check *c, lc_graph *g, const form *f, lc_tensor *const *in)
{
    bool grad = false;
    LC_TRY(lc_step_begin(g, 3, 0));
    lc_tensor *y = f->build(f->row, in);
    for (int k = 0; k < f->n_in; k++) grad |= f->grad[k] && lc_tensor_requires_grad(in[k]);
    if (!lc_tensor_is_error(y) && grad && lc_dtype_is_float(lc_tensor_dtype(y))) {
        lc_zero_grad(g);
        lc_backward(lc_sum(lc_mul(y, lc_sin(y)))); /* a gradient in which nothing cancels out */
    }
    lc_status status = lc_step_status(g) < 0 ? LC_OK : check_step(c, g);
    (void)!lc_step_end(g);
    return status;
}

static lc_status run(check *c, const form *f, lc_dtype dtype, bool plan)
{
    lc_graph *g;
    lc_tensor *in[FORM_INPUTS] = {NULL};
    for (int k = 0; k < f->n_in; k++)
        if (numel(&f->in[k]) > LARGEST) return LC_OK;
    LC_TRY(lc_graph_new(&g, .threads = 1, .seed = 5, .device = "cpu"));
    g->reference_only = true;
    g->plan_off = !plan;
    lc_status status = make_inputs(f, dtype, in);
    if (status >= 0) status = run_step(c, g, f, in);
    for (int k = 0; k < f->n_in; k++) lc_tensor_unref(in[k]);
    lc_graph_free(g);
    return status;
}

static lc_status run_types(check *c, const form *f)
{
    static const lc_dtype dtypes[] = {LC_F32, LC_F64, LC_F16, LC_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) LC_TRY(run(c, f, dtypes[i], false));
    return run(c, f, LC_F32, true); /* with what the planner makes of it: fused operators */
}

/* Every dimension of size `old` gets the size `size`. */
static lc_status resize_all(check *c, const form *f, int64_t old, int64_t size)
{
    form changed = *f;
    for (int k = 0; k < f->n_in; k++)
        for (int d = 0; d < f->in[k].n; d++)
            if (f->in[k].d[d] == old) changed.in[k].d[d] = size;
    return run_types(c, &changed);
}

static int distinct_sizes(const form *f, int64_t *sizes)
{
    int n = 0;
    for (int k = 0; k < f->n_in; k++)
        for (int d = 0; d < f->in[k].n; d++) {
            int i = 0;
            while (i < n && sizes[i] != f->in[k].d[d]) i++;
            if (i == n && n < SIZES) sizes[n++] = f->in[k].d[d];
        }
    return n;
}

lc_status check_form(check *c, const form *f)
{
    static const int64_t others[] = {0, 1, 7, 70};
    int64_t sizes[SIZES];
    int n = distinct_sizes(f, sizes);
    LC_TRY(run_types(c, f));
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) LC_TRY(resize_all(c, f, sizes[i], others[k]));
    for (int k = 0; k < f->n_in; k++)
        for (int d = 0; d < f->in[k].n; d++)
            for (int64_t size = 0; size < 2; size++) {
                form changed = *f;
                changed.in[k].d[d] = size;
                LC_TRY(run_types(c, &changed));
            }
    return LC_OK;
}
