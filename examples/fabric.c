/* SPDX-License-Identifier: Apache-2.0 */
/* A loop of one's own without the trainer: what each call of the trainer's step does, one by one.
 *
 * It learns y = sin(x), stops half-way, and goes on from its checkpoint to the same end. own_loop.c keeps the trainer's
 * hooks, loggers and callbacks around such a loop.
 *
 *     fabric */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>

enum { BATCH = 64, STEPS = 600 };

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
} net;

static void make_batch(int64_t step, float *x, float *y)
{
    for (int i = 0; i < BATCH; i++) {
        x[i] = (float)(6 * lc_random_uniform(1, (uint64_t)(step * BATCH + i)) - 3);
        y[i] = sinf(x[i]);
    }
}

/* Trains from the step the fabric is at to `end`; *loss is that of the last batch. */
static lc_status train(lc_fabric *f, net *m, lc_optimizer *opt, int64_t end, double *loss)
{
    static float before[BATCH], after[BATCH];
    lc_tensor *x = NULL, *y = NULL;
    int64_t shape[] = {BATCH, 1};
    lc_status status;
    LC_TRY_GOTO(status, done, lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, before, &x));
    LC_TRY_GOTO(status, done, lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, after, &y));
    for (int64_t step = lc_fabric_steps(f); step < end; step++) {
        make_batch(step, before, after);
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
done:
    lc_tensor_unref(x), lc_tensor_unref(y);
    return status;
}

/* A run of its own: a model, an optimizer, a fabric; from `from` (NULL: the beginning) to step `end`. */
static lc_status run(const char *from, const char *to, int64_t end, double *loss)
{
    net m = {0};
    lc_fabric *f = NULL;
    LC_TRY(lc_fabric_new(&(lc_fabric_options){.seed = 1}, &f));
    lc_module_init(&m.base, NULL, 1);
    lc_linear_init(&m.l1, &m, "l1", 1, 32);
    lc_linear_init(&m.l2, &m, "l2", 32, 1);
    lc_optimizer *opt = lc_adam(&m, .lr = 1e-2);
    lc_status status = lc_fabric_setup(f, &m.base, &opt, 1);
    if (status >= 0 && from) status = lc_fabric_load(f, from, NULL);
    if (status >= 0) status = train(f, &m, opt, end, loss);
    if (status >= 0 && to) status = lc_fabric_save(f, to, NULL);
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m.base);
    return status;
}

int main(void)
{
    double straight = 0, first = 0, second = 0;
    LC_MAIN_TRY(run(NULL, NULL, STEPS, &straight));
    LC_MAIN_TRY(run(NULL, "half.ckpt", STEPS / 2, &first));
    LC_MAIN_TRY(run("half.ckpt", NULL, STEPS, &second));
    printf("loss %.6f half-way, %.6f at the end, %.6f without the stop\n", first, second, straight);
    LC_MAIN_TRY(lc_stdout_flush());
    return straight == second && second < first ? 0 : 1;
}
