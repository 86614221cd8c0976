/* SPDX-License-Identifier: Apache-2.0 */
/* An operator of the program's own, with its own C kernel and gradient: swish with a slope, y = x * sigmoid(beta x).
 *
 * There is no registry: the operator is a constant that is handed to lc_op_call. The gradient is a second operator with
 * a kernel of its own; a rule may as well be written with the operators there are. beta is a float attribute: it may
 * change every step without planning anew, and the gradient rule passes on its pointer, never its value.
 *
 * Fits y = sin(3x) with a small network and prints the loss. */
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

typedef struct network {
    lc_module base;
    lc_linear l1, l2;
} network;

int main(void)
{
    enum { N = 256, STEPS = 1500 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = -1 + 2 * (float)i / (N - 1);
        y[i] = sinf(3 * x[i]);
    }
    network net = {0};
    lc_graph *g = NULL;
    lc_tensor *in = NULL, *target = NULL;
    lc_module_init(&net.base, NULL, 1);
    lc_linear_init(&net.l1, &net, "l1", 1, 32);
    lc_linear_init(&net.l2, &net, "l2", 32, 1);
    LC_MAIN_TRY(lc_module_status(&net.base));
    lc_optimizer *opt = lc_adam(&net, .lr = 1e-2);
    LC_MAIN_TRY(lc_graph_new(NULL, &g));
    LC_MAIN_TRY(lc_input_new(LC_F32, 2, (int64_t[]){N, 1}, LC_ROW_MAJOR, x, &in));
    LC_MAIN_TRY(lc_input_new(LC_F32, 2, (int64_t[]){N, 1}, LC_ROW_MAJOR, y, &target));
    double loss = 0;
    for (int step = 0; step < STEPS; step++) {
        LC_MAIN_TRY(lc_step_begin(g, (uint64_t)step, 0));
        double beta = 1 + (double)step / STEPS; /* annealed: still one plan */
        lc_tensor *out = lc_linear_forward(&net.l2, swish(lc_linear_forward(&net.l1, in), beta));
        lc_tensor *mse = lc_keep(lc_mse_loss(out, target));
        lc_zero_grad(g);
        lc_backward(mse);
        lc_optimizer_step(opt);
        LC_MAIN_TRY(lc_step_run(g));
        LC_MAIN_TRY(lc_item(mse, &loss));
        LC_MAIN_TRY(lc_step_end(g));
        if (step % 300 == 0) printf("step %4d  loss %.6f\n", step, loss);
    }
    lc_graph_stats stats;
    lc_graph_get_stats(g, &stats);
    printf("step %4d  loss %.6f  (%lld plan)\n", STEPS, loss, (long long)stats.plans);
    lc_optimizer_free(opt);
    lc_module_release(&net.base);
    lc_tensor_unref(in), lc_tensor_unref(target);
    lc_graph_free(g);
    return loss < 1e-2 && stats.plans == 1 ? 0 : 1;
}
