/* SPDX-License-Identifier: Apache-2.0 */
/* Draws programs of random_program.h. Operators are recorded while they are drawn, so shapes come from the engine.
 *
 * To add an operator: its name in a list of random_program.h, its call in random_program_run.h and in torch/judge.py,
 * and a case in draw_op. */
#ifndef LC_TESTS_RANDOM_PROGRAM_DRAW_H
#define LC_TESTS_RANDOM_PROGRAM_DRAW_H

#include "random_program_run.h"

typedef struct drawing {
    program *p;
    uint64_t key, n;
    lc_tensor *leaves[MAX_LEAVES], *v[MAX_CODE];
    bool needs[MAX_CODE]; /* needs a gradient */
    bool number[MAX_CODE];
    bool no_grad, failed;
} drawing;

static inline int64_t below(drawing *d, int64_t n)
{
    return (int64_t)lc_random_below(d->key, d->n++, (uint64_t)n);
}

static inline bool one_in(drawing *d, int64_t n)
{
    return below(d, n) == 0;
}

static inline int64_t size(drawing *d)
{
    static const int64_t sizes[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 6};
    return one_in(d, 60) ? 0 : sizes[below(d, 10)];
}

#define EMIT(...) emit(d, (instr){__VA_ARGS__})

static inline int emit(drawing *d, instr c)
{
    program *p = d->p;
    if (d->failed || p->n >= MAX_CODE) return d->failed = true, 0;
    int at = p->n++;
    c.no_grad = d->no_grad && c.op != OP_leaf && c.op != OP_backward;
    p->code[at] = c;
    lc_tensor *in[6] = {NULL};
    bool needs = false;
    for (int k = 0; k < c.n_in; k++) {
        in[k] = c.in[k] < 0 ? NULL : d->v[c.in[k]];
        needs |= c.in[k] >= 0 && d->needs[c.in[k]];
    }
    d->v[at] = NULL;
    d->number[at] = d->needs[at] = false;
    if (c.op == OP_leaf) {
        leaf_kind kind = p->leaves[c.i[0]].kind;
        d->v[at] = d->leaves[c.i[0]];
        d->needs[at] = kind == PARAMETER;
        d->number[at] = kind <= INPUT;
    } else if (!is_effect(c.op)) {
        if (c.no_grad) lc_no_grad_begin();
        d->v[at] = apply(&c, in, p->dtype);
        if (c.no_grad) lc_no_grad_end();
        if (lc_tensor_is_error(d->v[at]) || lc_tensor_numel(d->v[at]) > 2000) return d->failed = true, at;
        d->number[at] = lc_dtype_is_float(lc_tensor_dtype(d->v[at]));
        d->needs[at] =
            needs && d->number[at] && !c.no_grad && c.op != OP_detach && (!is_draw(c.op) || c.op == OP_dropout);
    }
    return at;
}

static inline int new_leaf(drawing *d, leaf_kind kind, int ndim, const int64_t *shape, int64_t classes)
{
    program *p = d->p;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= shape[i];
    if (p->n_leaves == MAX_LEAVES || n > MAX_LEAF) return d->failed = true, 0;
    leaf *l = &p->leaves[p->n_leaves];
    *l = (leaf){.kind = kind, .ndim = ndim};
    l->layout = ndim >= 3 && ndim <= 5 && kind <= INPUT && one_in(d, 3) ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
    memcpy(l->shape, shape, (size_t)ndim * sizeof *shape);
    int64_t style = below(d, 12); /* some with zeros, some with equal values */
    for (int64_t i = 0; i < n; i++) {
        double x = 0.6 * lc_random_normal(d->key + 1, d->n++);
        x = style == 0 ? 0.5 * rint(2 * x) : style == 1 ? 0.75 : x;
        l->values[i] = kind == IDS ? (double)below(d, classes) : kind == MASK ? (double)below(d, 2) : (double)(float)x;
    }
    d->leaves[p->n_leaves] = leaf_new(l, p->dtype, NULL, 0);
    return EMIT(.op = OP_leaf, .n_i = 1, .i = {p->n_leaves++});
}

static inline leaf_kind any_kind(drawing *d)
{
    return (leaf_kind)below(d, 3);
}

/* A number: one of the last values, or any. */
static inline int any(drawing *d)
{
    for (int tries = 0; tries < 50; tries++) {
        int n = d->p->n, at = one_in(d, 2) || n < 6 ? (int)below(d, n) : n - 1 - (int)below(d, 6);
        if (d->number[at]) return at;
    }
    return d->failed = true, 0;
}

static inline int any_of(drawing *d, int ndim, const int64_t *shape)
{
    for (int tries = 0; tries < 8; tries++) {
        int at = any(d);
        lc_tensor *t = d->v[at];
        if (d->failed) return 0;
        if (lc_tensor_ndim(t) == ndim && !memcmp(lc_tensor_shape(t), shape, (size_t)ndim * sizeof *shape)) return at;
    }
    return new_leaf(d, any_kind(d), ndim, shape, 0);
}

/* A number with `ndim` dimensions. */
static inline int any_nd(drawing *d, int ndim)
{
    int64_t shape[LC_MAX_DIMS];
    for (int tries = 0; tries < 6; tries++) {
        int at = any(d);
        if (!d->failed && lc_tensor_ndim(d->v[at]) == ndim) return at;
    }
    for (int i = 0; i < ndim; i++) shape[i] = ndim > 3 ? 1 + below(d, 4) : size(d);
    return new_leaf(d, any_kind(d), ndim, shape, 0);
}

/* An operand for x: its shape broadcasts with that of x. */
static inline int compatible(drawing *d, int x, bool smaller)
{
    const lc_type type = *lc_tensor_type(d->v[x]);
    int64_t shape[LC_MAX_DIMS];
    int drop = type.ndim ? (int)below(d, type.ndim + 1) * (int)below(d, 2) : 0, n = type.ndim - drop;
    for (int i = 0; i < n; i++) {
        int64_t s = type.shape[drop + i];
        shape[i] = one_in(d, 3) ? 1 : s == 1 && !smaller ? 1 + below(d, 3) : s;
    }
    return any_of(d, n, shape);
}

/* x, made positive for ln, sqrt and the like. */
static inline int positive(drawing *d, int x)
{
    if (one_in(d, 25)) return x;
    return EMIT(.op = OP_add_scalar, .n_in = 1, .in = {EMIT(.op = OP_square, .n_in = 1, .in = {x})}, .n_f = 1,
                .f = {0.3});
}

static inline int mask_for(drawing *d, int x)
{
    if (one_in(d, 3)) {
        const lc_type t = *lc_tensor_type(d->v[x]);
        return new_leaf(d, MASK, t.ndim, t.shape, 0);
    }
    return EMIT(.op = (op_id)(OP_eq + below(d, 9)), .n_in = 2, .in = {x, compatible(d, x, true)});
}

static inline double some_number(drawing *d)
{
    static const double list[] = {0.5, 1, -0.7, 2, 0.25, -1.5, 1.25, 0};
    return list[below(d, 8)];
}

static inline int maybe(drawing *d, int ndim, const int64_t *shape)
{
    return one_in(d, 3) ? -1 : any_of(d, ndim, shape);
}

static inline void draw_conv(drawing *d)
{
    bool back = one_in(d, 2);
    int nd = 1 + (int)below(d, 3), x = any_nd(d, nd + 2);
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    int64_t channels = t.shape[1], groups = one_in(d, 3) ? channels : 1, per = 1 + below(d, 3), shape[5];
    for (int k = 0; k < nd + 2; k++)
        if (t.shape[k] == 0) return;
    instr c = {.op = (op_id)((back ? OP_conv_transpose1d : OP_conv1d) + nd - 1), .n_in = 3, .n_i = 4 * nd + 1};
    shape[0] = back ? channels : groups * per, shape[1] = back ? per : channels / groups;
    for (int k = 0; k < nd; k++) {
        int64_t dilation = 1 + one_in(d, 4), kernel = 1 + below(d, 3), stride = 1 + below(d, 2), pad = below(d, kernel);
        if (!back)
            while (dilation * (kernel - 1) + 1 > t.shape[2 + k] + 2 * pad) kernel > 1 ? kernel-- : pad++;
        if (back && (t.shape[2 + k] - 1) * stride + dilation * (kernel - 1) + 1 <= 2 * pad) pad = 0;
        shape[2 + k] = kernel;
        c.i[k] = stride, c.i[nd + k] = pad, c.i[2 * nd + k] = dilation;
        c.i[3 * nd + k] = back && (stride > 1 || dilation > 1) ? below(d, 2) : 0;
    }
    c.i[4 * nd] = groups;
    c.in[0] = x;
    c.in[1] = any_of(d, nd + 2, shape);
    c.in[2] = maybe(d, 1, (int64_t[]){groups * per});
    emit(d, c);
}

static inline void draw_pool(drawing *d)
{
    int nd = 1 + (int)below(d, 2), x = any_nd(d, nd + 2);
    bool max = one_in(d, 2);
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    instr c = {.op = max       ? (nd == 1 ? OP_max_pool1d : OP_max_pool2d)
                     : nd == 1 ? OP_avg_pool1d
                               : OP_avg_pool2d,
               .n_in = 1,
               .in = {x},
               .n_i = 11,
               .i = {1, 1, 1, 1, 0, 0, 1, 1}};
    for (int k = 0; k < nd + 2; k++)
        if (t.shape[k] == 0) return;
    for (int k = 0; k < nd; k++) {
        int64_t s = t.shape[2 + k], kernel = 1 + below(d, s < 3 ? s : 3);
        c.i[k] = kernel, c.i[2 + k] = 1 + below(d, 2), c.i[4 + k] = below(d, kernel / 2 + 1);
        if (max && 2 * (kernel - 1) + 1 <= s && one_in(d, 3)) c.i[6 + k] = 2;
    }
    c.i[8] = one_in(d, 3);
    if (!max) c.i[9] = one_in(d, 3), c.i[10] = nd == 2 && one_in(d, 4) ? 3 : 0;
    emit(d, c);
}

static inline void draw_shape(drawing *d)
{
    int x = any(d);
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    int n = t.ndim, dim = n ? (int)below(d, n) : 0;
    int64_t numel = lc_tensor_numel(d->v[x]), s = n ? t.shape[dim] : 0;
    instr c = {.n_in = 1, .in = {x}, .i = {one_in(d, 3) && n ? dim - n : dim}, .n_i = 1};
    static const op_id ops[] = {OP_reshape, OP_flatten, OP_permute,   OP_transpose, OP_slice, OP_select, OP_squeeze,
                                OP_expand,  OP_split,   OP_unsqueeze, OP_chunk,     OP_pad,   OP_flip,   OP_tril,
                                OP_triu,    OP_cat,     OP_stack,     OP_unflatten, OP_slice, OP_cumsum, OP_expand};
    c.op = ops[below(d, (int64_t)(sizeof ops / sizeof *ops))];
    if (n == 0 && c.op != OP_reshape && c.op != OP_unsqueeze && c.op != OP_expand) return;
    switch (c.op) {
    case OP_reshape:
        c.n_i = 2, c.i[0] = numel % 2 == 0 ? 2 : 1, c.i[1] = numel / c.i[0];
        if (one_in(d, 2) && numel) c.i[1] = -1;
        if (one_in(d, 3)) c.n_i = 1, c.i[0] = numel;
        break;
    case OP_permute:
        c.n_i = n;
        for (int k = 0; k < n; k++) c.i[k] = k;
        for (int k = n - 1; k > 0; k--) {
            int j = (int)below(d, k + 1);
            int64_t swap = c.i[k];
            c.i[k] = c.i[j], c.i[j] = swap;
        }
        break;
    case OP_transpose:
        c.n_i = 2, c.i[1] = below(d, n);
        break;
    case OP_slice:
        c.n_i = 3, c.i[1] = below(d, s + 1), c.i[2] = below(d, s - c.i[1] + 1);
        break;
    case OP_select:
        if (s == 0) return;
        c.n_i = 2, c.i[1] = below(d, s);
        break;
    case OP_expand:
        if (n > 4) return;
        c.n_i = 0;
        if (one_in(d, 2)) c.i[c.n_i++] = 1 + below(d, 3);
        for (int k = 0; k < n; k++, c.n_i++) c.i[c.n_i] = t.shape[k] == 1 ? 1 + below(d, 3) : t.shape[k];
        if (c.n_i == 0) return;
        break;
    case OP_split:
    case OP_chunk:
        if (s == 0 || s > 60) return; /* parts_op has room for 64 */
        c.n_i = 3, c.i[1] = c.i[0], c.i[0] = 1 + below(d, s), c.i[2] = below(d, 4) - 1;
        break;
    case OP_unsqueeze:
        if (n > 5) return;
        c.i[0] = below(d, n + 1);
        break;
    case OP_pad:
        c.n_i = 2 * (n > 1 ? 1 + (int)below(d, 2) : 1), c.n_f = 1, c.f[0] = some_number(d);
        for (int k = 0; k < c.n_i; k++) c.i[k] = t.shape[n - 1 - k / 2] > 3 ? below(d, 4) - 1 : below(d, 3);
        break;
    case OP_tril:
    case OP_triu:
        if (n < 2) return;
        c.i[0] = below(d, 4) - 2;
        break;
    case OP_cat:
    case OP_stack:
        if (n > 5) return;
        c.n_in = 1 + (int)below(d, 3);
        for (int k = 1; k < c.n_in; k++) c.in[k] = any_of(d, n, t.shape);
        break;
    case OP_unflatten:
        if (s == 0 || n > 5) return;
        c.n_i = 2, c.i[1] = s % 2 == 0 ? 2 : s;
        break;
    case OP_cumsum:
    case OP_flip:
    case OP_flatten:
    default:
        break;
    }
    emit(d, c);
}

static inline void draw_reduce(drawing *d)
{
    static const double norms[] = {2, 1, 3, INFINITY, -INFINITY, 0.5};
    int x = any(d);
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    instr c = {.op = (op_id)(OP_sum + below(d, 8)), .n_in = 1, .in = {x}, .n_i = 1, .i = {one_in(d, 2)}};
    int64_t count = 1;
    for (int k = 0; k < t.ndim; k++)
        if (one_in(d, 2)) c.i[c.n_i++] = k;
    for (int k = 0; k < t.ndim; k++) {
        bool reduced = c.n_i == 1;
        for (int j = 1; j < c.n_i; j++) reduced |= c.i[j] == k;
        if (reduced) count *= t.shape[k];
    }
    if (count < 2 && c.op != OP_sum && c.op != OP_mean) c.op = OP_sum;
    if (c.op == OP_norm) c.n_f = 1, c.f[0] = norms[below(d, 6)];
    if (c.op == OP_var || c.op == OP_std) c.n_f = 1, c.f[0] = (double)below(d, 2);
    emit(d, c);
}

static inline void draw_index(drawing *d)
{
    int x = any(d), rows = (int)below(d, 4) + 1;
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    if (t.ndim == 0) return;
    int dim = (int)below(d, t.ndim);
    if (lc_tensor_numel(d->v[x]) == 0) return;
    int64_t shape[LC_MAX_DIMS], s = t.shape[dim];
    memcpy(shape, t.shape, sizeof shape);
    instr c = {.n_in = 2, .in = {x}, .n_i = 1, .i = {dim}};
    switch (below(d, 8)) {
    case 0:
        c.op = OP_index_select;
        c.in[1] = new_leaf(d, IDS, 1, (int64_t[]){rows}, s);
        break;
    case 1:
        c.op = OP_gather, shape[dim] = rows;
        c.in[1] = new_leaf(d, IDS, t.ndim, shape, s);
        break;
    case 2:
        c.op = OP_scatter_add, shape[dim] = rows, c.n_in = 3;
        c.in[1] = new_leaf(d, IDS, t.ndim, shape, s);
        c.in[2] = any_of(d, t.ndim, shape);
        break;
    case 3:
        c.op = OP_index_add, shape[dim] = rows, c.n_in = 3;
        c.in[1] = new_leaf(d, IDS, 1, (int64_t[]){rows}, s);
        c.in[2] = any_of(d, t.ndim, shape);
        break;
    case 4: {
        int w = any_nd(d, 2);
        if (d->failed || lc_tensor_numel(d->v[w]) == 0) return;
        c.op = OP_embedding, c.in[1] = w, c.n_i = 2;
        c.i[0] = one_in(d, 2), c.i[1] = below(d, lc_tensor_dim(d->v[w], 0));
        c.in[0] = new_leaf(d, IDS, 2, (int64_t[]){rows, 1 + below(d, 3)}, lc_tensor_dim(d->v[w], 0));
        break;
    }
    case 5:
        c.op = OP_topk, c.n_in = 1, c.n_i = 3, c.i[1] = 1 + below(d, s), c.i[2] = one_in(d, 2);
        break;
    case 6:
        c.op = OP_sort, c.n_in = 1, c.n_i = 2, c.i[1] = one_in(d, 2);
        break;
    default: {
        int ids = EMIT(.op = one_in(d, 2) ? OP_argmax : OP_argmin, .n_in = 1, .in = {x}, .n_i = 2, .i = {dim, 1});
        c.op = OP_gather, c.in[1] = ids;
    }
    }
    emit(d, c);
}

static inline void draw_norm(drawing *d)
{
    int x = any_nd(d, 2 + (int)below(d, 3));
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    for (int k = 0; k < t.ndim; k++)
        if (t.shape[k] == 0) return;
    int64_t c = t.shape[1], last = t.shape[t.ndim - 1], each = lc_tensor_numel(d->v[x]) / c;
    switch (below(d, 6)) {
    case 0:
    case 1: {
        if (each < 2) return;
        instr b = {.op = OP_batch_norm, .n_in = 5, .n_i = 1, .i = {1}, .n_f = 2, .f = {0.1, 1e-3}};
        b.in[0] = x, b.in[1] = maybe(d, 1, &c), b.in[2] = maybe(d, 1, &c), b.in[3] = b.in[4] = -1;
        if (one_in(d, 2)) {
            b.in[3] = new_leaf(d, BUFFER, 1, &c, 0), b.in[4] = new_leaf(d, BUFFER, 1, &c, 0);
            leaf *l = &d->p->leaves[d->p->n_leaves - 1];
            if (d->failed) return;
            for (int64_t i = 0; i < c; i++) l->values[i] = 0.5 + l->values[i] * l->values[i];
            b.i[0] = one_in(d, 2);
        }
        emit(d, b);
        return;
    }
    case 2:
        EMIT(.op = OP_layer_norm, .n_in = 3, .in = {x, maybe(d, 1, &last), maybe(d, 1, &last)}, .n_i = 1, .i = {1},
             .n_f = 1, .f = {1e-3});
        return;
    case 3:
        EMIT(.op = OP_layer_norm, .n_in = 3, .in = {x, -1, -1}, .n_i = 1, .i = {2}, .n_f = 1, .f = {1e-3});
        return;
    case 4:
        EMIT(.op = OP_rms_norm, .n_in = 2, .in = {x, maybe(d, 1, &last)}, .n_i = 1, .i = {1}, .n_f = 1, .f = {1e-3});
        return;
    default:
        if (each / t.shape[0] * c < 4) return; /* two values per group */
        EMIT(.op = OP_group_norm, .n_in = 3, .in = {x, maybe(d, 1, &c), maybe(d, 1, &c)}, .n_i = 1,
             .i = {c % 2 == 0 && one_in(d, 2) ? 2 : 1}, .n_f = 1, .f = {1e-3});
    }
}

static inline void draw_loss(drawing *d)
{
    if (one_in(d, 3)) { /* over classes */
        int x = any_nd(d, 2 + (int)below(d, 2));
        if (d->failed) return;
        const lc_type t = *lc_tensor_type(d->v[x]);
        if (lc_tensor_numel(d->v[x]) == 0) return;
        int64_t shape[2] = {t.shape[0], t.ndim > 2 ? t.shape[2] : 0}, c = t.shape[1];
        instr l = {.op = one_in(d, 2) ? OP_cross_entropy : OP_nll_loss, .n_in = 3, .n_i = 3, .n_f = 1};
        l.in[0] = x, l.in[1] = new_leaf(d, IDS, t.ndim - 1, shape, c);
        l.in[2] = -1;
        if (one_in(d, 2)) { /* of the classes; it gets no gradient */
            int w = EMIT(.op = OP_sigmoid, .n_in = 1, .in = {any_of(d, 1, &c)});
            l.in[2] = EMIT(.op = OP_detach, .n_in = 1, .in = {w});
        }
        l.i[0] = below(d, 3), l.i[1] = one_in(d, 3), l.i[2] = 0;
        if (l.op == OP_cross_entropy && one_in(d, 2)) l.f[0] = 0.125;
        emit(d, l);
        return;
    }
    int x = any(d);
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    if (t.ndim == 0) return;
    instr l = {
        .op = (op_id)(OP_mse_loss + below(d, 6)), .n_in = 4, .n_i = 2, .n_f = 1, .f = {one_in(d, 2) ? 1 : 0.375}};
    l.in[0] = x, l.in[2] = l.in[3] = -1, l.i[0] = below(d, 3);
    l.in[1] = any_of(d, t.ndim, t.shape);
    if (l.op == OP_bce_with_logits || l.op == OP_kl_div) l.in[1] = EMIT(.op = OP_sigmoid, .n_in = 1, .in = {l.in[1]});
    if (l.op == OP_kl_div) l.i[0] = below(d, 4), l.i[1] = one_in(d, 2);
    if (l.op == OP_bce_with_logits) {
        int64_t last = t.shape[t.ndim - 1];
        if (one_in(d, 3)) l.in[2] = EMIT(.op = OP_detach, .n_in = 1, .in = {any_of(d, 1, &last)});
        if (one_in(d, 3)) l.in[3] = EMIT(.op = OP_detach, .n_in = 1, .in = {any_of(d, 1, &last)});
    }
    emit(d, l);
}

static inline void draw_product(drawing *d)
{
    int x = any_nd(d, 1 + (int)below(d, 4));
    if (d->failed) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    int64_t last = t.shape[t.ndim - 1], o = 1 + below(d, 5);
    int64_t shape[4] = {last, o};
    switch (below(d, 5)) {
    case 0:
    case 1:
        EMIT(.op = OP_linear, .n_in = 3, .in = {x, any_of(d, 2, (int64_t[]){o, last}), maybe(d, 1, &o)});
        return;
    case 2: /* with batch dimensions of its own, which broadcast */
        if (t.ndim >= 3) {
            int64_t batched[3] = {one_in(d, 2) ? 1 : t.shape[t.ndim - 3], last, o};
            EMIT(.op = OP_matmul, .n_in = 2, .in = {x, any_of(d, 3, batched)});
            return;
        } /* fallthrough */
    case 3:
        EMIT(.op = OP_matmul, .n_in = 2, .in = {x, any_of(d, one_in(d, 4) ? 1 : 2, shape)});
        return;
    default:
        if (t.ndim < 2 || lc_tensor_numel(d->v[x]) == 0) return;
        /* For parallel vectors it is 1, and later operators see only its rounding. */
        int dim = (int)below(d, t.ndim), y = any_of(d, t.ndim, t.shape);
        if (x == y || t.shape[dim] < 2) return;
        EMIT(.op = OP_cosine_similarity, .n_in = 2, .in = {x, y}, .n_i = 1, .i = {dim});
    }
}

static inline void draw_sequence(drawing *d)
{
    int64_t b = 1 + below(d, 3), s = 1 + below(d, 5), w = 1 + below(d, 4), k = 1 + below(d, 5), h = 1 + below(d, 4);
    if (one_in(d, 2)) {
        instr a = {.op = OP_sdpa, .n_in = 4, .n_i = 1, .n_f = 1};
        int heads = one_in(d, 2) ? 4 : 3;
        int64_t q4[] = {b, 2, s, w}, k4[] = {b, 2, k, w}, v4[] = {b, 2, k, h};
        int64_t q3[] = {b, s, w}, k3[] = {b, k, w}, v3[] = {b, k, h}, m[] = {s, k};
        a.in[0] = any_of(d, heads, heads == 4 ? q4 : q3), a.in[1] = any_of(d, heads, heads == 4 ? k4 : k3);
        a.in[2] = any_of(d, heads, heads == 4 ? v4 : v3), a.in[3] = -1;
        if (one_in(d, 3))
            a.in[3] = any_of(d, 2, m);
        else if (one_in(d, 3))
            a.in[3] = new_leaf(d, MASK, 2, m, 0);
        a.i[0] = a.in[3] < 0 && one_in(d, 2);
        if (one_in(d, 3)) a.f[0] = 0.5;
        emit(d, a);
        return;
    }
    bool lstm = one_in(d, 2);
    int64_t gates = (lstm ? 4 : 3) * h;
    instr r = {.op = lstm ? OP_lstm : OP_gru, .n_in = 6, .n_i = 1, .i = {below(d, 3)}};
    r.in[0] = any_of(d, 3, (int64_t[]){b, s, w}), r.in[1] = any_of(d, 2, (int64_t[]){gates, w});
    r.in[2] = any_of(d, 2, (int64_t[]){gates, h});
    r.in[3] = maybe(d, 1, &gates), r.in[4] = maybe(d, 1, &gates), r.in[5] = maybe(d, 2, (int64_t[]){b, h});
    emit(d, r);
}

static inline void draw_image(drawing *d)
{
    int x = any_nd(d, 4);
    if (d->failed || lc_tensor_numel(d->v[x]) == 0) return;
    const lc_type t = *lc_tensor_type(d->v[x]);
    int64_t h = t.shape[2], w = t.shape[3];
    int64_t mode = below(d, 2), align = mode ? below(d, 2) : 0;
    switch (below(d, 5)) {
    case 0:
        EMIT(.op = OP_adaptive_avg_pool2d, .n_in = 1, .in = {x}, .n_i = 2, .i = {1 + below(d, h), 1 + below(d, w)});
        return;
    case 1:
        EMIT(.op = OP_interpolate, .n_in = 1, .in = {x}, .n_i = 4,
             .i = {mode, 1 + below(d, 7), 1 + below(d, 7), align});
        return;
    case 2:
        EMIT(.op = OP_interpolate_by, .n_in = 1, .in = {x}, .n_i = 2, .i = {mode, align}, .n_f = 2,
             .f = {1 + 0.5 * (double)below(d, 3), 1 + 0.5 * (double)below(d, 3)});
        return;
    case 3:
        if (t.shape[1] % 4 == 0) EMIT(.op = OP_pixel_shuffle, .n_in = 1, .in = {x}, .n_i = 1, .i = {2});
        return;
    default:
        if (h % 2 == 0 && w % 2 == 0) EMIT(.op = OP_pixel_unshuffle, .n_in = 1, .in = {x}, .n_i = 1, .i = {2});
    }
}

static inline void draw_elementwise(drawing *d)
{
    int x = any(d);
    if (d->failed) return;
    instr c = {.n_in = 1, .in = {x}, .n_f = 2, .f = {0.1 + 0.1 * (double)below(d, 4), 0}};
    switch (below(d, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        c.op = (op_id)below(d, OP_detach + 1), c.n_f = 0;
        if (c.op == OP_ln || c.op == OP_sqrt || c.op == OP_rsqrt || c.op == OP_reciprocal || c.op == OP_log1p)
            c.in[0] = positive(d, x);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
        c.op = (op_id)(OP_add + below(d, 8)), c.n_in = 2, c.n_f = 0;
        c.in[1] = one_in(d, 8) ? x : compatible(d, x, false);
        if (c.op == OP_div || c.op == OP_xlogy) c.in[1] = positive(d, c.in[1]);
        if (c.op == OP_pow) c.in[0] = positive(d, x);
        if (one_in(d, 3) && c.op != OP_pow && c.op != OP_div && c.op != OP_xlogy) c.in[0] = c.in[1], c.in[1] = x;
        break;
    case 8:
    case 9:
        c.op = (op_id)(OP_add_scalar + below(d, 6)), c.n_f = 1, c.f[0] = some_number(d);
        if (c.op == OP_div_scalar && c.f[0] == 0) c.f[0] = 2;
        if (c.op == OP_pow_scalar && c.f[0] != 2 && c.f[0] != 1 && c.f[0] != 0) c.in[0] = positive(d, x);
        break;
    case 10:
        c.op = one_in(d, 2) ? OP_leaky_relu : OP_elu;
        break;
    case 11:
        c.op = OP_gelu, c.n_f = 0, c.n_i = 1, c.i[0] = below(d, 2);
        break;
    case 12:
        c.op = one_in(d, 2) ? OP_clamp : OP_hardtanh, c.f[0] = -0.4, c.f[1] = 0.5;
        if (c.op == OP_clamp) c.n_i = 2, c.i[0] = below(d, 2), c.i[1] = 1 - c.i[0] * below(d, 2);
        break;
    case 13: {
        c.n_f = 0;
        int m = mask_for(d, x);
        if (one_in(d, 2)) {
            c = (instr){.op = OP_where, .n_in = 3, .in = {m, x, compatible(d, x, true)}};
        } else {
            c = (instr){.op = OP_masked_fill, .n_in = 2, .in = {x, m}, .n_f = 1, .f = {some_number(d)}};
        }
        break;
    }
    case 14: {
        const lc_type t = *lc_tensor_type(d->v[x]);
        c.n_f = 0;
        if (t.ndim == 0 || lc_tensor_numel(d->v[x]) == 0) return;
        int dim = (int)below(d, t.ndim);
        c.op = one_in(d, 2) ? OP_softmax : OP_log_softmax, c.n_i = 1, c.i[0] = dim;
        if (t.shape[dim] % 2 == 0 && one_in(d, 2)) c.op = OP_glu;
        break;
    }
    default: {
        const lc_type t = *lc_tensor_type(d->v[x]);
        c.n_f = 0;
        if (t.ndim >= 2 && t.shape[1] > 0 && one_in(d, 2)) {
            int64_t one = one_in(d, 2) ? 1 : t.shape[1];
            c.op = OP_prelu, c.n_in = 2, c.in[1] = any_of(d, 1, &one);
        } else if (d->p->dtype == LC_F32) {
            c.op = OP_through_f64;
        } else {
            c.op = OP_tanh;
        }
    }
    }
    emit(d, c);
}

/* PyTorch's masks are read from lightc's results, so dropped elements must not be 0 already. */
static inline void draw_random(drawing *d)
{
    static const double rates[] = {0.5, 0.1, 0.9, 0.25, 0, 1};
    int x = any(d);
    if (d->failed) return;
    instr c = {.op = (op_id)(OP_dropout + below(d, 6)), .n_in = 1, .in = {x}};
    if (c.op == OP_dropout) {
        c.in[0] = EMIT(.op = OP_add_scalar, .n_in = 1, .in = {x}, .n_f = 1, .f = {0.73105857});
        c.n_f = 1, c.f[0] = rates[below(d, 6)];
    } else if (c.op == OP_bernoulli) {
        c.in[0] = EMIT(.op = OP_sigmoid, .n_in = 1, .in = {x});
    } else if (c.op == OP_uniform || c.op == OP_normal) {
        c.n_in = 0, c.n_i = 1 + (int)below(d, 3), c.n_f = 2;
        for (int k = 0; k < c.n_i; k++) c.i[k] = size(d);
        c.f[0] = some_number(d), c.f[1] = c.op == OP_normal ? 0.5 + (double)below(d, 3) : c.f[0] + 1.5;
    }
    emit(d, c);
}

/* Whether it depends on the layout if the result of an operator on this leaf is a view or a copy. */
static inline bool is_unsure(const program *p, int leaf_at)
{
    static const op_id ops[] = {OP_pixel_shuffle, OP_pixel_unshuffle, OP_interpolate, OP_interpolate_by};
    bool views[MAX_CODE] = {false};
    views[leaf_at] = true;
    for (int k = 0; k < p->n; k++) {
        const instr *c = &p->code[k];
        bool of = c->op == OP_leaf ? c->i[0] == p->code[leaf_at].i[0] : c->n_in && c->in[0] >= 0 && views[c->in[0]];
        for (size_t j = 0; of && j < sizeof ops / sizeof *ops; j++)
            if (c->op == ops[j]) return true;
        views[k] = of && (c->op == OP_leaf || is_view(c));
    }
    return false;
}

static inline void draw_effect(drawing *d)
{
    program *p = d->p;
    switch (below(d, 5)) {
    case 0: { /* another value for a buffer, or a parameter */
        for (int tries = 0; tries < 20; tries++) {
            int at = (int)below(d, p->n);
            if (p->code[at].op != OP_leaf || p->leaves[p->code[at].i[0]].kind > BUFFER || is_unsure(p, at)) continue;
            const lc_type t = *lc_tensor_type(d->v[at]);
            int x = any_of(d, t.ndim, t.shape); /* or a view of the same memory */
            if (one_in(d, 2)) x = EMIT(.op = OP_tanh, .n_in = 1, .in = {x});
            bool was = d->no_grad;
            d->no_grad = true;
            EMIT(.op = OP_assign, .n_in = 2, .in = {at, x});
            d->no_grad = was;
            return;
        }
        return;
    }
    case 1:
        EMIT(.op = OP_read, .n_in = 1, .in = {any(d)});
        return;
    case 2:
        EMIT(.op = one_in(d, 2) ? OP_checkpoint_begin : OP_checkpoint_end);
        return;
    case 3: {
        int x = any(d);
        if (d->needs[x]) EMIT(.op = OP_backward, .n_in = 1, .in = {x});
        return;
    }
    default:
        d->no_grad = !d->no_grad && one_in(d, 2);
    }
}

/* Draws the program of a key. */
static inline void draw_program(uint64_t key, program *p)
{
    lc_graph *g;
    drawing *d = &(drawing){.p = p, .key = key};
    *p = (program){.dtype = one_in(d, 2) ? LC_F32 : LC_F64, .steps = 1 + (int)below(d, 3), .seed = key};
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_step_begin(g, 0, 0));
    for (int k = 0; k < 3; k++) {
        int ndim = k == 2 ? 4 : 1 + (int)below(d, 3);
        int64_t shape[4];
        for (int i = 0; i < ndim; i++) shape[i] = ndim == 4 ? 1 + below(d, 4) : size(d);
        new_leaf(d, k == 1 ? any_kind(d) : PARAMETER, ndim, shape, 0);
    }
    int length = 4 + (int)below(d, 22), sound = p->n, sound_leaves = p->n_leaves;
    for (int k = 0; k < length && p->n < MAX_CODE - 16; k++) {
        static void (*const draws[])(drawing *) = {
            draw_elementwise, draw_elementwise, draw_elementwise, draw_shape,  draw_shape,  draw_shape,
            draw_reduce,      draw_product,     draw_conv,        draw_pool,   draw_index,  draw_norm,
            draw_loss,        draw_sequence,    draw_image,       draw_effect, draw_effect, draw_random};
        draws[below(d, (int64_t)(sizeof draws / sizeof *draws))](d);
        if (d->failed) break;
        int kept = any(d); /* the value of a persistent tensor, or of a view of one, is its last one in the step */
        if (one_in(d, 4)) EMIT(.op = OP_keep, .n_in = 1, .in = {kept});
        sound = p->n, sound_leaves = p->n_leaves;
    }
    /* A program that failed is left for the judge if an operator was refused. */
    bool refused = d->failed && lc_step_status(g) < 0;
    if (d->failed && !refused) {
        p->n = sound;
        for (int k = sound_leaves; k < p->n_leaves; k++) lc_tensor_unref(d->leaves[k]);
        p->n_leaves = sound_leaves;
    }
    if (!refused) {
        d->failed = d->no_grad = false;
        for (int k = 0, losses = 0; k < p->n && losses < 4 && p->n < MAX_CODE; k++) {
            int at = p->n - 1 - k;
            if (at >= 0 && d->needs[at] && p->code[at].op != OP_leaf) {
                EMIT(.op = OP_backward, .n_in = 1, .in = {at});
                losses++, k++;
            }
        }
    }
    for (int k = 0; k < p->n_leaves; k++) lc_tensor_unref(d->leaves[k]);
    lc_status ended = lc_step_end(g);
    (void)ended;
    lc_graph_free(g);
}

#endif
