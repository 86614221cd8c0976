/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest training on several devices of one process: a linear model from 10 numbers to 1, 100 samples, mean
 * squared error, SGD. The program itself does not mention devices: options select them.
 *
 *   dp_linear                                                 one device
 *   dp_linear --strategy data_parallel --devices 2            each batch of 20 is cut into two parts of 10
 *   dp_linear --strategy central_storage --devices 2          the same, with the parameters on the host
 *
 * All of them end with the same weights, within rounding. Devices are shares of the CPU today. With only --devices 2
 * the strategy is ddp: two processes with a batch of 20 each, so an epoch has half as many steps. */
#include <lightc/lightc.h>
#include <stdio.h>

enum { SAMPLES = 100, INPUTS = 10, BATCH = 20 };

static float x[SAMPLES][INPUTS], y[SAMPLES][1];

/* y = 1 x0 + 2 x1 + ... + 10 x9 + noise */
static void make_data(uint64_t seed)
{
    for (int i = 0; i < SAMPLES; i++) {
        y[i][0] = 0.1f * (float)lc_random_normal(seed + 1, (uint64_t)i);
        for (int k = 0; k < INPUTS; k++) {
            x[i][k] = (float)lc_random_normal(seed, (uint64_t)(i * INPUTS + k));
            y[i][0] += (float)(k + 1) * x[i][k];
        }
    }
}

typedef struct model {
    lc_module base;
    lc_linear linear;
} model;

/* Called once for each part of the batch; prints its number of samples. */
static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    model *m = (model *)self;
    if (batch_idx == 0 && lc_trainer_current_epoch(self->trainer) == 0)
        printf("training_step has %lld samples\n", (long long)batch->size);
    lc_tensor *loss = lc_mse_loss(lc_linear_forward(&m->linear, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .on_epoch = true, .prog_bar = true); /* the mean of the parts */
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static const lc_module_ops model_ops = {LC_MODULE_OPS_INIT("dp_linear"), .training_step = training_step,
                                        .configure_optimizers = configure_optimizers};

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 5;
    LC_MAIN_TRY(lc_trainer_options_parse(&opt, argc, argv));
    make_data((uint64_t)opt.seed);

    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {INPUTS}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = y}};
    lc_dataset *data;
    lc_dataloader *loader;
    LC_MAIN_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &data));
    LC_MAIN_TRY(
        lc_dataloader_new(&loader, .dataset = data, .batch_size = BATCH, .shuffle = true, .seed = (uint64_t)opt.seed));

    model m;
    lc_module_init(&m.base, &model_ops, (uint64_t)opt.seed);
    lc_linear_init(&m.linear, &m, "linear", INPUTS, 1);

    lc_trainer *trainer;
    float weight[INPUTS];
    double loss;
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &m.base, .train_dataloader = loader));
    LC_MAIN_TRY(lc_trainer_metric(trainer, "train_loss_epoch", &loss));
    LC_MAIN_TRY(lc_tensor_read(m.linear.weight, weight, sizeof weight));
    printf("train_loss %.5f\nweights", loss);
    for (int k = 0; k < INPUTS; k++) printf(" %.4f", (double)weight[k]);
    printf("\n");

    lc_trainer_free(trainer);
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
    lc_module_release(&m.base);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
