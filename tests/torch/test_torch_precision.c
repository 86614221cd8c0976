/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision compared with the real PyTorch: the scale of the loss after each of 200 updates, and the type in
 * which each operator computes. Losses are compared in test_torch_runs.c. */
#define _GNU_SOURCE
#include "quiet_options.h"
#include "torch_peer.h"

#include "ops/ops.h"

enum { BATCH = 8, STEPS = 200, SAMPLES = BATCH * STEPS, HIDDEN = 8, INTERVAL = 7 };
#include "small_data.h"

/* ---- the scale ---- */

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
    lc_precision precision;
    double scales[STEPS];
    int n;
} net;

/* Once in 13 updates, several times in a row, and not at all for a while. Also in torch/scaler.py. */
static bool overflows(int64_t i)
{
    return (i < 150 && i % 13 == 5) || i == 40 || (i >= 90 && i < 94);
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *loss = lc_cross_entropy(lc_linear_forward(&m->l2, lc_relu(lc_linear_forward(&m->l1, b->x))), b->y);
    return overflows(i) ? lc_mul_scalar(loss, 1e30) : loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.05));
}

static lc_status keep_scale(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b, (void)i;
    return lc_precision_scale(m->precision, &m->scales[m->n++]);
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .configure_optimizers = configure_optimizers, .on_train_batch_end = keep_scale};

static void save_data(tensors *list, const char *dir)
{
    void *x = malloc(sizeof inputs), *y = malloc(sizeof labels);
    CHECK(x && y);
    memcpy(x, inputs, sizeof inputs);
    memcpy(y, labels, sizeof labels);
    list->v[list->n++] = (lc_named_tensor){strdup("x"), NULL, {LC_F32, 2, {SAMPLES, FEATURES}}, x};
    list->v[list->n++] = (lc_named_tensor){strdup("y"), NULL, {LC_I64, 1, {SAMPLES}}, y};
    tensors_save(list, dir, "data.safetensors");
}

TEST(the_scale_is_that_of_gradscaler)
{
    static tensors list;
    static net m;
    const char *dir = (python(), fresh_dir("torch"));
    char path[512];
    lc_trainer *t;
    lc_dataloader *loader;
    lc_module_init(&m.base, &net_ops, 3);
    lc_linear_init(&m.l1, &m, "l1", FEATURES, HIDDEN);
    lc_linear_init(&m.l2, &m, "l2", HIDDEN, CLASSES);
    CHECK_OK(lc_module_visit(&m.base, add_state, &list));
    tensors_save(&list, dir, "start.safetensors");
    save_data(&list, dir);
    CHECK_OK(loader_of(0, SAMPLES, BATCH, false, &loader));
    CHECK_OK(lc_mixed_precision(&m.precision, .growth_interval = INTERVAL, .init_scale = 1024));
    lc_trainer_options o = quiet_options(NULL);
    o.default_root_dir = dir;
    o.max_epochs = 1;
    o.precision_plugin = &m.precision;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    CHECK_EQ(m.n, STEPS);
    snprintf(path, sizeof path, "%s/scales.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    for (int i = 0; i < STEPS; i++) fprintf(f, "%s%.17g", i ? ", " : "[", m.scales[i]);
    fprintf(f, "]\n");
    fclose(f);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    run_script("scaler.py", dir, "");
}

/* ---- the types ---- */

TEST(operators_compute_in_the_types_of_autocast)
{
    static const char *const classes[] = {"f32", "low", "follow"};
    const char *dir = (python(), fresh_dir("torch"));
    char path[512];
    snprintf(path, sizeof path, "%s/classes.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    for (int i = 0; lc__math_ops[i]; i++)
        fprintf(f, "%s\"%s\": \"%s\"", i ? ", " : "{", lc__math_ops[i]->name,
                classes[lc_autocast_class_of(lc__math_ops[i])]);
    fprintf(f, "}\n");
    fclose(f);
    run_script("autocast.py", dir, "");
}

TEST_MAIN
