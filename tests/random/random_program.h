/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as data: a list of operators over leaves, which runs here (random_program_run.h) and in PyTorch
 * (torch/judge.py), can be shrunk (random_program_shrink.h), and is printed as
 *
 *   12 conv2d 3 7 -1 ; 1 1 0 0 1 1 1 ;
 *
 * which means: value 12 is conv2d of the values 3 and 7 without a bias; then come its ints, then its floats. A leading
 * '@' says that the operator is called where no gradient is recorded, '~' that it is called in a region that turns
 * autocast off, or on if the graph has none. */
#ifndef LC_TESTS_RANDOM_PROGRAM_H
#define LC_TESTS_RANDOM_PROGRAM_H

#include "test.h"

#include <lightc/lightc.h>

#define MAX_CODE   64
#define MAX_LEAVES 32
#define MAX_LEAF   512 /* elements */

/* clang-format off */
#define UNARY_LIST(X) \
    X(neg) X(exp) X(expm1) X(log1p) X(sqrt) X(rsqrt) X(reciprocal) X(abs) X(sign) X(floor) X(ceil) X(round) \
    X(square) X(sin) X(cos) X(tanh) X(sigmoid) X(erf) X(ln) X(relu) X(relu6) X(silu) X(softplus) X(softsign) \
    X(logsigmoid) X(hardswish) X(hardsigmoid) X(mish) X(selu) X(contiguous) X(detach)
#define BINARY_LIST(X)  X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum) X(xlogy)
#define COMPARE_LIST(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(logical_and) X(logical_or) X(logical_xor)
#define SCALAR_LIST(X)  X(add_scalar) X(sub_scalar) X(rsub_scalar) X(mul_scalar) X(div_scalar) X(pow_scalar)
/* ints: keepdim, dimensions; floats: the correction, or p. */
#define REDUCE_LIST(X) X(sum) X(mean) X(amax) X(amin) X(var) X(std) X(norm) X(logsumexp)
/* x, target, weight?, pos_weight?; ints: reduction, log_target; floats: beta or delta. */
#define LOSS_LIST(X) X(mse_loss) X(l1_loss) X(smooth_l1_loss) X(huber_loss) X(bce_with_logits) X(kl_div)
/* Operators that draw numbers. floats: p; low and high; mean and deviation, of a shape given by the ints. */
#define RANDOM_LIST(X) X(dropout) X(bernoulli) X(rand_like) X(randn_like) X(uniform) X(normal)
/* The ints and floats of the following operators are in random_program_run.h. */
#define OTHER_LIST(X) \
    X(leaf) X(leaky_relu) X(elu) X(gelu) X(clamp) X(hardtanh) X(prelu) X(glu) X(through_f64) X(where) \
    X(masked_fill) X(softmax) X(log_softmax) X(cumsum) X(topk) X(sort) X(argmax) X(argmin) X(reshape) \
    X(flatten) X(unflatten) X(permute) X(transpose) X(slice) X(select) X(squeeze) X(unsqueeze) X(expand) \
    X(split) X(chunk) X(cat) X(stack) X(pad) X(flip) X(tril) X(triu) X(gather) X(index_select) X(scatter_add) \
    X(index_add) X(embedding) X(full) X(cosine_similarity) X(matmul) X(linear) X(conv1d) X(conv2d) X(conv3d) \
    X(conv_transpose1d) X(conv_transpose2d) X(conv_transpose3d) X(max_pool1d) X(avg_pool1d) X(max_pool2d) \
    X(avg_pool2d) X(adaptive_avg_pool2d) X(interpolate) X(interpolate_by) X(pixel_shuffle) X(pixel_unshuffle) \
    X(batch_norm) X(layer_norm) X(rms_norm) X(group_norm) X(cross_entropy) X(nll_loss) X(sdpa) X(lstm) X(gru)
/* Operators that are called for an effect and have no value. */
#define EFFECT_LIST(X) X(assign) X(backward) X(keep) X(read) X(checkpoint_begin) X(checkpoint_end)

#define ALL_LISTS(X)                                                                                                   \
    UNARY_LIST(X) BINARY_LIST(X) COMPARE_LIST(X) SCALAR_LIST(X) REDUCE_LIST(X) LOSS_LIST(X) RANDOM_LIST(X) OTHER_LIST(X) EFFECT_LIST(X)

typedef enum op_id {
#define OP_ENUM(name) OP_##name,
    ALL_LISTS(OP_ENUM)
#undef OP_ENUM
        N_OPS
} op_id;

static const char *const op_names[] = {
#define OP_NAME(name) #name,
    ALL_LISTS(OP_NAME)
#undef OP_NAME
};
/* clang-format on */

typedef enum leaf_kind { PARAMETER, BUFFER, INPUT, IDS, MASK } leaf_kind;
static const char *const leaf_names[] = {"parameter", "buffer", "input", "ids", "mask"};

typedef struct leaf {
    leaf_kind kind;
    lc_layout layout;
    int ndim;
    int64_t shape[LC_MAX_DIMS];
    double values[MAX_LEAF];
    lc_dtype low; /* LC_BF16 or LC_F16; 0: the type of the program */
} leaf;

typedef struct instr {
    op_id op;
    bool no_grad, turns_autocast;
    int n_in, in[6]; /* values, by the index of the instruction that made them; -1: none */
    int n_i;
    int64_t i[16];
    int n_f;
    double f[4];
} instr;

typedef struct program {
    lc_dtype dtype;             /* LC_F32 or LC_F64, the type of everything except indices and conditions */
    lc_dtype autocast, storage; /* of the graph; 0: none */
    int steps, n, n_leaves;
    uint64_t seed; /* of the drawn numbers */
    instr code[MAX_CODE];
    leaf leaves[MAX_LEAVES];
} program;

static inline bool is_effect(op_id op)
{
    return op >= OP_assign;
}

static inline bool is_draw(op_id op)
{
    return op >= OP_dropout && op <= OP_normal;
}

/* Whether the result of an instruction shares the memory of its input if strides can express it, so that it shows what
 * is assigned to that later. */
static inline bool is_view(const instr *c)
{
    static const op_id views[] = {OP_detach, OP_reshape, OP_flatten, OP_unflatten, OP_permute, OP_transpose,
                                  OP_slice,  OP_select,  OP_squeeze, OP_unsqueeze, OP_expand};
    for (size_t k = 0; k < sizeof views / sizeof *views; k++)
        if (c->op == views[k]) return true;
    return (c->op == OP_split || c->op == OP_chunk) && c->i[2] >= 0;
}

static inline int64_t leaf_numel(const leaf *l)
{
    int64_t n = 1;
    for (int i = 0; i < l->ndim; i++) n *= l->shape[i];
    return n;
}

static inline void print_instr(FILE *f, const instr *c, int at)
{
    fprintf(f, "%d %s%s%s", at, c->no_grad ? "@" : "", c->turns_autocast ? "~" : "", op_names[c->op]);
    for (int k = 0; k < c->n_in; k++) fprintf(f, " %d", c->in[k]);
    fprintf(f, " ;");
    for (int k = 0; k < c->n_i; k++) fprintf(f, " %lld", (long long)c->i[k]);
    fprintf(f, " ;");
    for (int k = 0; k < c->n_f; k++) fprintf(f, " %.17g", c->f[k]);
    fprintf(f, "\n");
}

/* Everything that torch/judge.py needs. `values`: with those of the leaves. */
static inline void print_program(FILE *f, const program *p, bool values)
{
    fprintf(f, "program %s %d %llu\n", p->dtype == LC_F64 ? "f64" : "f32", p->steps, (unsigned long long)p->seed);
    for (int k = 0; k < p->n_leaves; k++) {
        const leaf *l = &p->leaves[k];
        bool used = false;
        for (int j = 0; j < p->n; j++) used |= p->code[j].op == OP_leaf && p->code[j].i[0] == k;
        if (!used && !values) continue;
        fprintf(f, "leaf %d %s%s", k, leaf_names[l->kind], l->layout == LC_CHANNELS_LAST ? "/channels_last" : "");
        for (int i = 0; i < l->ndim; i++) fprintf(f, " %lld", (long long)l->shape[i]);
        fprintf(f, " :");
        int64_t n = leaf_numel(l);
        for (int64_t i = 0; i < n && (values || i < 6); i++) fprintf(f, values ? " %.17g" : " %.9g", l->values[i]);
        fprintf(f, "%s\n", values || n <= 6 ? "" : " ...");
    }
    for (int k = 0; k < p->n; k++) print_instr(f, &p->code[k], k);
}

#endif
