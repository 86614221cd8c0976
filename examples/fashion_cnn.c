/* SPDX-License-Identifier: Apache-2.0 */
/* A convolutional network on Fashion-MNIST, with batch norm, dropout, a decaying learning rate, and a checkpoint of the
 * most accurate state.
 *
 *   fashion_cnn --data DIR           the folder of the four IDX files; Debian: apt install dataset-fashion-mnist
 *   fashion_cnn --max_epochs 10 --every_n_train_steps 20 --default_root_dir runs     any option of the trainer */
#include <lightc/lightc.h>
#include <stdio.h>

typedef struct arguments {
    const char *data;
    int64_t batch_size;
    double lr;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder of the IDX files of Fashion-MNIST"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "samples in a batch"),
    LC_OPTION(arguments, lr, LC_OPTION_FLOAT, 0, 1e3, "first learning rate of Adam; times 0.7 after each epoch"),
};

typedef struct cnn {
    lc_module base;
    lc_sequential l1, l2;
    lc_linear fc1, fc2, fc3;
    lc_dropout drop;
    lc_metric *f1; /* of the test, over all its batches */
    double lr;
} cnn;

static void cnn_init(cnn *m, const lc_module_ops *ops, uint64_t seed, double lr)
{
    lc_module_init(&m->base, ops, seed);
    m->lr = lr;
    lc_sequential_init(&m->l1, m, "l1");
    lc_sequential_add(&m->l1, lc_conv2d, 1, 32, 3, .padding = 1);
    lc_sequential_add(&m->l1, lc_batch_norm2d, 32);
    lc_sequential_add(&m->l1, lc_activation, LC_ACT_RELU);
    lc_sequential_add(&m->l1, lc_max_pool2d, 2);
    lc_sequential_init(&m->l2, m, "l2");
    lc_sequential_add(&m->l2, lc_conv2d, 32, 64, 3);
    lc_sequential_add(&m->l2, lc_batch_norm2d, 64);
    lc_sequential_add(&m->l2, lc_activation, LC_ACT_RELU);
    lc_sequential_add(&m->l2, lc_max_pool2d, 2);
    lc_linear_init(&m->fc1, m, "fc1", 64 * 6 * 6, 600);
    lc_dropout_init(&m->drop, m, "drop", 0.25);
    lc_linear_init(&m->fc2, m, "fc2", 600, 120);
    lc_linear_init(&m->fc3, m, "fc3", 120, 10);
}

static lc_tensor *forward(cnn *m, lc_tensor *x) /* x [B,1,28,28] */
{
    x = lc_forward(&m->l1, x);                /* [B,32,14,14] */
    x = lc_flatten(lc_forward(&m->l2, x), 1); /* [B,64*6*6] */
    x = lc_dropout_forward(&m->drop, lc_relu(lc_linear_forward(&m->fc1, x)));
    x = lc_relu(lc_linear_forward(&m->fc2, x));
    return lc_linear_forward(&m->fc3, x); /* [B,10] */
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(forward((cnn *)self, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

/* Returns the logits [B,10]. */
static lc_tensor *evaluate(lc_module *self, const lc_batch *batch, const char *loss_name, const char *accuracy_name)
{
    lc_tensor *logits = forward((cnn *)self, batch->x);
    lc_tensor *right = lc_eq(lc_argmax(logits, .dim = 1), batch->y);
    lc_log(self, loss_name, lc_cross_entropy(logits, batch->y), .prog_bar = true);
    lc_log(self, accuracy_name, lc_mean(lc_cast(right, LC_F32)), .prog_bar = true);
    return logits;
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
    cnn *m = (cnn *)self;
    lc_tensor *logits = evaluate(self, batch, "test_loss", "test_acc");
    /* F1 is not a mean over batches, so log the metric itself: the trainer computes it at the end. */
    LC_TRY(lc_metric_update_tensor(m->f1, logits, batch->y));
    lc_log_metric(self, "test_f1", m->f1);
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *adam = lc_adam(self, .lr = ((cnn *)self)->lr);
    LC_TRY(lc_optimizers_add(out, adam));
    /* Once per epoch, independent of the total number of epochs, so that the run can be continued with more epochs
     * later. */
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_exponential_lr(adam, .gamma = 0.7)});
}

static const lc_module_ops cnn_ops = {
    LC_MODULE_OPS_INIT("fashion_cnn"),  .training_step = training_step, .configure_optimizers = configure_optimizers,
    .validation_step = validation_step, .test_step = test_step,
};

int main(int argc, char **argv)
{
    arguments args = {.data = "/usr/share/datasets/fashion-mnist", .batch_size = 100, .lr = 1e-3};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 6;
    opt.monitor = "val_acc"; /* the best checkpoint is the most accurate one */
    opt.mode = "max";
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, 3, &args, argc, argv));

    lc_dataset *whole, *test, *parts[2];
    LC_MAIN_TRY(lc_mnist_load(args.data, &whole, &test, .mean = 0.2860, .std = 0.3530));
    int64_t n = lc_dataset_length(whole), held_out = n / 12;
    LC_MAIN_TRY(lc_dataset_split(whole, (uint64_t)opt.seed, 2, (int64_t[]){n - held_out, held_out}, parts));

    lc_dataset *sets[] = {parts[0], parts[1], test};
    lc_dataloader *loaders[3];
    for (int i = 0; i < 3; i++) {
        LC_MAIN_TRY(lc_dataloader_new(&loaders[i], .dataset = sets[i], .batch_size = args.batch_size, .shuffle = i == 0,
                                      .seed = (uint64_t)opt.seed));
    }

    cnn model;
    cnn_init(&model, &cnn_ops, (uint64_t)opt.seed, args.lr);
    LC_MAIN_TRY(lc_metric_new("F1Score", &model.f1, .num_classes = 10, .average = LC_AVERAGE_MACRO));
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
    lc_metric_free(model.f1);
    lc_module_release(&model.base);
    return 0;
}
