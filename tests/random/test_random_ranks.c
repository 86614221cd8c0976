/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2 over random configurations: a training with random options, optimizers, callbacks and data ends with the
 * numbers of one process under every strategy, on any number of ranks or devices, in every precision, or is refused
 * with a message.
 *
 * LIGHTC_TEST_SHOW=1 shows each configuration. LIGHTC_TEST_FROM=K begins with the K-th and runs each in all places
 * (otherwise in a third of them), LIGHTC_TEST_COUNT=N limits their number. */
#include "comm_world.h"
#include "quiet_options.h"
#include "random_ranks_net.h"

enum { GLOBAL_BATCH = 12, NUMBERS = 8192, NAMES = 64 };

/* ---- a run ---- */

typedef struct outcome {
    lc_status status;
    char message[600];
    int64_t steps, epochs;
    int n_metrics, n, n_exact; /* the first numbers have the same bits if the run is deterministic */
    char names[NAMES][64];
    double metrics[NAMES], numbers[NUMBERS];
} outcome;

static void report_metrics(outcome *o, lc_trainer *t)
{
    for (int i = 0; i < lc_trainer_metric_count(t, LC_CALLBACK_METRICS) && o->n_metrics < NAMES; i++) {
        lc_metric_value v = lc_trainer_metric_at(t, LC_CALLBACK_METRICS, i);
        snprintf(o->names[o->n_metrics], sizeof *o->names, "%s", v.name);
        o->metrics[o->n_metrics++] = v.value;
    }
}

static lc_status report_values(outcome *o, lc_tensor *t)
{
    float v[2048];
    int64_t n = lc_tensor_numel(t);
    if (o->n + n > NUMBERS || n > 2048) return lc_fail(LC_ERR_INTERNAL, "more than %d numbers", NUMBERS);
    if (lc_tensor_dtype(t) == LC_F64) {
        LC_TRY(lc_tensor_read(t, o->numbers + o->n, (size_t)n * sizeof(double)));
        o->n += (int)n;
        return LC_OK;
    }
    LC_TRY(lc_tensor_read(t, v, (size_t)n * sizeof *v));
    for (int64_t i = 0; i < n; i++) o->numbers[o->n++] = (double)v[i];
    return LC_OK;
}

static lc_status report_tensor(void *o, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    return report_values(o, t->tensor);
}

static lc_status fit(const config *c, net *m, lc_trainer *t, outcome *o)
{
    lc_run_args args = lc_run_defaults();
    lc_dataloader *val = NULL;
    lc_status status = LC_OK;
    LC_TRY(val_loader(m, 0, &val));
    if (!c->own_loaders) {
        LC_TRY_GOTO(status, done, train_loader(m, &args.train_dataloader));
        args.val_dataloader = val;
    }
    LC_TRY_GOTO(status, done, lc_trainer_fit_with(t, &m->base, &args));
    o->steps = lc_trainer_global_step(t);
    o->epochs = lc_trainer_current_epoch(t);
    report_metrics(o, t);
    LC_TRY_GOTO(status, done, lc_module_visit(&m->base, report_tensor, o));
    o->n_exact = o->n;
    LC_TRY_GOTO(status, done, lc_trainer_predict(t, &m->base, .dataloaders = &val, .n_dataloaders = 1));
    for (int64_t i = 0; i < lc_trainer_prediction_count(t, 0); i++)
        LC_TRY_GOTO(status, done, report_values(o, lc_trainer_prediction(t, 0, i)));
done:
    lc_dataloader_free(args.train_dataloader);
    lc_dataloader_free(val);
    return status;
}

typedef struct place {
    const char *strategy; /* NULL: one process */
    int ranks, devices;
    int64_t shard_size;
} place;

/* A program's own loop, before any optimizer exists. */
static lc_status backward_before(net *m)
{
    lc_graph *g;
    lc_tensor *x;
    LC_TRY(lc_graph_new(&g, .threads = 1));
    lc_status status = lc_input_new(LC_F32, 2, (int64_t[]){5, FEATURES}, LC_ROW_MAJOR, inputs, &x);
    if (status >= 0) status = lc_step_begin(g, 0, 0);
    if (status >= 0) {
        lc_backward(lc_mean(lc_square(forward(m, x, true))));
        status = lc_step_run(g);
        lc_status end = lc_step_end(g);
        if (status >= 0) status = end;
    }
    if (status >= 0) lc_tensor_unref(x);
    lc_graph_free(g);
    return status;
}

/* Another fit, after the results of the first are noted. */
static lc_status fit_on(const config *c, net *m, lc_trainer_options *opt, lc_trainer *t, outcome *o)
{
    lc_dataloader *val = NULL;
    lc_status status = LC_OK;
    o->n = o->n_metrics = 0;
    if (c->sequel == SAME_TRAINER) {
        LC_TRY(val_loader(m, 0, &val));
        status = lc_trainer_validate(t, &m->base, .val_dataloader = val);
        lc_dataloader_free(val);
        return status < 0 ? status : fit(c, m, t, o);
    }
    if (c->sequel == OTHER_TRAINER) {
        lc_trainer *other;
        LC_TRY(lc_trainer_new(opt, &other));
        status = fit(c, m, other, o);
        lc_trainer_free(other);
        return status;
    }
    net second = {.c = c, .batch = m->batch, .left = -1};
    status = net_init(&second, 99);
    if (status >= 0) status = fit(c, &second, t, o);
    lc_module_release(&second.base);
    for (int i = 0; i < 2; i++) lc_metric_free(second.accuracy[i]);
    return status;
}

/* after: saves inside.ckpt after this many batches and fails (negative: never); continues: resumes from there. */
static lc_status run(const config *c, const place *at, lc_comm *comm, int64_t after, bool continues, outcome *o)
{
    char path[400];
    int n_options, n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    const lc_option *table = lc_trainer_option_table(&n_options);
    char devices[16];
    draw d = {.key = c->callback_key};
    net m = {.c = c, .batch = GLOBAL_BATCH / n, .left = after};
    lc_trainer *t = NULL;
    lc_trainer_options opt = quiet_options(comm);
    lc_status status = LC_OK;
    opt.max_epochs = 3;
    opt.default_root_dir = c->root;
    opt.strategy = at->strategy;
    opt.shard_size = at->shard_size;
    opt.logger = "csv";
    opt.precision = c->precision;
    if (at->devices > 1) {
        snprintf(devices, sizeof devices, "%d", at->devices);
        opt.devices = devices;
    }
    for (size_t i = 0; i < OPTIONS; i++)
        for (int k = 0; k < n_options; k++)
            if (c->values[i] && !strcmp(table[k].name, space[i].option))
                LC_TRY(lc_option_set_text(&table[k], &opt, c->values[i]));
    snprintf(path, sizeof path, "%s/inside.ckpt", c->root);
    if (continues) opt.ckpt_path = path;
    if (c->chunk) {
        opt.deterministic = true;
        opt.deterministic_chunk = atoi(c->chunk);
    }
    LC_TRY_GOTO(status, done, net_init(&m, (uint64_t)(1 + rank)));
    if (c->backward_before) LC_TRY_GOTO(status, done, backward_before(&m));
    LC_TRY_GOTO(status, done, lc_trainer_new(&opt, &t));
    for (int i = 0; i < c->n_callbacks; i++) {
        lc_callback cb;
        LC_TRY_GOTO(status, done, callbacks[c->callbacks[i]].make(&d, &cb));
        LC_TRY_GOTO(status, done, lc_trainer_add_callback(t, cb));
    }
    LC_TRY_GOTO(status, done, fit(c, &m, t, o));
    if (c->sequel && after < 0 && !continues) LC_TRY_GOTO(status, done, fit_on(c, &m, &opt, t, o));
done:
    o->status = status;
    snprintf(o->message, sizeof o->message, "%s", status < 0 ? lc_error_message() : "");
    lc_trainer_free(t);
    lc_module_release(&m.base);
    for (int i = 0; i < 2; i++) lc_metric_free(m.accuracy[i]);
    return LC_OK;
}

/* ---- comparing ---- */

typedef struct job {
    const config *c;
    place at;
    int64_t after;
    bool continues;
    outcome o[WORLD_RANKS];
} job;

static lc_status be_rank(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    return run(j->c, &j->at, comm, j->after, j->continues, &j->o[lc_comm_rank(comm)]);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 2e-4 * (1 + fabs(a)) || (isnan(a) && isnan(b));
}

static void compare(int k, const config *c, const place *at, int rank, const outcome *want, const outcome *got)
{
    char what[200];
    snprintf(what, sizeof what, "configuration %d, %s, %d ranks, %d devices, rank %d", k, at->strategy, at->ranks,
             at->devices, rank);
    if ((want->status < 0) != (got->status < 0))
        TEST_FAIL("%s: \"%s\" in place of \"%s\" (%s)", what, got->message, want->message, c->text);
    if (want->status < 0) return;
    if (want->steps != got->steps || want->epochs != got->epochs)
        TEST_FAIL("%s: %lld steps, %lld epochs in place of %lld, %lld (%s)", what, (long long)got->steps,
                  (long long)got->epochs, (long long)want->steps, (long long)want->epochs, c->text);
    for (int i = 0; i < want->n_metrics; i++) {
        int g = 0;
        while (g < got->n_metrics && strcmp(want->names[i], got->names[g]) != 0) g++;
        if (g == got->n_metrics || !near(want->metrics[i], got->metrics[g]))
            TEST_FAIL("%s: metric %s is %g in place of %g (%s)", what, want->names[i],
                      g == got->n_metrics ? NAN : got->metrics[g], want->metrics[i], c->text);
    }
    if (want->n != got->n) TEST_FAIL("%s: %d numbers in place of %d (%s)", what, got->n, want->n, c->text);
    for (int i = 0; i < want->n; i++)
        if (c->chunk && i < want->n_exact ? want->numbers[i] != got->numbers[i] && !isnan(want->numbers[i])
                                          : !near(want->numbers[i], got->numbers[i]))
            TEST_FAIL("%s: number %d is %.9g in place of %.9g (%s)", what, i, got->numbers[i], want->numbers[i],
                      c->text);
}

static const place places[] = {{"ddp", 2, 1, 0},
                               {"ddp", 3, 1, 0},
                               {"ddp", 4, 1, 0},
                               {"sharded_1", 4, 1, 0},
                               {"sharded_2", 2, 1, 0},
                               {"data_parallel", 1, 4, 0},
                               {"data_parallel", 1, 8, 0},
                               {"central_storage", 1, 3, 0},
                               {"sharded_1", 2, 1, 0},
                               {"sharded_2", 3, 1, 0},
                               {"sharded_3", 2, 1, 0},
                               {"sharded_3", 3, 1, 0},
                               {"sharded_hybrid", 4, 1, 2},
                               {"data_parallel", 1, 2, 0},
                               {"data_parallel", 1, 3, 0},
                               {"central_storage", 1, 2, 0}};
enum { PLACES = sizeof places / sizeof *places };

/* Combinations that several ranks or devices do not support (docs/trainer.md). */
static bool is_refused(const outcome *o)
{
    static const char *const texts[] = {
        "samples, which leaves some of",     "every rank needs",
        "cannot step the optimizers itself", "use a deterministic_chunk",
        "deterministic with several ranks",  "does not report how many samples a batch has",
        "the ranks make different calls",    "the ranks compute different things"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (o->status < 0 && strstr(o->message, texts[i])) return true;
    return false;
}

static void run_job(job *j, const config *c, const place *at, int64_t after, bool continues)
{
    memset(j, 0, sizeof *j);
    j->c = c;
    j->at = *at;
    j->after = after;
    j->continues = continues;
    if (at->ranks > 1)
        CHECK_RANKS("threads", at->ranks, be_rank, j);
    else
        CHECK_OK(run(c, at, NULL, after, continues, &j->o[0]));
}

/* Eight devices have no equal shares of the last batches of combined loaders, 12 and 8 samples (docs/trainer.md, Data).
 */
static bool cuts_unevenly(const config *c, const place *at)
{
    return c->combined && at->devices > 4;
}

/* Configurations that found errors which the first ones do not find. */
static const int known[] = {37, 41, 163, 204, 1354};
enum { KNOWN = sizeof known / sizeof *known };

/* low: in other precisions than f32. */
static void run_everywhere(bool low)
{
    static outcome want;
    static job j;
    const char *from = getenv("LIGHTC_TEST_FROM"), *count = getenv("LIGHTC_TEST_COUNT");
    bool shows = getenv("LIGHTC_TEST_SHOW");
    int first = from ? atoi(from) : 0, ran = 0, refused = 0,
        n = count ? atoi(count)
            : low ? ROUNDS(30, 10)
                  : ROUNDS(70, 35);
    for (int i = 0; i < n + (from || low ? 0 : KNOWN); i++) {
        int k = i < n ? first + i : known[i - n];
        config c = draw_config(k);
        if (low) draw_precision(&c, k);
        memset(&want, 0, sizeof want);
        CHECK_OK(run(&c, &(place){NULL, 1, 1, 0}, NULL, -1, false, &want));
        if (shows) printf("%d: %s: %s\n", k, c.text, want.status < 0 ? want.message : "ran");
        for (int p = 0; p < PLACES; p++) {
            if (!from && i < n && p % 3 != k % 3) continue;
            if (cuts_unevenly(&c, &places[p])) continue;
            run_job(&j, &c, &places[p], -1, false);
            for (int r = 0; r < j.at.ranks; r++) {
                if (want.status >= 0 && is_refused(&j.o[r])) {
                    refused++;
                    if (shows && !r) printf("    %s: %s\n", j.at.strategy, j.o[r].message);
                    continue;
                }
                compare(k, &c, &j.at, r, &want, &j.o[r]);
            }
            ran += want.status >= 0;
        }
    }
    if (shows) printf("%d ran, %d were refused\n", ran, refused);
}

TEST(configurations)
{
    run_everywhere(false);
}

TEST(configurations_in_every_precision)
{
    run_everywhere(true);
}

static bool draws(const config *c, const char *option)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (!strcmp(space[i].option, option)) return c->values[i] != NULL;
    return false;
}

/* Law 3: saved after any batch in one place, and resumed in another. */
static void resume_elsewhere(bool low)
{
    static outcome want;
    static job before, j;
    const char *from = getenv("LIGHTC_TEST_FROM"), *count = getenv("LIGHTC_TEST_COUNT");
    bool shows = getenv("LIGHTC_TEST_SHOW");
    int first = from ? atoi(from) : 0, n = count ? atoi(count) : low ? ROUNDS(30, 10) : ROUNDS(70, 35);
    for (int k = first; k < first + n; k++) {
        config c = draw_config(k);
        draw d = {.key = 5000 + (uint64_t)k};
        if (low) draw_precision(&c, k);
        memset(&want, 0, sizeof want);
        c.sequel = NONE;
        if (draws(&c, "fast_dev_run") || calls(&c, rate_finder)) continue; /* it would save in its trial */
        CHECK_OK(run(&c, &(place){NULL, 1, 1, 0}, NULL, -1, false, &want));
        if (want.status < 0) continue;
        for (int p = 0; p < (from ? 4 : 2); p++) {
            const place *a = &places[below(&d, PLACES)], *b = &places[below(&d, PLACES)];
            int64_t after = below(&d, 7);
            if (cuts_unevenly(&c, a) || cuts_unevenly(&c, b)) continue;
            run_job(&before, &c, a, after, false);
            if (before.o[0].status >= 0 || is_refused(&before.o[0])) continue;
            run_job(&j, &c, b, -1, true);
            if (shows)
                printf("%d: saved after %d by %s on %d, continued by %s on %d: %s\n", k, (int)after, a->strategy,
                       a->ranks * a->devices, b->strategy, b->ranks * b->devices, c.text);
            for (int r = 0; r < b->ranks; r++)
                if (!is_refused(&j.o[r])) compare(k, &c, b, r, &want, &j.o[r]);
        }
    }
}

TEST(configurations_that_resume_elsewhere)
{
    resume_elsewhere(false);
}

TEST(configurations_that_resume_elsewhere_in_every_precision)
{
    resume_elsewhere(true);
}

TEST_MAIN
