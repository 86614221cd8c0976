/* SPDX-License-Identifier: Apache-2.0 */
/* Three callbacks of the program's own: one stops training, one logs, one prints the epoch at its start.
 *
 *     custom_callback --stop_below 0.02 --max_epochs 50 */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>

typedef struct args {
    int64_t batch_size;
    double stop_below;
} args;

/* ---- stops as soon as the loss is low enough ---- */

typedef struct stop_below {
    double bound;
} stop_below;

static lc_status stop_on_train_epoch_end(void *self, lc_trainer *t)
{
    double loss;
    if (lc_trainer_metric(t, "train_loss", &loss) != LC_OK) return LC_OK; /* nothing logged yet */
    return loss < ((stop_below *)self)->bound ? LC_STOP : LC_OK;
}

static const lc_callback_ops stop_ops = {LC_CALLBACK_OPS_INIT("StopBelow"), .monitors = true,
                                         .on_train_epoch_end = stop_on_train_epoch_end};

/* ---- logs the size of the weights ---- */

/* lc_tensor_gather also reads parameters of which each rank holds a part (--strategy sharded), so this callback runs on
 * all ranks. */
static lc_status add_squares(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    float x[4096];
    int64_t n = lc_tensor_numel(t->tensor);
    if (!t->is_parameter || n > 4096) return LC_OK;
    LC_TRY(lc_tensor_gather(t->tensor, x, (size_t)n * sizeof *x));
    for (int64_t i = 0; i < n; i++) *(double *)ctx += (double)x[i] * x[i];
    return LC_OK;
}

static lc_status norm_on_train_epoch_end(void *self, lc_trainer *t)
{
    (void)self;
    double sum = 0;
    LC_TRY(lc_module_visit(lc_trainer_module(t), add_squares, &sum));
    lc_trainer_log(t, "weight_norm", sqrt(sum));
    return LC_OK;
}

static const lc_callback_ops norm_ops = {LC_CALLBACK_OPS_INIT("WeightNorm"),
                                         .on_train_epoch_end = norm_on_train_epoch_end};

/* ---- prints ---- */

static lc_status notify_on_train_epoch_start(void *self, lc_trainer *t)
{
    (void)self;
    printf("epoch %lld starts\n", (long long)lc_trainer_current_epoch(t));
    fflush(stdout);
    return LC_OK;
}

static const lc_callback_ops notifier_ops = {LC_CALLBACK_OPS_INIT("Notifier"), .ranks = LC_RANK_ZERO,
                                             .on_train_epoch_start = notify_on_train_epoch_start};

/* ---- a model to run them on: y = 2 x0 - x1 ---- */

typedef struct line {
    lc_module base;
    lc_linear l;
    lc_dataset *data;
    args args;
} line;

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_mse_loss(lc_linear_forward(&((line *)self)->l, batch->x), batch->y);
    lc_log(self, "train_loss", loss, .on_step = false, .on_epoch = true);
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.02));
}

static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    line *m = (line *)self;
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->data, .batch_size = m->args.batch_size, .shuffle = true));
    return lc_loaders_add(out, l);
}

static const lc_module_ops line_ops = {
    LC_MODULE_OPS_INIT("line"),
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader,
};

static const lc_option my_options[] = {
    LC_OPTION(args, stop_below, LC_OPTION_FLOAT, 0, 1e9, "stop when the training loss is below this"),
    LC_OPTION(args, batch_size, LC_OPTION_INT, 1, 1e6, "samples in a batch"),
};

int main(int argc, char **argv)
{
    enum { N = 512 };
    static float x[N * 2], y[N];
    for (int i = 0; i < N; i++) {
        x[2 * i] = (float)lc_random_normal(1, (uint64_t)(2 * i));
        x[2 * i + 1] = (float)lc_random_normal(1, (uint64_t)(2 * i + 1));
        y[i] = 2 * x[2 * i] - x[2 * i + 1];
    }
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    line m = {.args = {.stop_below = 0.02, .batch_size = 32}};
    lc_trainer *trainer = NULL;
    opt.max_epochs = 50;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, my_options, 2, &m.args, argc, argv));
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {2}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = y}};
    LC_MAIN_TRY(lc_array_dataset_new(N, 2, arrays, &m.data));
    lc_module_init(&m.base, &line_ops, (uint64_t)opt.seed);
    lc_linear_init(&m.l, &m, "l", 2, 1);

    stop_below stop = {.bound = m.args.stop_below};
    lc_callback callbacks[] = {{&stop_ops, &stop}, {&norm_ops, NULL}, {&notifier_ops, NULL}};
    opt.callbacks = callbacks;
    opt.n_callbacks = 3;
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &m.base));
    double loss = 0, norm = 0;
    LC_MAIN_TRY(lc_trainer_metric(trainer, "train_loss", &loss));
    LC_MAIN_TRY(lc_trainer_metric(trainer, "weight_norm", &norm));
    printf("stopped after %lld epochs: loss %.4f, weight norm %.3f\n", (long long)lc_trainer_current_epoch(trainer),
           loss, norm);
    lc_trainer_free(trainer);
    lc_module_release(&m.base);
    lc_dataset_unref(m.data);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
