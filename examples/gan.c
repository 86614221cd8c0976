/* SPDX-License-Identifier: Apache-2.0 */
/* A generative adversarial network on Fashion-MNIST: two networks, two optimizers, manual optimization. The generator
 * makes images from noise, the discriminator tells them from real ones; each is trained against the other.
 *
 *   gan --data DIR                   the folder of the IDX files; after each epoch samples-epoch=N.png shows 64 images
 *   gan --max_epochs 20 --width 256  any option of the trainer; --help lists them
 *
 * It shows .manual_optimization, lc_toggle_optimizer (the other network's parameters need no gradients), steps outside
 * of the loop (sampling), and a grid of pictures. */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, SAMPLES = 64, LATENT = 64 };

typedef struct arguments {
    const char *data;
    int64_t batch_size, width;
    double lr;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder of the IDX files"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "images in a batch"),
    LC_OPTION(arguments, width, LC_OPTION_INT, 1, 1e6, "width of the hidden layers"),
    LC_OPTION(arguments, lr, LC_OPTION_FLOAT, 0, 1, "learning rate of both networks"),
};

typedef struct network {
    lc_module base;
    lc_linear l1, l2, l3;
} network;

typedef struct gan {
    lc_module base;
    network generator, discriminator;
    double lr, distance;
    lc_dataset *data;
} gan;

/* ---- the networks ---- */

static void network_init(network *n, gan *parent, const char *name, int64_t in, int64_t width, int64_t out)
{
    lc_module_init_child(&n->base, parent, name, "Network");
    lc_linear_init(&n->l1, n, "l1", in, width);
    lc_linear_init(&n->l2, n, "l2", width, width);
    lc_linear_init(&n->l3, n, "l3", width, out);
}

static lc_tensor *hidden(network *n, lc_tensor *x)
{
    x = lc_leaky_relu(lc_linear_forward(&n->l1, x), .slope = 0.2);
    return lc_leaky_relu(lc_linear_forward(&n->l2, x), .slope = 0.2);
}

static lc_tensor *generate(gan *m, lc_tensor *noise) /* [B,64] -> [B,784] in (-1, 1) */
{
    return lc_tanh(lc_linear_forward(&m->generator.l3, hidden(&m->generator, noise)));
}

static lc_tensor *discriminate(gan *m, lc_tensor *images) /* [B,784] -> [B,1]: above 0 is real */
{
    return lc_linear_forward(&m->discriminator.l3, hidden(&m->discriminator, images));
}

/* The loss of the discriminator's answer against "all real" (1) or "all generated" (0). */
static lc_tensor *discriminator_loss(gan *m, lc_tensor *images, double truth)
{
    lc_tensor *logits = discriminate(m, images);
    return lc_bce_with_logits(logits, lc_full_like(logits, truth));
}

/* ---- training ---- */

static lc_status update(lc_module *self, int which, lc_tensor *loss)
{
    lc_optimizer *opt = lc_manual_optimizer(self, which);
    LC_TRY(lc_manual_zero_grad(self, opt));
    LC_TRY(lc_manual_backward(self, loss));
    LC_TRY(lc_manual_step(self, opt));
    return lc_untoggle_optimizer(self);
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    gan *m = (gan *)self;
    lc_tensor *real = lc_flatten(batch->x, 1); /* [B,784] */
    lc_tensor *noise = lc_normal(2, ((int64_t[]){batch->size, LATENT}));
    (void)batch_idx;

    /* Train the generator to make images that pass for real. */
    if (lc_toggle_optimizer(self, lc_manual_optimizer(self, 0)) < 0) return NULL;
    lc_tensor *loss_g = discriminator_loss(m, generate(m, noise), 1);
    if (update(self, 0, loss_g) < 0) return NULL;

    /* Train the discriminator to tell real from generated. */
    if (lc_toggle_optimizer(self, lc_manual_optimizer(self, 1)) < 0) return NULL;
    lc_tensor *made = lc_detach(generate(m, noise));
    lc_tensor *loss_d = lc_mul_scalar(lc_add(discriminator_loss(m, real, 1), discriminator_loss(m, made, 0)), 0.5);
    if (update(self, 1, loss_d) < 0) return NULL;

    lc_log(self, "loss_g", loss_g, .prog_bar = true, .on_epoch = true);
    lc_log(self, "loss_d", loss_d, .prog_bar = true, .on_epoch = true);
    return NULL; /* manual optimization: no loss for the trainer */
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    gan *m = (gan *)self;
    LC_TRY(lc_optimizers_add(out, lc_adam(&m->generator, .lr = m->lr, .beta1 = 0.5)));
    return lc_optimizers_add(out, lc_adam(&m->discriminator, .lr = m->lr, .beta1 = 0.5));
}

/* ---- samples: the same noise after each epoch ---- */

static lc_status sample(gan *m, float *images)
{
    lc_graph *g = lc_trainer_graph(m->base.trainer);
    LC_TRY(lc_step_begin(g, UINT64_MAX, 0)); /* random numbers of a step that training never reaches */
    lc_no_grad_begin();
    lc_status status = lc_tensor_read(generate(m, lc_normal(2, ((int64_t[]){SAMPLES, LATENT}))), images,
                                      SAMPLES * PIXELS * sizeof *images);
    lc_no_grad_end();
    lc_status ended = lc_step_end(g);
    return status < 0 ? status : ended;
}

/* Root mean square difference of the mean generated image and the mean real one: 0 for a perfect generator. */
static lc_status measure(gan *m, const float *images)
{
    int64_t n = lc_dataset_length(m->data) < 1000 ? lc_dataset_length(m->data) : 1000;
    double sum[PIXELS] = {0}, square = 0;
    float x[PIXELS];
    int64_t y;
    for (int64_t i = 0; i < n; i++) {
        LC_TRY(lc_dataset_read(m->data, i, 0, (void *const[]){x, &y}));
        for (int p = 0; p < PIXELS; p++) sum[p] += (double)x[p] / (double)n;
    }
    for (int p = 0; p < PIXELS; p++) {
        for (int i = 0; i < SAMPLES; i++) sum[p] -= (double)images[i * PIXELS + p] / SAMPLES;
        square += sum[p] * sum[p];
    }
    m->distance = sqrt(square / PIXELS);
    return LC_OK;
}

/* Writes the samples as a grid into the run's folder. */
static lc_status draw(gan *m, float *images)
{
    lc_trainer *t = m->base.trainer;
    const char *dir = *lc_trainer_run_dir(t) ? lc_trainer_run_dir(t) : "."; /* without loggers there is no folder */
    lc_tensor *pictures;
    lc_plot *grid = NULL;
    char path[4200];
    snprintf(path, sizeof path, "%s/samples-epoch=%lld.png", dir, (long long)lc_trainer_current_epoch(t));
    LC_TRY(lc_input_new(LC_F32, 4, (int64_t[]){SAMPLES, 1, SIDE, SIDE}, LC_ROW_MAJOR, images, &pictures));
    lc_status status = lc_plot_pictures(pictures, &grid, .low = -1, .high = 1);
    if (status >= 0) status = lc_plot_save(grid, path);
    lc_plot_free(grid);
    lc_tensor_unref(pictures);
    return status;
}

static lc_status on_train_epoch_end(lc_module *self)
{
    gan *m = (gan *)self;
    float *images = malloc(SAMPLES * PIXELS * sizeof *images);
    if (!images) return lc_fail(LC_ERR_MEMORY, "out of memory: samples");
    lc_status status = sample(m, images);
    if (status >= 0) status = measure(m, images);
    if (status >= 0) lc_log_value(self, "mean_distance", m->distance);
    bool draws = lc_trainer_is_global_zero(self->trainer) && !lc_trainer_get_options(self->trainer)->fast_dev_run;
    if (status >= 0 && draws) status = draw(m, images);
    free(images);
    return status;
}

static const lc_module_ops gan_ops = {
    LC_MODULE_OPS_INIT("gan"),
    .manual_optimization = true,
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
    .on_train_epoch_end = on_train_epoch_end,
};

int main(int argc, char **argv)
{
    arguments args = {.data = "/usr/share/datasets/fashion-mnist", .batch_size = 64, .width = 256, .lr = 2e-4};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 10;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, 4, &args, argc, argv));

    gan model = {.lr = args.lr};
    LC_MAIN_TRY(lc_mnist_load(args.data, &model.data, NULL, .mean = 0.5, .std = 0.5));
    lc_dataloader *loader;
    LC_MAIN_TRY(lc_dataloader_new(&loader, .dataset = model.data, .batch_size = args.batch_size, .shuffle = true,
                                  .seed = (uint64_t)opt.seed));
    lc_module_init(&model.base, &gan_ops, (uint64_t)opt.seed);
    network_init(&model.generator, &model, "generator", LATENT, args.width, PIXELS);
    network_init(&model.discriminator, &model, "discriminator", PIXELS, args.width, 1);

    lc_trainer *trainer;
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &model.base, .train_dataloader = loader));
    printf("steps %lld\nmean_distance %.4f\n", (long long)lc_trainer_global_step(trainer), model.distance);

    lc_trainer_free(trainer);
    lc_dataloader_free(loader);
    lc_dataset_unref(model.data);
    lc_module_release(&model.base);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
