/* SPDX-License-Identifier: Apache-2.0 */
/* A module in a shared object: a small network that tells the two arms of a spiral apart.
 *
 *     cc -shared -fPIC spiral.c -o spiral.so $(pkg-config --cflags --libs lightc) -lm
 *     lightc run spiral.json --max_epochs 20
 *
 * There is no main: `lightc run` makes the module with its hyperparameters, which are options like the trainer's. */
#include <lightc/lightc.h>
#include <math.h>
#include <stdlib.h>

typedef struct settings {
    int64_t samples, batch_size, width;
    double lr, turns, noise;
} settings;

static const lc_option fields[] = {
    LC_OPTION(settings, samples, LC_OPTION_INT, 16, 1e7, "points of both arms together"),
    LC_OPTION(settings, batch_size, LC_OPTION_INT, 1, 1e6, "points in a batch"),
    LC_OPTION(settings, width, LC_OPTION_INT, 1, 1e5, "width of the hidden layers"),
    LC_FIELD(settings, lr, "learning rate of Adam"),
    LC_FIELD(settings, turns, "turns of the spiral"),
    LC_FIELD(settings, noise, "standard deviation of the points' positions"),
};
static const settings defaults = {
    .samples = 2000, .batch_size = 50, .width = 32, .lr = 1e-2, .turns = 1, .noise = 0.02};

typedef struct spiral {
    lc_module base;
    lc_linear l1, l2, l3;
    const settings *h;
} spiral;

static lc_tensor *logits(spiral *m, lc_tensor *x) /* x [B,2] */
{
    x = lc_relu(lc_linear_forward(&m->l1, x));
    x = lc_relu(lc_linear_forward(&m->l2, x));
    return lc_linear_forward(&m->l3, x); /* [B,2] */
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(logits((spiral *)self, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status validation_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_log(self, "val_loss", lc_cross_entropy(logits((spiral *)self, batch->x), batch->y), .prog_bar = true);
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = ((spiral *)self)->h->lr));
}

/* `first` keys the random numbers: training and validation see different points. */
static lc_status points(const settings *h, uint64_t first, int64_t n, lc_loaders *out)
{
    lc_status status = LC_OK;
    lc_dataset *data = NULL;
    lc_dataloader *loader = NULL;
    float *x = malloc((size_t)n * 2 * sizeof *x);
    int64_t *y = malloc((size_t)n * sizeof *y);
    if (!x || !y) {
        free(x), free(y);
        return lc_fail(LC_ERR_MEMORY, "out of memory: %lld points", (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = first + (uint64_t)i * 4;
        double along = 0.1 + 0.9 * lc_random_uniform(7, key), angle = along * h->turns * 6.2831853;
        y[i] = i & 1;
        if (y[i]) angle += 3.14159265;
        x[2 * i] = (float)(along * cos(angle) + h->noise * lc_random_normal(8, key));
        x[2 * i + 1] = (float)(along * sin(angle) + h->noise * lc_random_normal(9, key));
    }
    lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {2}}, .data = x, .free = free},
        {.field = {.name = "y", .dtype = LC_I64}, .data = y, .free = free},
    };
    LC_TRY(lc_array_dataset_new(n, 2, arrays, &data));
    status = lc_dataloader_new(&loader, .dataset = data, .batch_size = h->batch_size, .shuffle = !first);
    lc_dataset_unref(data);
    return status < 0 ? status : lc_loaders_add(out, loader);
}

static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    const settings *h = ((spiral *)self)->h;
    return points(h, 0, h->samples, out);
}

static lc_status val_dataloader(lc_module *self, lc_loaders *out)
{
    const settings *h = ((spiral *)self)->h;
    return points(h, UINT64_C(1) << 40, h->samples / 4, out);
}

static const lc_module_ops spiral_ops = {
    LC_MODULE_OPS_INIT("spiral"),
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader,
    .val_dataloader = val_dataloader,
    .validation_step = validation_step,
};

static lc_status init(lc_module *self, const void *values, uint64_t seed)
{
    spiral *m = (spiral *)self;
    m->h = values;
    lc_module_init(self, &spiral_ops, seed);
    lc_linear_init(&m->l1, m, "l1", 2, m->h->width);
    lc_linear_init(&m->l2, m, "l2", m->h->width, m->h->width);
    lc_linear_init(&m->l3, m, "l3", m->h->width, 2);
    return LC_OK;
}

static const lc_module_class spiral_class = {
    LC_MODULE_CLASS_INIT("spiral"),
    .module_size = sizeof(spiral),
    .init = init,
    .fields = fields,
    .n_fields = sizeof fields / sizeof *fields,
    .values_size = sizeof(settings),
    .defaults = &defaults,
};
LC_PLUGIN(spiral_class)
