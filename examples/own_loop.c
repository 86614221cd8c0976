/* SPDX-License-Identifier: Apache-2.0 */
/* A program that owns its loop: a simulation makes data as it runs and calls the trainer's step function.
 *
 * The "simulation" is a damped pendulum; the network learns to predict the next state from the current one while the
 * simulation runs. Hooks, logging, checkpoints and optimizers work as in lc_trainer_fit.
 *
 *     own_loop --max_epochs 5 --default_root_dir runs
 *     own_loop --devices 2        each rank simulates its own pendulums; gradients are averaged over the ranks */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>

typedef struct args {
    int64_t steps, batch_size;
} args;

typedef struct surrogate {
    lc_module base;
    lc_linear l1, l2;
} surrogate;

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    surrogate *m = (surrogate *)self;
    lc_tensor *change = lc_linear_forward(&m->l2, lc_tanh(lc_linear_forward(&m->l1, batch->x))); /* [B,2] */
    lc_tensor *loss = lc_mse_loss(lc_add(batch->x, change), batch->y);
    lc_log(self, "train_loss", loss);
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 3e-3));
}

static const lc_module_ops surrogate_ops = {
    LC_MODULE_OPS_INIT("surrogate"),
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
};

/* One explicit step of angle and velocity. */
static void simulate(float *state)
{
    for (int k = 0; k < 10; k++) {
        state[1] += 0.01f * (-9.81f * sinf(state[0]) - 0.3f * state[1]);
        state[0] += 0.01f * state[1];
    }
}

static const lc_option my_options[] = {
    LC_OPTION(args, steps, LC_OPTION_INT, 1, 1e9, "simulated batches an epoch"),
    LC_OPTION(args, batch_size, LC_OPTION_INT, 1, 4096, "pendulums simulated at once"),
};

int main(int argc, char **argv)
{
    static float before[4096 * 2], after[4096 * 2];
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    args a = {.steps = 400, .batch_size = 64};
    surrogate m = {0};
    lc_trainer *trainer = NULL;
    lc_batch batch = {.n = 2, .names = {"x", "y"}};

    opt.enable_progress_bar = LC_OFF;
    opt.max_epochs = 5;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, my_options, 2, &a, argc, argv));
    int64_t shape[] = {a.batch_size, 2};
    LC_MAIN_TRY(lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, before, &batch.x));
    LC_MAIN_TRY(lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, after, &batch.y));
    batch.tensors[0] = batch.x, batch.tensors[1] = batch.y;
    batch.size = a.batch_size;

    lc_module_init(&m.base, &surrogate_ops, (uint64_t)opt.seed);
    lc_linear_init(&m.l1, &m, "l1", 2, 64);
    lc_linear_init(&m.l2, &m, "l2", 64, 2);

    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    int64_t first = lc_trainer_global_rank(trainer) * a.batch_size; /* of this rank's pendulums, among all */
    for (int64_t i = 0; i < a.batch_size * 2; i++)
        after[i] = (float)lc_random_normal((uint64_t)opt.seed, (uint64_t)(2 * first + i));
    LC_MAIN_TRY(lc_trainer_begin(trainer, &m.base));
    lc_status status = LC_OK;
    double loss = 0;
    for (int64_t epoch = 0; (opt.max_epochs < 0 || epoch < opt.max_epochs) && status != LC_STOP; epoch++) {
        for (int64_t i = 0; i < a.steps && status != LC_STOP; i++) {
            for (int64_t p = 0; p < a.batch_size; p++) {
                before[2 * p] = after[2 * p], before[2 * p + 1] = after[2 * p + 1];
                simulate(&after[2 * p]);
                /* A pendulum at rest teaches nothing: push it. */
                if (fabsf(before[2 * p]) + fabsf(before[2 * p + 1]) < 0.1f) {
                    before[2 * p] = after[2 * p] = (float)lc_random_normal((uint64_t)i, (uint64_t)(first + p));
                    simulate(&after[2 * p]);
                }
            }
            status = lc_trainer_step(trainer, &batch, &loss);
            LC_MAIN_TRY(status < 0 ? status : LC_OK);
        }
        LC_MAIN_TRY(lc_trainer_end_epoch(trainer));
        if (lc_trainer_is_global_zero(trainer)) printf("epoch %d  loss %.6f\n", (int)epoch, loss); /* of its batch */
    }
    LC_MAIN_TRY(lc_trainer_end(trainer));

    lc_trainer_free(trainer);
    lc_module_release(&m.base);
    lc_tensor_unref(batch.x), lc_tensor_unref(batch.y);
    LC_MAIN_TRY(lc_stdout_flush());
    return loss < 0.1 ? 0 : 1;
}
