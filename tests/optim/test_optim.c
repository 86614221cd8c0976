/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: groups, hyperparameters, state, errors (their updates: test_optim_updates.c). */
#include "chosen_gradients.h"

/* ---- groups and hyperparameters ---- */

TEST(groups_have_their_own_numbers)
{
    world w;
    double before[2][N], after[2][N], value;
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_sgd(&w.root, .no_parameters = true, .lr = 0.5);
    CHECK_EQ(lc_optimizer_add_group(opt, "first", &w.p[0], 1), 0);
    CHECK_EQ(lc_optimizer_add_group(opt, "second", &w.p[1], 1), 1);
    CHECK(lc_optimizer_add_group(opt, NULL, &w.p[1], 1) < 0);
    CHECK_CONTAINS(lc_error_message(), "already");
    CHECK_OK(lc_optimizer_set(opt, 1, "lr", 0.25));
    for (int t = 0; t < 3; t++) {
        if (t == 2) CHECK_OK(lc_optimizer_set(opt, 0, "lr", 0)); /* takes effect without a new plan */
        for (int j = 0; j < 2; j++) get(&w, w.p[j], before[j]);
        train_step(&w, opt, true, 0, 0);
        for (int j = 0; j < 2; j++) get(&w, w.p[j], after[j]);
        CHECK_NEAR(after[0][1], before[0][1] - (t == 2 ? 0 : 0.5) * gradient(0, 1, (uint64_t)t), 1e-14);
        CHECK_NEAR(after[1][4], before[1][4] - 0.25 * gradient(1, 4, (uint64_t)t), 1e-14);
    }
    lc_graph_stats stats;
    lc_graph_get_stats(w.graph, &stats);
    CHECK_EQ(stats.misses, 1);
    CHECK_OK(lc_optimizer_get(opt, 1, "lr", &value));
    CHECK_NEAR(value, 0.25, 0);
    CHECK_STATUS(lc_optimizer_get(opt, 2, "lr", &value), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_optimizer_set(opt, 0, "beta1", 1), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "momentum");
    CHECK(lc_optimizer_has(opt, "momentum") && !lc_optimizer_has(opt, "beta1"));
    CHECK_STATUS(lc_optimizer_set(opt, 0, "momentum", 0.9), LC_ERR_STATE);
    world_free(&w, opt);
}

/* An update runs after it was recorded, with the numbers of the moment when it was recorded. */
TEST(numbers_that_change_after_an_update_are_for_the_next)
{
    enum { SCHEDULE, RATE, CLIP, WAYS };
    for (int way = 0; way < WAYS; way++) {
        world w;
        double before[N], after[N];
        world_init(&w, LC_F64);
        lc_optimizer *opt = lc_sgd(&w.root, .lr = 1);
        lc_scheduler *s = lc_step_lr(opt, .step_size = 1, .gamma = 0.5);
        for (uint64_t step = 0; step < 3; step++) {
            double rate = way == CLIP ? 0.5 + 0.25 : ldexp(1, -(int)step);
            get(&w, w.p[0], before);
            CHECK_OK(lc_step_begin(w.graph, step, 0));
            lc_optimizer_zero_grad(opt);
            lc_backward(lc_add(lc_sum(w.p[0]), lc_sum(w.p[1])));
            if (way == CLIP) lc_clip_grad_value(opt, 0.5);
            lc_optimizer_step(opt);
            if (way == SCHEDULE) CHECK_OK(lc_scheduler_step(s));
            if (way == RATE) CHECK_OK(lc_optimizer_set(opt, 0, "lr", rate / 2));
            if (way == CLIP) lc_clip_grad_value(opt, 0.25);
            if (way == CLIP) lc_optimizer_step(opt);
            CHECK_OK(lc_step_run(w.graph));
            CHECK_OK(lc_step_end(w.graph));
            get(&w, w.p[0], after);
            CHECK_NEAR(after[0], before[0] - rate, 1e-12);
        }
        lc_scheduler_free(s);
        world_free(&w, opt);
    }
}

/* A new optimizer may have the address of one that was freed. */
TEST(a_norm_belongs_to_the_optimizer_not_to_its_address)
{
    world w;
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_sgd(&w.root, .no_parameters = true), *other = lc_sgd(&w.root, .no_parameters = true);
    CHECK_EQ(lc_optimizer_add_group(opt, "first", &w.p[0], 1), 0);
    CHECK_EQ(lc_optimizer_add_group(other, "second", &w.p[1], 1), 0);
    for (int j = 0; j < 2; j++) {
        double norm, sum = 0, g[N];
        for (int n = 0; n < N1; n++) g[n] = gradient(j, n, 0);
        for (int n = 0; n < (j ? N1 : N0); n++) sum += g[n] * g[n];
        for (int k = 0; k < 2; k++) put(&w, w.g[k], (double[N]){0});
        put(&w, w.g[j], g);
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        lc_zero_grad(w.graph);
        lc_backward(lc_add(lc_sum(lc_mul(w.p[0], w.g[0])), lc_sum(lc_mul(w.p[1], w.g[1]))));
        CHECK_OK(lc_item(lc_clip_grad_norm(opt, 1), &norm)); /* read right away, before an update is recorded */
        CHECK_OK(lc_step_end(w.graph));
        CHECK_NEAR(norm, sqrt(sum), 1e-12);
        lc_optimizer moved = *opt;
        *opt = *other;
        *other = moved;
    }
    lc_optimizer_free(other);
    world_free(&w, opt);
}

TEST(zero_and_default)
{
    lc_module m;
    double value;
    lc_module_init(&m, NULL, 1);
    lc_optimizer *a = lc_adamw(&m), *b = lc_adamw(&m, .lr = 0, .weight_decay = 0);
    CHECK_OK(lc_optimizer_get(a, 0, "weight_decay", &value));
    CHECK_NEAR(value, 0.01, 0);
    CHECK_OK(lc_optimizer_get(b, 0, "weight_decay", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_OK(lc_optimizer_get(b, 0, "lr", &value));
    CHECK_NEAR(value, 0, 0);
    lc_optimizer_free(a);
    lc_optimizer_free(b);
    lc_module_release(&m);
}

/* A parameter without a gradient keeps its value, state and step count. */
TEST(parameters_without_gradient_are_unchanged)
{
    world w;
    double before[N], after[N], steps[2];
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_adamw(&w.root, .lr = 0.1, .weight_decay = 0.5);
    get(&w, w.p[0], before);
    for (int t = 0; t < 3; t++) train_step(&w, opt, false, 0, 0);
    get(&w, w.p[0], after);
    CHECK(!memcmp(before, after, N0 * sizeof(double)));
    CHECK_OK(lc_tensor_read(opt->steps, steps, sizeof steps));
    CHECK_NEAR(steps[0], 0, 0);
    CHECK_NEAR(steps[1], 3, 0);
    world_free(&w, opt);
}

/* Rprop's first step of a parameter is as long as the learning rate is then, however late its first gradient comes. */
TEST(rprop_starts_with_the_rate_of_the_first_gradient)
{
    world w;
    double before[N], after[N];
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_rprop(&w.root, .lr = 0.1);
    train_step(&w, opt, false, 0, 0);
    CHECK_OK(lc_optimizer_set(opt, -1, "lr", 0.01));
    get(&w, w.p[0], before);
    train_step(&w, opt, true, 0, 0);
    get(&w, w.p[0], after);
    for (int i = 0; i < N0; i++) CHECK_NEAR(fabs(after[i] - before[i]), 0.01, 1e-12);
    world_free(&w, opt);
}

typedef struct state_log {
    char text[512];
} state_log;

static lc_status log_state(void *ctx, const char *state, const char *path, lc_tensor *parameter, lc_tensor *flat,
                           int64_t offset, int64_t count)
{
    state_log *log = ctx;
    double values[256];
    (void)parameter;
    CHECK(lc_tensor_numel(flat) <= 256 && offset + count <= lc_tensor_numel(flat));
    CHECK_OK(lc_tensor_read(flat, values, (size_t)lc_tensor_numel(flat) * sizeof(double)));
    size_t at = strlen(log->text);
    snprintf(log->text + at, sizeof log->text - at, "%s.%s[%d]=%.4f ", path, state, (int)count, values[offset]);
    return LC_OK;
}

TEST(state_for_checkpoints)
{
    world w;
    state_log log = {""};
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_nadam(&w.root);
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log)); /* creates the state */
    CHECK_CONTAINS(log.text, "p0.step[1]=0.0000 p0.exp_avg[5]=0.0000 p0.exp_avg_sq[5]=0.0000 p0.mu_product[1]=1.0000 ");
    train_step(&w, opt, true, 0, 0);
    log.text[0] = '\0';
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log));
    CHECK_CONTAINS(log.text, "p0.step[1]=1.0000 p0.exp_avg[5]=0.1000 p0.exp_avg_sq[5]=0.0010 p0.mu_product[1]=0.4501 ");
    CHECK_CONTAINS(log.text, "p1.step[1]=1.0000 p1.exp_avg[6]=0.0540");
    world_free(&w, opt);
}

/* Also for a group that is added later. */
TEST(a_number_for_each_parameter)
{
    world w;
    state_log log = {""};
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_nadam(&w.root, .no_parameters = true);
    CHECK_EQ(lc_optimizer_add_group(opt, "a", &w.p[1], 1), 0);
    train_step(&w, opt, true, 0, 0);
    CHECK_EQ(lc_optimizer_add_group(opt, "b", &w.p[0], 1), 1);
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log));
    CHECK_CONTAINS(log.text, "p0.mu_product[1]=1.0000 ");
    CHECK_CONTAINS(log.text, "p1.mu_product[1]=0.4501 ");
    train_step(&w, opt, true, 0, 0);
    log.text[0] = '\0';
    CHECK_OK(lc_optimizer_visit_state(opt, log_state, &log));
    CHECK_CONTAINS(log.text, "p0.mu_product[1]=0.4501 ");
    CHECK_CONTAINS(log.text, "p1.step[1]=2.0000 ");
    CHECK_EQ(lc_tensor_numel(opt->state[2]), 2);
    world_free(&w, opt);
}

/* Arguments of a program built when the table had fewer entries: the memory after them is not read. */
TEST(a_shorter_table_is_read_to_its_end)
{
    world w, same;
    lc_optimizer *opt, *sgd;
    world_init(&w, LC_F64), world_init(&same, LC_F64);
    sgd = lc_sgd(&same.root, .lr = 1e-3);
    CHECK(sgd);
    size_t size = offsetof(lc_optimizer_ops, initial_state);
    lc_optimizer_ops *ops = malloc(sizeof *ops);
    CHECK(ops);
    memset(ops, 0xff, sizeof *ops);
    memcpy(ops, sgd->ops, size);
    ops->size = size;
    CHECK_OK(lc_optimizer_new(ops, &w.root, 0, &opt));
    CHECK_EQ(lc_optimizer_add_group(opt, "all", w.p, 2), 0);
    CHECK_OK(lc_optimizer_set(opt, 0, "lr", 1e-3));
    train_step(&w, opt, true, 0, 0);
    train_step(&same, sgd, true, 0, 0);
    for (int j = 0; j < 2; j++) {
        double a[N], b[N];
        get(&w, w.p[j], a), get(&same, same.p[j], b);
        CHECK(!memcmp(a, b, (size_t)lc_tensor_numel(w.p[j]) * sizeof *a));
    }
    world_free(&w, opt), world_free(&same, sgd);
    free(ops);
}

static lc_status wordless_accept(const lc_optimizer *opt, const lc_tensor *parameter)
{
    (void)opt, (void)parameter;
    return LC_ERR_IO;
}

static lc_status wordless_step(lc_optimizer *opt, lc_evaluate_fn *evaluate, void *ctx)
{
    (void)opt, (void)evaluate, (void)ctx;
    return LC_ERR_IO;
}

static lc_status no_loss(void *ctx, double *loss)
{
    (void)ctx, (void)loss;
    return LC_OK;
}

/* A message from before is about another matter. */
TEST(a_function_that_fails_without_a_message)
{
    world w;
    lc_optimizer *opt, *sgd;
    world_init(&w, LC_F64);
    sgd = lc_sgd(&w.root, .lr = 1e-3);
    lc_optimizer_ops ops = *sgd->ops;
    ops.accept = wordless_accept;
    ops.step_closure = wordless_step;
    CHECK_OK(lc_optimizer_new(&ops, &w.root, 0, &opt));
    for (int i = 0; i < 2; i++) {
        (void)lc_fail(LC_ERR_IO, "another matter");
        CHECK_STATUS(i ? lc_optimizer_step_closure(opt, no_loss, NULL) : lc_optimizer_add_group(opt, "all", w.p, 2),
                     LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), "it returned an error (input or output failed) without a message");
    }
    lc_optimizer_free(sgd);
    world_free(&w, opt);
}

TEST(errors_name_the_wrong_argument)
{
    lc_module m;
    lc_optimizer *opt;
    lc_module_init(&m, NULL, 1);
    CHECK_STATUS(lc_optimizer_by_name("Adamm", &m, NULL, 0, &opt), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "AdamW");
    lc_named_number wrong = {"momentum", 1};
    CHECK_STATUS(lc_optimizer_by_name("Adam", &m, &wrong, 1, &opt), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "beta1");
    lc_named_number flag = {"nesterov", 1};
    CHECK_STATUS(lc_optimizer_by_name("SGD", &m, &flag, 1, &opt), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "momentum");
    CHECK(lc_adam(&m, .beta1 = 1) == NULL);
    CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "beta1");
    lc_module_release(&m);
}

static lc_status sum_of_squares(void *ctx, double *loss)
{
    const world *w = ctx;
    lc_tensor *sum = lc_sum(lc_square(w->p[0]));
    lc_zero_grad(w->graph);
    lc_backward(sum);
    return lc_item(sum, loss);
}

typedef struct counted {
    world *w;
    lc_optimizer *opt;
    int evaluations;
} counted;

/* Written like a PyTorch closure. Steep at first and flat far away, so that line searches are long. */
static lc_status steep(void *ctx, double *loss)
{
    counted *c = ctx;
    lc_tensor *sum = lc_sum(lc_exp(lc_mul_scalar(c->w->p[0], 8)));
    c->evaluations++;
    lc_optimizer_zero_grad(c->opt);
    lc_backward(sum);
    return lc_item(sum, loss);
}

/* One evaluation before the line search, its first try, and max_eval - 1 more, as in PyTorch. */
TEST(lbfgs_searches_no_longer_than_max_eval)
{
    for (int most = 2; most < 5; most++) {
        world w;
        world_init(&w, LC_F64);
        counted c = {.w = &w, .opt = lc_lbfgs(&w.root, .lr = 1e-5, .max_eval = most, .strong_wolfe = true)};
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        CHECK_OK(lc_optimizer_step_closure(c.opt, steep, &c));
        CHECK_OK(lc_step_end(w.graph));
        CHECK_EQ(c.evaluations, most + 1);
        world_free(&w, c.opt);
    }
}

typedef struct broken {
    world *w;
    lc_optimizer *opt;
    bool clipped;
} broken;

/* Its gradient is NaN for the first element, and 0 for all others. */
static lc_status undefined(void *ctx, double *loss)
{
    broken *b = ctx;
    lc_tensor *sum = lc_sum(lc_mul(b->w->p[0], b->w->g[0]));
    lc_optimizer_zero_grad(b->opt);
    lc_backward(sum);
    if (b->clipped) lc_clip_grad_value(b->opt, 1);
    return lc_item(sum, loss);
}

/* A NaN gradient does not count as converged: parameters become NaN, as in PyTorch. */
TEST(lbfgs_hides_no_nan)
{
    for (int how = 0; how < 4; how++) {
        world w;
        double g[N] = {NAN}, after[N];
        world_init(&w, how / 2 ? LC_F32 : LC_F64);
        put(&w, w.g[0], g);
        broken b = {.w = &w, .opt = lc_lbfgs(&w.root, .max_iter = 3), .clipped = how % 2};
        CHECK_OK(lc_step_begin(w.graph, 0, 0));
        CHECK_OK(lc_optimizer_step_closure(b.opt, undefined, &b));
        CHECK_OK(lc_step_end(w.graph));
        get(&w, w.p[0], after);
        CHECK(isnan(after[0]));
        world_free(&w, b.opt);
    }
}

/* An optimizer of all parameters zeroes all gradients: means are over the backward passes since then. */
TEST(zero_grad_of_the_only_optimizer)
{
    world w;
    double before[N], after[N];
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_sgd(&w.root, .lr = 1);
    for (uint64_t step = 0; step < 3; step++) {
        get(&w, w.p[0], before);
        CHECK_OK(lc_step_begin(w.graph, step, 0));
        lc_optimizer_zero_grad(opt);
        lc_backward(lc_sum(lc_add(lc_sum(w.p[0]), lc_sum(w.p[1]))));
        lc_optimizer_step(opt);
        CHECK_OK(lc_step_run(w.graph));
        CHECK_OK(lc_step_end(w.graph));
        get(&w, w.p[0], after);
        CHECK_NEAR(after[0], before[0] - 1, 1e-12);
    }
    world_free(&w, opt);
}

/* Also within the first step, of which there is no plan yet. */
TEST(zero_grad_of_the_only_optimizer_within_a_step)
{
    world w;
    double before[N], after[N];
    world_init(&w, LC_F64);
    get(&w, w.p[0], before);
    lc_optimizer *opt = lc_sgd(&w.root, .lr = 1);
    CHECK_OK(lc_step_begin(w.graph, 0, 0));
    for (int i = 0; i < 3; i++) {
        lc_optimizer_zero_grad(opt);
        lc_backward(lc_sum(lc_add(lc_sum(w.p[0]), lc_sum(w.p[1]))));
        lc_optimizer_step(opt);
    }
    CHECK_OK(lc_step_run(w.graph));
    CHECK_OK(lc_step_end(w.graph));
    get(&w, w.p[0], after);
    CHECK_NEAR(after[0], before[0] - 3, 1e-12);
    world_free(&w, opt);
}

/* A parameter of another optimizer keeps its gradient, also if the step is the first to use it. */
TEST(zero_grad_of_one_of_two_optimizers)
{
    world w, other;
    double before[N], after[N];
    world_init(&w, LC_F64);
    world_init(&other, LC_F64);
    get(&other, other.p[0], before);
    lc_optimizer *opt = lc_sgd(&w.root, .lr = 1), *second = lc_sgd(&other.root, .lr = 1);
    for (uint64_t step = 0; step < 2; step++) {
        CHECK_OK(lc_step_begin(w.graph, step, 0));
        lc_zero_grad(w.graph);
        lc_tensor *loss = lc_sum(w.p[0]);
        lc_backward(step ? lc_add(loss, lc_sum(other.p[0])) : loss);
        lc_optimizer_step(opt);
        lc_optimizer_zero_grad(opt);
        if (step) lc_optimizer_step(second);
        CHECK_OK(lc_step_run(w.graph));
        CHECK_OK(lc_step_end(w.graph));
    }
    get(&other, other.p[0], after);
    CHECK_NEAR(after[0], before[0] - 1, 1e-12);
    lc_optimizer_free(second);
    world_free(&other, NULL);
    world_free(&w, opt);
}

/* Also when the second group comes late. */
TEST(lbfgs_takes_one_group)
{
    world w;
    world_init(&w, LC_F64);
    lc_optimizer *opt = lc_lbfgs(&w.root, .no_parameters = true);
    CHECK_EQ(lc_optimizer_add_group(opt, "a", &w.p[0], 1), 0);
    CHECK_OK(lc_step_begin(w.graph, 0, 0));
    CHECK_OK(lc_optimizer_step_closure(opt, sum_of_squares, &w));
    CHECK_OK(lc_step_end(w.graph));
    CHECK_EQ(lc_optimizer_add_group(opt, "b", &w.p[1], 1), 1);
    CHECK_OK(lc_step_begin(w.graph, 1, 0));
    CHECK_STATUS(lc_optimizer_step_closure(opt, sum_of_squares, &w), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "one group");
    CHECK_OK(lc_step_end(w.graph));
    CHECK(!lc_lbfgs(&w.root, .maximize = true));
    CHECK_CONTAINS(lc_error_message(), "negate the loss");
    world_free(&w, opt);
    static const lc_named_number bad[] = {
        {"max_iter", 1e300}, {"max_iter", 2.5}, {"max_eval", 1e10}, {"max_eval", 2.5}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(lc_optimizer_by_name("LBFGS", NULL, &bad[i], 1, &opt), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), bad[i].name);
    }
}

TEST(muon_refuses_vectors)
{
    world w;
    world_init(&w, LC_F32);
    lc_optimizer *opt = lc_muon(&w.root);
    CHECK(opt == NULL);
    CHECK_STATUS(lc_module_status(&w.root), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "matrices");
    world_free(&w, opt);
}

/* The update of a matrix is nearly orthogonal: singular values are near 1 (between 0.68 and 1.13 for these
 * coefficients). */
TEST(muon_orthogonalizes)
{
    world w;
    double before[N], after[N];
    world_init(&w, LC_F32);
    lc_optimizer *opt = lc_muon(&w.root, .lr = 1, .weight_decay = 0, .parameters = &w.p[1], .n_parameters = 1);
    CHECK_OK(lc_module_status(&w.root));
    get(&w, w.p[1], before);
    train_step(&w, opt, true, 0, 0);
    get(&w, w.p[1], after);
    double a = 0, b = 0, c = 0, scale = sqrt(1.5);
    for (int i = 0; i < 3; i++) {
        double x = (before[2 * i] - after[2 * i]) / scale, y = (before[2 * i + 1] - after[2 * i + 1]) / scale;
        a += x * x, b += x * y, c += y * y;
    }
    double middle = (a + c) / 2, radius = sqrt((a - c) * (a - c) / 4 + b * b);
    CHECK(sqrt(middle - radius) > 0.5 && sqrt(middle + radius) < 1.3);
    world_free(&w, opt);
}

/* ---- an update that is a plan of its own ---- */

/* Only the update sees that a parameter is frozen: plans for both cases are kept apart. */
TEST(an_update_skips_frozen_parameters)
{
    static const lc_module_ops no_ops = {LC_MODULE_OPS_INIT("one")};
    lc_module m;
    lc_linear l;
    lc_graph *g;
    lc_tensor *x;
    float data[4] = {1, 2, 3, 4}, before[8], after[8];
    double loss;
    lc_module_init(&m, &no_ops, 3);
    lc_linear_init(&l, &m, "l", 4, 2);
    CHECK_OK(lc_module_status(&m));
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_sgd(&m, .lr = 0.1);
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){1, 4}, LC_ROW_MAJOR, data, &x));
    for (int s = 0; s < 4; s++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)s, 0));
        lc_zero_grad(g);
        lc_tensor *y = lc_keep(lc_mean(lc_square(lc_linear_forward(&l, x))));
        lc_backward(y);
        CHECK_OK(lc_item(y, &loss)); /* the rest is planned separately */
        CHECK_OK(lc_tensor_read(l.weight, before, sizeof before));
        lc_tensor_set_requires_grad(l.weight, s % 2);
        lc_optimizer_step(opt);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        lc_tensor_set_requires_grad(l.weight, true);
        CHECK_OK(lc_tensor_read(l.weight, after, sizeof after));
        CHECK_EQ(memcmp(before, after, sizeof after) != 0, s % 2);
    }
    lc_optimizer_free(opt);
    lc_tensor_unref(x);
    lc_graph_free(g);
    lc_module_release(&m);
}

/* ---- more parameters than most models have ---- */

TEST(an_update_of_very_many_parameters)
{
    enum { SUM = 100 };
    const int many =
        takes_all() ? 35000 : 22000; /* an update has three operands per parameter, a norm two: over 65536 */
    static const lc_module_ops no_ops = {LC_MODULE_OPS_INIT("many")};
    lc_module m;
    lc_graph *g;
    lc_tensor **p = malloc((size_t)many * sizeof(lc_tensor *)), *all = NULL;
    double norm;
    int wrong = 0;
    CHECK(p != NULL);
    lc_module_init(&m, &no_ops, 3);
    for (int i = 0; i < many; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        p[i] = lc_module_add_parameter(&m, name, LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    }
    CHECK_OK(lc_module_status(&m));
    for (int i = 0; i < many; i++) CHECK_OK(lc_tensor_write(p[i], &(float){1}, sizeof(float)));
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_sgd(&m, .lr = 0.5);
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_zero_grad(g);
    for (int i = 0; i < many; i += SUM) {
        lc_tensor *some = p[i];
        for (int k = i + 1; k < i + SUM; k++) some = lc_add(some, p[k]);
        all = all ? lc_add(all, some) : some;
    }
    lc_backward(lc_sum(all));
    lc_tensor *length = lc_keep(lc_clip_grad_norm(opt, 1e9));
    lc_optimizer_step(opt);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_item(length, &norm));
    CHECK_OK(lc_step_end(g));
    CHECK_NEAR(norm, sqrt(many), 1e-3);
    for (int i = 0; i < many; i++) {
        float now;
        CHECK_OK(lc_tensor_read(p[i], &now, sizeof now));
        wrong += now != 0.5f;
    }
    CHECK_EQ(wrong, 0);
    lc_optimizer_free(opt);
    lc_graph_free(g);
    lc_module_release(&m);
    free(p);
}

/* ---- a step that runs between clipping and the update ---- */

typedef struct clipped {
    world w;
    lc_optimizer *opt;
    bool runs; /* with lc_step_run, before the loss is read */
} clipped;

static lc_status clipped_squares(void *ctx, double *loss)
{
    clipped *c = ctx;
    lc_tensor *sum = lc_sum(lc_square(c->w.p[0]));
    lc_optimizer_zero_grad(c->opt);
    lc_backward(sum);
    (void)lc_clip_grad_norm(c->opt, 0.5);
    if (c->runs) {
        lc_keep(sum);
        LC_TRY(lc_step_run(c->w.graph));
    }
    return lc_item(sum, loss);
}

TEST(a_closure_clips_and_runs_its_step)
{
    for (int lbfgs = 0; lbfgs < 2; lbfgs++) {
        double end[2][N0];
        for (int runs = 0; runs < 2; runs++) {
            clipped c = {.runs = runs};
            world_init(&c.w, LC_F64);
            c.opt = lbfgs ? lc_lbfgs(&c.w.root, .lr = 0.1) : lc_sgd(&c.w.root, .lr = 0.1);
            CHECK_OK(lc_step_begin(c.w.graph, 0, 0));
            CHECK_OK(lc_optimizer_step_closure(c.opt, clipped_squares, &c));
            CHECK_OK(lc_step_run(c.w.graph));
            CHECK_OK(lc_step_end(c.w.graph));
            get(&c.w, c.w.p[0], end[runs]);
            world_free(&c.w, c.opt);
        }
        for (int i = 0; i < N0; i++) CHECK_NEAR(end[0][i], end[1][i], 1e-12);
        CHECK(fabs(end[0][0] - sin(1)) > 1e-3);
    }
}

/* ---- infinite weights, such as those of a mask ---- */

static lc_optimizer *optimizer_number(int k, lc_module *m)
{
    switch (k) {
    case 0:
        return lc_sgd(m);
    case 1:
        return lc_sgd(m, .momentum = 0.9);
    case 2:
        return lc_sgd(m, .momentum = 0.9, .nesterov = true);
    case 3:
        return lc_adam(m);
    case 4:
        return lc_adam(m, .amsgrad = true);
    case 5:
        return lc_adamw(m);
    case 6:
        return lc_rmsprop(m);
    case 7:
        return lc_rmsprop(m, .momentum = 0.9, .centered = true);
    case 8:
        return lc_adagrad(m);
    case 9:
        return lc_adadelta(m);
    case 10:
        return lc_adamax(m);
    case 11:
        return lc_nadam(m);
    case 12:
        return lc_radam(m);
    case 13:
        return lc_rprop(m);
    default:
        return NULL;
    }
}

TEST(an_infinite_weight_without_gradient_stays)
{
    const lc_dtype types[] = {LC_F32, LC_F64};
    for (int k = 0; k < 14; k++)
        for (int type = 0; type < 2; type++) {
            const double weights[N0] = {-INFINITY, 1, INFINITY, -1, 0}, gradient[N0] = {0, 1, 0, -1, 0};
            double end[N0];
            world w;
            world_init(&w, types[type]);
            put(&w, w.p[0], weights);
            put(&w, w.g[0], gradient);
            lc_optimizer *opt = optimizer_number(k, &w.root);
            for (int step = 0; step < 6; step++) {
                CHECK_OK(lc_step_begin(w.graph, (uint64_t)step, 0));
                lc_zero_grad(w.graph);
                lc_backward(lc_sum(lc_where(lc_isfinite(w.p[0]), lc_mul(w.p[0], w.g[0]), lc_zeros_like(w.p[0]))));
                lc_optimizer_step(opt);
                CHECK_OK(lc_step_run(w.graph));
                CHECK_OK(lc_step_end(w.graph));
            }
            get(&w, w.p[0], end);
            if (end[0] != -INFINITY || end[2] != INFINITY || !(end[1] < 1))
                TEST_FAIL("%s: %g, %g, %g", opt->ops->name, end[0], end[1], end[2]);
            world_free(&w, opt);
        }
}

TEST_MAIN
