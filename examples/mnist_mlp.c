/* SPDX-License-Identifier: Apache-2.0 */
/* A 784-128-10 perceptron on MNIST or Fashion-MNIST: the smallest complete training program.
 *
 *   mnist_mlp --data DIR             the folder of the four IDX files (train-images-idx3-ubyte, gz or not, ...)
 *   mnist_mlp --max_epochs 10        any option of the trainer; --help lists them
 *   mnist_mlp --ckpt_path last       continue where the last run stopped */
#include <lightc/lightc.h>
#include <stdio.h>

typedef struct arguments {
    const char *data;
    int64_t batch_size;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder of the IDX files of MNIST or Fashion-MNIST"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "samples in a batch"),
};

typedef struct classifier {
    lc_module base;
    lc_linear l1, l2;
} classifier;

static lc_tensor *forward(classifier *m, lc_tensor *x) /* x [B,1,28,28] */
{
    x = lc_flatten(x, 1);
    return lc_linear_forward(&m->l2, lc_relu(lc_linear_forward(&m->l1, x))); /* [B,10] */
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(forward((classifier *)self, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static void evaluate(lc_module *self, const lc_batch *batch, const char *loss_name, const char *accuracy_name)
{
    lc_tensor *logits = forward((classifier *)self, batch->x);
    lc_tensor *right = lc_eq(lc_argmax(logits, .dim = 1), batch->y);
    lc_log(self, loss_name, lc_cross_entropy(logits, batch->y), .prog_bar = true);
    lc_log(self, accuracy_name, lc_mean(lc_cast(right, LC_F32)), .prog_bar = true);
}

static lc_status validation_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    evaluate(self, batch, "val_loss", "val_acc");
    return LC_OK;
}

static lc_status test_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    evaluate(self, batch, "test_loss", "test_acc");
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-3));
}

static const lc_module_ops classifier_ops = {
    LC_MODULE_OPS_INIT("mnist_mlp"),    .training_step = training_step, .configure_optimizers = configure_optimizers,
    .validation_step = validation_step, .test_step = test_step,
};

int main(int argc, char **argv)
{
    arguments args = {.data = "/usr/share/datasets/fashion-mnist", .batch_size = 64};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 3;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, 2, &args, argc, argv));

    lc_dataset *whole, *test, *parts[2]; /* 60,000 = 55,000 to train on + 5,000 to validate */
    LC_MAIN_TRY(lc_mnist_load(args.data, &whole, &test, .mean = 0.1307, .std = 0.3081));
    int64_t n = lc_dataset_length(whole), held_out = n / 12;
    LC_MAIN_TRY(lc_dataset_split(whole, (uint64_t)opt.seed, 2, (int64_t[]){n - held_out, held_out}, parts));

    lc_dataset *sets[] = {parts[0], parts[1], test};
    lc_dataloader *loaders[3];
    for (int i = 0; i < 3; i++) {
        LC_MAIN_TRY(lc_dataloader_new(&loaders[i], .dataset = sets[i], .batch_size = args.batch_size, .shuffle = i == 0,
                                      .seed = (uint64_t)opt.seed));
    }

    classifier model;
    lc_module_init(&model.base, &classifier_ops, (uint64_t)opt.seed);
    lc_linear_init(&model.l1, &model, "l1", 28 * 28, 128);
    lc_linear_init(&model.l2, &model, "l2", 128, 10);

    lc_trainer *trainer;
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &model.base, .train_dataloader = loaders[0], .val_dataloader = loaders[1]));
    LC_MAIN_TRY(lc_trainer_test(trainer, &model.base, .dataloaders = &loaders[2], .n_dataloaders = 1));

    lc_trainer_free(trainer);
    for (int i = 0; i < 3; i++) {
        lc_dataloader_free(loaders[i]);
        lc_dataset_unref(sets[i]);
    }
    lc_dataset_unref(whole);
    lc_module_release(&model.base);
    return 0;
}
