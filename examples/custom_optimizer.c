/* SPDX-License-Identifier: Apache-2.0 */
/* An optimizer of the program's own: Lion, which moves every parameter by the sign of a mean of its gradients.
 *
 * It is an lc_optimizer_ops, with an operator that updates one group. Checkpoints, schedules, clipping, accumulation
 * and every strategy work with it. What the operator must do is written at its kernel.
 *
 * Fits y = sin(3x) with a small network.
 *
 *     custom_optimizer --max_epochs 200 */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the update of one group ---- */

enum { LR, WEIGHT_DECAY, BETA1, BETA2 };                      /* the first hyperparameters, in the order of `names` */
enum { PARAMETERS, GRADIENTS, SCALE, STEPS, MEAN, INPUTS };   /* operands of the operator */
enum { CLIPS, SKIPS, FIRST, OFFSET = 0, COUNT, INDEX, EACH }; /* its integers: two flags, then three for a segment */

/* Refuses what the kernel does not compute: parameters of f64 and of 16 bits (--precision 64-true, bf16-true). */
static lc_status infer(lc_infer *call)
{
    for (int i = 0; i < INPUTS; i++)
        if (call->in[i]->dtype != (i == STEPS ? LC_F64 : LC_F32))
            return lc_fail(LC_ERR_DTYPE, "Lion trains parameters of f32, not of %s", lc_dtype_name(call->in[i]->dtype));
    return LC_OK;
}

/* It updates only the segments, which are the parameters that have a gradient; multiplies gradients by the scale, which
 * holds the window of accumulation and the clipping by norm; clips by value; and does nothing at all if the gradients
 * of a scaled loss (16-mixed) have overflowed. */
static void run(const lc_call *call)
{
    const float *gradient = call->in[GRADIENTS].data, scale = *(const float *)call->in[SCALE].data;
    float *parameter = call->in[PARAMETERS].data, *mean = call->in[MEAN].data;
    double *steps = call->in[STEPS].data;
    const float lr = (float)call->floats[LR], decay = lr * (float)call->floats[WEIGHT_DECAY];
    const float beta1 = (float)call->floats[BETA1], beta2 = (float)call->floats[BETA2];
    const float most = call->ints[CLIPS] ? (float)call->floats[LC_HYPER_CLIP_VALUE] : INFINITY;
    if (call->ints[SKIPS] && !isfinite(scale)) return;
    for (const int64_t *s = call->ints + FIRST; s < call->ints + call->n_int; s += EACH) {
        for (int64_t i = s[OFFSET]; i < s[OFFSET] + s[COUNT]; i++) {
            float g = fmaxf(-most, fminf(most, gradient[i] * scale));
            float direction = beta1 * mean[i] + (1 - beta1) * g;
            parameter[i] -= decay * parameter[i] + lr * (float)((direction > 0) - (direction < 0));
            mean[i] = beta2 * mean[i] + (1 - beta2) * g;
        }
        steps[s[INDEX]]++;
    }
}

static const lc_kernel kernel = {.name = "lion", .layout = LC_WANT_ROW_MAJOR, .run = run};
static const lc_op update_lion = {.name = "update_lion",
                                  .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                                  .infer = infer,
                                  .mutated_inputs = 1 << PARAMETERS | 1 << STEPS | 1 << MEAN,
                                  .kernel = &kernel,
                                  .inputs = "parameters gradients scale steps mean"};

static lc_status update(lc_optimizer *lion, const lc_update *u)
{
    int n = FIRST + EACH * u->n_segments;
    int64_t *ints = malloc((size_t)n * sizeof *ints);
    (void)lion;
    if (!ints) return lc_fail(LC_ERR_MEMORY, "out of memory: segments");
    ints[CLIPS] = u->clip_value != NULL;
    ints[SKIPS] = u->skips;
    for (int k = 0; k < u->n_segments; k++) {
        int64_t *to = ints + FIRST + EACH * k;
        to[OFFSET] = u->segments[k].offset, to[COUNT] = u->segments[k].count, to[INDEX] = u->segments[k].index;
    }
    lc_tensor *in[] = {u->parameters, u->gradients, u->grad_scale, u->steps, u->state[0]};
    lc_op_call_live(&update_lion, INPUTS, in, n, ints, LC_MAX_HYPER, u->group->hyper, LC_HERE);
    free(ints);
    return LC_OK;
}

/* ---- the optimizer ---- */

static const char *const names[] = {"lr", "weight_decay", "beta1", "beta2", NULL};
static const double defaults[] = {1e-4, 0, 0.9, 0.99};
static const char *const states[] = {"exp_avg", NULL};

static const lc_optimizer_ops lion_ops = {
    LC_OPTIMIZER_OPS_INIT, .name = "Lion",   .hyper_names = names, .hyper_defaults = defaults,
    .state_names = states, .update = update, .elementwise = true, /* a rank of the strategy sharded may update a slice
                                                                   */
};

/* ---- its use ---- */

typedef struct network {
    lc_module base;
    lc_linear l1, l2;
} network;

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    network *m = (network *)self;
    lc_tensor *y = lc_linear_forward(&m->l2, lc_tanh(lc_linear_forward(&m->l1, batch->x)));
    lc_tensor *loss = lc_mse_loss(y, batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true, .on_epoch = true);
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *lion;
    lc_tensor **parameters;
    int n;
    LC_TRY(lc_optimizer_new(&lion_ops, self, 0, &lion));
    LC_TRY(lc_optimizers_add(out, lion));
    LC_TRY(lc_module_parameters(self, NULL, NULL, &parameters, &n));
    int group = lc_optimizer_add_group(lion, "", parameters, n);
    free(parameters);
    return group < 0 ? (lc_status)group : lc_optimizer_set(lion, group, "lr", 2e-3);
}

static const lc_module_ops network_ops = {
    LC_MODULE_OPS_INIT("custom_optimizer"),
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
};

int main(int argc, char **argv)
{
    enum { N = 512 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = -1 + 2 * (float)i / (N - 1);
        y[i] = sinf(3 * x[i]);
    }
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 200;
    opt.enable_progress_bar = LC_OFF;
    LC_MAIN_TRY(lc_trainer_options_parse(&opt, argc, argv));
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = y}};
    lc_dataset *data;
    lc_dataloader *loader;
    LC_MAIN_TRY(lc_array_dataset_new(N, 2, arrays, &data));
    LC_MAIN_TRY(lc_dataloader_new(&loader, .dataset = data, .batch_size = 128, .shuffle = true));
    network net;
    lc_module_init(&net.base, &network_ops, (uint64_t)opt.seed);
    lc_linear_init(&net.l1, &net, "l1", 1, 32);
    lc_linear_init(&net.l2, &net, "l2", 32, 1);

    lc_trainer *trainer;
    double loss = 0;
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &net.base, .train_dataloader = loader));
    LC_MAIN_TRY(lc_trainer_metric(trainer, "train_loss_epoch", &loss));
    printf("loss %.9f\n", loss);
    lc_trainer_free(trainer);
    lc_module_release(&net.base);
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
