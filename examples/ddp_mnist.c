/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest training on several ranks: a convolutional network on MNIST or Fashion-MNIST. A rank is a process with
 * the whole model and its share of each batch; after each backward pass gradients are averaged over the ranks, so that
 * all make the same update. The program contains none of this: options select it; without them it runs on one rank.
 *
 *   ddp_mnist                                  one rank
 *   ddp_mnist --devices 2 --strategy ddp       two processes of this machine
 *   mpirun -np 4 ddp_mnist                     wherever a launcher puts them (docs/launching.md)
 *
 * On the first of two machines, whose address is A; on the second, the same with --nr 1:
 *
 *   MASTER_ADDR=A MASTER_PORT=29500 ddp_mnist --accelerator cpu --nodes 2 --gpus 2 --nr 0 --epochs 5
 *
 * Add --data DIR if the data set is not where Debian's dataset-fashion-mnist installs it.
 *
 * --batch_size is that of one rank: two ranks with 50 each make the same steps as one rank with 100, and with
 * --deterministic true they end with the same model.safetensors, byte for byte. ddp_by_hand.c writes out what the
 * strategy does here. */
#include <lightc/lightc.h>
#include <stdio.h>

typedef struct arguments {
    const char *data;
    int64_t batch_size;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder of the IDX files of MNIST or Fashion-MNIST"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "samples in a batch of one rank"),
};

typedef struct network {
    lc_module base;
    lc_conv2d conv1, conv2;
    lc_max_pool2d pool;
    lc_linear fc;
} network;

static lc_tensor *forward(network *m, lc_tensor *x) /* x [B,1,28,28] */
{
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv1, x))); /* [B,16,14,14] */
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv2, x))); /* [B,32,7,7] */
    return lc_linear_forward(&m->fc, lc_flatten(x, 1));                            /* [B,10] */
}

/* `batch` is this rank's share. */
static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(forward((network *)self, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true, .sync_dist = true); /* over all ranks, not only of rank 0 */
    return loss;
}

/* Values logged over an epoch cover the samples of all ranks, each counted once. */
static lc_status test_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_tensor *logits = forward((network *)self, batch->x);
    lc_tensor *right = lc_eq(lc_argmax(logits, .dim = 1), batch->y);
    lc_log(self, "test_loss", lc_cross_entropy(logits, batch->y));
    lc_log(self, "test_acc", lc_mean(lc_cast(right, LC_F32)));
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-3));
}

static const lc_module_ops network_ops = {
    LC_MODULE_OPS_INIT("network"),
    .training_step = training_step,
    .test_step = test_step,
    .configure_optimizers = configure_optimizers,
};

int main(int argc, char **argv)
{
    arguments args = {.data = "/usr/share/datasets/fashion-mnist", .batch_size = 50};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 3;
    /* With --devices 2 this call starts the ranks and returns when they have ended; the rest of main runs in the
     * ranks. */
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, 2, &args, argc, argv));

    /* Every rank has all data and makes the same loaders: the trainer shards them. */
    lc_dataset *sets[2];
    lc_dataloader *loaders[2];
    LC_MAIN_TRY(lc_mnist_load(args.data, &sets[0], &sets[1], .mean = 0.1307, .std = 0.3081));
    for (int i = 0; i < 2; i++)
        LC_MAIN_TRY(lc_dataloader_new(&loaders[i], .dataset = sets[i], .batch_size = args.batch_size, .shuffle = i == 0,
                                      .drop_last = i == 0, .seed = (uint64_t)opt.seed));

    network model;
    lc_module_init(&model.base, &network_ops, (uint64_t)opt.seed);
    lc_conv2d_init(&model.conv1, &model, "conv1", 1, 16, 5, .padding = 2);
    lc_conv2d_init(&model.conv2, &model, "conv2", 16, 32, 5, .padding = 2);
    lc_max_pool2d_init(&model.pool, &model, "pool", 2);
    lc_linear_init(&model.fc, &model, "fc", 32 * 7 * 7, 10);

    lc_trainer *trainer;
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer)); /* the ranks have found each other when it returns */
    LC_MAIN_TRY(lc_trainer_fit(trainer, &model.base, .train_dataloader = loaders[0]));
    LC_MAIN_TRY(lc_trainer_test(trainer, &model.base, .dataloaders = &loaders[1], .n_dataloaders = 1));
    int ranks = lc_trainer_world_size(trainer);
    if (lc_trainer_is_global_zero(trainer)) printf("trained on %d rank%s\n", ranks, ranks == 1 ? "" : "s");

    lc_trainer_free(trainer);
    for (int i = 0; i < 2; i++) {
        lc_dataloader_free(loaders[i]);
        lc_dataset_unref(sets[i]);
    }
    lc_module_release(&model.base);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
