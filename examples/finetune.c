/* SPDX-License-Identifier: Apache-2.0 */
/* Fine-tuning: a ResNet with pre-trained weights learns the classes of a new folder. At first its backbone is frozen
 * and only the new head is trained; from --unfreeze_at on the backbone joins the training, with a smaller learning
 * rate.
 *
 *   python -c "from torchvision.models import resnet18 as m; from safetensors.torch import save_file as s;
 *              s(m(weights='DEFAULT').state_dict(), 'resnet18.safetensors')"
 *   finetune --data DIR --weights resnet18.safetensors          DIR/train and DIR/test hold a folder for each class
 *   finetune --data DIR --depth 50 --weights resnet50.safetensors --max_epochs 10     and any option of the trainer
 *
 * Without --weights the backbone keeps its random initial values, which shows the program, but helps no training. */
#include <lightc/lightc.h>
#include <stdio.h>
#include <string.h>

typedef struct arguments {
    const char *data, *weights;
    int64_t depth, batch_size, side, unfreeze_at;
    int num_workers;
    double lr;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder with train/CLASS/PICTURE and test/CLASS/PICTURE"),
    LC_OPTION(arguments, weights, LC_OPTION_TEXT, 0, 0, "safetensors file with torchvision's names"),
    LC_OPTION(arguments, depth, LC_OPTION_INT, 18, 101, "of the ResNet: 18, 34, 50 or 101"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "pictures in a batch"),
    LC_OPTION(arguments, side, LC_OPTION_INT, 32, 1024, "height and width of the crops"),
    LC_OPTION(arguments, num_workers, LC_OPTION_WORKERS, 0, 256, "threads that decode, or auto"),
    LC_OPTION(arguments, unfreeze_at, LC_OPTION_INT, 0, 1e6, "epoch from which on the backbone is trained"),
    LC_OPTION(arguments, lr, LC_OPTION_FLOAT, 0, 1e3, "learning rate of the head"),
};
enum { OPTIONS = sizeof options / sizeof *options };

typedef struct classifier {
    lc_module base;
    lc_resnet backbone;
    lc_linear head;
    double lr;
} classifier;

static lc_tensor *forward(classifier *m, lc_tensor *x) /* x [B,3,H,W] */
{
    return lc_linear_forward(&m->head, lc_resnet_forward(&m->backbone, x)); /* [B,features] -> [B,classes] */
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(forward((classifier *)self, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status test_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_tensor *logits = forward((classifier *)self, batch->x);
    lc_log(self, "test_loss", lc_cross_entropy(logits, batch->y));
    lc_log(self, "test_acc", lc_mean(lc_cast(lc_eq(lc_argmax(logits, .dim = 1), batch->y), LC_F32)));
    return LC_OK;
}

/* Parameters that are trained now: at first the head's. The callback adds those of the backbone. */
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    classifier *m = (classifier *)self;
    return lc_optimizers_add(out, lc_adam(&m->head, .lr = m->lr));
}

/* Weights for the backbone: all of it, and only the classifier of the file may be left over. */
static lc_status load_weights(classifier *m, const char *path)
{
    const char *const fc[] = {"fc.weight", "fc.bias"};
    lc_load_result r = LC_LOAD_RESULT_INIT;
    lc_status s = lc_module_load_weights(&m->backbone.base, path, &r, .not_strict = true);
    int64_t known = 0;
    for (int64_t i = 0; i < r.n_unexpected; i++)
        for (int k = 0; k < 2; k++) known += strcmp(r.unexpected[i], fc[k]) == 0;
    if (s >= 0 && (r.n_missing || known < r.n_unexpected))
        s = lc_fail(LC_ERR_NOT_FOUND, "%s does not have the weights of this ResNet: %s", path, r.message);
    if (s >= 0) printf("loaded %lld tensors\n", (long long)r.n_loaded);
    lc_load_result_release(&r);
    return s;
}

/* A loader over DIR/train or DIR/test, and the pictures that it reads, which know the classes. */
static lc_status load(const arguments *a, bool train, uint64_t seed, lc_dataset **pictures, lc_dataloader **out)
{
    char dir[4096];
    lc_dataset *data;
    lc_transform crop[2], normalize;
    int n = 0;
    snprintf(dir, sizeof dir, "%s/%s", a->data, train ? "train" : "test");
    if (train) {
        LC_TRY(lc_transform_random_resized_crop(a->side, a->side, &crop[n++]));
        LC_TRY(lc_transform_horizontal_flip(0.5, &crop[n++]));
    } else {
        LC_TRY(lc_transform_resize(&crop[n++], .shorter = a->side * 8 / 7));
        LC_TRY(lc_transform_center_crop(a->side, a->side, &crop[n++]));
    }
    lc_transform all;
    LC_TRY(lc_transform_compose(n, crop, &all));
    LC_TRY(lc_image_folder_new(dir, pictures, .transform = &all, .fast_scale = true));
    LC_TRY(lc_transform_normalize(3, (const double[]){0.485, 0.456, 0.406}, (const double[]){0.229, 0.224, 0.225},
                                  &normalize));
    LC_TRY(lc_dataset_transform(*pictures, 0, normalize, &data));
    LC_TRY(lc_dataloader_new(out, .dataset = data, .batch_size = a->batch_size, .shuffle = train, .seed = seed,
                             .num_workers = a->num_workers));
    lc_dataset_unref(data);
    return LC_OK;
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("finetune"), .training_step = training_step,
                                  .test_step = test_step, .configure_optimizers = configure_optimizers};

int main(int argc, char **argv)
{
    arguments args = {.data = "pictures",
                      .weights = "",
                      .depth = 18,
                      .batch_size = 32,
                      .side = 224,
                      .num_workers = 2,
                      .unfreeze_at = 2,
                      .lr = 1e-3};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 5;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, OPTIONS, &args, argc, argv));

    lc_dataset *pictures[2];
    lc_dataloader *train, *test;
    LC_MAIN_TRY(load(&args, true, (uint64_t)opt.seed, &pictures[0], &train));
    LC_MAIN_TRY(load(&args, false, (uint64_t)opt.seed, &pictures[1], &test));
    LC_MAIN_TRY(lc_image_same_classes(pictures[0], pictures[1]));
    const int64_t classes = lc_image_classes(pictures[0]);

    classifier model = {.lr = args.lr};
    lc_trainer *trainer;
    lc_callback finetuning;
    lc_resnet_init_args resnet = lc_resnet_init_defaults(); /* num_classes 0: no fc */
    lc_module_init(&model.base, &ops, (uint64_t)opt.seed);
    lc_resnet_init_with(&model.backbone, (int)args.depth, &model, "backbone", &resnet);
    lc_linear_init(&model.head, &model, "head", model.backbone.num_features, classes);
    LC_MAIN_TRY(lc_module_status(&model.base));
    if (*args.weights) LC_MAIN_TRY(load_weights(&model, args.weights));

    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_backbone_finetuning(&finetuning, .unfreeze_backbone_at_epoch = args.unfreeze_at, .verbose = true));
    LC_MAIN_TRY(lc_trainer_add_callback(trainer, finetuning));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &model.base, .train_dataloader = train));
    LC_MAIN_TRY(lc_trainer_test(trainer, &model.base, .dataloaders = &test, .n_dataloaders = 1));

    lc_trainer_free(trainer);
    lc_dataloader_free(train);
    lc_dataloader_free(test);
    for (int i = 0; i < 2; i++) lc_dataset_unref(pictures[i]);
    lc_module_release(&model.base);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
