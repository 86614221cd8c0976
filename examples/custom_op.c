/* SPDX-License-Identifier: Apache-2.0 */
/* An operator of the program's own, with its own C kernel and gradient: swish with a slope, y = x * sigmoid(beta x).
 *
 * There is no registry: the operator is a constant that is passed to lc_op_call. The gradient is a second operator with
 * its own kernel; a rule may also be written with existing operators. beta is a float attribute: it may change every
 * step without planning again, and the gradient rule passes on its pointer, never its value.
 *
 * Fits y = sin(3x) with a small network.
 *
 *     custom_op --max_epochs 200 */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>

/* ---- the operator ---- */

static lc_status infer_like_last(lc_infer *call)
{
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i]->dtype != LC_F32) return lc_fail(LC_ERR_DTYPE, "only f32 is supported");
    }
    call->out[0] = *call->in[call->n_in - 1];
    return LC_OK;
}

static int64_t count(const lc_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->ndim; i++) n *= v->shape[i];
    return n;
}

static void run_swish(const lc_call *c) /* x -> y */
{
    const float *x = c->in[0].data;
    float *y = c->out[0].data, beta = (float)c->floats[0];
    for (int64_t i = 0, n = count(&c->out[0]); i < n; i++) y[i] = x[i] / (1 + expf(-beta * x[i]));
}

static void run_swish_backward(const lc_call *c) /* dy, x -> dx */
{
    const float *dy = c->in[0].data, *x = c->in[1].data;
    float *dx = c->out[0].data, beta = (float)c->floats[0];
    for (int64_t i = 0, n = count(&c->out[0]); i < n; i++) {
        float s = 1 / (1 + expf(-beta * x[i]));
        dx[i] = dy[i] * (s + beta * x[i] * s * (1 - s));
    }
}

static const lc_kernel swish_kernel = {.name = "swish", .layout = LC_WANT_ROW_MAJOR, .run = run_swish};
static const lc_kernel swish_backward_kernel = {
    .name = "swish_backward", .layout = LC_WANT_ROW_MAJOR, .flags = LC_KERNEL_INPLACE_ANY, .run = run_swish_backward};

static const lc_op swish_backward_op = {.name = "swish_backward",
                                        .flags = LC_OP_NO_GRAD,
                                        .n_out = 1,
                                        .infer = infer_like_last,
                                        .kernel = &swish_backward_kernel};

static lc_status swish_grad(lc_grad *g)
{
    lc_tensor *in[] = {g->dout[0], g->in[0]};
    if (g->need[0]) g->din[0] = lc_op_call(&swish_backward_op, 2, in, 0, NULL, 1, g->floats, LC_HERE);
    return LC_OK;
}

static const lc_op swish_op = {
    .name = "swish", .n_out = 1, .infer = infer_like_last, .grad = swish_grad, .kernel = &swish_kernel};

static lc_tensor *swish(lc_tensor *x, double beta)
{
    return lc_op_call(&swish_op, 1, &x, 0, NULL, 1, &beta, LC_HERE);
}

/* ---- its use ---- */

typedef struct args {
    int64_t batch_size;
} args;

typedef struct network {
    lc_module base;
    lc_linear l1, l2;
    lc_dataset *data;
    args args;
} network;

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    network *m = (network *)self;
    double beta = 1 + 1e-3 * (double)lc_trainer_global_step(self->trainer); /* annealed: still one plan */
    lc_tensor *y = lc_linear_forward(&m->l2, swish(lc_linear_forward(&m->l1, batch->x), beta));
    lc_tensor *loss = lc_mse_loss(y, batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-2));
}

static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    network *m = (network *)self;
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->data, .batch_size = m->args.batch_size, .shuffle = true,
                             .drop_last = true));
    return lc_loaders_add(out, l);
}

static const lc_module_ops network_ops = {
    LC_MODULE_OPS_INIT("custom_op"),
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader,
};

static const lc_option my_options[] = {
    LC_OPTION(args, batch_size, LC_OPTION_INT, 1, 512, "samples in a batch"),
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
    network net = {.args = {.batch_size = 128}};
    lc_trainer *trainer = NULL;
    opt.max_epochs = 200;
    opt.enable_progress_bar = LC_OFF;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, my_options, 1, &net.args, argc, argv));
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = y}};
    LC_MAIN_TRY(lc_array_dataset_new(N, 2, arrays, &net.data));
    lc_module_init(&net.base, &network_ops, (uint64_t)opt.seed);
    lc_linear_init(&net.l1, &net, "l1", 1, 32);
    lc_linear_init(&net.l2, &net, "l2", 32, 1);

    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &net.base));
    double loss = 0;
    LC_MAIN_TRY(lc_trainer_metric(trainer, "train_loss", &loss));
    lc_graph_stats stats;
    lc_graph_get_stats(lc_trainer_graph(trainer), &stats);
    printf("loss %.6f after %lld steps with %lld plan%s\n", loss, (long long)lc_trainer_global_step(trainer),
           (long long)stats.misses, stats.misses == 1 ? "" : "s");
    lc_trainer_free(trainer);
    lc_module_release(&net.base);
    lc_dataset_unref(net.data);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
