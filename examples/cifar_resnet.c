/* SPDX-License-Identifier: Apache-2.0 */
/* A ResNet on CIFAR-10, or on any folders of small pictures: DIR/train and DIR/test hold a folder for each class. With
 * the usual recipe: random crops and flips, MixUp, label smoothing, SGD with Nesterov momentum and a one-cycle
 * schedule.
 *
 *   cifar_resnet --data DIR --max_epochs 30            ResNet-20
 *   cifar_resnet --data DIR --depth 18 --batch_size 256 --max_lr 0.2
 *   cifar_resnet --data DIR --mixup 0 --label_smoothing 0 --num_workers 4       and any option of the trainer */
#include <lightc/lightc.h>
#include <stdio.h>

typedef struct arguments {
    const char *data;
    int64_t depth, batch_size, side;
    int num_workers;
    double max_lr, label_smoothing, mixup;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder with train/CLASS/PICTURE and test/CLASS/PICTURE"),
    LC_OPTION(arguments, depth, LC_OPTION_INT, 18, 101, "of the ResNet: 20, 18, 34, 50 or 101"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "pictures in a batch"),
    LC_OPTION(arguments, side, LC_OPTION_INT, 8, 512, "height and width to which pictures are resized"),
    LC_OPTION(arguments, num_workers, LC_OPTION_WORKERS, 0, 256, "threads that decode, or auto"),
    LC_OPTION(arguments, max_lr, LC_OPTION_FLOAT, 0, 1e3, "learning rate at the top of the cycle"),
    LC_OPTION(arguments, label_smoothing, LC_OPTION_FLOAT, 0, 1, "part of a label that is spread over all classes"),
    LC_OPTION(arguments, mixup, LC_OPTION_FLOAT, 0, 100, "alpha of MixUp; 0: pictures are not mixed"),
};
enum { OPTIONS = sizeof options / sizeof *options };

typedef struct classifier {
    lc_module base;
    lc_resnet net;
    const arguments *args;
} classifier;

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    classifier *m = (classifier *)self;
    (void)batch_idx;
    lc_tensor *logits = lc_resnet_forward(&m->net, batch->x); /* [B,classes]; y is [B], or mixed [B,classes] */
    lc_tensor *loss = lc_cross_entropy(logits, batch->y, .label_smoothing = m->args->label_smoothing);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status test_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_tensor *logits = lc_resnet_forward(&((classifier *)self)->net, batch->x);
    lc_log(self, "test_loss", lc_cross_entropy(logits, batch->y));
    lc_log(self, "test_acc", lc_mean(lc_cast(lc_eq(lc_argmax(logits, .dim = 1), batch->y), LC_F32)));
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const arguments *a = ((classifier *)self)->args;
    lc_optimizer *sgd = lc_sgd(self, .lr = a->max_lr, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4);
    LC_TRY(lc_optimizers_add(out, sgd));
    double steps;
    LC_TRY(lc_trainer_estimated_stepping_batches(self->trainer, &steps));
    if (steps < 1)
        return lc_fail(LC_ERR_CONFIG,
                       "there is no step to train: no epoch is wanted, or train has fewer pictures than a batch "
                       "(--batch_size %lld on each rank)",
                       (long long)a->batch_size);
    if (!(steps < 1e12))
        return lc_fail(LC_ERR_CONFIG, "a one-cycle schedule needs to know its end: give --max_epochs or --max_steps");
    lc_scheduler *cycle = lc_one_cycle_lr(sgd, .max_lr = a->max_lr, .total_steps = (int64_t)steps);
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = cycle, .interval = LC_INTERVAL_STEP});
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("cifar_resnet"), .training_step = training_step,
                                  .test_step = test_step, .configure_optimizers = configure_optimizers};

/* The transforms that a picture of DIR/train, or of DIR/test, goes through before it is in a batch. */
static lc_status transform(const arguments *a, bool train, lc_transform *out)
{
    lc_transform steps[3];
    int n = 0;
    if (train) LC_TRY(lc_transform_random_crop(a->side, a->side, &steps[n++], .padding = LC_DIMS(a->side / 8)));
    if (train) LC_TRY(lc_transform_horizontal_flip(0.5, &steps[n++]));
    LC_TRY(lc_transform_normalize(3, (const double[]){0.4914, 0.4822, 0.4465}, (const double[]){0.247, 0.2435, 0.2616},
                                  &steps[n++]));
    return lc_transform_compose(n, steps, out);
}

/* A loader over DIR/train or DIR/test, and the pictures that it reads, which know the classes. */
static lc_status load(const arguments *a, bool train, uint64_t seed, lc_dataset **pictures, lc_dataloader **out)
{
    char dir[4096];
    lc_dataset *data, *labeled = NULL;
    lc_transform all, one_hot;
    bool mixes = train && a->mixup > 0;
    snprintf(dir, sizeof dir, "%s/%s", a->data, train ? "train" : "test");
    LC_TRY(lc_image_folder_new(dir, pictures, .height = a->side, .width = a->side));
    LC_TRY(transform(a, train, &all));
    LC_TRY(lc_dataset_transform(*pictures, 0, all, &data));
    if (mixes) { /* mixed pictures have several labels */
        LC_TRY(lc_transform_one_hot(lc_image_classes(*pictures), &one_hot));
        LC_TRY(lc_dataset_transform(data, 1, one_hot, &labeled));
    }
    LC_TRY(lc_dataloader_new(out, .dataset = mixes ? labeled : data, .batch_size = a->batch_size, .shuffle = train,
                             .drop_last = train, .seed = seed, .num_workers = a->num_workers,
                             .mix = mixes ? LC_MIXUP : LC_MIX_NONE, .mix_alpha = mixes ? a->mixup : 1));
    lc_dataset_unref(data);
    lc_dataset_unref(labeled);
    return LC_OK;
}

int main(int argc, char **argv)
{
    arguments args = {.data = "cifar10",
                      .depth = 20,
                      .batch_size = 128,
                      .side = 32,
                      .num_workers = 2,
                      .max_lr = 0.1,
                      .label_smoothing = 0.1,
                      .mixup = 0.2};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 30;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, OPTIONS, &args, argc, argv));

    lc_dataset *pictures[2];
    lc_dataloader *train, *test;
    LC_MAIN_TRY(load(&args, true, (uint64_t)opt.seed, &pictures[0], &train));
    LC_MAIN_TRY(load(&args, false, (uint64_t)opt.seed, &pictures[1], &test));
    LC_MAIN_TRY(lc_image_same_classes(pictures[0], pictures[1]));
    const int64_t classes = lc_image_classes(pictures[0]);

    classifier model = {.args = &args};
    lc_trainer *trainer;
    lc_resnet_init_args resnet = lc_resnet_init_defaults();
    resnet.num_classes = classes;
    resnet.small_stem = true;
    lc_module_init(&model.base, &ops, (uint64_t)opt.seed);
    lc_resnet_init_with(&model.net, (int)args.depth, &model, "net", &resnet);
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
