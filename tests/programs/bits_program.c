/* SPDX-License-Identifier: Apache-2.0 */
/* The training that test_same_bits.c runs in processes: a small network with any options of the trainer. bits_program
 * --dir DIR --batch B [--save_after I] [options of the trainer]. B: samples of a rank's batch. It writes DIR/end.ckpt,
 * DIR/values (the last logged values, in hexadecimal) and, with --save_after, DIR/inside.ckpt after batch I of the
 * second epoch. */
#include "log_scores.h"

enum { SAMPLES = 66, VAL = 26, PIXELS = 64, CLASSES = 4, EPOCHS = 2, CHANNELS = 6 };

typedef struct settings {
    const char *dir;
    int64_t batch, save_after;
} settings;

static const lc_option table[] = {
    LC_FIELD(settings, dir, "where to report"),
    LC_FIELD(settings, batch, "samples of a rank's batch"),
    LC_FIELD(settings, save_after, "this batch of the second epoch; -1: none"),
};

static settings s = {.dir = ".", .batch = 1, .save_after = -1};
static float images[SAMPLES][PIXELS];
static int64_t labels[SAMPLES];

typedef struct net {
    lc_module base;
    lc_conv2d conv;
    lc_batch_norm_layer bn;
    lc_max_pool2d pool;
    lc_linear hidden, out;
    lc_metric *accuracy;
} net;

static lc_tensor *forward(net *m, lc_tensor *x) /* [B,64] */
{
    x = lc_conv2d_forward(&m->conv, lc_reshape(x, lc_tensor_dim(x, 0), 1, 8, 8)); /* [B,6,8,8] */
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_batch_norm2d_forward(&m->bn, x)));
    x = lc_relu(lc_linear_forward(&m->hidden, lc_flatten(x, 1)));
    return lc_linear_forward(&m->out, m->base.training ? lc_dropout(x, 0.2) : x); /* [B,4] */
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    lc_tensor *loss = lc_cross_entropy(forward((net *)self, b->x), b->y);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON, .on_step = LC_ON, .sync_dist = true);
    return loss;
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i, (void)loader;
    return log_scores(self, "val", forward(m, b->x), b->y, m->accuracy);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *opt = lc_adam(self, .lr = 0.01);
    LC_TRY(lc_optimizers_add(out, opt));
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_cosine_annealing_lr(opt, .T_max = 9), .interval = LC_INTERVAL_STEP});
}

static lc_status save(lc_trainer *t, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.ckpt", s.dir, name);
    return lc_trainer_save_checkpoint(t, path, false);
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b;
    return i == s.save_after && lc_trainer_current_epoch(self->trainer) == 1 ? save(self->trainer, "inside") : LC_OK;
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = validation_step,
    .configure_optimizers = configure_optimizers,
};

static lc_status loader_of(bool train, lc_dataloader **out)
{
    int64_t first = train ? 0 : SAMPLES - VAL;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {PIXELS}}, .data = images[first]},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels + first}};
    lc_dataset *d;
    LC_TRY(lc_array_dataset_new(train ? SAMPLES : VAL, 2, arrays, &d));
    lc_status status = lc_dataloader_new(out, .dataset = d, .batch_size = s.batch, .shuffle = train, .seed = 4);
    lc_dataset_unref(d);
    return status;
}

static lc_status report(lc_trainer *t)
{
    static const char *const names[] = {"train_loss_step", "train_loss_epoch", "val_loss", "val_acc"};
    char path[4200];
    LC_TRY(save(t, "end"));
    if (lc_trainer_global_rank(t)) return LC_OK;
    snprintf(path, sizeof path, "%s/values", s.dir);
    FILE *f = fopen(path, "w");
    lc_status status = f ? LC_OK : lc_fail(LC_ERR_IO, "cannot write %s", path);
    for (size_t i = 0; i < sizeof names / sizeof *names && status >= 0; i++) {
        double value;
        status = lc_trainer_metric(t, names[i], &value);
        if (status >= 0) fprintf(f, "%s=%a\n", names[i], value);
    }
    if (f && fclose(f) != 0 && status >= 0) status = lc_fail(LC_ERR_IO, "cannot write %s", path);
    return status;
}

static lc_status train(lc_trainer_options *opt)
{
    lc_status status = LC_OK;
    lc_trainer *t = NULL;
    lc_dataloader *train = NULL, *val = NULL;
    net m = {0};
    lc_module_init(&m.base, &net_ops, 1);
    lc_conv2d_init(&m.conv, &m, "conv", 1, CHANNELS, 3, .padding = 1);
    lc_batch_norm2d_init(&m.bn, &m, "bn", CHANNELS);
    lc_max_pool2d_init(&m.pool, &m, "pool", 2);
    lc_linear_init(&m.hidden, &m, "hidden", CHANNELS * 16, 24);
    lc_linear_init(&m.out, &m, "out", 24, CLASSES);
    LC_TRY_GOTO(status, done, lc_metric_new("Accuracy", &m.accuracy, .num_classes = CLASSES));
    LC_TRY_GOTO(status, done, lc_trainer_new(opt, &t));
    LC_TRY_GOTO(status, done, loader_of(true, &train));
    LC_TRY_GOTO(status, done, loader_of(false, &val));
    LC_TRY_GOTO(status, done, lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val));
    status = report(t);
done:
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    lc_module_release(&m.base);
    lc_metric_free(m.accuracy);
    return status;
}

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < PIXELS; k++) images[i][k] = (float)lc_random_normal(9, (uint64_t)(i * PIXELS + k));
        labels[i] = (images[i][0] + images[i][1] > 0) + 2 * (images[i][2] > 0.5f);
    }
    opt.max_epochs = EPOCHS;
    opt.deterministic = true;
    opt.bucket_cap_mb = 1. / 1024;
    opt.gradient_clip_val = 0.5;
    opt.logger = "none";
    opt.enable_progress_bar = opt.enable_model_summary = opt.enable_checkpointing = LC_OFF;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, table, sizeof table / sizeof *table, &s, argc, argv));
    LC_MAIN_TRY(train(&opt));
    return 0;
}
