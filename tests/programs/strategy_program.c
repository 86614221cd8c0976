/* SPDX-License-Identifier: Apache-2.0 */
/* The training that test_strategies.c starts under every strategy, in every way: it has what strategies can get wrong
 * (dropout, statistics of batch norm, frozen parameters and ones without a gradient, two states of an optimizer, an
 * epoch that ends with a shorter window and a smaller batch), followed by a test and a prediction.
 *
 * strategy_program --dir DIR [--threads_of N] [--under STRATEGY] ... [options of the trainer]. Every rank writes
 *
 *   DIR/rank-R   its final state, a name and numbers a line: counters, metrics, tensors of the module, results of the
 *                test, predictions
 *   DIR/seen-R   the samples it trained on, an epoch a line
 *   DIR/device-R the device that it computed on
 *
 * With --threads_of ranks are threads of this process, under the strategy --under. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 128, WIDTH = 16, GLOBAL_BATCH = 24, VAL = 62, MOST_RANKS = 8 };

#include "log_scores.h"
#include "small_data.h"

#include "core/hooks/trainer_internal.h"
#include "record/graph_impl.h"

typedef struct settings {
    const char *dir, *under;
    int64_t threads_of, samples, stop_at, die_at;
    double dropout;
    bool norm, early;
} settings;

static const lc_option table[] = {
    LC_FIELD(settings, dir, "where to report"),
    LC_FIELD(settings, threads_of, "ranks that are threads"),
    LC_FIELD(settings, under, "their strategy"),
    LC_FIELD(settings, samples, "of an epoch"),
    LC_FIELD(settings, stop_at, "the last rank wants to stop after this step; 0: never"),
    LC_FIELD(settings, die_at, "after this batch of epoch 1 it saves DIR/inside.ckpt and fails; -1: never"),
    LC_FIELD(settings, dropout, "probability"),
    LC_FIELD(settings, norm, "with batch norm"),
    LC_FIELD(settings, early, "stops early"),
};

/* ---- the network ---- */

typedef struct net {
    lc_module base;
    lc_linear in, frozen, unused, out;
    lc_batch_norm1d norm;
    lc_metric *accuracy;
    const settings *s;
    FILE *seen;
} net;

static lc_tensor *forward(net *m, lc_tensor *x)
{
    lc_tensor *h = lc_add(lc_linear_forward(&m->in, x), lc_linear_forward(&m->frozen, x)); /* [B,WIDTH] */
    if (m->s->norm) h = lc_batch_norm1d_forward(&m->norm, h);
    h = lc_relu(h);
    if (m->s->dropout > 0 && m->base.training) h = lc_dropout(h, m->s->dropout);
    return lc_linear_forward(&m->out, h);
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_trainer *t = self->trainer;
    (void)i;
    for (int64_t k = 0; k < b->size; k++)
        fprintf(m->seen, "%lld %lld\n", (long long)lc_trainer_current_epoch(t), (long long)b->indices[k]);
    bool last_rank = lc_trainer_global_rank(t) == lc_trainer_world_size(t) - 1;
    if (last_rank && !lc_trainer_is_accumulating(t) && lc_trainer_global_step(t) + 1 == m->s->stop_at)
        lc_trainer_stop(t);
    lc_tensor *loss = lc_cross_entropy(forward(m, b->x), b->y);
    lc_log(self, "loss", loss, .on_step = LC_OFF, .on_epoch = LC_ON);
    lc_log(self, "step_loss", loss, .on_step = LC_ON, .on_epoch = LC_OFF, .sync_dist = true);
    lc_log_value(self, "last", (double)(b->first + b->size), .on_step = LC_OFF, .on_epoch = LC_ON,
                 .reduce_fx = LC_LOG_MAX);
    lc_log_value(self, "samples", (double)b->size, .on_step = LC_OFF, .on_epoch = LC_ON, .reduce_fx = LC_LOG_SUM);
    return loss;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    const settings *s = ((net *)self)->s;
    char path[4200];
    (void)o, (void)b;
    if (i != s->die_at || lc_trainer_current_epoch(self->trainer) != 1) return LC_OK;
    snprintf(path, sizeof path, "%s/inside.ckpt", s->dir);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i, (void)loader;
    return log_scores(self, "val", forward(m, b->x), b->y, m->accuracy);
}

static lc_status test_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i, (void)loader;
    return log_scores(self, "test", forward(m, b->x), b->y, m->accuracy);
}

static lc_tensor *predict_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return forward((net *)self, b->x);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *opt = lc_adamw(self, .lr = 0.02, .eps = 1e-3, .weight_decay = 0.05);
    LC_TRY(lc_optimizers_add(out, opt));
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_step_lr(opt, .step_size = 2, .gamma = 0.8)});
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = validation_step,
    .test_step = test_step,
    .predict_step = predict_step,
    .configure_optimizers = configure_optimizers,
};

/* Every rank draws other values: parameters come from rank 0. */
static void net_init(net *m, int rank)
{
    lc_module_init(&m->base, &net_ops, (uint64_t)(1 + rank));
    lc_linear_init(&m->in, m, "in", FEATURES, WIDTH, .no_bias = m->s->norm); /* its gradient would only be rounding */
    lc_linear_init(&m->frozen, m, "frozen", FEATURES, WIDTH);
    if (m->s->norm) lc_batch_norm1d_init(&m->norm, m, "norm", WIDTH);
    lc_linear_init(&m->unused, m, "unused", 3, 2);
    lc_linear_init(&m->out, m, "out", WIDTH, CLASSES);
    lc_module_requires_grad(&m->frozen.base, false);
}

/* ---- the report ---- */

static lc_status report_numbers(FILE *f, const char *kind, const char *name, lc_tensor *t)
{
    float v[SAMPLES * CLASSES];
    int64_t n = lc_tensor_numel(t);
    if (n > (int64_t)(sizeof v / sizeof *v) || lc_tensor_dtype(t) != LC_F32) return LC_OK;
    LC_TRY(lc_tensor_read(t, v, (size_t)n * sizeof *v));
    fprintf(f, "%s %s", kind, name);
    for (int64_t i = 0; i < n; i++) fprintf(f, " %a", (double)v[i]);
    fprintf(f, "\n");
    return LC_OK;
}

static lc_status report_tensor(void *f, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    return report_numbers(f, "tensor", path, t->tensor);
}

static void report_metrics(FILE *f, const char *kind, lc_trainer *t)
{
    for (int i = 0; i < lc_trainer_metric_count(t, LC_CALLBACK_METRICS); i++) {
        lc_metric_value v = lc_trainer_metric_at(t, LC_CALLBACK_METRICS, i);
        fprintf(f, "%s %s %a\n", kind, v.name, v.value);
    }
}

static lc_status run(FILE *f, net *m, lc_trainer *t, lc_dataloader *train, lc_dataloader *val)
{
    LC_TRY(lc_trainer_fit(t, &m->base, .train_dataloader = train, .val_dataloader = val));
    fprintf(f, "steps %lld\nepochs %lld\n", (long long)lc_trainer_global_step(t),
            (long long)lc_trainer_current_epoch(t));
    report_metrics(f, "fit", t);
    LC_TRY(lc_module_visit(&m->base, report_tensor, f));
    LC_TRY(lc_trainer_test(t, &m->base, .dataloaders = &val, .n_dataloaders = 1));
    report_metrics(f, "test", t);
    LC_TRY(lc_trainer_predict(t, &m->base, .dataloaders = &val, .n_dataloaders = 1));
    fprintf(f, "predictions");
    int64_t rows = 0;
    for (int64_t i = 0; i < lc_trainer_prediction_count(t, 0); i++) {
        lc_tensor *p = lc_trainer_prediction(t, 0, i);
        float v[GLOBAL_BATCH * CLASSES];
        LC_TRY(lc_tensor_read(p, v, (size_t)lc_tensor_numel(p) * sizeof *v));
        for (int64_t k = 0; k < lc_tensor_numel(p); k++) fprintf(f, " %a", (double)v[k]);
        rows += lc_tensor_dim(p, 0);
    }
    fprintf(f, "\nrows %lld\n", (long long)rows);
    return LC_OK;
}

static FILE *file_of(const settings *s, const char *name, int rank)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s-%d", s->dir, name, rank);
    return fopen(path, "w");
}

static lc_status report_device(const settings *s, const lc_trainer *t)
{
    FILE *f = file_of(s, "device", lc_trainer_global_rank(t));
    if (!f) return lc_fail(LC_ERR_IO, "cannot write into %s", s->dir);
    fprintf(f, "%s:%d", t->graph->on->ops->name, t->graph->on->index);
    fclose(f);
    return LC_OK;
}

/* comm NULL: that of whatever started this process. */
static lc_status train(lc_trainer_options *opt, const settings *s, lc_comm *comm)
{
    lc_status status = LC_OK;
    lc_trainer *t = NULL;
    lc_dataloader *train = NULL, *val = NULL;
    lc_callback early;
    net m = {.s = s};
    FILE *f = NULL;
    opt->enable_progress_bar = opt->enable_model_summary = LC_OFF;
    opt->logger = "csv";
    opt->log_every_n_steps = 1;
    if (comm) {
        opt->comm = comm;
        opt->strategy = s->under;
        opt->handle_signals = false;
    }
    LC_TRY(lc_trainer_new(opt, &t));
    int rank = lc_trainer_global_rank(t), batch = GLOBAL_BATCH / lc_trainer_world_size(t);
    f = file_of(s, "rank", rank);
    m.seen = file_of(s, "seen", rank);
    if (!f || !m.seen) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_IO, "cannot write into %s", s->dir));
    net_init(&m, rank);
    if (s->early) {
        LC_TRY_GOTO(status, done, lc_early_stopping(&early, .monitor = "val_loss", .patience = 1, .min_delta = 0.08));
        LC_TRY_GOTO(status, done, lc_trainer_add_callback(t, early));
    }
    LC_TRY_GOTO(status, done, lc_metric_new("Accuracy", &m.accuracy, .num_classes = CLASSES));
    LC_TRY_GOTO(status, done, loader_of(0, s->samples, batch, true, &train));
    LC_TRY_GOTO(status, done, loader_of(SAMPLES - VAL, VAL, batch, false, &val));
    LC_TRY_GOTO(status, done, run(f, &m, t, train, val));
    LC_TRY_GOTO(status, done, report_device(s, t));
done:
    if (f) fclose(f);
    if (m.seen) fclose(m.seen);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    lc_module_release(&m.base);
    lc_metric_free(m.accuracy);
    return status;
}

/* ---- ranks that are threads ---- */

typedef struct thread_rank {
    int argc;
    char **argv;
    lc_comm *comm;
    pthread_t thread;
    bool failed;
} thread_rank;

static const settings standard = {
    .dir = ".", .under = "ddp", .samples = 3 * GLOBAL_BATCH + 17, .die_at = -1, .norm = true};

static lc_status parse(int argc, char **argv, lc_trainer_options *opt, settings *s)
{
    *opt = (lc_trainer_options)LC_TRAINER_OPTIONS_INIT;
    *s = standard;
    return lc_trainer_options_parse_with(opt, table, sizeof table / sizeof *table, s, argc, argv);
}

static void *be_rank(void *arg)
{
    thread_rank *r = arg;
    lc_trainer_options opt;
    settings s;
    lc_status status = parse(r->argc, r->argv, &opt, &s);
    if (status >= 0) status = train(&opt, &s, r->comm);
    r->failed = status != LC_OK;
    if (!r->failed) return NULL;
    fprintf(stderr, "rank %d: %s\n", lc_comm_rank(r->comm), lc_error_message());
    lc_comm_abort(r->comm, lc_error_message());
    return NULL;
}

static int threads(int n, int argc, char **argv)
{
    lc_comm *comms[MOST_RANKS];
    thread_rank ranks[MOST_RANKS];
    int failed = 0;
    LC_MAIN_TRY(lc_comm_threads(n, comms));
    for (int i = 0; i < n; i++) {
        ranks[i] = (thread_rank){.argc = argc, .argv = argv, .comm = comms[i]};
        if (pthread_create(&ranks[i].thread, NULL, be_rank, &ranks[i]) != 0) return 1;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(ranks[i].thread, NULL);
        failed += ranks[i].failed;
    }
    for (int i = 0; i < n; i++) lc_comm_free(comms[i]);
    return failed > 0;
}

int main(int argc, char **argv)
{
    lc_trainer_options opt;
    settings s;
    LC_MAIN_TRY(parse(argc, argv, &opt, &s));
    if (s.samples < 1 || s.samples > SAMPLES || s.threads_of > MOST_RANKS) return 2;
    if (s.threads_of > 0) {
        lc_trainer_options_release(&opt);
        return threads((int)s.threads_of, argc, argv);
    }
    LC_MAIN_TRY(train(&opt, &s, NULL));
    return 0;
}
