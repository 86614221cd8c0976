/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients in flight to other ranks while a step continues: nothing reads them half added up, and no two ranks wait
 * for each other. */
#include "comm_world.h"
#include "quiet_options.h"
#include "small_net.h"

#include <math.h>

/* The bucket of the LAST matrix leaves first. */
enum { WIDE = 128, ROWS = 64, MATRICES = 6, LAST = MATRICES - 1, STEPS = 8 };

typedef struct wide_net {
    lc_module base;
    lc_tensor *w[MATRICES];
} wide_net;

static const lc_module_ops wide_ops = {LC_MODULE_OPS_INIT("wide")};
static float rows[2 * ROWS][WIDE];

static void fill_rows(void)
{
    for (int i = 0; i < 2 * ROWS; i++)
        for (int k = 0; k < WIDE; k++) rows[i][k] = (float)lc_random_normal(3, (uint64_t)(i * WIDE + k));
}

typedef struct trained {
    wide_net net;
    lc_fabric *fabric;
    lc_optimizer *optimizer;
    lc_tensor *in;
} trained;

static void trained_release(trained *t)
{
    lc_tensor_unref(t->in);
    lc_fabric_free(t->fabric);
    lc_optimizer_free(t->optimizer);
    lc_module_release(&t->net.base);
}

/* Each rank has its part of the rows. A bucket or unit holds one matrix. */
static lc_status trained_init(trained *t, lc_comm *comm, const char *strategy, bool anomalies)
{
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    int64_t shape[] = {2 * ROWS / n, WIDE};
    *t = (trained){0};
    lc_module_init(&t->net.base, &wide_ops, 1);
    for (int i = 0; i < MATRICES; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        t->net.w[i] = lc_module_add_parameter(&t->net.base, name, LC_F32, LC_ROW_MAJOR, 2, (int64_t[]){WIDE, WIDE},
                                              (lc_init){LC_INIT_NORMAL, 0, 0.06});
    }
    t->optimizer = lc_sgd(&t->net.base, .lr = 1e-4);
    lc_fabric_args o = LC_ARGS(lc_fabric, .strategy = comm ? strategy : NULL, .comm = comm, .threads = 1,
                               .bucket_cap_mb = 0.05, .detect_anomaly = anomalies);
    LC_TRY(lc_fabric_new_with(&t->fabric, &o));
    LC_TRY(lc_fabric_setup(t->fabric, &t->net.base, &t->optimizer, 1));
    LC_TRY(lc_tensor_new(LC_F32, 2, shape, &t->in));
    return lc_tensor_write(t->in, rows[rank * shape[0]], (size_t)shape[0] * sizeof *rows);
}

/* ---- the gradient of a sum is also read later ---- */

static const char *strategy_here;
static float expected[STEPS][2][WIDE * WIDE];

/* The gradient of the summand is the gradient of the sum, from which the gradients of the product's factors are
 * computed. */
static lc_status train_a_sum(lc_comm *comm, void *ctx)
{
    static _Thread_local float got[WIDE * WIDE];
    trained t;
    (void)ctx;
    LC_TRY(trained_init(&t, comm, strategy_here, false));
    for (int s = 0; s < STEPS; s++) {
        LC_TRY(lc_fabric_begin(t.fabric));
        lc_tensor *w = lc_add(lc_matmul(t.net.w[0], t.net.w[1]), t.net.w[LAST]);
        lc_tensor *loss = lc_mean(lc_square(lc_matmul(t.in, w))), *g[2];
        lc_fabric_zero_grad(t.fabric);
        lc_fabric_backward(t.fabric, loss);
        for (int k = 0; k < 2; k++) g[k] = lc_keep(lc_gradient(t.net.w[k]));
        LC_TRY(lc_fabric_end(t.fabric));
        for (int k = 0; k < 2; k++) {
            double most = 0, off = 0;
            LC_TRY(lc_tensor_read(g[k], comm ? got : expected[s][k], sizeof got));
            for (int i = 0; comm && i < WIDE * WIDE; i++) {
                most = fmax(most, fabs((double)expected[s][k][i]));
                off = fmax(off, fabs((double)got[i] - (double)expected[s][k][i]));
            }
            RANK_CHECK(off <= 1e-4 * most);
        }
    }
    trained_release(&t);
    return LC_OK;
}

TEST(a_gradient_that_is_read_later_is_not_added_up_yet)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    fill_rows();
    CHECK_OK(train_a_sum(NULL, NULL));
    for (int s = 0; s < 4; s++) {
        strategy_here = strategies[s];
        CHECK_RANKS("threads", 2, train_a_sum, NULL);
        CHECK_RANKS("shm", 2, train_a_sum, NULL);
    }
}

/* ---- a gradient is read before a backward pass that adds nothing to it ---- */

static lc_status look_before(lc_comm *comm, void *ctx)
{
    trained t;
    (void)ctx;
    LC_TRY(trained_init(&t, comm, "ddp", false));
    for (int s = 0; s < 3 * STEPS; s++) {
        double own, seen;
        lc_fabric_no_backward_sync(t.fabric, true);
        LC_TRY(lc_fabric_begin(t.fabric));
        lc_tensor *h = lc_matmul(lc_matmul(t.in, t.net.w[0]), t.net.w[LAST]);
        lc_fabric_zero_grad(t.fabric);
        lc_fabric_backward(t.fabric, lc_mean(lc_square(h)));
        lc_tensor *first = lc_keep(lc_sum(lc_gradient(t.net.w[LAST])));
        LC_TRY(lc_fabric_end(t.fabric));
        LC_TRY(lc_item(first, &own));
        lc_fabric_no_backward_sync(t.fabric, false);
        LC_TRY(lc_fabric_begin(t.fabric));
        h = lc_matmul(t.in, t.net.w[0]);
        for (int k = 0; k < 12; k++) h = lc_tanh(h);
        lc_tensor *then = lc_keep(lc_sum(lc_gradient(t.net.w[LAST])));
        lc_fabric_backward(t.fabric, lc_mean(lc_square(h)));
        lc_fabric_step(t.fabric, t.optimizer);
        LC_TRY(lc_fabric_end(t.fabric));
        LC_TRY(lc_item(then, &seen));
        RANK_CHECK(fabs(own - seen) <= 1e-4 * fabs(own));
    }
    trained_release(&t);
    return LC_OK;
}

TEST(a_gradient_that_was_read_before_is_not_added_up_yet)
{
    fill_rows();
    CHECK_RANKS("threads", 2, look_before, NULL);
    CHECK_RANKS("shm", 2, look_before, NULL);
}

/* ---- ranks that meet elsewhere ---- */

/* Only rank 0 reads a gradient after the backward pass; then both ranks meet in a group of the program's own. */
static lc_status meet_elsewhere(lc_comm *comm, void *ctx)
{
    enum { LARGE = 1024 };
    lc_comm *own;
    lc_fabric *f;
    lc_module m;
    lc_linear l;
    lc_tensor *in;
    int rank = lc_comm_rank(comm);
    (void)ctx;
    LC_TRY(lc_comm_split(comm, 0, rank, &own));
    lc_module_init(&m, &wide_ops, 1);
    lc_linear_init(&l, &m, "l", LARGE, LARGE); /* larger than the rings */
    lc_optimizer *opt = lc_sgd(&m, .lr = 1e-4);
    LC_TRY(lc_fabric_new(&f, .strategy = "ddp", .comm = comm, .threads = 1));
    LC_TRY(lc_fabric_setup(f, &m, &opt, 1));
    LC_TRY(lc_tensor_new(LC_F32, 2, (int64_t[]){1, LARGE}, &in));
    for (int s = 0; s < STEPS; s++) {
        double norm = 0;
        LC_TRY(lc_fabric_begin(f));
        lc_tensor *loss = lc_mean(lc_square(lc_linear_forward(&l, in)));
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, loss);
        if (rank == 0) LC_TRY(lc_item(lc_sum(lc_square(lc_gradient(l.bias))), &norm));
        LC_TRY(lc_comm_broadcast(own, &norm, 1, LC_F64, 0, NULL));
        RANK_CHECK(norm > 0);
        lc_fabric_step(f, opt);
        LC_TRY(lc_fabric_end(f));
    }
    lc_tensor_unref(in);
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m);
    lc_comm_free(own);
    return LC_OK;
}

TEST(ranks_may_meet_in_another_group_after_a_backward_pass)
{
    CHECK_RANKS("threads", 2, meet_elsewhere, NULL);
    CHECK_RANKS("shm", 2, meet_elsewhere, NULL);
    CHECK_RANKS("tcp", 2, meet_elsewhere, NULL);
}

/* ---- a value that has not arrived is not NaN ---- */

/* Intermediate f64 results leave bits in memory that are NaNs as f32, where later values will arrive. */
static lc_status train_watched(lc_comm *comm, void *ctx)
{
    trained t;
    (void)ctx;
    LC_TRY(trained_init(&t, comm, strategy_here, true));
    for (int s = 0; s < STEPS; s++) {
        LC_TRY(lc_fabric_begin(t.fabric));
        lc_tensor *h = t.in;
        for (int i = 0; i < MATRICES; i++) h = lc_cast(lc_tanh(lc_cast(lc_matmul(h, t.net.w[i]), LC_F64)), LC_F32);
        lc_tensor *loss = lc_mean(lc_square(h));
        lc_fabric_zero_grad(t.fabric);
        lc_fabric_backward(t.fabric, loss);
        lc_fabric_step(t.fabric, t.optimizer);
        LC_TRY(lc_fabric_end(t.fabric));
    }
    trained_release(&t);
    return LC_OK;
}

TEST(a_value_that_has_not_arrived_is_no_anomaly)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    fill_rows();
    for (int s = 0; s < 4; s++) {
        strategy_here = strategies[s];
        CHECK_RANKS("threads", 2, train_watched, NULL);
    }
}

/* ---- a run that fails between two buckets ---- */

/* The square root's gradient comes last, and is infinite. */
static lc_status step_with_root(trained *t, double factor)
{
    LC_TRY(lc_fabric_begin(t->fabric));
    lc_tensor *h = lc_matmul(t->in, t->net.w[0]), *root = lc_sqrt(lc_mul_scalar(lc_mean(lc_square(h)), factor));
    for (int i = 1; i < MATRICES; i++) h = lc_matmul(h, t->net.w[i]);
    lc_fabric_zero_grad(t->fabric);
    lc_fabric_backward(t->fabric, lc_add(lc_mean(lc_square(h)), root));
    lc_fabric_step(t->fabric, t->optimizer);
    return lc_fabric_end(t->fabric);
}

/* The other ranks have made calls that this rank has not. A rank that comes later finds it gone, perhaps before the
 * first step. */
static lc_status break_off(lc_comm *comm, void *ctx)
{
    trained t;
    (void)ctx;
    lc_status ready = trained_init(&t, comm, "ddp", true);
    if (ready >= 0) {
        lc_status first = step_with_root(&t, 0);
        RANK_CHECK(first == LC_ERR_NUMERIC || first == LC_ERR_PEER);
        lc_status second = step_with_root(&t, 1);
        RANK_CHECK(second == first || second == LC_ERR_PEER);
    }
    RANK_CHECK(ready == LC_OK || ready == LC_ERR_PEER);
    trained_release(&t);
    return LC_OK;
}

TEST(nothing_is_in_flight_after_a_failed_run)
{
    fill_rows();
    CHECK_RANKS("threads", 2, break_off, NULL);
}

/* ---- LBFGS ---- */

enum { MANY = 512 };

typedef struct large_net {
    lc_module base;
    lc_linear l1, l2;
} large_net;

static lc_tensor *large_loss(large_net *m, const lc_batch *b)
{
    lc_tensor *h = lc_linear_forward(&m->l2, lc_tanh(lc_linear_forward(&m->l1, b->x)));
    return lc_keep(lc_mean(lc_square(lc_sub(lc_mean(h, .dims = LC_DIMS(1)), lc_mean(b->x, .dims = LC_DIMS(1))))));
}

static lc_tensor *closure(void *ctx, lc_status *s)
{
    void **both = ctx;
    lc_tensor *loss = large_loss(both[0], both[1]);
    *s = lc_manual_zero_grad(both[0], NULL);
    if (*s >= 0) *s = lc_manual_backward(both[0], loss);
    return loss;
}

static lc_tensor *step_by_closure(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = NULL;
    void *both[] = {self, (void *)(uintptr_t)b};
    (void)i;
    return lc_manual_step_closure(self, lc_manual_optimizer(self, 0), closure, both, &loss) < 0 ? NULL : loss;
}

static lc_status with_lbfgs(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_lbfgs(self, .lr = 0.5, .max_iter = 3));
}

static const lc_module_ops lbfgs_ops = {
    LC_MODULE_OPS_INIT("lbfgs"),
    .training_step = step_by_closure,
    .configure_optimizers = with_lbfgs,
    .manual_optimization = true,
};

static lc_status fit_large(lc_comm *comm, void *ctx)
{
    static float x[8][MANY], want[MANY * MANY], got[2][MANY * MANY];
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    large_net m = {0};
    lc_dataset *d;
    lc_dataloader *l;
    lc_trainer *t;
    (void)ctx;
    for (int i = 0; i < 8 && !comm; i++)
        for (int k = 0; k < MANY; k++) x[i][k] = (float)lc_random_normal(3, (uint64_t)(i * MANY + k));
    lc_array array = {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {MANY}}, .data = x};
    lc_module_init(&m.base, &lbfgs_ops, 1);
    lc_linear_init(&m.l1, &m, "l1", MANY, MANY);
    lc_linear_init(&m.l2, &m, "l2", MANY, MANY);
    LC_TRY(lc_array_dataset_new(8, 1, &array, &d));
    LC_TRY(lc_dataloader_new(&l, .dataset = d, .batch_size = 4 / n));
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = 1;
    opt.strategy = comm ? "ddp" : NULL;
    opt.bucket_cap_mb = 0.25;
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = l));
    LC_TRY(lc_tensor_read(m.l1.weight, comm ? got[rank] : want, sizeof want));
    lc_trainer_free(t);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    lc_module_release(&m.base);
    for (int i = 0; comm && i < MANY * MANY; i++) RANK_CHECK(fabsf(got[rank][i] - want[i]) <= 1e-5f);
    return LC_OK;
}

TEST(lbfgs_reads_sums)
{
    CHECK_OK(fit_large(NULL, NULL));
    for (int i = 0; i < 3; i++) CHECK_RANKS("threads", 2, fit_large, NULL);
}

/* ---- optimizers that need all gradients at once ---- */

static float weights[3][WIDTH * FEATURES];
static const lc_module_ops *ops_here;
static double cap_here;

/* 13 samples: one rank has none of the last batch. */
static lc_status fit(lc_comm *comm, int64_t samples)
{
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    small_net m = {0};
    lc_dataloader *l;
    lc_trainer *t;
    LC_TRY(small_net_init(&m, ops_here, 1));
    LC_TRY(loader_of(0, samples, 12 / n, false, &l));
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = 3;
    opt.strategy = comm ? strategy_here : NULL;
    opt.bucket_cap_mb = cap_here;
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = l));
    LC_TRY(lc_tensor_read(m.l1.weight, weights[comm ? 1 + rank : 0], sizeof *weights));
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m);
    return LC_OK;
}

static lc_status fit_all(lc_comm *comm, void *ctx)
{
    return fit(comm, *(int64_t *)ctx);
}

static void check_fits(const lc_module_ops *ops, const char *strategy, int64_t samples, double tolerance)
{
    ops_here = ops;
    strategy_here = strategy;
    cap_here = 100.0 / (1 << 20);
    CHECK_OK(fit(NULL, samples));
    CHECK_RANKS("threads", 2, fit_all, &samples);
    for (int r = 1; r < 3; r++)
        for (int i = 0; i < WIDTH * FEATURES; i++) CHECK_NEAR((double)weights[0][i], (double)weights[r][i], tolerance);
}

/* A program's own optimizer: p -= lr g / |g|, over all parameters. ints: segments, then (offset, count). */
static void run_direction(const lc_call *c)
{
    float *p = c->in[0].data;
    const float *g = c->in[1].data;
    double sum = 0;
    for (int64_t s = 0; s < c->ints[0]; s++)
        for (int64_t k = 0; k < c->ints[2 + 2 * s]; k++) {
            double v = (double)g[c->ints[1 + 2 * s] + k];
            sum += v * v;
        }
    for (int64_t s = 0; s < c->ints[0]; s++)
        for (int64_t k = 0, at = c->ints[1 + 2 * s]; k < c->ints[2 + 2 * s]; k++, at++)
            p[at] -= (float)(c->floats[0] * (double)g[at] / sqrt(sum));
}

static lc_status infer_direction(lc_infer *c)
{
    c->n_out = 0;
    return LC_OK;
}

static const lc_kernel direction_kernel = {
    .name = "direction", .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_direction};
static const lc_op direction_op = {.name = "direction",
                                   .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                                   .infer = infer_direction,
                                   .mutated_inputs = 1,
                                   .kernel = &direction_kernel};

static lc_status direction_update(lc_optimizer *opt, const lc_update *u)
{
    int64_t ints[1 + 2 * 8] = {u->n_segments};
    (void)opt;
    for (int i = 0; i < u->n_segments; i++)
        ints[1 + 2 * i] = u->segments[i].offset, ints[2 + 2 * i] = u->segments[i].count;
    lc_op_call_live(&direction_op, 2, (lc_tensor *[]){u->parameters, u->gradients}, 1 + 2 * u->n_segments, ints,
                    LC_MAX_HYPER, u->group->hyper, LC_HERE);
    return LC_OK;
}

static const char *const direction_hypers[] = {"lr", NULL}, *const no_states[] = {NULL};
static const double direction_defaults[] = {0.05};
static const lc_optimizer_ops direction_ops = {LC_OPTIMIZER_OPS_INIT,           .name = "Direction",
                                               .hyper_names = direction_hypers, .hyper_defaults = direction_defaults,
                                               .state_names = no_states,        .update = direction_update};

static lc_status with_direction(lc_module *self, lc_optimizers *out)
{
    small_net *m = (small_net *)self;
    lc_tensor *all[] = {m->l1.weight, m->l1.bias, m->l2.weight, m->l2.bias};
    lc_optimizer *opt;
    LC_TRY(lc_optimizer_new(&direction_ops, self, 0, &opt));
    lc_optimizer_add_group(opt, "", all, 4);
    return lc_optimizers_add(out, opt);
}

static const lc_module_ops direction_net_ops = {
    LC_MODULE_OPS_INIT("direction"),
    .training_step = small_net_training_step,
    .configure_optimizers = with_direction,
};

TEST(an_optimizer_over_all_parameters_gets_all_gradients)
{
    check_fits(&direction_net_ops, "ddp", 48, 1e-5);
}

/* ---- gradients that a module does not clear ---- */

static lc_status clear_rarely(lc_module *self, int64_t epoch, int64_t i, lc_optimizer *opt)
{
    (void)self, (void)epoch;
    if (i == 0) lc_optimizer_zero_grad(opt);
    return LC_OK;
}

static lc_status with_sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.05));
}

static const lc_module_ops keeping_ops = {
    LC_MODULE_OPS_INIT("keeping"),
    .training_step = small_net_training_step,
    .optimizer_zero_grad = clear_rarely,
    .configure_optimizers = with_sgd,
};

TEST(a_rank_without_samples_does_not_add_sums_twice)
{
    check_fits(&keeping_ops, "ddp", 13, 1e-5);
    check_fits(&keeping_ops, "sharded_1", 13, 1e-5);
}

/* ---- a schedule of windows for optimizers that have none ---- */

static lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mean(lc_square(logits_of((small_net *)self, b->x)));
}

static lc_status with_two(lc_module *self, lc_optimizers *out)
{
    small_net *m = (small_net *)self;
    lc_optimizer *first = lc_sgd(self, .no_parameters = true, .lr = 0.1),
                 *second = lc_sgd(self, .no_parameters = true, .lr = 0.1);
    lc_optimizer_add_group(first, "a", (lc_tensor *[]){m->l1.weight, m->l1.bias}, 2);
    lc_optimizer_add_group(second, "b", (lc_tensor *[]){m->l2.weight, m->l2.bias}, 2);
    LC_TRY(lc_optimizers_add_step(out, first, small_net_training_step));
    return lc_optimizers_add_step(out, second, second_step);
}

static lc_status set_window(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    return lc_trainer_set_accumulate_grad_batches(self->trainer, 4);
}

TEST(a_schedule_of_windows_needs_one_optimizer_that_steps_once)
{
    static const lc_module_ops set_ops = {LC_MODULE_OPS_INIT("set"), .on_train_batch_start = set_window,
                                          .training_step = small_net_training_step, .configure_optimizers = with_two};
    static const lc_module_ops two_ops = {LC_MODULE_OPS_INIT("two"), .training_step = small_net_training_step,
                                          .configure_optimizers = with_two};
    static const lc_module_ops many_ops = {LC_MODULE_OPS_INIT("lbfgs"), .training_step = small_net_training_step,
                                           .configure_optimizers = with_lbfgs};
    static const lc_module_ops *const all[] = {&two_ops, &many_ops, &set_ops};
    static const char *const texts[] = {"needs a single optimizer", "set it to 1", "needs a single optimizer"};
    const lc_accumulation later[] = {{2, 4}};
    for (int k = 0; k < 3; k++) {
        small_net m = {0};
        lc_dataloader *l;
        lc_trainer *t;
        lc_callback cb;
        CHECK_OK(small_net_init(&m, all[k], 1));
        CHECK_OK(loader_of(0, 24, 12, false, &l));
        if (k < 2) CHECK_OK(lc_gradient_accumulation_scheduler(&cb, .scheduling = later, .n_scheduling = 1));
        lc_trainer_options opt = quiet_options(NULL);
        opt.max_epochs = 3;
        opt.callbacks = &cb;
        opt.n_callbacks = k < 2;
        CHECK_OK(lc_trainer_new(&opt, &t));
        CHECK(lc_trainer_fit(t, &m.base, .train_dataloader = l) == LC_ERR_CONFIG);
        CHECK(strstr(lc_error_message(), texts[k]));
        CHECK(lc_trainer_global_step(t) == 0); /* refused before the epoch in which it would begin */
        lc_trainer_free(t);
        lc_dataloader_free(l);
        small_net_release(&m);
    }
}

TEST_MAIN
