/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program of random_program.h and notes all resulting numbers: values read along the way, kept values, losses,
 * gradients, and assigned tensors. */
#ifndef LC_TESTS_RANDOM_PROGRAM_RUN_H
#define LC_TESTS_RANDOM_PROGRAM_RUN_H

#include "random_program.h"
#include "base/number.h"
#include "tensor/tensor_impl.h"

#define MAX_NOTES   640
#define MAX_NUMBERS 120000

typedef struct note {
    char name[24];
    int ndim;
    int64_t shape[LC_MAX_DIMS], at, n;
} note;

typedef struct record {
    char error[400]; /* "": it succeeded */
    int n;
    int64_t used;
    note notes[MAX_NOTES];
    double numbers[MAX_NUMBERS];
} record;

typedef struct run_mode {
    bool unplanned, reference, rounds_leaves;
    double noise; /* relative error added to every result, the same for equal values */
    double phase;
    const double *shift; /* added to the parameters, in their order */
    lc_dtype dtype;      /* 0: the program's own; else of everything, without autocast and storage */
} run_mode;

/* The largest finite number of a note, and the mean of the finite errors that its numbers may have. */
static inline void size_of_note(const note *o, const record *truth, const double *may, double *scale, double *mean)
{
    *scale = *mean = 0;
    for (int64_t i = o->at; i < o->at + o->n; i++) {
        if (isfinite(truth->numbers[i])) *scale = fmax(*scale, fabs(truth->numbers[i]));
        if (isfinite(may[i])) *mean += may[i] / (double)o->n;
    }
}

static inline lc_tensor *reduce_op(const instr *c, lc_tensor *x)
{
    lc_reduce_args a = lc_reduce_defaults();
    a.x = x;
    a.keepdim = c->i[0];
    for (int k = 1; k < c->n_i; k++) a.dims.dim[a.dims.n++] = c->i[k];
    if (c->op == OP_norm) a.p = c->f[0];
    if (c->op == OP_var || c->op == OP_std) a.correction = c->f[0];
    switch (c->op) {
#define CASE(name)                                                                                                     \
    case OP_##name:                                                                                                    \
        return lc_##name##_at(&a, LC_HERE);
        REDUCE_LIST(CASE)
#undef CASE
    default:
        return NULL;
    }
}

static inline lc_tensor *loss_op(const instr *c, lc_tensor **in)
{
    lc_loss_args a = lc_loss_defaults();
    a.target = in[1];
    a.reduction = (lc_reduction)c->i[0];
    a.log_target = c->i[1];
    a.weight = in[2];
    a.pos_weight = in[3];
    if (c->op == OP_smooth_l1_loss) a.beta = c->f[0];
    if (c->op == OP_huber_loss) a.delta = c->f[0];
    switch (c->op) {
#define CASE(name)                                                                                                     \
    case OP_##name:                                                                                                    \
        return lc_##name##_at(in[0], &a, LC_HERE);
        LOSS_LIST(CASE)
#undef CASE
    default:
        return NULL;
    }
}

/* ints: stride, padding, dilation and output padding, one for each spatial dimension; groups. */
static inline lc_tensor *conv_op(const instr *c, lc_tensor **in)
{
    bool back = c->op >= OP_conv_transpose1d;
    int nd = 1 + (back ? (int)(c->op - OP_conv_transpose1d) : (int)(c->op - OP_conv1d));
    lc_conv_args a = lc_conv_defaults();
    a.bias = in[2];
    a.groups = c->i[4 * nd];
    a.stride.n = a.padding.n = a.dilation.n = a.output_padding.n = nd;
    for (int k = 0; k < nd; k++) {
        a.stride.dim[k] = c->i[k];
        a.padding.dim[k] = c->i[nd + k];
        a.dilation.dim[k] = c->i[2 * nd + k];
        a.output_padding.dim[k] = c->i[3 * nd + k];
    }
    lc_tensor *(*const calls[])(lc_tensor *, lc_tensor *, const lc_conv_args *,
                                lc_site) = {lc_conv1d_at,           lc_conv2d_at,           lc_conv3d_at,
                                            lc_conv_transpose1d_at, lc_conv_transpose2d_at, lc_conv_transpose3d_at};
    return calls[c->op - OP_conv1d](in[0], in[1], &a, LC_HERE);
}

/* ints: kernel, stride, padding and dilation, two each; ceil, exclude_pad, divisor. */
static inline lc_tensor *pool_op(const instr *c, lc_tensor *x)
{
    bool signal = c->op == OP_max_pool1d || c->op == OP_avg_pool1d;
    lc_pool_args a = lc_pool_defaults();
    a.kernel = c->i[0];
    a.kernel_w = c->i[1];
    a.stride = LC_DIMS(c->i[2], c->i[3]);
    a.padding = LC_DIMS(c->i[4], c->i[5]);
    a.dilation = LC_DIMS(c->i[6], c->i[7]);
    a.ceil_mode = c->i[8];
    a.exclude_pad = c->i[9];
    a.divisor = c->i[10];
    if (signal) a.stride.n = a.padding.n = a.dilation.n = 1;
    if (c->op == OP_max_pool1d) return lc_max_pool1d_at(x, &a, LC_HERE);
    if (c->op == OP_avg_pool1d) return lc_avg_pool1d_at(x, &a, LC_HERE);
    return c->op == OP_max_pool2d ? lc_max_pool2d_at(x, &a, LC_HERE) : lc_avg_pool2d_at(x, &a, LC_HERE);
}

/* x, w_ih, w_hh, b_ih?, b_hh?, h0?; ints: 0 all states, 1 the last one, 2 both. The LSTM's cells start with h0 as well.
 */
static inline lc_tensor *rnn_op(const instr *c, lc_tensor **in)
{
    lc_tensor *h, *cell;
    lc_rnn_args a = lc_rnn_defaults();
    a.w_hh = in[2], a.b_ih = in[3], a.b_hh = in[4], a.h0 = in[5], a.h_n = &h;
    if (c->op == OP_lstm) a.c0 = in[5], a.c_n = &cell;
    lc_tensor *y = c->op == OP_lstm ? lc_lstm_at(in[0], in[1], &a, LC_HERE) : lc_gru_at(in[0], in[1], &a, LC_HERE);
    lc_tensor *last = c->op == OP_lstm ? lc_add(h, cell) : h;
    return c->i[0] == 0 ? y : c->i[0] == 1 ? last : lc_mul(y, lc_unsqueeze(last, 1));
}

static inline lc_tensor *classes_op(const instr *c, lc_tensor **in)
{ /* x, target, weight?; ints: reduction, whether a class is ignored, which one */
    lc_cross_entropy_args a = lc_cross_entropy_defaults();
    a.target = in[1];
    a.weight = in[2];
    a.reduction = (lc_reduction)c->i[0];
    if (c->i[1]) a.ignore_index = c->i[2];
    a.label_smoothing = c->f[0];
    return c->op == OP_nll_loss ? lc_nll_loss_at(in[0], &a, LC_HERE) : lc_cross_entropy_at(in[0], &a, LC_HERE);
}

/* Parts of x; ints: size or number, dim, which part (-1: the first times the last). */
static inline lc_tensor *parts_op(const instr *c, lc_tensor *x)
{
    lc_tensor *out[64];
    int n =
        c->op == OP_split ? lc_split(x, c->i[0], (int)c->i[1], 64, out) : lc_chunk(x, (int)c->i[0], (int)c->i[1], out);
    if (n < 1) return x;
    if (c->i[2] >= 0) return out[c->i[2] % n];
    return lc_sum(lc_mul_scalar(out[n - 1], 2), .dims = LC_DIMS((int)c->i[1]), .keepdim = true);
}

/* clang-format off */ /* clang-format does not format case lists stably */
/* The value of an instruction with the inputs `in`. */
static inline lc_tensor *apply(const instr *c, lc_tensor **in, lc_dtype dtype)
{
    const int64_t *i = c->i;
    const double *f = c->f;
    int d = c->n_i ? (int)i[0] : 0;
    switch (c->op) {
#define CASE(name)                                                                                                     \
    case OP_##name:                                                                                                    \
        return lc_##name(in[0]);
        UNARY_LIST(CASE)
#undef CASE
#define CASE(name)                                                                                                     \
    case OP_##name:                                                                                                    \
        return lc_##name(in[0], in[1]);
        BINARY_LIST(CASE)
        COMPARE_LIST(CASE)
#undef CASE
#define CASE(name)                                                                                                     \
    case OP_##name:                                                                                                    \
        return lc_##name(in[0], f[0]);
        SCALAR_LIST(CASE)
#undef CASE
#define CASE(name) case OP_##name:
        REDUCE_LIST(CASE) return reduce_op(c, in[0]);
        LOSS_LIST(CASE)
        return loss_op(c, in);
#undef CASE
    case OP_dropout:
        return lc_dropout(in[0], f[0]);
    case OP_bernoulli:
        return lc_bernoulli(in[0]);
    case OP_rand_like:
        return lc_rand_like(in[0]);
    case OP_randn_like:
        return lc_randn_like(in[0]);
    case OP_uniform:
        return lc_uniform(c->n_i, i, .dtype = dtype, .low = f[0], .high = f[1]);
    case OP_normal:
        return lc_normal(c->n_i, i, .dtype = dtype, .mean = f[0], .std = f[1]);
    case OP_leaky_relu:
        return lc_leaky_relu(in[0], .slope = f[0]);
    case OP_elu:
        return lc_elu(in[0], .slope = f[0]);
    case OP_gelu:
        return lc_gelu(in[0], .tanh = i[0]);
    case OP_clamp: /* ints: whether there is a lower bound, an upper bound */
        return lc_clamp(in[0], .min = i[0] ? f[0] : LC_NOT_GIVEN, .max = i[1] ? f[1] : LC_NOT_GIVEN);
    case OP_hardtanh:
        return lc_hardtanh(in[0], f[0], f[1]);
    case OP_prelu:
        return lc_prelu(in[0], in[1]);
    case OP_glu:
        return lc_glu(in[0], d);
    case OP_through_f64:
        return lc_cast(lc_square(lc_cast(in[0], LC_F64)), dtype);
    case OP_where:
        return lc_where(in[0], in[1], in[2]);
    case OP_masked_fill:
        return lc_masked_fill(in[0], in[1], f[0]);
    case OP_softmax:
        return lc_softmax(in[0], d);
    case OP_log_softmax:
        return lc_log_softmax(in[0], d);
    case OP_cumsum:
        return lc_cumsum(in[0], d);
    case OP_topk: /* ints: dim, k, smallest */
        return lc_topk(in[0], NULL, i[1], d, .smallest = i[2]);
    case OP_sort: /* ints: dim, descending */
        return lc_sort(in[0], NULL, d, i[1]);
    case OP_argmax: /* ints: dim, keepdim */
        return lc_argmax(in[0], .dim = d, .keepdim = i[1]);
    case OP_argmin:
        return lc_argmin(in[0], .dim = d, .keepdim = i[1]);
    case OP_reshape:
        return lc_reshape_at(in[0], c->n_i, i, LC_HERE);
    case OP_flatten:
        return lc_flatten(in[0], d);
    case OP_unflatten:
        return lc_unflatten(in[0], d, i[1]);
    case OP_permute:
        return lc_permute_at(in[0], c->n_i, i, LC_HERE);
    case OP_transpose:
        return lc_transpose(in[0], d, (int)i[1]);
    case OP_slice:
        return lc_slice(in[0], d, i[1], i[2]);
    case OP_select:
        return lc_select(in[0], d, i[1]);
    case OP_squeeze:
        return lc_squeeze(in[0], d);
    case OP_unsqueeze:
        return lc_unsqueeze(in[0], d);
    case OP_expand:
        return lc_expand_at(in[0], c->n_i, i, LC_HERE);
    case OP_split:
    case OP_chunk:
        return parts_op(c, in[0]);
    case OP_cat:
        return lc_cat_at(d, c->n_in, in, LC_HERE);
    case OP_stack:
        return lc_stack_at(d, c->n_in, in, LC_HERE);
    case OP_pad:
        return lc_pad_at(in[0], f[0], c->n_i, i, LC_HERE);
    case OP_flip:
        return lc_flip_at(in[0], c->n_i, i, LC_HERE);
    case OP_tril:
        return lc_tril(in[0], d);
    case OP_triu:
        return lc_triu(in[0], d);
    case OP_gather:
        return lc_gather(in[0], d, in[1]);
    case OP_index_select:
        return lc_index_select(in[0], d, in[1]);
    case OP_scatter_add:
        return lc_scatter_add(in[0], d, in[1], in[2]);
    case OP_index_add:
        return lc_index_add(in[0], d, in[1], in[2]);
    case OP_embedding: /* ints: whether there is a padding row, which one */
        return lc_embedding(in[0], in[1], .padding_idx = i[0] ? i[1] : LC_UNSET);
    case OP_full:
        return lc_full_at(f[0], dtype, c->n_i, i, LC_HERE);
    case OP_cosine_similarity:
        return lc_cosine_similarity(in[0], in[1], d);
    case OP_matmul:
        return lc_matmul(in[0], in[1]);
    case OP_linear:
        return lc_linear(in[0], in[1], in[2]);
    case OP_conv1d:
    case OP_conv2d:
    case OP_conv3d:
    case OP_conv_transpose1d:
    case OP_conv_transpose2d:
    case OP_conv_transpose3d:
        return conv_op(c, in);
    case OP_max_pool1d:
    case OP_avg_pool1d:
    case OP_max_pool2d:
    case OP_avg_pool2d:
        return pool_op(c, in[0]);
    case OP_adaptive_avg_pool2d:
        return lc_adaptive_avg_pool2d(in[0], i[0], i[1]);
    case OP_interpolate: /* ints: mode, height, width, align_corners */
        return lc_interpolate(in[0], (lc_interpolate_mode)i[0], .output_size = LC_DIMS(i[1], i[2]), .align_corners = i[3]);
    case OP_interpolate_by: /* ints: mode, align_corners; floats: the factors */
        return lc_interpolate(in[0], (lc_interpolate_mode)i[0], .scale = f[0], .scale_w = f[1], .align_corners = i[1]);
    case OP_pixel_shuffle:
        return lc_pixel_shuffle(in[0], i[0]);
    case OP_pixel_unshuffle:
        return lc_pixel_unshuffle(in[0], i[0]);
    case OP_batch_norm: /* x, w?, b?, running mean?, variance?; ints: training; floats: momentum, eps */
        return lc_batch_norm(in[0], in[1], in[2], .running_mean = in[3], .running_var = in[4], .training = i[0],
                             .momentum = f[0], .eps = f[1]);
    case OP_layer_norm: /* ints: dims */
        return lc_layer_norm(in[0], in[1], in[2], .dims = d, .eps = f[0]);
    case OP_rms_norm:
        return lc_rms_norm(in[0], in[1], .dims = d, .eps = f[0]);
    case OP_group_norm: /* ints: groups */
        return lc_group_norm(in[0], i[0], in[1], in[2], .eps = f[0]);
    case OP_cross_entropy:
    case OP_nll_loss:
        return classes_op(c, in);
    case OP_sdpa: /* q, k, v, mask?; ints: causal */
        return lc_sdpa(in[0], in[1], in[2], .mask = in[3], .causal = i[0],
                       .scale = f[0] != 0 ? f[0] : LC_NOT_GIVEN);
    case OP_lstm:
    case OP_gru:
        return rnn_op(c, in);
    default:
        return NULL;
    }
}

/* clang-format on */

/* ---- a run ---- */

static inline void note_tensor(record *r, lc_tensor *t, int step, const char *kind, int at)
{
    static _Alignas(8) char bytes[8 * 8192];
    const lc_type *type = lc_tensor_type(t);
    int64_t n = lc_tensor_numel(t);
    if (r->n == MAX_NOTES || r->used + n > MAX_NUMBERS || n > 8192) return;
    note *o = &r->notes[r->n];
    snprintf(o->name, sizeof o->name, "%d.%s%d", step, kind, at);
    o->ndim = type->ndim;
    memcpy(o->shape, type->shape, sizeof o->shape);
    o->at = r->used;
    o->n = n;
    lc_dtype dtype = type->dtype; /* reading may run the step, and so free what `type` points to */
    if (lc_tensor_read(t, bytes, (size_t)n * lc_dtype_size(dtype)) < 0) {
        if (!r->error[0]) snprintf(r->error, sizeof r->error, "%s", lc_error_message());
        return;
    }
    for (int64_t i = 0; i < n; i++)
        r->numbers[r->used + i] = lc__load_number(bytes + (size_t)i * lc_dtype_size(dtype), dtype);
    r->used += n;
    r->n++;
}

static inline lc_tensor *leaf_new(const leaf *l, lc_dtype dtype, const double *shift, double noise)
{
    static _Alignas(8) char bytes[8 * MAX_LEAF];
    lc_tensor *t;
    int64_t n = leaf_numel(l);
    lc_dtype own = l->kind == IDS ? LC_I64 : l->kind == MASK ? LC_BOOL : dtype;
    CHECK_OK(lc_tensor_new_layout(own, l->ndim, l->shape, l->layout, &t));
    for (int64_t i = 0; i < n; i++) {
        double v = l->values[i] + (shift ? shift[i] : 0);
        if (lc_dtype_is_float(own)) v *= 1 + noise * sin(v * 1234.5);
        lc__store_number(bytes + (size_t)i * lc_dtype_size(own), own, v);
    }
    CHECK_OK(lc_tensor_write(t, bytes, (size_t)n * lc_dtype_size(own)));
    lc_tensor_set_requires_grad(t, l->kind == PARAMETER);
    return t;
}

static inline lc_tensor *with_noise(lc_tensor *x, const run_mode *h)
{
    if (!lc_dtype_is_float(lc_tensor_dtype(x))) return x;
    lc_no_grad_begin();
    lc_tensor *off = lc_sin(lc_add_scalar(lc_mul_scalar(lc_detach(x), 1234.5), h->phase));
    if (h->phase < 0) off = lc_randn_like(x); /* ties are broken */
    lc_tensor *factor = lc_add_scalar(lc_mul_scalar(off, h->noise), 1);
    lc_no_grad_end();
    return lc_mul(x, factor);
}

static inline void run_program(const program *p, const run_mode *h, record *r)
{
    lc_graph *g;
    lc_dtype dtype = h->dtype ? h->dtype : p->dtype;
    lc_tensor *leaves[MAX_LEAVES], *v[MAX_CODE], *kept[MAX_CODE], *losses[MAX_CODE];
    const double *shift = h->shift;
    r->n = 0, r->used = 0, r->error[0] = 0;
    if (h->unplanned) setenv("LIGHTC_PLAN", "off", 1);
    if (h->reference) setenv("LIGHTC_KERNELS", "reference", 1);
    lc_status made = lc_graph_new(&g, .threads = 2, .seed = p->seed, .autocast = h->dtype ? 0 : p->autocast,
                                  .storage = h->dtype ? 0 : p->storage);
    if (h->unplanned) unsetenv("LIGHTC_PLAN");
    if (h->reference) unsetenv("LIGHTC_KERNELS");
    CHECK_OK(made);
    for (int k = 0; k < p->n_leaves; k++) {
        const leaf *l = &p->leaves[k];
        leaves[k] = leaf_new(l, h->dtype || !l->low ? dtype : l->low, l->kind == PARAMETER ? shift : NULL,
                             h->rounds_leaves ? h->noise : 0);
        if (shift && l->kind == PARAMETER) shift += leaf_numel(l);
        if (p->storage && !h->dtype && l->kind == PARAMETER && lc_tensor_dtype(leaves[k]) == LC_F32)
            CHECK_OK(lc__tensor_store(leaves[k], p->storage));
    }
    for (int step = 0; step < p->steps && !r->error[0]; step++) {
        bool assigned[MAX_LEAVES] = {false}, region = false;
        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));
        if (step != 1) lc_zero_grad(g); /* the second step adds to the gradients of the first */
        for (int k = 0; k < p->n; k++) {
            const instr *c = &p->code[k];
            lc_tensor *in[6] = {NULL};
            for (int j = 0; j < c->n_in; j++) in[j] = c->in[j] < 0 ? NULL : v[c->in[j]];
            v[k] = kept[k] = losses[k] = NULL;
            if (c->no_grad) lc_no_grad_begin();
            if (c->turns_autocast) lc_autocast_begin(!p->autocast);
            if (c->op == OP_leaf) {
                v[k] = leaves[c->i[0]];
            } else if (c->op == OP_assign) {
                lc_assign(in[0], h->rounds_leaves ? with_noise(in[1], h) : in[1]);
                for (int j = 0; j < p->n_leaves; j++) assigned[j] |= leaves[j] == in[0];
            } else if (c->op == OP_backward) {
                if (region) lc_checkpoint_end(), region = false;
                lc_tensor *loss = lc_tensor_numel(in[0]) == 1 ? in[0] : lc_mul_scalar(lc_sum(in[0]), 0.375);
                losses[k] = lc_keep(loss);
                lc_backward(loss);
            } else if (c->op == OP_keep) {
                kept[k] = lc_keep(in[0]);
            } else if (c->op == OP_read) {
                note_tensor(r, in[0], step, "read", k);
            } else if (c->op == OP_checkpoint_begin) {
                if (!region) lc_checkpoint_begin(), region = true;
            } else if (c->op == OP_checkpoint_end) {
                if (region) lc_checkpoint_end(), region = false;
            } else {
                v[k] = apply(c, in, dtype);
                if (h->noise && !is_view(c) && !lc_tensor_is_error(v[k])) v[k] = with_noise(v[k], h);
                if (is_draw(c->op)) kept[k] = lc_keep(v[k]);
            }
            if (c->turns_autocast) lc_autocast_end();
            if (c->no_grad) lc_no_grad_end();
            if (v[k] && lc_tensor_is_error(v[k])) break;
        }
        if (region) lc_checkpoint_end();
        lc_tensor *gradients[MAX_LEAVES];
        for (int k = 0; k < p->n_leaves; k++)
            gradients[k] = p->leaves[k].kind == PARAMETER ? lc_keep(lc_gradient(leaves[k])) : NULL;
        if (lc_step_run(g) < 0) {
            if (!r->error[0]) snprintf(r->error, sizeof r->error, "%s", lc_error_message());
        } else {
            for (int k = 0; k < p->n; k++) {
                if (kept[k]) note_tensor(r, kept[k], step, is_draw(p->code[k].op) ? "draw" : "keep", k);
                if (losses[k]) note_tensor(r, losses[k], step, "loss", k);
            }
            for (int k = 0; k < p->n_leaves; k++)
                if (gradients[k]) note_tensor(r, gradients[k], step, "grad", k);
        }
        lc_status ended = lc_step_end(g);
        if (ended < 0 && !r->error[0]) snprintf(r->error, sizeof r->error, "%s", lc_error_message());
        for (int k = 0; k < p->n_leaves; k++)
            if (p->leaves[k].kind == BUFFER || assigned[k]) note_tensor(r, leaves[k], step, "state", k);
    }
    for (int k = 0; k < p->n_leaves; k++) lc_tensor_unref(leaves[k]);
    lc_graph_free(g);
}

#endif
