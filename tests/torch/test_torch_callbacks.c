/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks against the real Lightning: the same network, data and callback end with the same weights.
 *
 * The optimizer is SGD if a gradient can be almost zero: Adam makes a full step of any gradient.
 *
 * Skipped without a Python that has lightning and safetensors. To add a callback: a line in `cases`,
 * and one of the same name in tests/torch/callbacks.py. */
#include "callback_makers.h"
#include "peer_python.h"

typedef struct peer_case {
    const char *name;
    const char *optimizer;
    bool schedule, trainable_only;
    int64_t epochs, accumulate;
    double clip;
    lc_status (*make)(lc_callback *out);
} peer_case;

static lc_status make_ema(lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.9, .update_every_n_steps = 2, .update_starting_at_step = 3);
}
static lc_status make_copied(lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.9, .update_every_n_steps = 4, .use_buffers = false);
}
static lc_status make_backbone(lc_callback *out)
{
    return lc_backbone_finetuning(out, .unfreeze_backbone_at_epoch = 1);
}
static lc_status make_finetuning(lc_callback *out)
{
    static bool train_bn = true;
    return make_finetuning_with(&train_bn, out);
}
static lc_status make_local(lc_callback *out)
{
    return lc_model_pruning(out, .pruning_fn = "l1_unstructured", .amount = 0.2, .use_global_unstructured = LC_OFF,
                            .use_lottery_ticket_hypothesis = LC_OFF);
}

static const peer_case cases[] = {
    {"swa", "SGD", true, false, 5, 1, 0, make_swa},
    {"mean", "SGD", false, false, 2, 1, 0, make_mean},
    {"ema", "Adam", false, false, 3, 2, 0, make_ema},
    {"copied", "SGD", false, false, 2, 1, 0, make_copied},
    {"accumulation", "SGD", false, false, 4, 1, 0, make_accumulation},
    {"backbone", "SGD", true, true, 4, 1, 0, make_backbone},
    {"finetuning", "SGD", false, true, 4, 1, 0, make_finetuning},
    {"lottery", "SGD", false, false, 4, 1, 0.1, make_pruning},
    {"local", "SGD", false, false, 3, 1, 0, make_local},
    {"channels", "SGD", false, false, 3, 1, 0.1, make_structured_pruning},
};

static void save_module(net *m, const char *dir, const char *file)
{
    float *values = malloc(NET_WEIGHTS * sizeof *values);
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[2];
    } layout[] = {{"backbone.l1.weight", 2, {8, NET_FEATURES}},
                  {"backbone.l1.bias", 1, {8}},
                  {"backbone.norm.weight", 1, {8}},
                  {"backbone.norm.bias", 1, {8}},
                  {"backbone.norm.running_mean", 1, {8}},
                  {"backbone.norm.running_var", 1, {8}},
                  {"head.weight", 2, {1, 8}},
                  {"head.bias", 1, {1}}};
    enum { N = sizeof layout / sizeof *layout };
    lc_named_tensor list[N];
    char path[600];
    int64_t at = 0;
    net_weights(m, values);
    for (int i = 0; i < N; i++) {
        list[i] = (lc_named_tensor){.name = layout[i].name, .type = {.dtype = LC_F32, .ndim = layout[i].ndim}};
        int64_t n = 1;
        for (int d = 0; d < layout[i].ndim; d++) n *= list[i].type.shape[d] = layout[i].shape[d];
        list[i].data = values + at;
        at += n;
    }
    CHECK_EQ(at, NET_WEIGHTS);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    CHECK_OK(lc_safetensors_save(path, N, list, 0, NULL));
    free(values);
}

static void save_data(const char *dir)
{
    char path[600];
    lc_named_tensor list[] = {
        {.name = "x", .type = {.dtype = LC_F32, .ndim = 2, .shape = {NET_SAMPLES, NET_FEATURES}}, .data = net_x},
        {.name = "y", .type = {.dtype = LC_F32, .ndim = 1, .shape = {NET_SAMPLES}}, .data = net_y}};
    snprintf(path, sizeof path, "%s/data.safetensors", dir);
    CHECK_OK(lc_safetensors_save(path, 2, list, 0, NULL));
}

static void compare(const peer_case *c, const char *python)
{
    char dir[256], command[2048];
    net m;
    lc_trainer *t;
    lc_callback cb;
    CHECK(world_dir(dir, sizeof dir));
    net_init(&m);
    m.dropout = 0;
    m.in_order = true;
    m.optimizer = c->optimizer;
    m.schedule = c->schedule;
    m.trainable_only = c->trainable_only;
    save_module(&m, dir, "start.safetensors");
    save_data(dir);
    CHECK_OK(c->make(&cb));
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb;
    o.n_callbacks = 1;
    o.max_epochs = c->epochs;
    o.accumulate_grad_batches = c->accumulate;
    if (c->clip > 0) o.gradient_clip_val = c->clip;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    save_module(&m, dir, "end.safetensors");
    lc_trainer_free(t);
    net_release(&m);
    snprintf(command, sizeof command, "'%s' '%s/tests/torch/callbacks.py' '%s' %s %s %lld %lld %g %d %d", python,
             test_source_dir(), dir, c->name, c->optimizer, (long long)c->epochs, (long long)c->accumulate, c->clip,
             c->schedule, c->trainable_only);
    bool same = system(command) == 0;
    world_remove(dir);
    if (!same) TEST_FAIL("%s differs from Lightning's", c->name);
}

TEST(final_weights_are_those_of_lightning)
{
    const char *python = peer_python("lightning, safetensors"), *only = getenv("LIGHTC_TEST_CALLBACK");
    if (!python) SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with lightning");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!only || strstr(cases[i].name, only)) compare(&cases[i], python);
}

TEST_MAIN
