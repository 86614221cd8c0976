/* SPDX-License-Identifier: Apache-2.0 */
/* A program outside the tree whose trainer has a precision of its own: products in bf16, and a loss that is multiplied
 * by 128 (docs/precision.md). */
#include <lightc/lightc.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 64, FEATURES = 4 };

typedef struct own {
    lc_tensor *unscale;
    int configured, scaled, freed;
} own;

static lc_status in_bf16(void **self, lc_graph_args *graph)
{
    ((own *)*self)->configured++;
    graph->autocast = LC_BF16;
    return LC_OK;
}

static lc_status make_unscale(void **self, lc_module *m)
{
    own *o = *self;
    (void)m;
    LC_TRY(lc_tensor_new(LC_F32, 0, NULL, &o->unscale));
    return lc_tensor_write(o->unscale, &(float){1.f / 128}, sizeof(float));
}

static lc_tensor *times_128(void *self, lc_tensor *loss)
{
    own *o = self;
    o->scaled++;
    lc_graph_set_unscale(lc_current_graph(), o->unscale, NULL, NULL);
    return lc_mul_scalar(loss, 128);
}

static void free_unscale(void *self)
{
    own *o = self;
    o->freed++;
    lc_tensor_unref(o->unscale);
}

static const lc_precision_ops own_ops = {LC_PRECISION_OPS_INIT("bf16-times-128"), .configure_graph = in_bf16,
                                         .convert_module = make_unscale, .scale_loss = times_128,
                                         .teardown = free_unscale};

typedef struct net {
    lc_module base;
    lc_linear layer;
    double first, last;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mse_loss(lc_flatten(lc_linear_forward(&((net *)self)->layer, b->x), 0), b->y);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.05));
}

static lc_status keep_loss(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b, (void)i;
    LC_TRY(lc_item(o->loss, &m->last));
    if (m->first == 0) m->first = m->last;
    return LC_OK;
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .configure_optimizers = configure_optimizers, .on_train_batch_end = keep_loss};

/* plugin NULL: f32. */
static lc_status train(const lc_precision *plugin, double *first, double *last)
{
    static float x[SAMPLES * FEATURES], y[SAMPLES];
    for (int i = 0; i < SAMPLES * FEATURES; i++) x[i] = (float)lc_random_normal(1, (uint64_t)i);
    for (int i = 0; i < SAMPLES; i++) y[i] = x[i * FEATURES] - 2 * x[i * FEATURES + 1];
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32}, .data = y}};
    net m = {.first = 0};
    lc_dataset *data;
    lc_dataloader *loader;
    lc_trainer *t;
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    o.max_epochs = 5;
    o.logger = "none";
    o.enable_checkpointing = LC_OFF;
    o.enable_progress_bar = LC_OFF;
    o.enable_model_summary = LC_OFF;
    o.precision_plugin = plugin;
    LC_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &data));
    LC_TRY(lc_dataloader_new(&loader, .dataset = data, .batch_size = 16));
    lc_module_init(&m.base, &net_ops, 3);
    lc_linear_init(&m.layer, &m, "layer", FEATURES, 1);
    LC_TRY(lc_trainer_new(&o, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
    lc_module_release(&m.base);
    *first = m.first;
    *last = m.last;
    return LC_OK;
}

int main(void)
{
    own o = {.unscale = NULL};
    double first, last, first_f32, last_f32;
    LC_MAIN_TRY(train(&(lc_precision){&own_ops, &o}, &first, &last));
    LC_MAIN_TRY(train(NULL, &first_f32, &last_f32));
    const bool called = o.configured == 1 && o.scaled >= 5 * SAMPLES / 16 && o.freed == 1;
    /* It trains, as f32 does, and not with the same numbers. */
    const bool near = last < 0.5 * first && last > 0.9 * last_f32 && last < 1.1 * last_f32 && first != first_f32;
    if (called && near) return 0;
    printf("losses %g to %g, in f32 %g to %g; called %d, %d and %d times\n", first, last, first_f32, last_f32,
           o.configured, o.scaled, o.freed);
    return 1;
}
