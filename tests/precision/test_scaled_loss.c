/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks, callbacks and checks with a scaled loss, under every strategy: on_before_backward has the loss that backward
 * has, SpikeDetection judges the loss that the program computed, and detect_anomaly lets gradients overflow. */
#include "quiet_options.h"
#include "two_layers.h"

enum { SCALE = 1024, SPIKE = 3, JUMP = 100, RANKS = 2, BATCHES = SAMPLES / 16 };

typedef struct run {
    const char *root, *strategy, *precision;              /* precision NULL: 16-mixed that begins with `scale` */
    double scale;                                         /* 0: SCALE */
    bool deterministic, skip, anomaly, constant, several; /* several: devices of one process */
} run;

typedef struct outcome {
    double before[BATCHES], loss[BATCHES]; /* before: as on_before_backward got it */
    double scale;                          /* at the end; 0: losses are not scaled */
    int n;
} outcome;

#include "rank_runs.h"

typedef struct net {
    lc_module base;
    lc_tensor *w1, *w2, *before;
    outcome *out;
    bool constant;
} net;

static int line; /* of a loss without parameters */

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    if (m->constant) return line = __LINE__, lc_mean(b->x);
    lc_tensor *loss = lc_cross_entropy(lc_linear(lc_relu(lc_linear(b->x, m->w1, NULL)), m->w2, NULL), b->y);
    return i == SPIKE ? lc_add_scalar(loss, JUMP) : loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static lc_status on_before_backward(lc_module *self, lc_tensor *loss)
{
    ((net *)self)->before = lc_keep(loss);
    return LC_OK;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b;
    m->out->n = (int)i + 1;
    if (lc_trainer_precision(self->trainer).ops->scale_loss)
        LC_TRY(lc_precision_scale(lc_trainer_precision(self->trainer), &m->out->scale));
    LC_TRY(lc_item(m->before, &m->out->before[i]));
    return lc_item(o->loss, &m->out->loss[i]);
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("scaled"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers,
                                  .on_before_backward = on_before_backward, .on_train_batch_end = on_train_batch_end};

static lc_status train(lc_comm *comm, const run *r, outcome *out)
{
    net m = {.out = out, .constant = r->constant};
    lc_dataloader *loader;
    lc_trainer *t;
    lc_callback spikes;
    lc_precision precision;
    LC_TRY(loader_of(0, SAMPLES, comm ? 8 : 16, false, &loader));
    lc_module_init(&m.base, &ops, 3);
    add_layers(&m.base, LC_F32, &m.w1, &m.w2);
    lc_trainer_options opt = quiet_options(comm);
    opt.default_root_dir = r->root;
    opt.strategy = r->strategy;
    opt.max_epochs = 1;
    opt.deterministic = r->deterministic;
    opt.precision = r->precision;
    opt.detect_anomaly = r->anomaly;
    if (r->several) opt.devices = "2";
    if (!r->precision) {
        LC_TRY(lc_mixed_precision(&precision, .init_scale = r->scale > 0 ? r->scale : SCALE));
        opt.precision_plugin = &precision;
    }
    LC_TRY(lc_spike_detection(&spikes, .atol = 10, .rtol = 0, .skip = r->skip));
    opt.callbacks = &spikes;
    opt.n_callbacks = 1;
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = loader);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return s;
}

/* ---- every strategy ---- */

static const char *const strategies[] = {"auto", "ddp", "sharded_3", "data_parallel", "central_storage"};
enum { STRATEGIES = 5 };

static run run_of(int strategy)
{
    return (run){.root = fresh_dir("scaled"), .strategy = strategies[strategy], .several = strategy >= 3};
}

static bool has_ranks(const run *r)
{
    return !strcmp(r->strategy, "ddp") || !strcmp(r->strategy, "sharded_3");
}

/* To its end; `out` is that of rank 0. */
static void train_all(const run *r, outcome *out)
{
    ranks all;
    if (has_ranks(r))
        train_each_rank(r, RANKS, &all);
    else
        CHECK_OK(train(NULL, r, &all.out[0]));
    CHECK_EQ(all.out[0].n, BATCHES);
    *out = all.out[0];
}

TEST(an_error_of_the_loss_names_its_line)
{
    static const char *const precisions[] = {"32-true", "16-mixed"};
    for (int i = 0; i < 2; i++) {
        run r = run_of(0);
        outcome o;
        char at[64];
        r.constant = true;
        r.precision = precisions[i];
        CHECK_STATUS(train(NULL, &r, &o), LC_ERR_STATE);
        snprintf(at, sizeof at, "test_scaled_loss.c:%d", line);
        CHECK_CONTAINS(lc_error_message(), at);
    }
}

/* The scale of `precision` is read in the same way as that of a plug-in. */
TEST(the_scale_of_a_trainer)
{
    outcome o;
    run r = run_of(0);
    r.skip = true;
    train_all(&r, &o);
    CHECK_EQ(o.scale, SCALE);
    r.precision = "16-mixed";
    train_all(&r, &o);
    CHECK_EQ(o.scale, 65536);
}

TEST(gradients_that_overflow_are_no_anomaly)
{
    outcome o;
    for (int i = 0; i < 2 * STRATEGIES; i++) {
        run r = run_of(i / 2);
        r.deterministic = i & 1;
        r.skip = r.anomaly = true;
        r.scale = 1 << 30;
        train_all(&r, &o);
        CHECK(o.scale > 0 && o.scale < r.scale);
    }
}

TEST(on_before_backward_has_the_scaled_loss)
{
    for (int i = 0; i < STRATEGIES; i++) {
        run r = run_of(i);
        outcome o;
        r.skip = true;
        train_all(&r, &o);
        for (int k = 0; k < o.n; k++) CHECK_NEAR(o.before[k], SCALE * o.loss[k], 1e-6 * SCALE * o.loss[k]);
    }
}

/* The batches that SpikeDetection has listed. */
static void check_list(const run *r)
{
    char path[700], text[100] = "", want[100];
    snprintf(path, sizeof path, "%s/skip_batches.json", r->root);
    snprintf(want, sizeof want, "[%d, %d]\n", SPIKE - 1, SPIKE);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(text, sizeof text, f));
    if (f) fclose(f);
    CHECK_STR(text, want);
}

static void check_end(const run *r)
{
    outcome o = {.n = 0};
    double loss, last;
    CHECK_STATUS(train(NULL, r, &o), LC_ERR_STATE);
    const char *text = strstr(lc_error_message(), "the loss is");
    CHECK(text && sscanf(text, "the loss is %lf after %lf", &loss, &last) == 2);
    CHECK(loss > JUMP && loss < JUMP + 10);
    CHECK_NEAR(last, o.loss[SPIKE - 1], 1e-4);
}

TEST(spikes_are_judged_on_the_loss_of_the_program)
{
    static const char *const precisions[] = {"32-true", NULL, "16-mixed"};
    outcome o;
    for (int i = 0; i < 4 * 3 * STRATEGIES; i++) {
        run r = run_of(i / 12);
        r.precision = precisions[i / 4 % 3];
        r.deterministic = i & 1;
        r.skip = i & 2;
        if (r.skip)
            train_all(&r, &o);
        else if (!has_ranks(&r))
            check_end(&r);
        else
            continue; /* each rank would say it in its own error */
        check_list(&r);
    }
}

TEST_MAIN
