/* SPDX-License-Identifier: Apache-2.0 */
/* A small module made from a class: y = sin(x) learned by a network with one hidden layer. */
#ifndef LC_TESTS_WAVE_H
#define LC_TESTS_WAVE_H

#include <lightc/lightc.h>
#include <math.h>
#include <stdlib.h>

typedef struct wave_values {
    int width;
    int64_t samples, batch_size;
    const char *activation;
    struct {
        double lr;
        float momentum;
    } optimizer;
    bool shuffle;
    lc_duration warmup;
} wave_values;

static const lc_option wave_fields[] = {
    LC_FIELD(wave_values, width, "of the hidden layer"),
    LC_FIELD(wave_values, samples, "in the training data"),
    LC_OPTION(wave_values, batch_size, LC_OPTION_INT, 1, 1e9, "samples in a batch"),
    LC_FIELD(wave_values, activation, "tanh or relu"),
    LC_FIELD(wave_values, optimizer.lr, "learning rate"),
    LC_FIELD(wave_values, optimizer.momentum, "of SGD"),
    LC_FIELD(wave_values, shuffle, "draw samples in random order"),
    LC_FIELD(wave_values, warmup, "not used"),
};
enum { WAVE_FIELDS = sizeof wave_fields / sizeof *wave_fields };

#define WAVE_DEFAULTS                                                                                                  \
    {                                                                                                                  \
        .width = 16, .samples = 512, .batch_size = 16, .activation = "tanh", .optimizer = {.lr = 0.05 }                \
    }
static const wave_values wave_defaults = WAVE_DEFAULTS;

typedef struct wave {
    lc_module base;
    lc_linear l1, l2;
    const wave_values *h;
    int loaders; /* how often a train loader was asked for */
    lc_dataset *data;
    float *memory;
} wave;

static inline lc_tensor *wave_training_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    wave *m = (wave *)self;
    (void)i;
    lc_tensor *x = lc_linear_forward(&m->l1, batch->x); /* [B,width] */
    x = m->h->activation[0] == 't' ? lc_tanh(x) : lc_relu(x);
    lc_tensor *loss = lc_mse_loss(lc_linear_forward(&m->l2, x), batch->y);
    lc_log(self, "train_loss", loss);
    return loss;
}

static inline lc_status wave_configure_optimizers(lc_module *self, lc_optimizers *out)
{
    wave *m = (wave *)self;
    return lc_optimizers_add(out, lc_sgd(self, .lr = m->h->optimizer.lr, .momentum = (double)m->h->optimizer.momentum));
}

static inline lc_status wave_train_dataloader(lc_module *self, lc_loaders *out)
{
    wave *m = (wave *)self;
    int64_t n = m->h->samples;
    lc_dataloader *loader = NULL;
    if (!m->data) {
        m->memory = malloc((size_t)n * 2 * sizeof(float));
        if (!m->memory) return lc_fail(LC_ERR_MEMORY, "out of memory: samples");
        for (int64_t i = 0; i < n; i++) {
            m->memory[i] = (float)(6 * (double)i / (double)n - 3);
            m->memory[n + i] = sinf(m->memory[i]);
        }
        lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = m->memory},
                             {.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = m->memory + n}};
        LC_TRY(lc_array_dataset_new(n, 2, arrays, &m->data));
    }
    m->loaders++;
    LC_TRY(lc_dataloader_new(&loader, .dataset = m->data, .batch_size = m->h->batch_size, .shuffle = m->h->shuffle));
    return lc_loaders_add(out, loader);
}

static const lc_module_ops wave_ops = {
    LC_MODULE_OPS_INIT("wave"),
    .training_step = wave_training_step,
    .configure_optimizers = wave_configure_optimizers,
    .train_dataloader = wave_train_dataloader,
};

static inline lc_status wave_init(lc_module *self, const void *values, uint64_t seed)
{
    wave *m = (wave *)self;
    m->h = (const wave_values *)values;
    if (m->h->width < 1) return lc_fail(LC_ERR_CONFIG, "width is %d; it must be at least 1", m->h->width);
    lc_module_init(self, &wave_ops, seed);
    lc_linear_init(&m->l1, m, "l1", 1, m->h->width);
    lc_linear_init(&m->l2, m, "l2", m->h->width, 1);
    return LC_OK;
}

static inline void wave_release(lc_module *self)
{
    wave *m = (wave *)self;
    lc_dataset_unref(m->data);
    free(m->memory);
}

static const lc_module_class wave_class = {
    LC_MODULE_CLASS_INIT("wave"), .module_size = sizeof(wave), .init = wave_init,
    .fields = wave_fields,        .n_fields = WAVE_FIELDS,     .values_size = sizeof(wave_values),
    .defaults = &wave_defaults,   .release = wave_release,
};

/* Options of a run that prints nothing and writes to `dir` (NULL: writes nothing). */
static inline lc_trainer_options wave_options(const char *dir)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    o.enable_progress_bar = o.enable_model_summary = LC_OFF;
    o.default_root_dir = dir;
    if (!dir) o.logger = "none", o.enable_checkpointing = LC_OFF;
    o.threads = 1;
    o.max_steps = 8;
    return o;
}

#endif
