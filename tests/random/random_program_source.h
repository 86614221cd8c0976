/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a program of random_program.h as a self-contained C test, so that a failure can be examined without the code
 * that drew it. */
#ifndef LC_TESTS_RANDOM_PROGRAM_SOURCE_H
#define LC_TESTS_RANDOM_PROGRAM_SOURCE_H

#include "random_program.h"

/* How to call an operator, unless its name and inputs are enough: $0 is an input, #0 an int, #* all ints, @0 a float,
 * %d the data type. */
static const char *const templates[N_OPS] = {
    [OP_dropout] = "lc_dropout($0, @0)",
    [OP_uniform] = "lc_uniform(#N, ((int64_t[]){#*}), .dtype = %d, .low = @0, .high = @1)",
    [OP_normal] = "lc_normal(#N, ((int64_t[]){#*}), .dtype = %d, .mean = @0, .std = @1)",
    [OP_leaky_relu] = "lc_leaky_relu($0, .slope = @0)",
    [OP_elu] = "lc_elu($0, .slope = @0)",
    [OP_gelu] = "lc_gelu($0, .tanh = #0)",
    [OP_clamp] = "lc_clamp($0, .min = #0 ? @0 : LC_NOT_GIVEN, .max = #1 ? @1 : LC_NOT_GIVEN)",
    [OP_hardtanh] = "lc_hardtanh($0, @0, @1)",
    [OP_glu] = "lc_glu($0, #0)",
    [OP_through_f64] = "lc_cast(lc_square(lc_cast($0, LC_F64)), %d)",
    [OP_masked_fill] = "lc_masked_fill($0, $1, @0)",
    [OP_softmax] = "lc_softmax($0, #0)",
    [OP_log_softmax] = "lc_log_softmax($0, #0)",
    [OP_cumsum] = "lc_cumsum($0, #0)",
    [OP_topk] = "lc_topk($0, NULL, #1, #0, .smallest = #2)",
    [OP_sort] = "lc_sort($0, NULL, #0, #1)",
    [OP_argmax] = "lc_argmax($0, .dim = #0, .keepdim = #1)",
    [OP_argmin] = "lc_argmin($0, .dim = #0, .keepdim = #1)",
    [OP_reshape] = "lc_reshape($0, #*)",
    [OP_flatten] = "lc_flatten($0, #0)",
    [OP_unflatten] = "lc_unflatten($0, #0, #1)",
    [OP_permute] = "lc_permute($0, #*)",
    [OP_transpose] = "lc_transpose($0, #0, #1)",
    [OP_slice] = "lc_slice($0, #0, #1, #2)",
    [OP_select] = "lc_select($0, #0, #1)",
    [OP_squeeze] = "lc_squeeze($0, #0)",
    [OP_unsqueeze] = "lc_unsqueeze($0, #0)",
    [OP_expand] = "lc_expand($0, #*)",
    [OP_cat] = "lc_cat(#0, $*)",
    [OP_stack] = "lc_stack(#0, $*)",
    [OP_pad] = "lc_pad_value($0, @0, #*)",
    [OP_flip] = "lc_flip($0, #*)",
    [OP_tril] = "lc_tril($0, #0)",
    [OP_triu] = "lc_triu($0, #0)",
    [OP_gather] = "lc_gather($0, #0, $1)",
    [OP_index_select] = "lc_index_select($0, #0, $1)",
    [OP_scatter_add] = "lc_scatter_add($0, #0, $1, $2)",
    [OP_index_add] = "lc_index_add($0, #0, $1, $2)",
    [OP_embedding] = "lc_embedding($0, $1, .padding_idx = #0 ? #1 : LC_UNSET)",
    [OP_full] = "lc_full(@0, %d, #*)",
    [OP_cosine_similarity] = "lc_cosine_similarity($0, $1, #0)",
    [OP_adaptive_avg_pool2d] = "lc_adaptive_avg_pool2d($0, #0, #1)",
    [OP_interpolate] = "lc_interpolate($0, #0, .output_size = LC_DIMS(#1, #2), .align_corners = #3)",
    [OP_interpolate_by] = "lc_interpolate($0, #0, .scale = @0, .scale_w = @1, .align_corners = #1)",
    [OP_pixel_shuffle] = "lc_pixel_shuffle($0, #0)",
    [OP_pixel_unshuffle] = "lc_pixel_unshuffle($0, #0)",
    [OP_batch_norm] =
        "lc_batch_norm($0, $1, $2, .running_mean = $3, .running_var = $4, .training = #0, .momentum = @0, "
        ".eps = @1)",
    [OP_layer_norm] = "lc_layer_norm($0, $1, $2, .dims = #0, .eps = @0)",
    [OP_rms_norm] = "lc_rms_norm($0, $1, .dims = #0, .eps = @0)",
    [OP_group_norm] = "lc_group_norm($0, #0, $1, $2, .eps = @0)",
    [OP_sdpa] = "lc_sdpa($0, $1, $2, .mask = $3, .causal = #0, .scale = @0 != 0 ? @0 : LC_NOT_GIVEN)",
    [OP_cross_entropy] = "lc_cross_entropy($0, $1, .weight = $2, .reduction = #0, "
                         ".ignore_index = #1 ? #2 : -100, .label_smoothing = @0)",
    [OP_nll_loss] = "lc_nll_loss($0, $1, .weight = $2, .reduction = #0, .ignore_index = #1 ? #2 : -100)",
#define POOL_END ", .ceil_mode = #8, .exclude_pad = #9, .divisor = #10)"
#define POOL1D(name)                                                                                                   \
    [OP_##name] =                                                                                                      \
        "lc_" #name                                                                                                    \
        "($0, #0, .kernel_w = #1, .stride = LC_DIMS(#2), .padding = LC_DIMS(#4), .dilation = LC_DIMS(#6)" POOL_END
#define POOL2D(name)                                                                                                   \
    [OP_##name] = "lc_" #name "($0, #0, .kernel_w = #1, .stride = LC_DIMS(#2, #3), .padding = LC_DIMS(#4, #5), "       \
                  ".dilation = LC_DIMS(#6, #7)" POOL_END
    POOL1D(max_pool1d),
    POOL1D(avg_pool1d),
    POOL2D(max_pool2d),
    POOL2D(avg_pool2d),
#undef POOL2D
#undef POOL1D
#undef POOL_END
};

static inline void print_float(FILE *f, double x)
{
    if (isfinite(x))
        fprintf(f, "%.17g", x);
    else
        fprintf(f, "%sINFINITY", x < 0 ? "-" : "");
}

/* The name of a value: that of its leaf, or of the instruction that made it. */
static inline void print_value(FILE *f, const program *p, int at)
{
    if (at < 0)
        fprintf(f, "NULL");
    else if (p->code[at].op == OP_leaf)
        fprintf(f, "l%lld", (long long)p->code[at].i[0]);
    else
        fprintf(f, "v%d", at);
}

static inline void print_inputs(FILE *f, const program *p, const instr *c, int n)
{
    for (int k = 0; k < n; k++) {
        fprintf(f, "%s", k ? ", " : "");
        print_value(f, p, c->in[k]);
    }
}

static inline void print_ints(FILE *f, const int64_t *i, int n)
{
    for (int k = 0; k < n; k++) fprintf(f, "%s%lld", k ? ", " : "", (long long)i[k]);
}

static inline void print_template(FILE *f, const program *p, const instr *c)
{
    const char *dtype = p->dtype == LC_F64 ? "LC_F64" : "LC_F32";
    for (const char *t = templates[c->op]; *t; t++) {
        int at = t[1] >= '0' && t[1] <= '9' ? atoi(t + 1) : -1;
        if (!strchr("$#@%", *t)) {
            fputc(*t, f);
            continue;
        }
        if (*t == '%')
            fprintf(f, "%s", dtype);
        else if (*t == '@')
            print_float(f, c->f[at]);
        else if (*t == '$' && at >= 0)
            print_value(f, p, c->in[at]);
        else if (*t == '$')
            print_inputs(f, p, c, c->n_in);
        else if (t[1] == 'N')
            fprintf(f, "%d", c->n_i);
        else if (at >= 0)
            fprintf(f, "%lld", (long long)c->i[at]);
        else
            print_ints(f, c->i, c->n_i);
        t += at > 9 ? 2 : 1;
    }
}

static inline void print_reduce(FILE *f, const program *p, const instr *c)
{
    fprintf(f, "lc_%s(", op_names[c->op]);
    print_inputs(f, p, c, 1);
    if (c->n_i > 1) {
        fprintf(f, ", .dims = LC_DIMS(");
        print_ints(f, c->i + 1, c->n_i - 1);
        fprintf(f, ")");
    }
    fprintf(f, ", .keepdim = %lld", (long long)c->i[0]);
    if (c->n_f) {
        fprintf(f, ", .%s = ", c->op == OP_norm ? "p" : "correction");
        print_float(f, c->f[0]);
    }
    fprintf(f, ")");
}

static inline void print_loss(FILE *f, const program *p, const instr *c)
{
    fprintf(f, "lc_%s(", op_names[c->op]);
    print_inputs(f, p, c, 2);
    fprintf(f, ", .reduction = %lld, .log_target = %lld, .weight = ", (long long)c->i[0], (long long)c->i[1]);
    print_value(f, p, c->in[2]);
    fprintf(f, ", .pos_weight = ");
    print_value(f, p, c->in[3]);
    if (c->op == OP_smooth_l1_loss) fprintf(f, ", .beta = %.17g", c->f[0]);
    if (c->op == OP_huber_loss) fprintf(f, ", .delta = %.17g", c->f[0]);
    fprintf(f, ")");
}

static inline void print_conv(FILE *f, const program *p, const instr *c)
{
    static const char *const names[] = {"stride", "padding", "dilation", "output_padding"};
    int nd = 1 + (int)(c->op >= OP_conv_transpose1d ? c->op - OP_conv_transpose1d : c->op - OP_conv1d);
    fprintf(f, "lc_%s(", op_names[c->op]);
    print_inputs(f, p, c, 3);
    for (int k = 0; k < 4; k++) {
        fprintf(f, ", .%s = LC_DIMS(", names[k]);
        print_ints(f, c->i + k * nd, nd);
        fprintf(f, ")");
    }
    fprintf(f, ", .groups = %lld)", (long long)c->i[4 * nd]);
}

static inline void print_rnn(FILE *f, const program *p, const instr *c, int at)
{
    bool lstm = c->op == OP_lstm;
    fprintf(f, "        lc_tensor *h%d, *c%d = NULL, *y%d = lc_%s(", at, at, at, op_names[c->op]);
    print_inputs(f, p, c, 3);
    fprintf(f, ", .b_ih = ");
    print_value(f, p, c->in[3]);
    fprintf(f, ", .b_hh = ");
    print_value(f, p, c->in[4]);
    fprintf(f, ", .h0 = ");
    print_value(f, p, c->in[5]);
    if (lstm) {
        fprintf(f, ", .c0 = ");
        print_value(f, p, c->in[5]);
        fprintf(f, ", .c_n = &c%d", at);
    }
    fprintf(f, ", .h_n = &h%d);\n", at);
    if (lstm) fprintf(f, "        h%d = lc_add(h%d, c%d);\n", at, at, at);
    const char *const results[] = {"y%d", "h%d", "lc_mul(y%d, lc_unsqueeze(h%d, 1))"};
    fprintf(f, "        lc_tensor *v%d = ", at);
    if (c->i[0] == 0) fprintf(f, results[0], at);
    if (c->i[0] == 1) fprintf(f, results[1], at);
    if (c->i[0] == 2) fprintf(f, results[2], at, at);
    fprintf(f, ";\n        (void)h%d, (void)c%d, (void)y%d, (void)v%d;\n", at, at, at, at);
}

static inline void print_parts(FILE *f, const program *p, const instr *c, int at)
{
    fprintf(f, "        lc_tensor *parts%d[64], *v%d;\n        int n%d = lc_%s(", at, at, at, op_names[c->op]);
    print_inputs(f, p, c, 1);
    fprintf(f, c->op == OP_split ? ", %lld, %lld, 64, parts%d);\n" : ", %lld, %lld, parts%d);\n", (long long)c->i[0],
            (long long)c->i[1], at);
    if (c->i[2] >= 0)
        fprintf(f, "        v%d = parts%d[%lld %% n%d];\n", at, at, (long long)c->i[2], at);
    else
        fprintf(f,
                "        v%d = lc_sum(lc_mul_scalar(parts%d[n%d - 1], 2), .dims = LC_DIMS(%lld), .keepdim = true);\n",
                at, at, at, (long long)c->i[1]);
    fprintf(f, "        (void)v%d;\n", at);
}

static inline void print_call(FILE *f, const program *p, int at)
{
    const instr *c = &p->code[at];
    if (c->op == OP_lstm || c->op == OP_gru) {
        print_rnn(f, p, c, at);
        return;
    }
    if (c->op == OP_split || c->op == OP_chunk) {
        print_parts(f, p, c, at);
        return;
    }
    fprintf(f, "        lc_tensor *v%d = ", at);
    if (templates[c->op]) {
        print_template(f, p, c);
    } else if (c->op >= OP_sum && c->op <= OP_logsumexp) {
        print_reduce(f, p, c);
    } else if (c->op >= OP_mse_loss && c->op <= OP_kl_div) {
        print_loss(f, p, c);
    } else if (c->op >= OP_conv1d && c->op <= OP_conv_transpose3d) {
        print_conv(f, p, c);
    } else {
        fprintf(f, "lc_%s(", op_names[c->op]);
        print_inputs(f, p, c, c->n_in);
        for (int k = 0; k < c->n_f; k++) fprintf(f, ", "), print_float(f, c->f[k]);
        fprintf(f, ")");
    }
    fprintf(f, ";\n        (void)v%d;\n", at);
}

static inline void print_leaf(FILE *f, const program *p, int k)
{
    const leaf *l = &p->leaves[k];
    fprintf(f, "    lc_tensor *l%d;\n    CHECK_OK(lc_tensor_new_layout(%s, %d, (int64_t[]){", k,
            l->kind == IDS       ? "LC_I64"
            : l->kind == MASK    ? "LC_BOOL"
            : p->dtype == LC_F64 ? "LC_F64"
                                 : "LC_F32",
            l->ndim);
    print_ints(f, l->shape, l->ndim);
    fprintf(f, "%s}, %s, &l%d));\n    fill(l%d, (double[]){", l->ndim ? "" : "0",
            l->layout == LC_CHANNELS_LAST ? "LC_CHANNELS_LAST" : "LC_ROW_MAJOR", k, k);
    for (int64_t i = 0; i < leaf_numel(l); i++) fprintf(f, "%s%.17g", i ? ", " : "", l->values[i]);
    fprintf(f, "%s});\n", leaf_numel(l) ? "" : "0");
    if (l->kind == PARAMETER) fprintf(f, "    lc_tensor_set_requires_grad(l%d, true);\n", k);
}

static inline bool uses_leaf(const program *p, int k)
{
    for (int j = 0; j < p->n; j++)
        if (p->code[j].op == OP_leaf && p->code[j].i[0] == k) return true;
    return false;
}

/* The steps, in the order of run_program. */
static inline void print_steps(FILE *f, const program *p)
{
    bool region = false, assigned[MAX_LEAVES] = {false};
    for (int k = 0; k < p->n; k++) {
        const instr *c = &p->code[k];
        if (c->op == OP_leaf) continue;
        if (c->no_grad) fprintf(f, "        lc_no_grad_begin();\n");
        if (c->op == OP_assign) {
            fprintf(f, "        lc_assign(");
            print_inputs(f, p, c, 2);
            fprintf(f, ");\n");
            assigned[p->code[c->in[0]].i[0]] = true;
        } else if (c->op == OP_backward) {
            if (region) fprintf(f, "        lc_checkpoint_end();\n"), region = false;
            fprintf(f, "        lc_tensor *loss%d = ", k);
            print_inputs(f, p, c, 1);
            fprintf(f, ";\n        if (lc_tensor_numel(loss%d) != 1) loss%d = lc_mul_scalar(lc_sum(loss%d), 0.375);\n",
                    k, k, k);
            fprintf(f, "        lc_keep(loss%d);\n        lc_backward(loss%d);\n", k, k);
        } else if (c->op == OP_keep) {
            fprintf(f, "        lc_keep(");
            print_inputs(f, p, c, 1);
            fprintf(f, ");\n");
        } else if (c->op == OP_read) {
            fprintf(f, "        show(step, \"read%d\", ", k);
            print_inputs(f, p, c, 1);
            fprintf(f, ");\n");
        } else if (c->op == OP_checkpoint_begin || c->op == OP_checkpoint_end) {
            bool begins = c->op == OP_checkpoint_begin;
            if (region != begins) fprintf(f, "        lc_checkpoint_%s();\n", begins ? "begin" : "end");
            region = begins;
        } else {
            print_call(f, p, k);
            if (is_draw(c->op)) fprintf(f, "        lc_keep(v%d);\n", k);
        }
        if (c->no_grad) fprintf(f, "        lc_no_grad_end();\n");
    }
    if (region) fprintf(f, "        lc_checkpoint_end();\n");
    for (int k = 0; k < p->n_leaves; k++)
        if (p->leaves[k].kind == PARAMETER && uses_leaf(p, k))
            fprintf(f, "        lc_tensor *grad%d = lc_keep(lc_gradient(l%d));\n", k, k);
    fprintf(f, "        CHECK_OK(lc_step_run(g));\n");
    for (int k = 0; k < p->n; k++) {
        const instr *c = &p->code[k];
        if (c->op == OP_backward) fprintf(f, "        show(step, \"loss%d\", loss%d);\n", k, k);
        if (is_draw(c->op)) fprintf(f, "        show(step, \"draw%d\", v%d);\n", k, k);
        if (c->op != OP_keep) continue;
        fprintf(f, "        show(step, \"keep%d\", ", k);
        print_inputs(f, p, c, 1);
        fprintf(f, ");\n");
    }
    for (int k = 0; k < p->n_leaves; k++)
        if (p->leaves[k].kind == PARAMETER && uses_leaf(p, k))
            fprintf(f, "        show(step, \"grad%d\", grad%d);\n", k, k);
    fprintf(f, "        CHECK_OK(lc_step_end(g));\n");
    for (int k = 0; k < p->n_leaves; k++)
        if ((p->leaves[k].kind == BUFFER && uses_leaf(p, k)) || assigned[k])
            fprintf(f, "        show(step, \"state%d\", l%d);\n", k, k);
}

/* The definitions that the tests need, once per file; a file ends with TEST_MAIN. */
static inline void print_source_start(FILE *f)
{
    fprintf(f, "/* SPDX-License-Identifier: Apache-2.0 */\n"
               "#include \"op_values.h\"\n\n"
               "static void show(int step, const char *name, lc_tensor *t)\n{\n"
               "    double v[MAX_N];\n"
               "    int64_t n = lc_tensor_numel(t);\n"
               "    fetch(t, v);\n"
               "    printf(\"%%d.%%s :\", step, name);\n"
               "    for (int64_t i = 0; i < n; i++) printf(\" %%.17g\", v[i]);\n"
               "    printf(\"\\n\");\n}\n");
}

static inline void print_source(FILE *f, const program *p, const char *name)
{
    fprintf(f, "\nTEST(%s)\n{\n    lc_graph *g;\n", name);
    fprintf(f, "    CHECK_OK(lc_graph_new(&g, .threads = 2, .seed = %llu));\n", (unsigned long long)p->seed);
    for (int k = 0; k < p->n_leaves; k++)
        if (uses_leaf(p, k)) print_leaf(f, p, k);
    fprintf(f, "    for (int step = 0; step < %d; step++) {\n        CHECK_OK(lc_step_begin(g, (uint64_t)step, 0));\n",
            p->steps);
    fprintf(f, "        if (step != 1) lc_zero_grad(g);\n");
    print_steps(f, p);
    fprintf(f, "    }\n");
    for (int k = 0; k < p->n_leaves; k++)
        if (uses_leaf(p, k)) fprintf(f, "    lc_tensor_unref(l%d);\n", k);
    fprintf(f, "    lc_graph_free(g);\n}\n");
}

#endif
