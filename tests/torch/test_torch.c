/* SPDX-License-Identifier: Apache-2.0 */
/* Layers against the real PyTorch: files of weights go both ways without a converter, layers have the same initial
 * values and compute the same. The other half of each test is a script in tests/torch/. To add a layer: a line in
 * `zoo`, and one of the same name in tests/torch/zoo.py. */
#define _GNU_SOURCE
#include "torch_peer.h"

/* ---- one of each layer ---- */

typedef union any_layer {
    lc_module base;
    lc_linear linear;
    lc_conv conv;
    lc_batch_norm_layer batch_norm;
    lc_norm_layer norm;
    lc_embedding embedding;
    lc_multihead_attention attention;
    lc_rnn rnn;
    lc_sequential sequential;
} any_layer;

typedef struct zoo_case {
    const char *name;
    const char *inputs[3]; /* "4,5": normal numbers of that shape; "i7:2,3": ids below 7 */
    int (*forward)(any_layer *l, lc_tensor **in, lc_tensor **out);
    void (*build)(any_layer *l, void *root, const char *name);
} zoo_case;

static int one(any_layer *l, lc_tensor **in, lc_tensor **out)
{
    out[0] = lc_forward(l, in[0]);
    return 1;
}
static int self_attention(any_layer *l, lc_tensor **in, lc_tensor **out)
{
    out[0] = lc_multihead_attention_forward(&l->attention, in[0]);
    return 1;
}
static int causal_attention(any_layer *l, lc_tensor **in, lc_tensor **out)
{
    out[0] = lc_multihead_attention_forward(&l->attention, in[0], .causal = true);
    return 1;
}
static int cross_attention(any_layer *l, lc_tensor **in, lc_tensor **out)
{
    out[0] = lc_multihead_attention_forward(&l->attention, in[0], .key = in[1], .value = in[2]);
    return 1;
}
static int lstm(any_layer *l, lc_tensor **in, lc_tensor **out)
{
    out[0] = lc_lstm_forward(&l->rnn, in[0], .h0 = in[1], .c0 = in[2], .hn = &out[1], .cn = &out[2]);
    return 3;
}
static int gru(any_layer *l, lc_tensor **in, lc_tensor **out)
{
    out[0] = lc_gru_forward(&l->rnn, in[0], .h0 = in[1], .hn = &out[1]);
    return 2;
}

#define BUILD(id) static void build_##id(any_layer *l, void *root, const char *name)
BUILD(linear)
{
    lc_linear_init(&l->linear, root, name, 5, 7);
}
BUILD(linear_bare)
{
    lc_linear_init(&l->linear, root, name, 5, 7, .no_bias = true);
}
BUILD(conv1d)
{
    lc_conv1d_init(&l->conv, root, name, 4, 6, 3, .groups = 2, .stride = 2, .padding = 1, .dilation = 2);
}
BUILD(conv2d)
{
    lc_conv2d_init(&l->conv, root, name, 3, 16, 3, .padding = 1);
}
BUILD(conv2d_wide)
{
    lc_conv2d_init(&l->conv, root, name, 8, 8, 0, .kernel_sizes = LC_DIMS(1, 5), .strides = LC_DIMS(1, 2),
                   .paddings = LC_DIMS(0, 2), .groups = 8, .no_bias = true);
}
BUILD(conv3d)
{
    lc_conv3d_init(&l->conv, root, name, 2, 3, 2, .stride = 2, .padding = 1);
}
BUILD(conv_transpose1d)
{
    lc_conv_transpose1d_init(&l->conv, root, name, 4, 6, 3, .stride = 2, .padding = 1, .output_padding = 1);
}
BUILD(conv_transpose2d)
{
    lc_conv_transpose2d_init(&l->conv, root, name, 8, 6, 4, .groups = 2, .stride = 2, .padding = 1, .dilation = 2);
}
BUILD(conv_transpose2d_padded)
{
    lc_conv_transpose2d_init(&l->conv, root, name, 4, 6, 3, .stride = 2, .dilation = 3, .output_padding = 2);
}
BUILD(conv_transpose3d)
{
    lc_conv_transpose3d_init(&l->conv, root, name, 2, 3, 2, .stride = 2, .no_bias = true);
}
BUILD(batch_norm1d)
{
    lc_batch_norm1d_init(&l->batch_norm, root, name, 6);
}
BUILD(batch_norm1d_line)
{
    lc_batch_norm1d_init(&l->batch_norm, root, name, 5, .eps = 1e-3, .momentum = 0.3);
}
BUILD(batch_norm2d)
{
    lc_batch_norm2d_init(&l->batch_norm, root, name, 16);
}
BUILD(batch_norm2d_bare)
{
    lc_batch_norm2d_init(&l->batch_norm, root, name, 4, .no_affine = true);
}
BUILD(batch_norm2d_untracked)
{
    lc_batch_norm2d_init(&l->batch_norm, root, name, 4, .no_track_running_stats = true);
}
BUILD(batch_norm3d)
{
    lc_batch_norm3d_init(&l->batch_norm, root, name, 3);
}
BUILD(layer_norm)
{
    lc_layer_norm_init(&l->norm, root, name, 9);
}
BUILD(layer_norm_plane)
{
    lc_layer_norm_init(&l->norm, root, name, 0, .shape = LC_DIMS(3, 5), .no_bias = true, .eps = 1e-3);
}
BUILD(rms_norm)
{
    lc_rms_norm_init(&l->norm, root, name, 9);
}
BUILD(group_norm)
{
    lc_group_norm_init(&l->norm, root, name, 4, 8);
}
BUILD(embedding)
{
    lc_embedding_init(&l->embedding, root, name, 11, 6);
}
BUILD(embedding_padded)
{
    lc_embedding_init(&l->embedding, root, name, 11, 6, .padding_idx = 3);
}
BUILD(attention)
{
    lc_multihead_attention_init(&l->attention, root, name, 16, 4);
}
BUILD(attention_bare)
{
    lc_multihead_attention_init(&l->attention, root, name, 16, 2, .no_bias = true);
}
BUILD(attention_seq_first)
{
    lc_multihead_attention_init(&l->attention, root, name, 16, 4, .seq_first = true);
}
BUILD(lstm)
{
    lc_lstm_init(&l->rnn, root, name, 6, 5);
}
BUILD(lstm_deep)
{
    lc_lstm_init(&l->rnn, root, name, 6, 5, .num_layers = 3, .bidirectional = true);
}
BUILD(lstm_bare)
{
    lc_lstm_init(&l->rnn, root, name, 6, 8, .num_layers = 2, .no_bias = true, .seq_first = true);
}
BUILD(gru)
{
    lc_gru_init(&l->rnn, root, name, 6, 5);
}
BUILD(gru_deep)
{
    lc_gru_init(&l->rnn, root, name, 6, 5, .num_layers = 2, .bidirectional = true);
}
BUILD(gru_bare)
{
    lc_gru_init(&l->rnn, root, name, 6, 8, .bidirectional = true, .no_bias = true, .seq_first = true);
}
BUILD(sequential)
{
    lc_sequential_init(&l->sequential, root, name);
    lc_sequential_add(&l->sequential, lc_conv2d, 1, 8, 3, .padding = 1);
    lc_sequential_add(&l->sequential, lc_batch_norm2d, 8);
    lc_sequential_add(&l->sequential, lc_activation, LC_ACT_LEAKY_RELU, .a = 0.2);
    lc_sequential_add(&l->sequential, lc_max_pool2d, 2);
    lc_sequential_add(&l->sequential, lc_dropout, 0.0);
    lc_sequential_add(&l->sequential, lc_flatten, 1);
    lc_sequential_add(&l->sequential, lc_linear, 8 * 16, 10);
}

static const zoo_case zoo[] = {
    {"linear", {"4,5"}, one, build_linear},
    {"linear_bare", {"2,3,5"}, one, build_linear_bare},
    {"conv1d", {"3,4,17"}, one, build_conv1d},
    {"conv2d", {"2,3,9,8"}, one, build_conv2d},
    {"conv2d_wide", {"2,8,5,9"}, one, build_conv2d_wide},
    {"conv3d", {"2,2,5,6,7"}, one, build_conv3d},
    {"conv_transpose1d", {"3,4,9"}, one, build_conv_transpose1d},
    {"conv_transpose2d", {"2,8,5,6"}, one, build_conv_transpose2d},
    {"conv_transpose2d_padded", {"2,4,5,4"}, one, build_conv_transpose2d_padded},
    {"conv_transpose3d", {"2,2,3,4,3"}, one, build_conv_transpose3d},
    {"batch_norm1d", {"7,6"}, one, build_batch_norm1d},
    {"batch_norm1d_line", {"4,5,6"}, one, build_batch_norm1d_line},
    {"batch_norm2d", {"3,16,5,5"}, one, build_batch_norm2d},
    {"batch_norm2d_bare", {"3,4,5,5"}, one, build_batch_norm2d_bare},
    {"batch_norm2d_untracked", {"3,4,5,5"}, one, build_batch_norm2d_untracked},
    {"batch_norm3d", {"2,3,4,3,5"}, one, build_batch_norm3d},
    {"layer_norm", {"4,6,9"}, one, build_layer_norm},
    {"layer_norm_plane", {"4,3,5"}, one, build_layer_norm_plane},
    {"rms_norm", {"4,6,9"}, one, build_rms_norm},
    {"group_norm", {"3,8,4,5"}, one, build_group_norm},
    {"embedding", {"i11:3,4"}, one, build_embedding},
    {"embedding_padded", {"i11:3,4"}, one, build_embedding_padded},
    {"attention", {"2,7,16"}, self_attention, build_attention},
    {"attention_causal", {"2,7,16"}, causal_attention, build_attention_bare},
    {"attention_seq_first", {"5,2,16", "7,2,16", "7,2,16"}, cross_attention, build_attention_seq_first},
    {"lstm", {"3,7,6"}, lstm, build_lstm},
    {"lstm_deep", {"3,7,6", "6,3,5", "6,3,5"}, lstm, build_lstm_deep},
    {"lstm_bare", {"7,3,6"}, lstm, build_lstm_bare},
    {"gru", {"3,7,6"}, gru, build_gru},
    {"gru_deep", {"3,7,6", "4,3,5"}, gru, build_gru_deep},
    {"gru_bare", {"7,3,6"}, gru, build_gru_bare},
    {"sequential", {"3,1,8,8"}, one, build_sequential},
};
enum { ZOO = sizeof zoo / sizeof zoo[0] };

typedef struct zoo_model {
    lc_module base;
    any_layer layers[ZOO];
    lc_tensor *inputs[ZOO][3];
} zoo_model;

static lc_tensor *no_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)self, (void)batch, (void)i;
    return NULL;
}
static lc_status plain_sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}
static const lc_module_ops zoo_ops = {LC_MODULE_OPS_INIT("zoo"), .training_step = no_step,
                                      .configure_optimizers = plain_sgd};

static lc_tensor *zoo_input(const char *text, uint64_t key)
{
    int64_t shape[LC_MAX_DIMS], classes = 0;
    int n = 0;
    lc_tensor *t;
    char *end;
    if (*text == 'i') {
        classes = strtol(text + 1, &end, 10);
        text = end + 1;
    }
    for (;; text = end + 1) {
        shape[n++] = strtol(text, &end, 10);
        if (!*end) break;
    }
    CHECK_OK(lc_tensor_new(classes ? LC_I64 : LC_F32, n, shape, &t));
    int64_t count = lc_tensor_numel(t);
    int64_t *data = malloc((size_t)count * 8);
    for (int64_t i = 0; i < count; i++) {
        if (classes)
            data[i] = (int64_t)(lc_random_uniform(key, (uint64_t)i) * (double)classes);
        else
            ((float *)data)[i] = (float)lc_random_normal(key, (uint64_t)i);
    }
    CHECK_OK(lc_tensor_write(t, data, (size_t)count * (classes ? 8 : 4)));
    free(data);
    return t;
}

static zoo_model *zoo_new(uint64_t seed, bool inputs)
{
    zoo_model *m = calloc(1, sizeof *m);
    lc_module_init(&m->base, &zoo_ops, seed);
    for (int i = 0; i < ZOO; i++) {
        zoo[i].build(&m->layers[i], m, zoo[i].name);
        for (int k = 0; inputs && k < 3; k++)
            if (zoo[i].inputs[k]) m->inputs[i][k] = zoo_input(zoo[i].inputs[k], (uint64_t)(10 * i + k));
    }
    CHECK_OK(lc_module_status(&m->base));
    return m;
}

static void zoo_free(zoo_model *m)
{
    for (int i = 0; i < ZOO; i++)
        for (int k = 0; k < 3; k++) lc_tensor_unref(m->inputs[i][k]);
    lc_module_release(&m->base);
    free(m);
}

/* Results of all layers, named "MODE.LAYER.out0", ... */
static void zoo_forward(zoo_model *m, bool training, tensors *to)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 2, .seed = 1));
    lc_module_train(&m->base, training);
    CHECK_OK(lc_step_begin(g, 0, 0));
    for (int i = 0; i < ZOO; i++) {
        lc_tensor *out[3] = {0};
        int n = zoo[i].forward(&m->layers[i], m->inputs[i], out);
        for (int k = 0; k < n; k++) {
            if (lc_tensor_is_error(out[k])) {
                CHECK_OK(lc_step_status(g));
                TEST_FAIL("%s has no result %d", zoo[i].name, k);
            }
            if (to) tensors_add(to, out[k], "%s.%s.out%d", training ? "train" : "eval", zoo[i].name, k);
        }
    }
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_status(g));
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
}

static void compare(const tensors *got, const char *dir, const char *file, double tolerance)
{
    lc_safetensors *f;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    CHECK_OK(lc_safetensors_open(path, &f));
    CHECK_EQ(lc_safetensors_count(f), got->n);
    for (int64_t i = 0; i < got->n; i++) {
        const lc_named_tensor *t = &got->v[i];
        int64_t k = lc_safetensors_find(f, t->name), n = 1;
        if (k < 0) TEST_FAIL("%s has no %s", file, t->name);
        const lc_safetensor_info *info = lc_safetensors_info(f, k);
        for (int d = 0; d < t->type.ndim; d++) n *= t->type.shape[d];
        if (memcmp(&info->type, &t->type, sizeof t->type)) TEST_FAIL("%s has another type", t->name);
        if (t->type.dtype == LC_F32) {
            float *want = malloc(info->bytes + 1);
            const float *have = t->data;
            double most = 1;
            CHECK_OK(lc_safetensors_read(f, k, want, info->bytes));
            for (int64_t e = 0; e < n; e++) most = fmax(most, fabs((double)want[e]));
            for (int64_t e = 0; e < n; e++)
                if (!(fabs((double)have[e] - (double)want[e]) <= tolerance * most))
                    TEST_FAIL("%s[%d]: %.9g here, %.9g in PyTorch", t->name, (int)e, (double)have[e], (double)want[e]);
            free(want);
        } else {
            char *want = malloc(info->bytes + 1);
            CHECK_OK(lc_safetensors_read(f, k, want, info->bytes));
            if (memcmp(want, t->data, info->bytes)) TEST_FAIL("%s differs", t->name);
            free(want);
        }
    }
    lc_safetensors_close(f);
}

TEST(layers_go_to_torch_and_back)
{
    static tensors list;
    const char *dir = (python(), fresh_dir("torch"));
    char path[512];
    lc_trainer *t;
    zoo_model *m = zoo_new(3, true);
    for (int i = 0; i < ZOO; i++)
        for (int k = 0; k < 3; k++)
            if (m->inputs[i][k]) tensors_add(&list, m->inputs[i][k], "%s.in%d", zoo[i].name, k);
    tensors_save(&list, dir, "inputs.safetensors");
    zoo_forward(m, true, NULL); /* changes the running statistics */
    zoo_forward(m, true, NULL);
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    o.default_root_dir = dir;
    o.enable_progress_bar = o.enable_model_summary = o.enable_checkpointing = LC_OFF;
    o.logger = "none";
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_begin(t, &m->base));
    snprintf(path, sizeof path, "%s/zoo.ckpt", dir);
    CHECK_OK(lc_trainer_save_checkpoint(t, path, false));
    zoo_forward(m, false, &list);
    zoo_forward(m, true, &list);
    CHECK_OK(lc_module_visit(&m->base, add_state, &list));
    tensors_save(&list, dir, "results.safetensors");
    CHECK_OK(lc_trainer_end(t));
    lc_trainer_free(t);
    run_script("zoo.py", dir, "");
    /* and back, into a module with other weights */
    zoo_model *back = zoo_new(77, true);
    snprintf(path, sizeof path, "%s/back.safetensors", dir);
    CHECK_OK(lc_module_load_checkpoint(&back->base, path, true));
    zoo_forward(back, false, &list);
    zoo_forward(back, true, &list);
    CHECK_OK(lc_module_visit(&back->base, add_state, &list));
    compare(&list, dir, "back_results.safetensors", 1e-5);
    zoo_free(m);
    zoo_free(back);
}

/* ---- initial values ---- */

TEST(layers_start_as_in_torch)
{
    enum { SEEDS = 200 };
    static tensors list;
    const char *dir = (python(), fresh_dir("torch"));
    zoo_model *m = zoo_new(1, false);
    CHECK_OK(lc_module_visit(&m->base, add_state, &list));
    for (int64_t i = 0; i < list.n; i++) { /* all seeds' values of a tensor one after another: [SEEDS, ...] */
        lc_named_tensor *t = &list.v[i];
        if (t->type.dtype != LC_F32) continue;
        memmove(t->type.shape + 1, t->type.shape, (size_t)t->type.ndim++ * sizeof *t->type.shape);
        t->type.shape[0] = SEEDS;
        size_t bytes = 4;
        for (int d = 0; d < t->type.ndim; d++) bytes *= (size_t)t->type.shape[d];
        free((void *)t->data);
        t->data = malloc(bytes);
    }
    zoo_free(m);
    for (int s = 0; s < SEEDS; s++) {
        m = zoo_new((uint64_t)s + 1, false);
        for (int64_t i = 0; i < list.n; i++) {
            lc_tensor *t = lc_module_find(&m->base, list.v[i].name);
            size_t bytes = (size_t)lc_tensor_numel(t) * 4;
            if (lc_tensor_dtype(t) == LC_F32)
                CHECK_OK(lc_tensor_read(t, (char *)list.v[i].data + (size_t)s * bytes, bytes));
        }
        zoo_free(m);
    }
    tensors_save(&list, dir, "initial.safetensors");
    run_script("initial.py", dir, "");
}

TEST_MAIN
