/* SPDX-License-Identifier: Apache-2.0 */
/* One call, on the host and on the device. */
#include "check/values.h"
#include "base/number.h"
#include "base/status.h"
#include "ops/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 8, FILLER = 0xa5 };

/* A call on the device, in one layout. */
typedef struct attempt {
    check *c;
    const lc_call *like;
    const values *v;
    check_layout layout;
    bool accumulate; /* results are added to themselves */
    lc_call call;
    lc_view views[VALUES_MOST];
    size_t at[VALUES_MOST], floats, rng, scratch;
    char text[128];
} attempt;

/* ---- comparing ---- */

static double tolerance_of(lc_dtype dtype)
{
    return dtype == LC_F64 ? 1e-10 : dtype == LC_F32 ? 3e-5 : dtype == LC_F16 ? 4e-3 : dtype == LC_BF16 ? 3e-2 : 0;
}

static double largest_of(const lc_view *v, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = fabs(lc__number_at(v->data, v->dtype, i));
        if (isfinite(x) && x > largest) largest = x;
    }
    return largest;
}

static bool is_same(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance;
}

/* Sums may cancel out, so that only their operands say how large rounding is. */
static double scale_of(const values *v, const lc_view *want, int64_t n)
{
    double scale = largest_of(want, n);
    for (int i = 0; i < v->n; i++) {
        const lc_view *in = &v->before[i];
        if (in->ndim < 0 || !lc_dtype_is_float(in->dtype)) continue;
        scale = fmax(scale, fmin(largest_of(in, (int64_t)lc__view_numel(in)), 1));
    }
    return scale;
}

/* The first element of `got` that differs; -1: there is none. Both are dense. What is rounded at random has the same
 * random numbers, so that only few elements get to the other neighbor, as f32 is rounded in another way. */
static int64_t find_difference(const attempt *a, const lc_view *got, const lc_view *want)
{
    int64_t n = (int64_t)lc__view_numel(want);
    double tolerance = tolerance_of(want->dtype);
    if (tolerance > 0) tolerance = a->c->exact ? 0 : fmax(tolerance, tolerance_of(a->v->low));
    if (tolerance > 0) tolerance *= scale_of(a->v, want, n) * (a->accumulate ? 2 : 1);
    int64_t others = 0, most = a->c->random && lc__is_half(want->dtype) ? n / 16 : n;
    for (int64_t i = 0; i < n; i++) {
        double x = lc__number_at(got->data, got->dtype, i), y = lc__number_at(want->data, want->dtype, i);
        others += !is_same(x, y, 0);
        if (!is_same(x, y, tolerance) || others > most) return i;
    }
    return -1;
}

/* ---- on the device ---- */

static const char *title(attempt *a, const lc_kernel *kernel)
{
    snprintf(a->text, sizeof a->text, "%.60s, %s%s", kernel->name, layout_names[a->layout],
             a->accumulate ? ", added" : "");
    return a->text;
}

/* The view's elements in memory whose other bytes are FILLER. */
static lc_status place(attempt *a, int i, const lc_view *value)
{
    lc_view *v = &a->views[i];
    size_t bytes = lc__view_span(v);
    LC_TRY(memory_add(a->c->memory, NULL, bytes, &a->at[i]));
    memset(memory_host(a->c->memory, a->at[i]), FILLER, bytes);
    if (value->ndim < 0) return LC_OK;
    lc_view to = *v;
    to.data = memory_host(a->c->memory, a->at[i]);
    lc__copy_strided(value, &to);
    return LC_OK;
}

/* Bytes of a result outside of its elements; returns whether they are still FILLER. */
static bool gaps_are_untouched(const attempt *a, int i)
{
    const lc_view *v = &a->views[i];
    size_t bytes = lc__view_span(v);
    const unsigned char *now = memory_host(a->c->memory, a->at[i]);
    if (bytes == (size_t)lc__view_numel(v) * lc_dtype_size(v->dtype)) return true;
    unsigned char *used = calloc(bytes + 1, 1), *ones = malloc((size_t)lc__view_numel(v) * lc_dtype_size(v->dtype) + 1);
    bool good = true;
    if (used && ones) {
        lc_view from = a->v->after[i], to = *v;
        memset(ones, 1, (size_t)lc__view_numel(v) * lc_dtype_size(v->dtype));
        from.data = ones;
        to.data = used;
        lc__copy_strided(&from, &to);
        for (size_t k = 0; k < bytes && good; k++) good = used[k] || now[k] == FILLER;
    }
    free(used);
    free(ones);
    return good;
}

/* Views of all operands; false: the layout changes nothing. */
static bool arrange(attempt *a)
{
    const lc_call *like = a->like;
    bool differs = a->layout == AS_PLANNED;
    for (int i = 0; i < a->v->n; i++) {
        int64_t stride[LC_MAX_DIMS] = {0};
        lc_view *v = &a->views[i];
        *v = *values_operand(like, i);
        v->data = NULL;
        if (v->ndim < 0 || (i < like->n_in && values_is_written(like, i)) || !layout_of(v, a->layout, stride)) continue;
        differs |= memcmp(stride, v->stride, (size_t)v->ndim * sizeof *stride) != 0;
        memcpy(v->stride, stride, sizeof v->stride);
    }
    a->call = (lc_call){.op = like->op,
                        .n_in = like->n_in,
                        .n_out = like->n_out,
                        .n_int = like->n_int,
                        .n_float = like->n_float,
                        .in = a->views,
                        .out = a->views + like->n_in,
                        .ints = like->ints,
                        .floats = like->floats,
                        .rng = like->rng,
                        .threads = 1};
    return differs;
}

static lc_status send(attempt *a)
{
    lc_call *call = &a->call;
    memory *m = a->c->memory;
    memory_reset(m);
    for (int i = 0; i < a->v->n; i++)
        if (a->views[i].ndim >= 0)
            LC_TRY(place(a, i, a->accumulate && i == call->n_in ? &a->v->after[i] : &a->v->before[i]));
    LC_TRY(memory_add(m, call->floats, (size_t)call->n_float * sizeof *call->floats, &a->floats));
    LC_TRY(memory_add(m, call->rng, sizeof *call->rng, &a->rng));
    LC_TRY(memory_add(m, NULL, call->scratch_bytes, &a->scratch));
    for (int i = 0; i < a->v->n; i++)
        if (a->views[i].ndim >= 0) a->views[i].data = memory_device(m, a->at[i]);
    call->floats = memory_device(m, a->floats);
    call->rng = memory_device(m, a->rng);
    call->scratch = memory_device(m, a->scratch);
    return memory_send(m);
}

static lc_status compare(attempt *a, const lc_kernel *kernel)
{
    const lc_call *like = a->like;
    for (int i = 0; i < a->v->n; i++) {
        const lc_view *want = a->accumulate && i == like->n_in ? &a->v->twice : &a->v->after[i];
        if (want->ndim < 0) continue;
        lc_view got = a->views[i];
        const char *what = i < like->n_in ? "written input" : "result";
        int number = i < like->n_in ? i : i - like->n_in;
        lc_view dense;
        got.data = memory_host(a->c->memory, a->at[i]);
        LC_TRY(values_copy(&got, &dense));
        int64_t at = find_difference(a, &dense, want);
        if (at >= 0)
            report(a->c, like, "%s: element %lld of %s %d is %.9g, and %.9g with the reference kernel",
                   title(a, kernel), (long long)at, what, number, lc__number_at(dense.data, dense.dtype, at),
                   lc__number_at(want->data, want->dtype, at));
        else if (!gaps_are_untouched(a, i))
            report(a->c, like, "%s: memory between the elements of %s %d is overwritten", title(a, kernel), what,
                   number);
        free(dense.data);
    }
    return LC_OK;
}

static lc_status launch(attempt *a, const lc_kernel *kernel)
{
    lc_call *call = &a->call;
    LC_TRY(send(a));
    if (kernel->layout == LC_WANT_ELEMENTWISE && call->n_out)
        for (int i = 0; i < call->n_in; i++)
            if (call->in[i].ndim >= 0) lc__broadcast_view(&call->in[i], &call->out[0]);
    kernel->run(call);
    return memory_fetch(a->c->memory);
}

/* An error of the device is kept, and ends the check. */
static lc_status run_kernel(attempt *a, const lc_kernel *kernel, lc__fault *fault)
{
    const lc_device *on = a->c->on;
    lc_call *call = &a->call;
    (void)arrange(a);
    call->kernel = kernel;
    call->accumulate = a->accumulate;
    call->device = on->context;
    call->queue = on->ops->queue ? on->ops->queue(on->context) : NULL;
    call->fault = fault;
    const unsigned before = lc__error_count();
    lc_status status = kernel->prepare ? lc__said(kernel->prepare(call), before) : LC_OK;
    if (status < 0) {
        report(a->c, a->like, "%s: preparing it fails: %s", title(a, kernel), lc_error_message());
        return LC_OK;
    }
    status = launch(a, kernel);
    if (status < 0) report(a->c, a->like, "%s: %s", title(a, kernel), lc_error_message());
    if (kernel->release) kernel->release(call);
    return status;
}

static lc_status try_kernel(attempt *a, const lc_kernel *kernel)
{
    bool adds = kernel->flags & LC_KERNEL_ACCUMULATES && a->v->twice.ndim >= 0;
    for (int twice = 0; twice < (adds ? 2 : 1); twice++) {
        a->accumulate = twice;
        result *r = result_of(a->c, a->like->op);
        r->calls++;
        r->low += a->v->low != 0;
        LC_TRY(run_kernel(a, kernel, NULL));
        (void)arrange(a); /* without what an elementwise kernel needs */
        LC_TRY(compare(a, kernel));
    }
    a->accumulate = false;
    return LC_OK;
}

static lc_status find(attempt *a, const lc_kernel **kernels, int *n)
{
    int found;
    *n = 0;
    if (!arrange(a)) return LC_OK;
    LC_TRY(lc__find_kernels(a->c->on, a->c->set, &a->call, KERNELS, kernels, &found));
    for (int i = 0; i < found; i++)
        if (kernel_takes(kernels[i], &a->call)) kernels[(*n)++] = kernels[i];
    return LC_OK;
}

lc_status check_layouts(check *c, const lc_call *like, const values *v, bool *any)
{
    const lc_kernel *kernels[KERNELS];
    int n;
    *any = false;
    for (int layout = 0; layout < LAYOUTS; layout++) {
        attempt a = {.c = c, .like = like, .v = v, .layout = (check_layout)layout};
        LC_TRY(find(&a, kernels, &n));
        for (int i = 0; i < n; i++) LC_TRY(try_kernel(&a, kernels[i]));
        *any |= n > 0;
    }
    return LC_OK;
}

lc_status check_has_kernel(check *c, const lc_call *like, bool *yes)
{
    const values none = {.n = like->n_in + like->n_out};
    const lc_kernel *kernels[KERNELS];
    int n = 0;
    for (int layout = 0; layout < LAYOUTS && !n; layout++) {
        attempt a = {.c = c, .like = like, .v = &none, .layout = (check_layout)layout};
        LC_TRY(find(&a, kernels, &n));
    }
    *yes = n > 0;
    return LC_OK;
}

/* ---- indices that do not exist ---- */

/* The call with a bad index in operand `i`, on the host; false: it looks at none there. */
static bool reference_objects(const lc_call *call, int i, int64_t bad, lc__fault *fault)
{
    lc_call copy = *call;
    int64_t *first = call->in[i].data, before = *first;
    copy.fault = fault;
    *first = bad;
    call->kernel->run(&copy);
    *first = before;
    return lc__fault_is_set(fault) && fault->bad.input == i;
}

/* Before the call has run: its results are overwritten. */
static lc_status check_bad_index(check *c, const lc_call *call, values *v, int i)
{
    const int64_t bad = INT64_C(1) << 40;
    lc__fault want = {0}, got = {0};
    attempt a = {.c = c, .like = call, .v = v};
    const lc_kernel *kernels[KERNELS];
    int n;
    if (!reference_objects(call, i, bad, &want)) return LC_OK;
    LC_TRY(find(&a, kernels, &n));
    int64_t *first = v->before[i].data, before = *first;
    *first = bad;
    lc_status status = LC_OK;
    for (int k = 0; k < n && status >= 0; k++) {
        got = (lc__fault){0};
        status = run_kernel(&a, kernels[k], &got);
        if (status >= 0 && (!lc__fault_is_set(&got) || got.bad.input != i || got.bad.at != want.bad.at))
            report(c, call, "%s: an index of %lld in operand %d is not reported", title(&a, kernels[k]), (long long)bad,
                   i);
    }
    *first = before;
    return status;
}

static lc_status check_bad_indices(check *c, const lc_call *call, values *v)
{
    for (int i = 0; i < call->n_in && call->op->flags & LC_OP_CHECKS; i++) {
        const lc_view *in = &call->in[i];
        if (in->ndim >= 0 && in->dtype == LC_I64 && lc__view_numel(in) > 0) LC_TRY(check_bad_index(c, call, v, i));
    }
    return LC_OK;
}

/* ---- whether it has been checked ---- */

uint64_t check_hash(const lc_call *call)
{
    uint64_t h = lc_random_key((uint64_t)(uintptr_t)call->op, (uint64_t)call->n_in);
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const lc_view *v = values_operand(call, i);
        h = lc_random_key(h, (uint64_t)(v->ndim + 1) * 64 + (uint64_t)v->dtype);
        for (int d = 0; d < v->ndim; d++)
            h = lc_random_key(lc_random_key(h, (uint64_t)v->shape[d]), (uint64_t)v->stride[d]);
    }
    for (int i = 0; i < call->n_int; i++) h = lc_random_key(h, (uint64_t)call->ints[i]);
    for (int i = 0; i < call->n_float; i++) {
        uint64_t bits;
        memcpy(&bits, &call->floats[i], sizeof bits);
        h = lc_random_key(h, bits);
    }
    return h;
}

lc_status check_call(check *c, lc_graph *g, lc_call *call)
{
    values v = {.n = call->n_in + call->n_out};
    /* A call that writes its inputs finds other values there the next time. */
    bool any = false,
         fresh = v.n <= VALUES_MOST && !call->accumulate && (call->op->mutated_inputs || is_new(c, check_hash(call)));
    lc_status status = fresh ? values_keep(call, false, &v) : LC_OK;
    if (fresh && status >= 0) status = check_bad_indices(c, call, &v);
    if (fresh && status >= 0) status = check_stored(c, g, call, &v);
    call->kernel->run(call);
    if (lc__fault_is_set(&g->fault)) {
        atomic_store(&g->fault.state, LC__FAULT_EMPTY); /* an index that a size does not allow: not this row's */
        fresh = false;
    }
    if (fresh && status >= 0) status = values_keep(call, true, &v);
    if (fresh && status >= 0) status = check_layouts(c, call, &v, &any);
    if (fresh && status >= 0 && !any) result_of(c, call->op)->refused++;
    values_forget(&v);
    return status;
}
