/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to optimize: by hand with several optimizers, with toggling, with closures, with LBFGS; overrides of the hooks
 * around an update; and a bit-for-bit resume of each of them. */
#include "core/hooks/trainer_internal.h"
#include "test.h"
#include "trainer_world.h"

/* ---- a module of two weights, a and b ---- */
typedef struct pair {
    lc_module base;
    lc_tensor *a, *b;
    lc_tensor *(*step)(struct pair *p, lc_tensor *x, int64_t i);
    lc_status (*optimizers)(struct pair *p, lc_optimizers *out);
    int64_t n, stop_after, batches; /* stop_after: training batches; 0: never */
    bool b_had_gradient;
    int evaluations;
    int64_t accumulate;  /* 0 is taken as 1 */
    const int64_t *sets; /* [n] value set after each batch; 0: unchanged */
} pair;

static lc_tensor *pair_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    return ((pair *)self)->step((pair *)self, lc_mean(batch->x), i);
}
static lc_status pair_optimizers(lc_module *self, lc_optimizers *out)
{
    return ((pair *)self)->optimizers((pair *)self, out);
}
static lc_status pair_loader(lc_module *self, lc_loaders *out)
{
    return lc_loaders_add(out, numbers_new(((pair *)self)->n, 1, false));
}
static lc_status pair_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    pair *p = (pair *)self;
    (void)o, (void)b;
    if (p->sets && p->sets[i]) LC_TRY(lc_trainer_set_accumulate_grad_batches(self->trainer, p->sets[i]));
    if (!p->stop_after || ++p->batches != p->stop_after) return LC_OK;
    char path[4200];
    snprintf(path, sizeof path, "%s/stop.ckpt", lc_trainer_default_root_dir(self->trainer));
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}
#define PAIR_OPS                                                                                                       \
    LC_MODULE_OPS_INIT("pair"), .training_step = pair_step, .configure_optimizers = pair_optimizers,                   \
                                .train_dataloader = pair_loader, .on_train_batch_end = pair_batch_end
static const lc_module_ops automatic_ops = {PAIR_OPS};
static const lc_module_ops manual_ops = {PAIR_OPS, .manual_optimization = true};

static void pair_init(pair *p, const lc_module_ops *ops)
{
    int64_t shape[] = {1};
    lc_init one = {.kind = LC_INIT_ONES};
    lc_module_init(&p->base, ops, 1);
    p->a = lc_module_add_parameter(&p->base, "a", LC_F32, LC_ROW_MAJOR, 1, shape, one);
    p->b = lc_module_add_parameter(&p->base, "b", LC_F32, LC_ROW_MAJOR, 1, shape, one);
}

static lc_optimizer *sgd_of(pair *p, lc_tensor *parameter, double lr)
{
    return lc_sgd(p, .parameters = &parameter, .n_parameters = 1, .lr = lr);
}
static lc_status one_each(pair *p, lc_optimizers *out)
{
    LC_TRY(lc_optimizers_add(out, sgd_of(p, p->a, 0.5)));
    return lc_optimizers_add(out, sgd_of(p, p->b, 0.25));
}
static lc_status one_for_both(pair *p, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(p, .lr = 0.5));
}
static lc_status adam_for_both(pair *p, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(p, .lr = 0.1));
}

static double value_of(lc_tensor *t)
{
    double v = NAN;
    return lc_item(t, &v) == LC_OK ? v : NAN;
}

/* Trains; with stop_after it fails there, and a new trainer resumes from its checkpoint. */
static void train(pair *p, const lc_module_ops *ops, int64_t epochs, int64_t stop_after, double *a, double *b,
                  int64_t *step)
{
    char dir[256], path[300];
    pair start = *p;
    CHECK(world_dir(dir, sizeof dir));
    for (int part = stop_after ? 0 : 1; part < 2; part++) {
        lc_trainer *t;
        lc_trainer_options o = world_options(dir);
        o.max_epochs = epochs;
        o.enable_checkpointing = LC_OFF;
        if (p->accumulate) o.accumulate_grad_batches = p->accumulate;
        *p = start;
        p->stop_after = part ? 0 : stop_after;
        pair_init(p, ops);
        snprintf(path, sizeof path, "%s/stop.ckpt", dir);
        CHECK_OK(lc_trainer_new(&o, &t));
        lc_status s = lc_trainer_fit(t, &p->base, .ckpt_path = part && stop_after ? path : NULL);
        if (part)
            CHECK_OK(s);
        else
            CHECK_STATUS(s, LC_ERR_USER);
        if (part) {
            *a = value_of(p->a);
            *b = value_of(p->b);
            *step = lc_trainer_global_step(t);
        }
        lc_trainer_free(t);
        lc_module_release(&p->base);
    }
    world_remove(dir);
}

/* A run that is stopped at any batch ends like one that is not. */
static void check_resume(const pair *p, const lc_module_ops *ops, int64_t epochs)
{
    double a, b, a2, b2;
    int64_t step, step2;
    pair now = *p;
    train(&now, ops, epochs, 0, &a, &b, &step);
    for (int64_t k = 1; k <= epochs * p->n; k++) {
        now = *p;
        train(&now, ops, epochs, k, &a2, &b2, &step2);
        if (a != a2 || b != b2 || step != step2)
            TEST_FAIL("stopped after batch %lld: %.9g %.9g at step %lld, wanted %.9g %.9g at %lld", (long long)k, a2,
                      b2, (long long)step2, a, b, (long long)step);
    }
}

/* ---- by hand ---- */

/* Both losses depend on both weights; each optimizer zeroes and updates its own. */
static lc_tensor *two_losses(pair *p, lc_tensor *x, int64_t i)
{
    lc_module *self = &p->base;
    lc_optimizer *oa = lc_manual_optimizer(self, 0), *ob = lc_manual_optimizer(self, 1);
    (void)i;
    lc_tensor *both = lc_mul(lc_mul(p->a, p->b), x);
    if (lc_manual_zero_grad(self, oa) < 0 || lc_manual_backward(self, both) < 0 || lc_manual_step(self, oa) < 0)
        return NULL;
    both = lc_mul(lc_mul(p->a, p->b), x);
    if (lc_manual_zero_grad(self, ob) < 0 || lc_manual_backward(self, both) < 0 || lc_manual_step(self, ob) < 0)
        return NULL;
    return both;
}

/* The steps train a with the gradient of the first loss, then b with that of the second, which sees the new a. */
static void check_by_turns(lc_tensor *(*step_of)(pair *p, lc_tensor *x, int64_t i))
{
    pair p = {.step = step_of, .optimizers = one_each, .n = 4};
    double a, b, wa = 1, wb = 1;
    int64_t step;
    pair now = p;
    train(&now, &manual_ops, 1, 0, &a, &b, &step);
    for (int i = 0; i < 4; i++) {
        wa -= 0.5 * wb * i;
        wb -= 0.25 * wa * i;
    }
    CHECK_NEAR(a, wa, 1e-4 * fabs(wa));
    CHECK_NEAR(b, wb, 1e-4 * fabs(wb));
    CHECK_EQ(step, 8); /* every step of every optimizer counts */
    check_resume(&p, &manual_ops, 2);
}

TEST(each_optimizer_zeroes_its_own)
{
    check_by_turns(two_losses);
}

/* Gradients of two backward passes add up as in PyTorch; they are not averaged. */
static lc_tensor *backward_twice(pair *p, lc_tensor *x, int64_t i)
{
    lc_module *self = &p->base;
    (void)i;
    if (lc_manual_zero_grad(self, NULL) < 0) return NULL;
    if (lc_manual_backward(self, lc_mul(p->a, x)) < 0 || lc_manual_backward(self, lc_mul(p->a, x)) < 0) return NULL;
    return lc_manual_step(self, lc_manual_optimizer(self, 0)) < 0 ? NULL : x;
}

TEST(gradients_add_up)
{
    pair p = {.step = backward_twice, .optimizers = one_for_both, .n = 3};
    double a, b;
    int64_t step;
    train(&p, &manual_ops, 1, 0, &a, &b, &step);
    CHECK_NEAR(a, 1 - 0.5 * 2 * (0 + 1 + 2), 1e-6);
}

static lc_tensor *fourfold(void *self, lc_tensor *loss)
{
    (void)self;
    return lc_mul_scalar(loss, 4);
}
static int unscaled;
static lc_status count_steps(void *self, lc_optimizer *opt)
{
    (void)self, (void)opt;
    unscaled++;
    return LC_OK;
}
static const lc_precision_ops scaling = {LC_PRECISION_OPS_INIT("fourfold"), .scale_loss = fourfold,
                                         .before_optimizer_step = count_steps};

static lc_tensor *loss_of_a(pair *p, lc_tensor *x, int64_t i)
{
    (void)i;
    return lc_mul(p->a, x);
}

/* A precision scales the loss and checks the gradients in manual optimization as well. */
TEST(manual_optimization_calls_the_hooks_of_a_precision)
{
    for (int by_hand = 0; by_hand < 2; by_hand++) {
        pair p = {.step = by_hand ? backward_twice : loss_of_a, .optimizers = one_for_both, .n = 3};
        char dir[256];
        lc_trainer *t;
        CHECK(world_dir(dir, sizeof dir));
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 1;
        o.enable_checkpointing = LC_OFF;
        pair_init(&p, by_hand ? &manual_ops : &automatic_ops);
        CHECK_OK(lc_trainer_new(&o, &t));
        t->precision = scaling;
        unscaled = 0;
        CHECK_OK(lc_trainer_fit(t, &p.base));
        CHECK_NEAR(value_of(p.a), 1 - 0.5 * 4 * (by_hand + 1) * (0 + 1 + 2), 1e-5);
        CHECK_EQ(unscaled, 3);
        lc_trainer_free(t);
        lc_module_release(&p.base);
        world_remove(dir);
    }
}

static int looked;
static lc_status overflow_once(void *self, lc_optimizer *opt)
{
    (void)self, (void)opt;
    return looked++ == 1 ? LC_SKIP : LC_OK;
}
static const lc_precision_ops overflowing = {LC_PRECISION_OPS_INIT("overflowing"),
                                             .before_optimizer_step = overflow_once};

/* The update of batch 1 is skipped, and its step is counted. */
TEST(a_precision_that_sees_an_overflow_skips_the_update)
{
    for (int by_hand = 0; by_hand < 2; by_hand++) {
        pair p = {.step = by_hand ? backward_twice : loss_of_a, .optimizers = one_for_both, .n = 3};
        char dir[256];
        lc_trainer *t;
        CHECK(world_dir(dir, sizeof dir));
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 1;
        o.enable_checkpointing = LC_OFF;
        pair_init(&p, by_hand ? &manual_ops : &automatic_ops);
        CHECK_OK(lc_trainer_new(&o, &t));
        t->precision = overflowing;
        looked = 0;
        CHECK_OK(lc_trainer_fit(t, &p.base));
        CHECK_EQ(looked, 3);
        CHECK_NEAR(value_of(p.a), 1 - 0.5 * (by_hand + 1) * (0 + 2), 1e-6);
        CHECK_EQ(lc_trainer_global_step(t), 3);
        lc_trainer_free(t);
        lc_module_release(&p.base);
        world_remove(dir);
    }
}

/* Accumulates by hand over three batches: a checkpoint in between holds the gradients. */
static lc_tensor *every_third(pair *p, lc_tensor *x, int64_t i)
{
    lc_module *self = &p->base;
    if (i % 3 == 0 && lc_manual_zero_grad(self, NULL) < 0) return NULL;
    if (lc_manual_backward(self, lc_mul(lc_square(p->a), x)) < 0) return NULL;
    if (i % 3 == 2 && lc_manual_step(self, lc_manual_optimizer(self, 0)) < 0) return NULL;
    return x;
}

TEST(accumulating_by_hand_resumes)
{
    pair p = {.step = every_third, .optimizers = adam_for_both, .n = 7};
    check_resume(&p, &manual_ops, 2);
}

/* Zeroes nothing itself. */
static lc_tensor *adding_up(pair *p, lc_tensor *x, int64_t i)
{
    lc_module *self = &p->base;
    (void)i;
    if (lc_manual_backward(self, lc_mul(p->a, x)) < 0) return NULL;
    return lc_manual_step(self, lc_manual_optimizer(self, 0)) < 0 ? NULL : x;
}
static lc_status evaluate_nothing(lc_module *self, const lc_batch *batch, int64_t i, int loader)
{
    (void)self, (void)batch, (void)i, (void)loader;
    return LC_OK;
}
static lc_status keep_gradients(lc_module *self)
{
    (void)self;
    return LC_OK;
}

/* Lightning's numbers: before a validation gradients are zeroed, unless the module has that hook itself. */
TEST(a_validation_begins_without_gradients)
{
    static const lc_module_ops validated = {PAIR_OPS, .manual_optimization = true, .val_dataloader = pair_loader,
                                            .validation_step = evaluate_nothing};
    static const lc_module_ops kept = {PAIR_OPS, .manual_optimization = true, .val_dataloader = pair_loader,
                                       .validation_step = evaluate_nothing,
                                       .on_validation_model_zero_grad = keep_gradients};
    static const struct {
        const lc_module_ops *ops;
        double a;
    } cases[] = {{&validated, 0}, {&kept, -1}, {&manual_ops, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair p = {.step = adding_up, .optimizers = one_for_both, .n = 2}, now = p;
        double a, b;
        int64_t step;
        train(&now, cases[i].ops, 2, 0, &a, &b, &step);
        CHECK_NEAR(a, cases[i].a, 0);
        check_resume(&p, cases[i].ops, 2);
    }
}

/* ---- toggling ---- */

/* b's gradient is from before the toggling. */
static lc_tensor *zeroed_while_toggled(pair *p, lc_tensor *x, int64_t i)
{
    lc_module *self = &p->base;
    lc_optimizer *oa = lc_manual_optimizer(self, 0), *ob = lc_manual_optimizer(self, 1);
    (void)i;
    if (lc_manual_zero_grad(self, NULL) < 0 || lc_manual_backward(self, lc_mul(lc_add(p->a, p->b), x)) < 0) return NULL;
    if (lc_toggle_optimizer(self, oa) < 0 || lc_manual_zero_grad(self, oa) < 0) return NULL;
    if (lc_manual_backward(self, lc_mul(p->a, x)) < 0 || lc_manual_step(self, oa) < 0) return NULL;
    if (lc_untoggle_optimizer(self) < 0 || lc_manual_step(self, ob) < 0) return NULL;
    return x;
}

TEST(toggling_keeps_the_gradients_of_others)
{
    pair p = {.step = zeroed_while_toggled, .optimizers = one_each, .n = 3};
    double a, b;
    int64_t step;
    train(&p, &manual_ops, 1, 0, &a, &b, &step);
    CHECK_NEAR(a, 1 - 0.5 * (0 + 1 + 2), 0);
    CHECK_NEAR(b, 1 - 0.25 * (0 + 1 + 2), 0);
}

static lc_tensor *toggled(pair *p, lc_tensor *x, int64_t i)
{
    lc_module *self = &p->base;
    lc_optimizer *oa = lc_manual_optimizer(self, 0), *ob = lc_manual_optimizer(self, 1);
    (void)i;
    if (lc_manual_zero_grad(self, NULL) < 0) return NULL;
    if (lc_toggle_optimizer(self, oa) < 0) return NULL;
    p->b_had_gradient |= lc_tensor_requires_grad(p->b);
    lc_tensor *loss = lc_mul(lc_mul(p->a, p->b), x);
    if (lc_manual_backward(self, loss) < 0 || lc_manual_step(self, oa) < 0) return NULL;
    if (lc_untoggle_optimizer(self) < 0) return NULL;
    /* Nothing has been zeroed since, but b had no gradient before: its gradient is that of its own loss only. */
    if (lc_toggle_optimizer(self, ob) < 0) return NULL;
    loss = lc_mul(lc_mul(p->a, p->b), x);
    if (lc_manual_backward(self, loss) < 0 || lc_manual_step(self, ob) < 0) return NULL;
    return loss; /* untoggled when the step ends */
}

TEST(toggling)
{
    pair p = {.step = toggled, .optimizers = one_each, .n = 4};
    double a, b, wa = 1, wb = 1;
    int64_t step;
    pair now = p;
    train(&now, &manual_ops, 1, 0, &a, &b, &step);
    for (int i = 0; i < 4; i++) {
        wa -= 0.5 * wb * i;
        wb -= 0.25 * wa * i;
    }
    CHECK(!now.b_had_gradient);
    CHECK_NEAR(a, wa, 1e-4 * fabs(wa));
    CHECK_NEAR(b, wb, 1e-4 * fabs(wb));
    check_resume(&p, &manual_ops, 2);
}

/* The same by hand: what was recorded before a parameter is frozen or thawed has gradients as it was. */
static lc_tensor *frozen_by_hand(pair *p, lc_tensor *x, int64_t i)
{
    lc_module *self = &p->base;
    lc_optimizer *oa = lc_manual_optimizer(self, 0), *ob = lc_manual_optimizer(self, 1);
    (void)i;
    if (lc_manual_zero_grad(self, NULL) < 0) return NULL;
    lc_tensor_set_requires_grad(p->b, false);
    lc_tensor *loss = lc_mul(lc_mul(p->a, p->b), x);
    if (lc_manual_backward(self, loss) < 0 || lc_manual_step(self, oa) < 0) return NULL;
    lc_tensor_set_requires_grad(p->b, true);
    lc_tensor_set_requires_grad(p->a, false);
    loss = lc_mul(lc_mul(p->a, p->b), x);
    if (lc_manual_backward(self, loss) < 0 || lc_manual_step(self, ob) < 0) return NULL;
    lc_tensor_set_requires_grad(p->a, true);
    return loss;
}

TEST(freezing_by_hand)
{
    check_by_turns(frozen_by_hand);
}

/* The plans are found again when the same toggling returns: after the first steps nothing more is planned. */
TEST(toggling_plans_once)
{
    pair p = {.step = toggled, .optimizers = one_each, .n = 40};
    char dir[256];
    lc_trainer *t;
    lc_graph_stats stats;
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 1;
    o.enable_checkpointing = LC_OFF;
    pair_init(&p, &manual_ops);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &p.base));
    lc_graph_get_stats(lc_trainer_graph(t), &stats);
    CHECK(stats.misses <= 12);
    CHECK(stats.hits > 70);
    lc_trainer_free(t);
    CHECK(lc_tensor_requires_grad(p.a) && lc_tensor_requires_grad(p.b));
    lc_module_release(&p.base);
    world_remove(dir);
}

/* ---- closures ---- */

/* (a - 3)^2 + 10 (b - a)^2, about x */
static lc_tensor *valley(pair *p, lc_tensor *x, int64_t i)
{
    (void)i;
    p->evaluations++;
    lc_tensor *far = lc_square(lc_sub(p->a, lc_add_scalar(lc_mul_scalar(x, 0.1), 3)));
    lc_tensor *loss = lc_add(far, lc_mul_scalar(lc_square(lc_sub(p->b, p->a)), 10));
    lc_log(&p->base, "loss", loss);
    return loss;
}
static lc_status lbfgs(pair *p, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_lbfgs(p, .max_iter = 5, .history_size = 3, .strong_wolfe = true));
}

TEST(lbfgs_in_automatic_optimization)
{
    pair p = {.step = valley, .optimizers = lbfgs, .n = 3}, now = p;
    double a, b;
    int64_t step;
    train(&now, &automatic_ops, 2, 0, &a, &b, &step);
    CHECK_EQ(step, 6);
    CHECK(now.evaluations > 8); /* several per step */
    CHECK_NEAR(a, 3.2, 1e-3);   /* the last batch is 2 */
    CHECK_NEAR(b, 3.2, 1e-3);
    check_resume(&p, &automatic_ops, 2);
}

typedef struct manual_context {
    pair *p;
    lc_tensor *x;
} manual_context;
static lc_tensor *manual_closure(void *ctx, lc_status *status)
{
    manual_context *c = ctx;
    lc_tensor *loss = valley(c->p, c->x, 0);
    *status = lc_manual_zero_grad(&c->p->base, NULL);
    if (*status >= 0) *status = lc_manual_backward(&c->p->base, loss);
    return loss;
}
static lc_tensor *closure_by_hand(pair *p, lc_tensor *x, int64_t i)
{
    manual_context c = {p, x};
    lc_tensor *loss = NULL;
    (void)i;
    lc_status s = lc_manual_step_closure(&p->base, lc_manual_optimizer(&p->base, 0), manual_closure, &c, &loss);
    return s < 0 ? NULL : loss;
}

TEST(closures_by_hand)
{
    pair p = {.step = closure_by_hand, .optimizers = lbfgs, .n = 3}, now = p;
    double a, b;
    int64_t step;
    train(&now, &manual_ops, 2, 0, &a, &b, &step);
    CHECK_EQ(step, 6);
    CHECK_NEAR(a, 3.2, 1e-3);
    p.optimizers = adam_for_both; /* runs the closure once */
    now = p;
    train(&now, &manual_ops, 2, 0, &a, &b, &step);
    CHECK_EQ(now.evaluations, 6);
    CHECK_NEAR(a, 1.6, 0.1);
    check_resume(&p, &manual_ops, 2);
}

static lc_tensor *step_without_closure(pair *p, lc_tensor *x, int64_t i)
{
    (void)i;
    lc_status s = lc_manual_step(&p->base, lc_manual_optimizer(&p->base, 0));
    return s < 0 ? NULL : x;
}

TEST(impossible_calls_are_refused)
{
    pair p = {.step = step_without_closure, .optimizers = lbfgs, .n = 2};
    char dir[256];
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    for (int i = 0; i < 3; i++) {
        lc_trainer_options o = world_options(dir);
        o.enable_checkpointing = LC_OFF;
        if (i == 1) o.accumulate_grad_batches = 2;
        if (i) p.step = valley;
        if (i == 2) p.optimizers = one_each;
        pair_init(&p, i ? &automatic_ops : &manual_ops);
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_STATUS(lc_trainer_fit(t, &p.base), i ? LC_ERR_CONFIG : LC_ERR_STATE);
        CHECK_CONTAINS(lc_error_message(), i == 0   ? "lc_manual_step_closure"
                                           : i == 1 ? "LBFGS evaluates"
                                                    : "lc_optimizers_add_step");
        lc_trainer_free(t);
        lc_module_release(&p.base);
    }
    world_remove(dir);
}

static lc_status one_optimizer_twice(pair *p, lc_optimizers *out)
{
    lc_optimizer *opt = lc_sgd(&p->base, .lr = 1);
    LC_TRY(lc_optimizers_add(out, opt));
    return lc_optimizers_add(out, opt);
}
static lc_status one_schedule_twice(pair *p, lc_optimizers *out)
{
    lc_optimizer *opt = lc_sgd(&p->base, .lr = 1);
    lc_scheduler_config c = {.scheduler = lc_step_lr(opt, .step_size = 1)};
    LC_TRY(lc_optimizers_add(out, opt));
    LC_TRY(lc_optimizers_add_scheduler(out, c));
    return lc_optimizers_add_scheduler(out, c);
}
static lc_optimizer *stray;
static lc_status schedule_of_another(pair *p, lc_optimizers *out)
{
    stray = lc_sgd(&p->base, .lr = 1);
    LC_TRY(lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_step_lr(stray, .step_size = 1)}));
    return lc_optimizers_add(out, lc_sgd(&p->base, .lr = 1));
}

#ifndef SANITIZED /* it would end the program, as it should */
static lc_status a_freed_optimizer(pair *p, lc_optimizers *out)
{
    lc_optimizer *opt = lc_sgd(&p->base, .lr = 1);
    LC_TRY(lc_optimizers_add(out, opt));
    lc_optimizer_free(opt);
    return LC_OK;
}
static lc_status a_freed_schedule(pair *p, lc_optimizers *out)
{
    lc_optimizer *opt = lc_sgd(&p->base, .lr = 1);
    lc_scheduler_config c = {.scheduler = lc_step_lr(opt, .step_size = 1)};
    LC_TRY(lc_optimizers_add(out, opt));
    LC_TRY(lc_optimizers_add_scheduler(out, c));
    lc_scheduler_free(c.scheduler);
    return LC_OK;
}
#endif

TEST(lists_of_optimizers_and_schedules_are_checked)
{
    const struct {
        lc_status (*optimizers)(pair *p, lc_optimizers *out);
        const char *message;
    } wrong[] = {{one_optimizer_twice, "the same optimizer is added twice"},
#ifndef SANITIZED
                 {a_freed_optimizer, "freed an optimizer or a schedule that it had added; the trainer frees them"},
                 {a_freed_schedule, "freed an optimizer or a schedule that it had added; the trainer frees them"},
#endif
                 {one_schedule_twice, "the same scheduler is added twice"},
                 {schedule_of_another, "a schedule (StepLR) of an optimizer that it did not add"}};
    char dir[256];
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        lc_trainer_options o = world_options(dir);
        pair p = {.step = valley, .optimizers = wrong[i].optimizers, .n = 2};
        o.enable_checkpointing = LC_OFF;
        pair_init(&p, &manual_ops);
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK(lc_trainer_fit(t, &p.base) < 0);
        CHECK_CONTAINS(lc_error_message(), wrong[i].message);
        lc_trainer_free(t);
        lc_module_release(&p.base);
    }
    lc_optimizer_free(stray);
    world_remove(dir);
}

static lc_status a_schedule_of_the_second(pair *p, lc_optimizers *out)
{
    lc_optimizer *second = sgd_of(p, p->b, 1);
    LC_TRY(lc_optimizers_add(out, sgd_of(p, p->a, 1)));
    LC_TRY(lc_optimizers_add(out, second));
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_step_lr(second, .step_size = 1)});
}
static lc_tensor *nothing_to_do(pair *p, lc_tensor *x, int64_t i)
{
    (void)p, (void)x, (void)i;
    return NULL;
}

TEST(a_schedule_knows_its_optimizer)
{
    pair p = {.step = nothing_to_do, .optimizers = a_schedule_of_the_second, .n = 1};
    char dir[256];
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = world_options(dir);
    o.enable_checkpointing = LC_OFF;
    pair_init(&p, &manual_ops);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &p.base));
    CHECK_EQ(lc_trainer_scheduler(t, 0)->optimizer, 1);
    lc_trainer_free(t);
    lc_module_release(&p.base);
    world_remove(dir);
}

/* ---- overrides ---- */

static double clip_seen;
static lc_status own_clipping(lc_module *self, lc_optimizer *opt, double value, const char *algorithm)
{
    clip_seen = value;
    CHECK_STR(algorithm, "norm");
    return lc_clip_gradients(self, opt, 0.125, "value");
}
/* Evaluates twice, as SAM does, and updates with the gradients of the second evaluation. */
static lc_status own_step(lc_module *self, int64_t epoch, int64_t i, lc_optimizer *opt, lc_closure *closure)
{
    lc_status s;
    lc_closure_run(closure, &s);
    if (s < 0) return s;
    return i == 1 ? LC_OK : lc_default_optimizer_step(self, epoch, i, opt, closure); /* and skips one update */
}
static lc_tensor *line(pair *p, lc_tensor *x, int64_t i)
{
    (void)i;
    p->evaluations++;
    return lc_mul(p->a, lc_add_scalar(x, 1));
}

TEST(overrides)
{
    lc_module_ops ops = automatic_ops;
    ops.optimizer_step = own_step;
    ops.configure_gradient_clipping = own_clipping;
    pair p = {.step = line, .optimizers = one_for_both, .n = 3};
    double a, b;
    int64_t step;
    clip_seen = -1;
    train(&p, &ops, 1, 0, &a, &b, &step);
    CHECK_NEAR(clip_seen, 0, 0);              /* called even without a clip value */
    CHECK_NEAR(a, 1 - 2 * 0.5 * 0.125, 1e-6); /* steps 0 and 2, clipped */
    CHECK_EQ(step, 3);
    CHECK_EQ(p.evaluations, 3);
}

static lc_status none_at_all(pair *p, lc_optimizers *out)
{
    (void)p, (void)out;
    return LC_OK;
}

/* The loss is still computed, once a batch, and the steps count. */
TEST(no_optimizers)
{
    pair p = {.step = line, .optimizers = none_at_all, .n = 3};
    double a, b;
    int64_t step;
    train(&p, &automatic_ops, 1, 0, &a, &b, &step);
    CHECK(a == 1 && step == 3 && p.evaluations == 3);
}

static lc_status own_zero_grad(lc_module *self, int64_t epoch, int64_t i, lc_optimizer *opt)
{
    (void)self, (void)epoch, (void)i;
    lc_optimizer_zero_grad(opt);
    return LC_OK;
}

/* As in PyTorch; gradients are those of one window all the same. */
TEST(a_module_zeroes_gradients_itself)
{
    lc_module_ops ops = automatic_ops;
    ops.optimizer_zero_grad = own_zero_grad;
    pair p = {.step = line, .optimizers = one_for_both, .n = 3};
    double a, b;
    int64_t step;
    train(&p, &ops, 2, 0, &a, &b, &step);
    CHECK_NEAR(a, 1 - 0.5 * 2 * (1 + 2 + 3), 1e-5);
}

static lc_status look_at_gradient(lc_module *self, const lc_batch *batch, int64_t i, int loader)
{
    pair *p = (pair *)self;
    float gradient;
    (void)i, (void)loader;
    lc_zero_grad(lc_current_graph());
    lc_backward(lc_mul(p->a, lc_add_scalar(lc_mean(batch->x), 3)));
    LC_TRY(lc_tensor_read(lc_gradient(p->a), &gradient, sizeof gradient));
    CHECK_NEAR(gradient, 3, 0);
    p->evaluations++;
    return LC_OK;
}

/* inference_mode=false allows gradients in validate; in a fit the gradients are the training's. */
TEST(gradients_of_an_evaluation)
{
    lc_module_ops ops = automatic_ops;
    ops.validation_step = look_at_gradient;
    ops.val_dataloader = pair_loader;
    for (int i = 0; i < 3; i++) {
        pair p = {.step = loss_of_a, .optimizers = one_for_both, .n = 1};
        char dir[256];
        lc_trainer *t;
        CHECK(world_dir(dir, sizeof dir));
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 1;
        o.enable_checkpointing = LC_OFF;
        o.inference_mode = i == 0;
        pair_init(&p, &ops);
        CHECK_OK(lc_trainer_new(&o, &t));
        lc_status s = i < 2 ? lc_trainer_validate(t, &p.base) : lc_trainer_fit(t, &p.base);
        CHECK_STATUS(s, i == 1 ? LC_OK : LC_ERR_STATE);
        if (i != 1) CHECK_CONTAINS(lc_error_message(), "inference_mode");
        CHECK_EQ(p.evaluations, i == 1);
        lc_trainer_free(t);
        lc_module_release(&p.base);
        world_remove(dir);
    }
}

static lc_tensor *backward_by_itself(pair *p, lc_tensor *x, int64_t i)
{
    (void)i;
    lc_tensor *loss = lc_mul(p->a, x);
    lc_backward(loss);
    return loss;
}

static lc_tensor *backward_of_another(pair *p, lc_tensor *x, int64_t i)
{
    (void)i;
    lc_backward(lc_mul_scalar(lc_mul(p->a, x), 7));
    return lc_mul(p->a, x);
}

/* PyTorch refuses to go backward a second time. Another loss may be used for something else, as for gradients of
 * inputs; what it adds to those of parameters is zeroed. */
TEST(a_step_does_not_go_backward_with_the_loss_it_returns)
{
    double a, b;
    int64_t step;
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        pair p = {.step = backward_by_itself, .optimizers = one_for_both, .n = 4};
        char dir[256];
        lc_trainer *t;
        CHECK(world_dir(dir, sizeof dir));
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 1;
        o.accumulate_grad_batches = accumulate;
        pair_init(&p, &automatic_ops);
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_STATUS(lc_trainer_fit(t, &p.base), LC_ERR_STATE);
        CHECK_CONTAINS(lc_error_message(), "leave out lc_backward");
        CHECK_CONTAINS(lc_error_message(), "test_trainer_optim.c:");
        lc_trainer_free(t);
        lc_module_release(&p.base);
        world_remove(dir);
    }
    pair p = {.step = backward_of_another, .optimizers = one_for_both, .n = 3};
    train(&p, &automatic_ops, 1, 0, &a, &b, &step);
    CHECK_NEAR(a, 1 - 0.5 * (0 + 1 + 2), 1e-6);
}

/* A window keeps the length it began with; the next one has the length that was set last. */
TEST(windows_of_changing_length)
{
    static const int64_t longer[10] = {[2] = 4}, shorter[8] = {[1] = 1}, back[10] = {[0] = 2, [1] = 3, [4] = 2};
    const struct {
        int64_t accumulate, n, steps;
        const int64_t *sets;
        double gradients;
    } cases[] = {
        {1, 10, 5, longer, 1 + 2 + 3 + (4 + 5 + 6 + 7) / 4. + (8 + 9 + 10) / 3.},
        {4, 8, 5, shorter, (1 + 2 + 3 + 4) / 4. + 5 + 6 + 7 + 8},
        {3, 10, 4, back, (1 + 2 + 3) / 3. + (4 + 5 + 6) / 3. + (7 + 8) / 2. + (9 + 10) / 2.},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair p = {.step = line,
                  .optimizers = one_for_both,
                  .n = cases[i].n,
                  .accumulate = cases[i].accumulate,
                  .sets = cases[i].sets};
        pair now = p;
        double a, b;
        int64_t step;
        train(&now, &automatic_ops, 1, 0, &a, &b, &step);
        CHECK_EQ(step, cases[i].steps);
        CHECK_NEAR(a, 1 - 0.5 * cases[i].gradients, 1e-5);
        check_resume(&p, &automatic_ops, 2);
    }
}

/* Gradients add up in manual optimization; the same trainer averages them again in automatic optimization. */
TEST(an_automatic_fit_after_a_manual_one)
{
    pair by_hand = {.step = backward_twice, .optimizers = one_for_both, .n = 3};
    pair p = {.step = line, .optimizers = one_for_both, .n = 4};
    char dir[256];
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 1;
    o.enable_checkpointing = LC_OFF;
    pair_init(&by_hand, &manual_ops);
    pair_init(&p, &automatic_ops);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &by_hand.base));
    CHECK_OK(lc_trainer_set_accumulate_grad_batches(t, 4));
    t->max_epochs = 2;
    CHECK_OK(lc_trainer_fit(t, &p.base));
    CHECK_NEAR(value_of(p.a), 1 - 0.5 * (1 + 2 + 3 + 4) / 4, 1e-6);
    lc_trainer_free(t);
    lc_module_release(&by_hand.base);
    lc_module_release(&p.base);
    world_remove(dir);
}

TEST_MAIN
