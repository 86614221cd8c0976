/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that follow indices (i64 or i32): gather (x, ids; ints dim), index_select (x, ids[n]; ints dim), their
 * gradients scatter_add (src, ids; ints dim, shape of the result) and index_add (src, ids[n]; ints dim, size of the
 * result along it), and one_hot (ids; ints classes).
 *
 * An index out of range fails the step (lc_call_bad_index); the kernel goes on: reading there gives NaN (0 in
 * integers), writing does nothing. Sums run in one order, so they are deterministic. */
#include <math.h>

#include "ops/infer.h"
#include "ops/nn_util.h"
#include "base/number.h"
#include "ops/ops.h"
#include "ops/walk.h"

static void add_element(char *to, const char *x, lc_dtype dtype)
{
    if (dtype == LC_F32)
        *(float *)to += *(const float *)x;
    else if (dtype == LC_F64)
        *(double *)to += *(const double *)x;
    else
        lc__store_integer(to, dtype, lc__load_integer(to, dtype) + lc__load_integer(x, dtype));
}

static void fill(const lc_view *v, double x)
{
    char value[8];
    lc__store_number(value, v->dtype, x);
    lc_view one = {.data = value, .dtype = v->dtype};
    lc__copy_view(v, &one);
}

/* v cut to `shape`, and to one element along dim: a walk then gives the address of index 0 of every line. */
static lc_view line_starts(const lc_view *v, const int64_t *shape, int dim)
{
    lc_view cut = *v;
    for (int d = 0; d < v->ndim; d++) cut.shape[d] = d == dim ? 1 : shape[d];
    return cut;
}

static int64_t stride_bytes(const lc_view *v, int dim)
{
    return v->stride[dim] * (int64_t)lc_dtype_size(v->dtype);
}

static int64_t element_bytes(const lc_view *v, int64_t at)
{
    int64_t sum = 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        sum += at % v->shape[d] * stride_bytes(v, d);
        at /= v->shape[d];
    }
    return sum;
}

/* Some id is out of range: reports the first one, since kernels find them in any order. */
static void report(const lc_call *call, int input, int64_t size)
{
    const lc_view *ids = &call->in[input];
    int64_t n = 1;
    for (int d = 0; d < ids->ndim; d++) n *= ids->shape[d];
    for (int64_t at = 0; at < n; at++) {
        int64_t id = lc__load_integer((const char *)ids->data + element_bytes(ids, at), ids->dtype);
        if (id >= 0 && id < size) continue;
        lc_call_bad_index(call, &(lc_bad_index){.input = input, .at = at, .index = id, .size = size});
        return;
    }
}

/* ---- gather, scatter_add: for every element of ids, one element of `many` along dim ---- */

static void run_by_element(const lc_call *call, bool scatter)
{
    int dim = (int)call->ints[0];
    const lc_view *ids = &call->in[1];
    const lc_view *many = scatter ? &call->out[0] : &call->in[0], *few = scatter ? &call->in[0] : &call->out[0];
    lc_view cut[3];
    cut[0] = line_starts(ids, ids->shape, dim);
    cut[1] = line_starts(few, ids->shape, dim);
    cut[2] = line_starts(many, ids->shape, dim);
    const lc_view *v[] = {&cut[0], &cut[1], &cut[2]};
    int64_t ids_step = stride_bytes(ids, dim), few_step = stride_bytes(few, dim), many_step = stride_bytes(many, dim);
    int64_t n = ids->shape[dim], size = many->shape[dim];
    size_t bytes = lc_dtype_size(few->dtype);
    if (scatter) fill(many, 0);
    if (n == 0) return;
    bool all_exist = true;
    lc__walk w;
    lc__walk_start(&w, ids->ndim, cut[0].shape, 3, v);
    while (lc__walk_next(&w))
        for (int64_t i = 0; i < w.length; i++)
            for (int64_t j = 0; j < n; j++) {
                int64_t id = lc__load_integer(w.data[0] + i * w.step[0] + j * ids_step, ids->dtype);
                char *one = w.data[1] + i * w.step[1] + j * few_step;
                bool exists = id >= 0 && id < size;
                char *in_many = w.data[2] + i * w.step[2] + (exists ? id * many_step : 0);
                all_exist &= exists;
                if (scatter && exists)
                    add_element(in_many, one, few->dtype);
                else if (!scatter && exists)
                    memcpy(one, in_many, bytes);
                else if (!scatter)
                    lc__store_number(one, few->dtype, NAN);
            }
    if (!all_exist) report(call, 1, size);
}

static void gather_run(const lc_call *call)
{
    run_by_element(call, false);
}

static void scatter_add_run(const lc_call *call)
{
    run_by_element(call, true);
}

/* ids must be within `t` in every dimension except dim. */
static lc_status check_within(const lc_type *ids, const lc_type *t, int64_t dim, const char *what)
{
    bool fits = ids->ndim == t->ndim;
    for (int d = 0; fits && d < t->ndim; d++) fits = d == dim || ids->shape[d] <= t->shape[d];
    if (fits) return LC_OK;
    char a[LC__SHAPE_TEXT], b[LC__SHAPE_TEXT];
    return lc_fail(LC_ERR_SHAPE,
                   "ids are %s: they need as many dimensions as %s, %s, and may exceed it in dimension "
                   "%lld only",
                   lc__shape_text(ids, a, sizeof a), what, lc__shape_text(t, b, sizeof b), (long long)dim);
}

static lc_status gather_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 2));
    LC_TRY(lc__infer_attributes(call, 1, 0));
    LC_TRY(lc__infer_index(call, 1));
    LC_TRY(lc__infer_dim(call->in[0], call->ints[0]));
    LC_TRY(check_within(call->in[1], call->in[0], call->ints[0], "x"));
    call->out[0] = *call->in[1];
    call->out[0].dtype = call->in[0]->dtype;
    return LC_OK;
}

static lc_status check_addable(const lc_type *t)
{
    if (t->dtype != LC_F16 && t->dtype != LC_BF16 && t->dtype != LC_BOOL) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "%s cannot be added; convert it with lc_cast", lc_dtype_name(t->dtype));
}

static lc_status scatter_add_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 2));
    const lc_type *src = call->in[0], *ids = call->in[1];
    if (call->n_int != 1 + src->ndim)
        return lc_fail(LC_ERR_SHAPE, "src has %d dimensions, but the target has %d", src->ndim, call->n_int - 1);
    LC_TRY(lc__infer_index(call, 1));
    LC_TRY(check_addable(src));
    LC_TRY(lc__infer_dim(src, call->ints[0]));
    lc_type *y = &call->out[0];
    *y = *src;
    for (int d = 0; d < y->ndim; d++) {
        y->shape[d] = call->ints[1 + d];
        if (y->shape[d] < 0) return lc_fail(LC_ERR_SHAPE, "a size must not be negative");
    }
    LC_TRY(check_within(ids, src, -1, "src"));
    return check_within(ids, y, call->ints[0], "the result");
}

static lc_status gather_grad(lc_grad *g)
{
    if (!g->need[0]) return LC_OK;
    const lc_type *x = lc_tensor_type(g->in[0]);
    lc_tensor *in[] = {g->dout[0], g->in[1]};
    int64_t ints[1 + LC_MAX_DIMS] = {g->ints[0]};
    for (int d = 0; d < x->ndim; d++) ints[1 + d] = x->shape[d];
    g->din[0] = lc_op_call(&lc__op_scatter_add, 2, in, 1 + x->ndim, ints, 0, NULL, LC_HERE);
    return LC_OK;
}

/* If ids are smaller than src, the rest of src did not take part. */
static lc_status scatter_add_grad(lc_grad *g)
{
    if (!g->need[0]) return LC_OK;
    const lc_type *src = lc_tensor_type(g->in[0]), *ids = lc_tensor_type(g->in[1]);
    lc_tensor *d = lc_gather(g->dout[0], (int)g->ints[0], g->in[1]);
    int64_t pads[2 * LC_MAX_DIMS] = {0};
    bool smaller = false;
    for (int i = 0; i < src->ndim; i++) {
        pads[2 * i + 1] = src->shape[i] - ids->shape[i];
        smaller = smaller || pads[2 * i + 1];
    }
    const double zero = 0;
    g->din[0] = smaller ? lc_op_call(&lc__op_pad, 1, &d, 2 * src->ndim, pads, 1, &zero, LC_HERE) : d;
    return LC_OK;
}

static const lc_kernel gather_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = gather_run};
static const lc_kernel scatter_add_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = scatter_add_run};
const lc_op lc__op_gather = {.name = "gather",
                             .inputs = "x ids",
                             .flags = LC_OP_CHECKS,
                             .n_out = 1,
                             .infer = gather_infer,
                             .grad = gather_grad,
                             .kernel = &gather_kernel};
const lc_op lc__op_scatter_add = {.name = "scatter_add",
                                  .inputs = "src ids",
                                  .flags = LC_OP_CHECKS,
                                  .n_out = 1,
                                  .infer = scatter_add_infer,
                                  .grad = scatter_add_grad,
                                  .kernel = &scatter_add_kernel};

/* ---- index_select, index_add: for every id, a whole slice of `many` along dim ---- */

static void run_by_slice(const lc_call *call, bool add)
{
    int dim = (int)call->ints[0];
    const lc_view *ids = &call->in[1];
    lc_view many = add ? call->out[0] : call->in[0], few = add ? call->in[0] : call->out[0];
    int64_t few_step = stride_bytes(&few, dim), many_step = stride_bytes(&many, dim), size = many.shape[dim];
    int64_t n = few.shape[dim];
    bool all_exist = true;
    if (add) fill(&many, 0);
    few.shape[dim] = many.shape[dim] = 1;
    char *first = (char *)many.data;
    for (int64_t j = 0; j < n; j++) {
        const char *at = (const char *)ids->data;
        if (ids->ndim) at += j * stride_bytes(ids, 0);
        int64_t id = lc__load_integer(at, ids->dtype);
        if (id < 0 || id >= size) {
            all_exist = false;
            if (!add) fill(&few, NAN);
        } else {
            many.data = first + id * many_step;
            const lc_view *v[] = {&many, &few};
            lc__walk w;
            if (!add) {
                lc__copy_view(&few, &many);
            } else {
                lc__walk_start(&w, many.ndim, many.shape, 2, v);
                while (lc__walk_next(&w))
                    for (int64_t i = 0; i < w.length; i++)
                        add_element(w.data[0] + i * w.step[0], w.data[1] + i * w.step[1], many.dtype);
            }
        }
        few.data = (char *)few.data + few_step;
    }
    if (!all_exist) report(call, 1, size);
}

static void index_select_run(const lc_call *call)
{
    run_by_slice(call, false);
}

static void index_add_run(const lc_call *call)
{
    run_by_slice(call, true);
}

static lc_status infer_slices(lc_infer *call, int n_int)
{
    LC_TRY(lc__infer_operands(call, 2));
    LC_TRY(lc__infer_attributes(call, n_int, 0));
    LC_TRY(lc__infer_index(call, 1));
    LC_TRY(lc__infer_dim(call->in[0], call->ints[0]));
    if (call->in[1]->ndim > 1) return lc_fail(LC_ERR_SHAPE, "ids must have one dimension, not %d", call->in[1]->ndim);
    call->out[0] = *call->in[0];
    return LC_OK;
}

static lc_status index_select_infer(lc_infer *call)
{
    LC_TRY(infer_slices(call, 1));
    call->out[0].shape[call->ints[0]] = lc__type_numel(call->in[1]);
    return LC_OK;
}

static lc_status index_add_infer(lc_infer *call)
{
    LC_TRY(infer_slices(call, 2));
    LC_TRY(check_addable(call->in[0]));
    int64_t have = call->in[0]->shape[call->ints[0]], ids = lc__type_numel(call->in[1]);
    if (have != ids)
        return lc_fail(LC_ERR_SHAPE, "%lld ids for the %lld slices of src", (long long)ids, (long long)have);
    if (call->ints[1] < 0) return lc_fail(LC_ERR_SHAPE, "the size must not be negative");
    call->out[0].shape[call->ints[0]] = call->ints[1];
    return LC_OK;
}

static lc_status index_select_grad(lc_grad *g)
{
    if (!g->need[0]) return LC_OK;
    lc_tensor *in[] = {g->dout[0], g->in[1]};
    int64_t ints[] = {g->ints[0], lc_tensor_shape(g->in[0])[g->ints[0]]};
    g->din[0] = lc_op_call(&lc__op_index_add, 2, in, 2, ints, 0, NULL, LC_HERE);
    return LC_OK;
}

static lc_status index_add_grad(lc_grad *g)
{
    if (g->need[0]) g->din[0] = lc_index_select(g->dout[0], (int)g->ints[0], g->in[1]);
    return LC_OK;
}

static const lc_kernel index_select_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = index_select_run};
static const lc_kernel index_add_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = index_add_run};
const lc_op lc__op_index_select = {.name = "index_select",
                                   .inputs = "x ids",
                                   .flags = LC_OP_CHECKS,
                                   .n_out = 1,
                                   .infer = index_select_infer,
                                   .grad = index_select_grad,
                                   .kernel = &index_select_kernel};
const lc_op lc__op_index_add = {.name = "index_add",
                                .inputs = "src ids",
                                .flags = LC_OP_CHECKS,
                                .n_out = 1,
                                .infer = index_add_infer,
                                .grad = index_add_grad,
                                .kernel = &index_add_kernel};

/* ---- one_hot ---- */

static void one_hot_run(const lc_call *call)
{
    const lc_view *y = &call->out[0], *ids = &call->in[0];
    lc_view first = *y; /* of every row */
    first.ndim--;
    const lc_view *v[] = {&first, ids};
    int64_t classes = y->shape[first.ndim], step = stride_bytes(y, first.ndim);
    bool all_exist = true;
    lc__walk w;
    lc__walk_start(&w, first.ndim, first.shape, 2, v);
    while (lc__walk_next(&w))
        for (int64_t i = 0; i < w.length; i++) {
            int64_t id = lc__load_integer(w.data[1] + i * w.step[1], ids->dtype);
            for (int64_t c = 0; c < classes; c++) *(int64_t *)(w.data[0] + i * w.step[0] + c * step) = c == id;
            all_exist &= id >= 0 && id < classes;
        }
    if (!all_exist) report(call, 0, classes);
}

static lc_status one_hot_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__infer_attributes(call, 1, 0));
    LC_TRY(lc__infer_index(call, 0));
    const lc_type *ids = call->in[0];
    if (call->ints[0] < 1) return lc_fail(LC_ERR_ARGUMENT, "%lld classes", (long long)call->ints[0]);
    if (ids->ndim == LC_MAX_DIMS) return lc_fail(LC_ERR_SHAPE, "ids have too many dimensions");
    call->out[0] = *ids;
    call->out[0].dtype = LC_I64;
    call->out[0].shape[call->out[0].ndim++] = call->ints[0];
    return LC_OK;
}

static const lc_kernel one_hot_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = one_hot_run};
const lc_op lc__op_one_hot = {.name = "one_hot",
                              .inputs = "ids",
                              .flags = LC_OP_NO_GRAD | LC_OP_CHECKS,
                              .n_out = 1,
                              .infer = one_hot_infer,
                              .kernel = &one_hot_kernel};

/* ---- functions ---- */

static int64_t wrapped(const lc_tensor *x, int dim)
{
    return lc__is_bad(x) ? 0 : lc__wrap_dim(dim, lc_tensor_ndim(x));
}

/* Whether one of n tensors has no dimensions and the others have at most one: PyTorch takes it as [1]. */
static bool are_points(int n, lc_tensor *const *x)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (lc__is_bad(x[i]) || lc_tensor_ndim(x[i]) > 1) return false;
        any |= lc_tensor_ndim(x[i]) == 0;
    }
    return any;
}

/* The shape of a result along a line: that of `like`. */
static lc_tensor *shaped(lc_tensor *y, const lc_tensor *like, lc_site site)
{
    return lc_tensor_ndim(like) == 0 ? lc__as_point(y, site) : y;
}

lc_tensor *lc_gather_at(lc_tensor *x, int dim, lc_tensor *ids, lc_site site)
{
    if (are_points(2, (lc_tensor *[]){x, ids}))
        return shaped(lc_gather_at(lc__as_line(x, site), dim, lc__as_line(ids, site), site), ids, site);
    lc_tensor *in[] = {x, ids};
    int64_t d = wrapped(x, dim);
    return lc_op_call(&lc__op_gather, 2, in, 1, &d, 0, NULL, site);
}

lc_tensor *lc_index_select_at(lc_tensor *x, int dim, lc_tensor *ids, lc_site site)
{
    ids = lc__as_line(ids, site);
    if (lc__is_point(x, dim) && !lc__is_bad(ids)) {
        int64_t n = lc_tensor_numel(ids);
        if (n == 1) return lc__as_point(lc_index_select_at(lc__as_line(x, site), dim, ids, site), site);
        return lc__refuse(lc_fail(LC_ERR_SHAPE, "x has no dimensions: there must be 1 index, not %lld", (long long)n),
                          "index_select", x, site);
    }
    lc_tensor *in[] = {x, ids};
    int64_t d = wrapped(x, dim);
    return lc_op_call(&lc__op_index_select, 2, in, 1, &d, 0, NULL, site);
}

lc_tensor *lc_scatter_add_at(lc_tensor *x, int dim, lc_tensor *ids, lc_tensor *src, lc_site site)
{
    if (lc__is_bad(x)) return lc__op1(&lc__op_scatter_add, x, site);
    if (are_points(3, (lc_tensor *[]){x, ids, src}))
        return shaped(
            lc_scatter_add_at(lc__as_line(x, site), dim, lc__as_line(ids, site), lc__as_line(src, site), site), x,
            site);
    lc_tensor *in[] = {src, ids};
    const lc_type *t = lc_tensor_type(x);
    int64_t ints[1 + LC_MAX_DIMS] = {wrapped(x, dim)};
    for (int d = 0; d < t->ndim; d++) ints[1 + d] = t->shape[d];
    return lc_add_at(x, lc_op_call(&lc__op_scatter_add, 2, in, 1 + t->ndim, ints, 0, NULL, site), site);
}

/* Without this check the sum would broadcast. */
static lc_status check_same_but(const lc_type *x, const lc_type *src, int64_t dim)
{
    bool same = x->ndim == src->ndim;
    for (int d = 0; same && d < x->ndim; d++) same = d == dim || x->shape[d] == src->shape[d];
    char a[LC__SHAPE_TEXT], b[LC__SHAPE_TEXT];
    if (same) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "src is %s, which may differ from the target, %s, in dimension %lld only",
                   lc__shape_text(src, a, sizeof a), lc__shape_text(x, b, sizeof b), (long long)dim);
}

lc_tensor *lc_index_add_at(lc_tensor *x, int dim, lc_tensor *ids, lc_tensor *src, lc_site site)
{
    if (lc__is_bad(x)) return lc__op1(&lc__op_index_add, x, site);
    ids = lc__as_line(ids, site);
    if (lc__is_point(x, dim) && !lc__is_bad(src) && lc_tensor_ndim(src) == 0)
        return lc__as_point(lc_index_add_at(lc__as_line(x, site), dim, ids, lc__as_line(src, site), site), site);
    lc_tensor *in[] = {src, ids};
    int64_t d = wrapped(x, dim), exists = d >= 0 && d < lc_tensor_ndim(x);
    int64_t ints[] = {d, exists ? lc_tensor_shape(x)[d] : 0};
    lc_status status = lc__is_bad(src) ? LC_OK : check_same_but(lc_tensor_type(x), lc_tensor_type(src), d);
    if (status < 0) return lc__refuse(status, "index_add", x, site);
    return lc_add_at(x, lc_op_call(&lc__op_index_add, 2, in, 2, ints, 0, NULL, site), site);
}

lc_tensor *lc_one_hot_at(lc_tensor *ids, int64_t classes, lc_site site)
{
    return lc_op_call(&lc__op_one_hot, 1, &ids, 1, &classes, 0, NULL, site);
}

lc_tensor *lc_length_mask_at(lc_tensor *lengths, int64_t size, lc_site site)
{
    if (!lc__is_given(lengths, "lengths", "length_mask", site)) return lc__error_tensor();
    const lc_type *type = lc_tensor_type(lengths);
    if (type->dtype != LC_I64 && type->dtype != LC_I32)
        return lc__refuse(lc_fail(LC_ERR_DTYPE, "lengths must be i64 or i32, and are %s", lc_dtype_name(type->dtype)),
                          "length_mask", lengths, site);
    if (size < 0)
        return lc__refuse(lc_fail(LC_ERR_ARGUMENT, "size must not be negative, is %lld", (long long)size),
                          "length_mask", lengths, site);
    lc_tensor *at = lc_arange_at(0, 1, size, type->dtype, site);
    return lc_lt_at(at, lc_unsqueeze_at(lengths, -1, site), site);
}
