/* SPDX-License-Identifier: Apache-2.0 */
/* A convolutional network on folders of pictures, which are read and decoded while it trains: DIR/train and DIR/test
 * hold a folder for each class (JPEG, PNG or WebP, of any size). Threads decode, resize, crop and flip ahead of the
 * training; pictures that cannot be read are skipped, and counted after each epoch.
 *
 *   image_folder --data DIR --height 32 --width 32 --max_epochs 10
 *   image_folder --data DIR --num_workers auto --batch_size 64     and any option of the trainer */
#include <lightc/lightc.h>
#include <stdio.h>

typedef struct arguments {
    const char *data;
    int num_workers;
    int64_t batch_size, height, width, cache_bytes;
    double lr;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder with train/CLASS/PICTURE and test/CLASS/PICTURE"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "pictures in a batch"),
    LC_OPTION(arguments, height, LC_OPTION_INT, 8, 4096, "to which pictures are resized"),
    LC_OPTION(arguments, width, LC_OPTION_INT, 8, 4096, "to which pictures are resized"),
    LC_OPTION(arguments, num_workers, LC_OPTION_WORKERS, 0, 256, "threads that decode, or auto"),
    LC_OPTION(arguments, cache_bytes, LC_OPTION_SIZE, 0, 0, "memory for files that were read, such as 2GiB"),
    LC_OPTION(arguments, lr, LC_OPTION_FLOAT, 0, 1e3, "learning rate of Adam"),
};

typedef struct cnn {
    lc_module base;
    lc_sequential body;
    lc_linear head;
    double lr;
} cnn;

static void cnn_init(cnn *m, const lc_module_ops *ops, uint64_t seed, int64_t classes, double lr)
{
    const int64_t channels[] = {3, 32, 64, 128};
    lc_module_init(&m->base, ops, seed);
    m->lr = lr;
    lc_sequential_init(&m->body, m, "body");
    for (int i = 0; i < 3; i++) {
        lc_sequential_add(&m->body, lc_conv2d, channels[i], channels[i + 1], 3, .padding = 1);
        lc_sequential_add(&m->body, lc_batch_norm2d, channels[i + 1]);
        lc_sequential_add(&m->body, lc_activation, LC_ACT_RELU);
        lc_sequential_add(&m->body, lc_max_pool2d, 2);
    }
    lc_linear_init(&m->head, m, "head", channels[3], classes);
}

static lc_tensor *forward(cnn *m, lc_tensor *x) /* x [B,3,H,W] */
{
    x = lc_forward(&m->body, x);           /* [B,128,H/8,W/8] */
    x = lc_mean(x, .dims = LC_DIMS(2, 3)); /* [B,128] */
    return lc_linear_forward(&m->head, x); /* [B,classes] */
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(forward((cnn *)self, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status test_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_tensor *logits = forward((cnn *)self, batch->x);
    lc_tensor *right = lc_eq(lc_argmax(logits, .dim = 1), batch->y);
    lc_log(self, "test_loss", lc_cross_entropy(logits, batch->y));
    lc_log(self, "test_acc", lc_mean(lc_cast(right, LC_F32)));
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = ((cnn *)self)->lr));
}

static const lc_module_ops cnn_ops = {LC_MODULE_OPS_INIT("image_folder"), .training_step = training_step,
                                      .test_step = test_step, .configure_optimizers = configure_optimizers};

/* A loader over DIR/PART, and the pictures that it reads, which know the classes. */
static lc_status load(const arguments *a, const char *part, bool train, uint64_t seed, lc_dataset **pictures,
                      lc_dataloader **out)
{
    char dir[4096];
    lc_dataset *floats;
    lc_transform steps[4], all;
    int n = 0;
    snprintf(dir, sizeof dir, "%s/%s", a->data, part);
    LC_TRY(lc_image_folder_new(dir, pictures, .height = a->height, .width = a->width, .on_error = LC_IMAGE_SKIP,
                               .cache_bytes = a->cache_bytes));
    if (train) LC_TRY(lc_transform_random_crop(a->height, a->width, &steps[n++], .padding = LC_DIMS(a->height / 8)));
    if (train) LC_TRY(lc_transform_horizontal_flip(0.5, &steps[n++]));
    LC_TRY(lc_transform_to_tensor(&steps[n++]));
    LC_TRY(lc_transform_normalize(3, (const double[]){0.485, 0.456, 0.406}, (const double[]){0.229, 0.224, 0.225},
                                  &steps[n++]));
    LC_TRY(lc_transform_compose(n, steps, &all));
    LC_TRY(lc_dataset_transform(*pictures, 0, all, &floats));
    LC_TRY(lc_dataloader_new(out, .dataset = floats, .batch_size = a->batch_size, .shuffle = train, .seed = seed,
                             .num_workers = a->num_workers));
    lc_dataset_unref(floats);
    return LC_OK;
}

int main(int argc, char **argv)
{
    arguments args = {.data = "pictures", .batch_size = 32, .height = 32, .width = 32, .num_workers = 2, .lr = 1e-3};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 5;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, sizeof options / sizeof *options, &args, argc, argv));

    lc_dataset *pictures[2];
    lc_dataloader *train, *test;
    LC_MAIN_TRY(load(&args, "train", true, (uint64_t)opt.seed, &pictures[0], &train));
    LC_MAIN_TRY(load(&args, "test", false, (uint64_t)opt.seed, &pictures[1], &test));
    LC_MAIN_TRY(lc_image_same_classes(pictures[0], pictures[1]));
    const int64_t classes = lc_image_classes(pictures[0]);

    cnn model;
    lc_trainer *trainer;
    cnn_init(&model, &cnn_ops, (uint64_t)opt.seed, classes, args.lr);
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &model.base, .train_dataloader = train));
    LC_MAIN_TRY(lc_trainer_test(trainer, &model.base, .dataloaders = &test, .n_dataloaders = 1));

    lc_trainer_free(trainer);
    lc_dataloader_free(train);
    lc_dataloader_free(test);
    for (int i = 0; i < 2; i++) lc_dataset_unref(pictures[i]);
    lc_module_release(&model.base);
    return 0;
}
