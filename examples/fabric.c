/* SPDX-License-Identifier: Apache-2.0 */
/* Your own loop without the trainer: what the trainer does in a step, call by call.
 *
 * It learns y = sin(x), stops half-way, and continues from its checkpoint to the same result. own_loop.c keeps the
 * trainer's hooks, loggers and callbacks around such a loop.
 *
 *     fabric                                     writes half.ckpt (in --default_root_dir)
 *     fabric --devices 2 --strategy sharded      each rank makes its own data */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>

enum { BATCH = 64, STEPS = 600 };

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
} net;

/* Makes batch number `n`. */
static void make_batch(int64_t n, float *x, float *y)
{
    for (int i = 0; i < BATCH; i++) {
        x[i] = (float)(6 * lc_random_uniform(1, (uint64_t)(n * BATCH + i)) - 3);
        y[i] = sinf(x[i]);
    }
}

/* Trains from the fabric's current step to step `end`; *loss: the mean over the ranks' last batches. */
static lc_status train(lc_fabric *f, net *m, lc_optimizer *opt, int64_t end, double *loss)
{
    static float before[BATCH], after[BATCH];
    lc_tensor *x = NULL, *y = NULL;
    int64_t shape[] = {BATCH, 1};
    lc_status status;
    LC_TRY_GOTO(status, done, lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, before, &x));
    LC_TRY_GOTO(status, done, lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, after, &y));
    for (int64_t step = lc_fabric_steps(f); step < end; step++) {
        make_batch(step * lc_fabric_world_size(f) + lc_fabric_global_rank(f), before, after);
        LC_TRY_GOTO(status, done, lc_fabric_begin(f));
        lc_tensor *guess = lc_linear_forward(&m->l2, lc_tanh(lc_linear_forward(&m->l1, x))); /* [B,1] */
        lc_tensor *error = lc_mse_loss(guess, y);
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, error);
        lc_fabric_clip_gradients(f, opt, .max_norm = 1);
        lc_fabric_step(f, opt);
        LC_TRY_GOTO(status, done, lc_fabric_end(f));
        LC_TRY_GOTO(status, done, lc_item(error, loss));
    }
    status = lc_fabric_all_reduce(f, loss, 1, LC_LOG_MEAN);
done:
    lc_tensor_unref(x), lc_tensor_unref(y);
    return status;
}

typedef struct outcome {
    double loss;
    int rank; /* of this process */
} outcome;

/* A separate run: a model, an optimizer, a fabric; from checkpoint `from` (NULL: the beginning) to step `end`. */
static lc_status run(const lc_trainer_options *o, const char *from, const char *to, int64_t end, outcome *out)
{
    net m = {0};
    lc_fabric *f = NULL;
    LC_TRY(lc_fabric_new(&f, .devices = o->devices, .num_nodes = o->num_nodes, .nodes_file = o->nodes_file,
                         .strategy = o->strategy, .precision = o->precision, .threads = (int)o->threads,
                         .seed = (uint64_t)o->seed));
    lc_module_init(&m.base, NULL, (uint64_t)o->seed);
    lc_linear_init(&m.l1, &m, "l1", 1, 32);
    lc_linear_init(&m.l2, &m, "l2", 32, 1);
    lc_optimizer *opt = lc_adam(&m, .lr = 1e-2);
    lc_status status = lc_fabric_setup(f, &m.base, &opt, 1);
    if (status >= 0 && from) status = lc_fabric_load(f, from, NULL);
    if (status >= 0) status = train(f, &m, opt, end, &out->loss);
    out->rank = lc_fabric_global_rank(f);
    if (status >= 0 && to) status = lc_fabric_save(f, to, NULL);
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m.base);
    return status;
}

int main(int argc, char **argv)
{
    outcome straight, first, second;
    char half[4096];
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT; /* only those that a fabric has too */
    opt.seed = 1;
    LC_MAIN_TRY(lc_trainer_options_parse_used(&opt, "strategy precision threads seed", NULL, 0, NULL, argc, argv));
    snprintf(half, sizeof half, "%s/half.ckpt", opt.default_root_dir ? opt.default_root_dir : ".");
    LC_MAIN_TRY(run(&opt, NULL, NULL, STEPS, &straight));
    LC_MAIN_TRY(run(&opt, NULL, half, STEPS / 2, &first));
    LC_MAIN_TRY(run(&opt, half, NULL, STEPS, &second));
    lc_trainer_options_release(&opt);
    if (straight.rank == 0)
        printf("loss %.6f half-way, %.6f at the end, %.6f without the stop\n", first.loss, second.loss, straight.loss);
    LC_MAIN_TRY(lc_stdout_flush());
    return straight.loss == second.loss && second.loss < first.loss ? 0 : 1;
}
