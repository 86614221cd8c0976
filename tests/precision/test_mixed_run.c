/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings in mixed precision: the scale of the loss, which skips updates that overflow, is that of PyTorch's formula
 * under every strategy and after a resume; and losses are near those of f32. */
#include "quiet_options.h"
#include "two_layers.h"

enum { EPOCHS = 3, INTERVAL = 4, MOST = 64 };

typedef struct run {
    const char *root, *strategy, *devices, *ckpt_path, *precision; /* precision NULL: a short growth_interval */
    int64_t stop_after, accumulate, inside; /* inside: saves and dies after this many batches of a window */
    bool deterministic, lbfgs, one_sample, sgd,
        hopeless; /* hopeless: all updates overflow, and the scale is near its least */
} run;

typedef struct outcome {
    float w1[N1], w2[N2];
    double scale[MOST], loss[MOST]; /* after each update */
    int n;
} outcome;

#include "runs.h"

typedef struct net {
    lc_module base;
    lc_tensor *w1, *w2;
    const run *r;
    outcome *out;
    lc_precision precision;
} net;

/* Which updates overflow, by their number: one at first, and two in a row later. */
static bool overflows(int64_t update)
{
    return update == 1 || update == 9 || update == 10;
}

static int64_t window(const net *m)
{
    return m->r->accumulate > 0 ? m->r->accumulate : 1;
}

static lc_tensor *plain_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    (void)i;
    return lc_cross_entropy(lc_linear(lc_relu(lc_linear(b->x, m->w1, NULL)), m->w2, NULL), b->y);
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    lc_tensor *loss = plain_step(self, b, i);
    const int64_t batch = lc_trainer_current_epoch(self->trainer) * (SAMPLES / 16) + i;
    if (m->precision.self && m->r->hopeless) return lc_mul_scalar(loss, INFINITY);
    return m->precision.self && overflows(batch / window(m)) ? lc_mul_scalar(loss, 1e30) : loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const net *m = (net *)self;
    if (m->r->lbfgs) return lc_optimizers_add(out, lc_lbfgs(self));
    if (m->r->sgd) return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
    return lc_optimizers_add(out, lc_adam(self, .lr = 0.004));
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b, (void)i;
    const bool dies = i + 1 == m->r->inside;
    if (lc_trainer_is_accumulating(self->trainer)) return dies ? save_and_die(self->trainer) : LC_OK;
    int k = m->out->n++;
    if (m->precision.self) LC_TRY(lc_precision_scale(m->precision, &m->out->scale[k]));
    if (o->loss) LC_TRY(lc_item(o->loss, &m->out->loss[k]));
    return die_after(self->trainer, m->r->stop_after);
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("mixed"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers,
                                  .on_train_batch_end = on_train_batch_end};

static lc_status train(lc_comm *comm, const run *r, outcome *out)
{
    net m = {.r = r, .out = out};
    lc_dataloader *loader;
    lc_trainer *t;
    memset(out, 0, sizeof *out);
    LC_TRY(loader_of(0, r->one_sample ? 1 : SAMPLES, comm ? 8 : 16, true, &loader));
    lc_module_init(&m.base, &ops, 3);
    add_layers(&m.base, LC_F32, &m.w1, &m.w2);
    lc_trainer_options opt = quiet_options(comm);
    opt.default_root_dir = r->root;
    opt.strategy = r->strategy;
    if (r->devices) opt.devices = r->devices;
    opt.max_epochs = EPOCHS;
    if (!r->sgd) opt.gradient_clip_val = 0.5;
    if (r->accumulate) opt.accumulate_grad_batches = r->accumulate;
    opt.deterministic = r->deterministic;
    opt.precision = r->precision;
    if (!r->precision) {
        const double first = r->hopeless ? 0x1p-120 : 1024;
        LC_TRY(lc_mixed_precision(&m.precision, .growth_interval = INTERVAL, .init_scale = first));
        opt.precision_plugin = &m.precision;
    }
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = loader, .ckpt_path = r->ckpt_path);
    if (s >= 0) s = lc_tensor_gather(m.w1, out->w1, sizeof out->w1);
    if (s >= 0) s = lc_tensor_gather(m.w2, out->w2, sizeof out->w2);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return s;
}

static bool same(const outcome *a, const outcome *b)
{
    return !memcmp(a->w1, b->w1, sizeof a->w1) && !memcmp(a->w2, b->w2, sizeof a->w2);
}

static void outcome_of(const run *r, outcome *out)
{
    if (r->strategy && !r->devices)
        train_ranks(r, 2, out);
    else
        CHECK_OK(train(NULL, r, out));
}

/* The scale after each update by the formula of torch.amp.GradScaler.update. */
static void check_scales(const outcome *o, int64_t updates)
{
    double scale = 1024;
    int64_t tracker = 0;
    CHECK_EQ(o->n, updates);
    for (int64_t i = 0; i < updates; i++) {
        if (overflows(i)) {
            scale *= 0.5;
            tracker = 0;
        } else if (++tracker == INTERVAL) {
            scale *= 2;
            tracker = 0;
        }
        CHECK_NEAR(o->scale[i], scale, 0);
    }
}

TEST(the_scale_is_pytorchs)
{
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        outcome o;
        outcome_of(&(run){.accumulate = accumulate}, &o);
        check_scales(&o, EPOCHS * SAMPLES / 16 / accumulate);
    }
}

TEST(every_strategy_has_the_scale)
{
    static const char *const strategies[] = {"ddp",       "sharded_1",     "sharded_2",
                                             "sharded_3", "data_parallel", "central_storage"};
    for (int i = 0; i < 6; i++)
        for (int deterministic = 0; deterministic < 2; deterministic++) {
            run r = {.strategy = strategies[i], .deterministic = deterministic};
            outcome o;
            if (i >= 4) r.devices = "2"; /* of one process */
            outcome_of(&r, &o);
            check_scales(&o, EPOCHS * SAMPLES / 16);
        }
}

/* One rank of two never has a loss to scale; both apply the same gradients. */
TEST(a_rank_without_samples_has_the_scale)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    for (int i = 0; i < 8; i++) {
        run r = {.root = fresh_dir("few"), .deterministic = i % 2, .one_sample = true};
        outcome one, two;
        outcome_of(&r, &one);
        r.strategy = strategies[i / 2];
        outcome_of(&r, &two);
        for (int k = 0; k < N1; k++) CHECK_NEAR(one.w1[k], two.w1[k], 1e-5);
        for (int k = 0; k < N2; k++) CHECK_NEAR(one.w2[k], two.w2[k], 1e-5);
    }
}

TEST(a_resumed_run_has_the_scale)
{
    outcome whole, rest;
    outcome_of(&(run){0}, &whole);
    for (int64_t stop = 2; stop <= 11; stop += 3) {
        train_in_two(&(run){0}, stop, &rest);
        CHECK(same(&whole, &rest));
        CHECK_EQ(whole.scale[whole.n - 1], rest.scale[rest.n - 1]);
    }
}

/* It and its reciprocal stay numbers, with which a run can be resumed. */
TEST(the_scale_does_not_fall_to_zero)
{
    outcome o;
    train_in_two(&(run){.hopeless = true}, 12, &o);
    CHECK_EQ(o.n, 6);
    for (int i = 0; i < o.n; i++) CHECK_NEAR(o.scale[i] * 0x1p126, 1, 0);
}

/* Its gradients get the scale of the run that continues. */
TEST(a_window_ends_in_another_precision)
{
    static const char *const names[] = {"32-true", "16-mixed", "bf16-mixed", "bf16-true", "64-true", "16-true"};
    for (int i = 0; i < 12; i++) {
        const char *other = names[i / 2];
        run first = {.accumulate = 3, .sgd = true, .deterministic = i % 2, .precision = "32-true"};
        outcome f32, o;
        outcome_of(&first, &f32);
        run rest = first;
        rest.root = first.root = fresh_dir("window");
        first.inside = 2;
        first.precision = strcmp(other, "16-mixed") ? "16-mixed" : "32-true";
        rest.precision = other;
        CHECK_STATUS(train(NULL, &first, &o), LC_ERR_USER);
        CHECK_OK(resume(&first, &rest, &o));
        for (int k = 0; k < N1; k++) CHECK_NEAR((double)o.w1[k], (double)f32.w1[k], 0.01);
        for (int k = 0; k < N2; k++) CHECK_NEAR((double)o.w2[k], (double)f32.w2[k], 0.01);
    }
}

static lc_status die_in_window(lc_comm *comm, void *ctx)
{
    outcome o;
    RANK_CHECK(train(comm, ctx, &o) < 0);
    return LC_OK;
}

/* One process gets the sum of the ranks' gradients, which have the type of their run. */
TEST(a_window_of_ranks_ends_in_another_precision)
{
    static const char *const names[] = {"32-true", "16-mixed", "bf16-true", "64-true", "16-true"};
    enum { NAMES = sizeof names / sizeof *names };
    outcome f32, o;
    outcome_of(&(run){.accumulate = 3, .sgd = true, .precision = "32-true"}, &f32);
    for (int i = 0; i < NAMES; i++) {
        run first = {.accumulate = 3, .sgd = true, .inside = 2, .strategy = "ddp", .precision = names[i]};
        run rest = {.accumulate = 3, .sgd = true, .precision = names[(i + 1) % NAMES]};
        rest.root = first.root = fresh_dir("ranks");
        CHECK_RANKS("threads", 2, die_in_window, &first);
        CHECK_OK(resume(&first, &rest, &o));
        for (int k = 0; k < N1; k++) CHECK_NEAR((double)o.w1[k], (double)f32.w1[k], 0.01);
        for (int k = 0; k < N2; k++) CHECK_NEAR((double)o.w2[k], (double)f32.w2[k], 0.01);
    }
}

TEST(losses_are_near_those_of_f32)
{
    outcome f32, low;
    outcome_of(&(run){.precision = "32-true"}, &f32);
    static const char *const names[] = {"bf16-mixed", "16-mixed", "bf16", "16"};
    for (int i = 0; i < 4; i++) {
        outcome_of(&(run){.precision = names[i]}, &low);
        CHECK_EQ(low.n, f32.n);
        CHECK(!same(&low, &f32));
        for (int k = 0; k < low.n; k++) CHECK_NEAR(low.loss[k], f32.loss[k], 0.02 * f32.loss[k]);
    }
}

TEST(lbfgs_is_refused)
{
    outcome o;
    CHECK_STATUS(train(NULL, &(run){.precision = "16-mixed", .lbfgs = true}, &o), LC_ERR_CONFIG);
    CHECK(strstr(lc_error_message(), "LBFGS evaluates the loss several times per update"));
    CHECK_OK(train(NULL, &(run){.precision = "bf16-mixed", .lbfgs = true}, &o));
}

/* ---- the tuner ---- */

static lc_status rate(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static const lc_module_ops plain_ops = {LC_MODULE_OPS_INIT("plain"), .training_step = plain_step,
                                        .configure_optimizers = rate};

/* Losses of a range of rates; n = 0: it failed. */
static void find_rates(const char *name, const lc_precision *plugin, lc_lr_find_result *r)
{
    float before[N1], after[N1];
    net m = {.r = NULL};
    lc_dataloader *loader;
    lc_trainer *t;
    CHECK_OK(loader_of(0, SAMPLES, 16, true, &loader));
    lc_module_init(&m.base, &plain_ops, 3);
    add_layers(&m.base, LC_F32, &m.w1, &m.w2);
    CHECK_OK(lc_tensor_read(m.w1, before, sizeof before));
    lc_trainer_options opt = quiet_options(NULL);
    opt.precision = name;
    opt.precision_plugin = plugin;
    CHECK_OK(lc_trainer_new(&opt, &t));
    lc_run_args run_args = LC_ARGS(lc_run, .train_dataloader = loader);
    CHECK_OK(lc_tuner_lr_find(t, &m.base, &run_args, r, .min_lr = 1e-4, .max_lr = 0.1, .num_training = 12,
                              .update_attr = false));
    CHECK_OK(lc_tensor_read(m.w1, after, sizeof after));
    for (int k = 0; k < N1; k++) CHECK_NEAR(after[k], before[k], 1e-2 * fabs((double)before[k]) + 1e-6);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
}

/* A probe computes in the precision of its trainer. */
TEST(rates_are_found_in_every_precision)
{
    static const char *const names[] = {"32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true"};
    lc_lr_find_result f32, r;
    lc_precision plugin;
    find_rates(names[0], NULL, &f32);
    CHECK(f32.n > 2);
    for (int i = 1; i < 7; i++) {
        if (i < 6) {
            find_rates(names[i], NULL, &r);
        } else {
            CHECK_OK(lc_mixed_precision(&plugin, .init_scale = 64));
            find_rates(NULL, &plugin, &r);
        }
        CHECK_EQ(r.n, f32.n);
        CHECK(memcmp(r.loss, f32.loss, (size_t)r.n * sizeof *r.loss) != 0 || i == 3);
        for (int64_t k = 0; k < r.n; k++) CHECK_NEAR(r.loss[k], f32.loss[k], 0.02 * f32.loss[k]);
        lc_lr_find_release(&r);
    }
    lc_lr_find_release(&f32);
}

/* ---- manual optimization ---- */

typedef struct manual {
    net n;
    const lc_batch *batch;
    bool closure;
    int64_t step;
} manual;

static lc_tensor *manual_loss(void *ctx, lc_status *status)
{
    manual *m = ctx;
    lc_tensor *loss = plain_step(&m->n.base, m->batch, 0);
    if (overflows(m->step)) loss = lc_mul_scalar(loss, 1e30);
    lc_zero_grad(lc_current_graph());
    *status = lc_manual_backward(&m->n.base, loss);
    return loss;
}

static lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    manual *m = (manual *)self;
    lc_optimizer *opt = lc_manual_optimizer(self, 0);
    lc_status status = LC_OK;
    (void)i;
    m->batch = b;
    if (m->closure) {
        lc_tensor *loss = NULL;
        status = lc_manual_step_closure(self, opt, manual_loss, m, &loss);
        return status < 0 ? NULL : loss;
    }
    lc_tensor *loss = manual_loss(m, &status);
    if (status >= 0) status = lc_manual_step(self, opt);
    return status < 0 ? NULL : loss;
}

static lc_status manual_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    manual *m = (manual *)self;
    (void)o, (void)b, (void)i;
    m->step++;
    return lc_precision_scale(m->n.precision, &m->n.out->scale[m->n.out->n++]);
}

static const lc_module_ops manual_ops = {LC_MODULE_OPS_INIT("manual"), .training_step = manual_step,
                                         .configure_optimizers = rate, .on_train_batch_end = manual_end,
                                         .manual_optimization = true};

TEST(manual_updates_change_the_scale)
{
    for (int closure = 0; closure < 2; closure++) {
        static outcome out;
        manual m = {.n.out = &out, .closure = closure};
        lc_dataloader *loader;
        lc_trainer *t;
        out.n = 0;
        CHECK_OK(loader_of(0, SAMPLES, 16, true, &loader));
        lc_module_init(&m.n.base, &manual_ops, 3);
        add_layers(&m.n.base, LC_F32, &m.n.w1, &m.n.w2);
        lc_trainer_options opt = quiet_options(NULL);
        opt.max_epochs = EPOCHS;
        CHECK_OK(lc_mixed_precision(&m.n.precision, .growth_interval = INTERVAL, .init_scale = 1024));
        opt.precision_plugin = &m.n.precision;
        CHECK_OK(lc_trainer_new(&opt, &t));
        CHECK_OK(lc_trainer_fit(t, &m.n.base, .train_dataloader = loader));
        check_scales(&out, EPOCHS * SAMPLES / 16);
        lc_trainer_free(t);
        lc_dataloader_free(loader);
        lc_module_release(&m.n.base);
    }
}

/* With any of these numbers in a checkpoint, no update would be applied, or the scale would only grow. */
TEST(wrong_numbers_of_a_state)
{
    static const struct {
        const char *name;
        double value;
    } wrong[] = {{"scale", 0},          {"scale", -1},          {"scale", 1e-60},        {"scale", 1e-45},
                 {"scale", INFINITY},   {"growth_factor", 1},   {"growth_factor", -2},   {"backoff_factor", 0},
                 {"backoff_factor", 2}, {"growth_interval", 0}, {"growth_interval", -5}, {"_growth_tracker", -1}};
    lc_precision p;
    double scale;
    CHECK_OK(lc_mixed_precision(&p, .init_scale = 1024));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        lc_state *state;
        CHECK_OK(lc_state_new(&state));
        CHECK_OK(p.ops->save_state(p.self, state));
        CHECK_OK(p.ops->load_state(p.self, state));
        if (strstr(wrong[i].name, "interval") || *wrong[i].name == '_')
            CHECK_OK(lc_state_set_int(state, wrong[i].name, (int64_t)wrong[i].value));
        else
            CHECK_OK(lc_state_set_double(state, wrong[i].name, wrong[i].value));
        CHECK_STATUS(p.ops->load_state(p.self, state), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "growth_interval from 1 to 2^24");
        lc_state_free(state);
    }
    CHECK_OK(lc_precision_scale(p, &scale));
    CHECK_NEAR(scale, 1024, 0);
    p.ops->teardown(p.self);
}

TEST(wrong_numbers)
{
    lc_precision p;
    CHECK_STATUS(lc_mixed_precision(&p, .init_scale = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_mixed_precision(&p, .init_scale = 1e-45), LC_ERR_ARGUMENT); /* its reciprocal is infinite */
    CHECK_STATUS(lc_mixed_precision(&p, .init_scale = 1e39), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_mixed_precision(&p, .dtype = LC_BF16, .init_scale = 64), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_mixed_precision(&p, .dtype = LC_BF16, .growth_interval = 100), LC_ERR_ARGUMENT);
    CHECK_OK(lc_mixed_precision(&p, .dtype = LC_BF16));
    CHECK_STATUS(lc_mixed_precision(&p, .growth_factor = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_mixed_precision(&p, .backoff_factor = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_mixed_precision(&p, .backoff_factor = 1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_mixed_precision(&p, .growth_interval = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_mixed_precision(&p, .dtype = LC_F32), LC_ERR_ARGUMENT);
    lc_graph *g;
    CHECK_STATUS(lc_graph_new(&g, .autocast = LC_F32), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_graph_new(&g, .storage = LC_I64), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_graph_new(&g, .autocast = LC_BF16, .storage = LC_BF16), LC_ERR_ARGUMENT);
}

TEST_MAIN
