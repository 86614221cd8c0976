/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of communication, in every call: what ranks do together is run once to count each rank's calls, then again
 * with one call of one rank failing, in each of the ways of failing_comm.h. All ranks must end, with an error that
 * names that call; nothing crashes, and nothing leaks under AddressSanitizer; afterwards a rank can train what is left
 * by itself.
 *
 * Some of the calls are tried, evenly spaced; LIGHTC_TEST_ALL=1 tries all of them (minutes), LIGHTC_TEST_SHOW=1 prints
 * them. To add something that ranks do: a function that releases all it made, and a row in `scenarios`. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "comm_world.h"
#include "failing_comm.h"
#include "quiet_options.h"
#include "scratch.h"
#include "wave.h"

enum { SAMPLES = 40, VAL = 11, WIDTH = 4, GLOBAL_BATCH = 8, MOST_RANKS = 4 };

#include "log_scores.h"
#include "small_data.h"

typedef lc_status make_callback(const char *root, lc_callback *out);

typedef struct scenario {
    const char *name;
    lc_status (*run)(const struct scenario *s, lc_comm *comm, const char *root);
    int ranks;
    const char *strategy;
    int64_t shard_size;
    const char *files, *compression;
    bool carried, deterministic, manual, norms, own_loaders, even;
    make_callback *callbacks[4];
} scenario;

/* ---- only calls ---- */

static lc_status barriers(const scenario *s, lc_comm *comm, const char *root)
{
    lc_comm *group;
    (void)s, (void)root;
    LC_TRY(lc_comm_split(comm, 0, -lc_comm_rank(comm), &group));
    lc_status status = lc_comm_barrier(group, NULL);
    for (int i = 0; i < 3 && status >= 0; i++) status = lc_comm_barrier(comm, NULL);
    lc_comm_free(group);
    return status;
}

/* ---- the network ---- */

typedef struct net {
    lc_module base, backbone;
    lc_linear in, out;
    lc_batch_norm1d norm;
    lc_metric *accuracy;
    const scenario *s;
} net;

static lc_tensor *forward(net *m, lc_tensor *x)
{
    x = lc_linear_forward(&m->in, x); /* [B,WIDTH] */
    if (m->s->norms) x = lc_batch_norm1d_forward(&m->norm, x);
    return lc_linear_forward(&m->out, lc_relu(x));
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = lc_cross_entropy(forward((net *)self, b->x), b->y);
    (void)i;
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log(self, "smallest", loss, .on_step = LC_OFF, .on_epoch = LC_ON, .reduce_fx = LC_LOG_MIN);
    return loss;
}

/* The gradients of the second pass are not waited for. */
static lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_optimizer *opt = lc_manual_optimizer(self, 0);
    lc_tensor *loss = training_step(self, b, i);
    if (lc_manual_zero_grad(self, opt) < 0 || lc_manual_backward(self, loss) < 0) return NULL;
    if (lc_manual_step(self, opt) < 0) return NULL;
    return lc_manual_backward(self, lc_mean(lc_square(forward((net *)self, b->x)))) < 0 ? NULL : loss;
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
    lc_optimizer *opt = lc_adamw(self, .lr = 0.02);
    LC_TRY(lc_optimizers_add(out, opt));
    return lc_optimizers_add_scheduler(
        out,
        (lc_scheduler_config){.scheduler = lc_reduce_lr_on_plateau(opt), .monitor = "val_loss", .not_strict = true});
}

#define NET_OPS(step, is_manual)                                                                                       \
    {                                                                                                                  \
        LC_MODULE_OPS_INIT("net"), .training_step = step, .validation_step = validation_step, .test_step = test_step,  \
                                   .predict_step = predict_step, .configure_optimizers = configure_optimizers,         \
                                   .manual_optimization = is_manual                                                    \
    }
static const lc_module_ops automatic_ops = NET_OPS(training_step, false), manual_ops = NET_OPS(manual_step, true);

static lc_status net_init(net *m, const scenario *s, uint64_t seed)
{
    m->s = s;
    lc_module_init(&m->base, s->manual ? &manual_ops : &automatic_ops, seed);
    lc_module_init_child(&m->backbone, m, "backbone", "Backbone");
    lc_linear_init(&m->in, &m->backbone, "in", FEATURES, WIDTH);
    if (s->norms) lc_batch_norm1d_init(&m->norm, m, "norm", WIDTH);
    lc_linear_init(&m->out, m, "out", WIDTH, CLASSES);
    return lc_metric_new("Accuracy", &m->accuracy, .num_classes = CLASSES);
}

static void net_release(net *m)
{
    lc_module_release(&m->base);
    lc_metric_free(m->accuracy);
}

/* ---- callbacks ---- */

static lc_status best_and_last(const char *root, lc_callback *out)
{
    (void)root;
    return lc_model_checkpoint(out, .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON);
}
static lc_status every_step(const char *root, lc_callback *out)
{
    (void)root;
    return lc_model_checkpoint(out, .every_n_train_steps = 1, .save_last = LC_ON, .save_on_exception = true);
}
static lc_status on_exception(const char *root, lc_callback *out)
{
    return lc_on_exception_checkpoint(out, .dirpath = root);
}
static lc_status stopping(const char *root, lc_callback *out)
{
    (void)root;
    return lc_early_stopping(out, .monitor = "val_loss", .patience = 1, .min_delta = 0.5);
}
static lc_status mean(const char *root, lc_callback *out)
{
    (void)root;
    return lc_weight_averaging_new(NULL, out);
}
static lc_status ema(const char *root, lc_callback *out)
{
    (void)root;
    return lc_ema_weight_averaging(out, .decay = 0.5);
}
static lc_status swa(const char *root, lc_callback *out)
{
    static const double lr = 0.01;
    (void)root;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(1));
}
static lc_status pruning(const char *root, lc_callback *out)
{
    (void)root;
    return lc_model_pruning(out, .pruning_fn = "l1_unstructured", .amount = 0.2);
}
static lc_status finetuning(const char *root, lc_callback *out)
{
    (void)root;
    return lc_backbone_finetuning(out, .unfreeze_backbone_at_epoch = 1);
}
static lc_status windows(const char *root, lc_callback *out)
{
    static const lc_accumulation list[] = {{0, 2}, {1, 1}};
    (void)root;
    return lc_gradient_accumulation_scheduler(out, .scheduling = list, .n_scheduling = 2);
}
static lc_status norms(const char *root, lc_callback *out)
{
    (void)root;
    return lc_gradient_norm_monitor(out, .every_step = true);
}
static lc_status histograms(const char *root, lc_callback *out)
{
    (void)root;
    return lc_weight_histogram(out, .every_n_train_steps = 1);
}
static lc_status spikes(const char *root, lc_callback *out)
{
    (void)root;
    return lc_spike_detection(out, .skip = true, .window = 3, .rtol = 0.1);
}
static lc_status writer(const char *root, lc_callback *out)
{
    char path[400];
    snprintf(path, sizeof path, "%s/out.npy", root);
    return lc_prediction_writer(out, .path = path);
}
static lc_status rate_finder(const char *root, lc_callback *out)
{
    (void)root;
    return lc_learning_rate_finder(out, .num_training = 3, .min_lr = 1e-3, .max_lr = 0.1);
}

/* ---- trainings ---- */

/* Hides a trainer's messages about failures. */
static void say_nothing(void *context, lc_trainer *t, lc_level level, const char *text)
{
    (void)context, (void)t, (void)level, (void)text;
}

static lc_status quiet_trainer(lc_trainer_options *opt, lc_trainer **out)
{
    lc_callback silence;
    LC_TRY(lc_lambda_callback(&silence, .on_message = say_nothing));
    opt->callbacks = &silence;
    opt->n_callbacks = 1;
    return lc_trainer_new(opt, out);
}

/* The state after a failed run: a trainer whose status shows the failure (unless a probe of its tuner failed, which has
 * ranks of its own), and a module that one process can train, if it has all of it. */
static lc_status train_alone(lc_trainer *t, lc_module *m, lc_dataloader *loader)
{
    lc_run_args run = LC_ARGS(lc_run, .train_dataloader = loader);
    lc_trainer_options opt = quiet_options(NULL);
    lc_lr_find_result curve = {0};
    lc_lr_find_args args = LC_ARGS(lc_lr_find, .num_training = 1, .update_attr = false);
    lc_status s = t ? lc_trainer_fit_with(t, m, &run) : LC_ERR_PEER;
    if (s < 0 && t) s = lc_tuner_lr_find_with(t, m, &run, &curve, &args);
    lc_lr_find_release(&curve);
    lc_trainer_free(t);
    if (s >= 0 && loader) return lc_fail(LC_ERR_INTERNAL, "the trainer that has lost its ranks trains");
    opt.max_steps = 1;
    LC_TRY(quiet_trainer(&opt, &t));
    s = lc_trainer_fit_with(t, m, &run);
    if (s < 0 && strstr(lc_error_message(), "only a slice")) s = LC_OK;
    lc_trainer_free(t);
    return s;
}

/* The status of a run, or an error if the state it has left is wrong. Frees the trainer. */
static lc_status end(lc_status status, lc_trainer *t, lc_module *m, lc_dataloader *loader)
{
    char message[1024];
    if (status >= 0) {
        lc_trainer_free(t);
        return status;
    }
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_status after = train_alone(t, m, loader);
    return after < 0 ? lc_fail_context(after, "afterwards") : lc_fail(status, "%s", message);
}

static lc_trainer_options options_of(const scenario *s, lc_comm *comm, const char *root)
{
    lc_trainer_options opt = quiet_options(comm);
    opt.default_root_dir = root;
    opt.logger = "csv";
    opt.log_every_n_steps = 1;
    opt.max_epochs = 2;
    opt.num_sanity_val_steps = 1;
    opt.gradient_clip_val = s->manual ? LC_NOT_GIVEN : 0.5;
    opt.bucket_cap_mb = 100.0 / (1 << 20);
    opt.strategy = s->strategy;
    opt.shard_size = s->shard_size;
    opt.state_dict_type = s->files;
    opt.gradient_compression = s->compression;
    opt.deterministic = s->deterministic;
    opt.sync_batchnorm = s->norms;
    opt.use_distributed_sampler = !s->own_loaders;
    return opt;
}

static lc_status add_callbacks(const scenario *s, lc_trainer *t, const char *root)
{
    for (size_t i = 0; i < sizeof s->callbacks / sizeof *s->callbacks && s->callbacks[i]; i++) {
        lc_callback cb;
        LC_TRY(s->callbacks[i](root, &cb));
        LC_TRY(lc_trainer_add_callback(t, cb));
    }
    return LC_OK;
}

/* Two fits, the second of which continues where the first has ended, and all kinds of evaluation. */
static lc_status trainings(const scenario *s, lc_comm *comm, const char *root)
{
    net m = {0};
    char dir[400], last[420];
    lc_dataloader *train = NULL, *val = NULL;
    lc_trainer *t = NULL;
    lc_trainer_options opt = options_of(s, comm, root);
    int64_t batch = GLOBAL_BATCH / lc_comm_size(comm), all = batch * lc_comm_size(comm);
    lc_status status = LC_OK;
    snprintf(dir, sizeof dir, "%s/kept", root);
    snprintf(last, sizeof last, "%s/last.ckpt", dir);
    opt.dirpath = dir;
    LC_TRY_GOTO(status, done, net_init(&m, s, (uint64_t)(1 + lc_comm_rank(comm))));
    /* The last batch has fewer samples than there are ranks: one, or two, which a batch norm needs. */
    LC_TRY_GOTO(status, done, loader_of(0, s->even ? 2 * all : all + (s->norms ? 2 : 1), batch, true, &train));
    LC_TRY_GOTO(status, done, loader_of(SAMPLES - VAL, VAL, batch, false, &val));
    LC_TRY_GOTO(status, done, quiet_trainer(&opt, &t));
    LC_TRY_GOTO(status, done, add_callbacks(s, t, root));
    lc_run_args fit = LC_ARGS(lc_run, .train_dataloader = train, .val_dataloader = val);
    LC_TRY_GOTO(status, done, lc_trainer_fit_with(t, &m.base, &fit));
    lc_trainer_free(t);
    t = NULL;
    opt.max_epochs = 3;
    opt.ckpt_path = s->callbacks[0] == best_and_last || s->callbacks[0] == every_step ? last : NULL;
    LC_TRY_GOTO(status, done, quiet_trainer(&opt, &t));
    LC_TRY_GOTO(status, done, add_callbacks(s, t, root));
    LC_TRY_GOTO(status, done, lc_trainer_fit_with(t, &m.base, &fit));
    lc_run_args eval =
        LC_ARGS(lc_run, .dataloaders = &val, .n_dataloaders = 1, .ckpt_path = opt.ckpt_path ? "best" : NULL);
    LC_TRY_GOTO(status, done, lc_trainer_validate_with(t, &m.base, &eval));
    LC_TRY_GOTO(status, done, lc_trainer_test_with(t, &m.base, &eval));
    LC_TRY_GOTO(status, done, lc_trainer_predict_with(t, &m.base, &eval));
    snprintf(last, sizeof last, "%s/by_hand.ckpt", root);
    LC_TRY_GOTO(status, done, lc_trainer_save_checkpoint(t, last, false));
done:
    status = end(status, t, &m.base, train);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    net_release(&m);
    return status;
}

/* A loop of the program's own, in a trainer. */
static lc_status own_loop(const scenario *s, lc_comm *comm, const char *root)
{
    net m = {0};
    lc_dataloader *train = NULL;
    lc_trainer *t = NULL;
    lc_trainer_options opt = options_of(s, comm, root);
    lc_share mine = {.rank = lc_comm_rank(comm), .size = lc_comm_size(comm)};
    lc_status status = LC_OK;
    bool begun = false;
    LC_TRY_GOTO(status, done, net_init(&m, s, (uint64_t)(1 + lc_comm_rank(comm))));
    LC_TRY_GOTO(status, done, loader_of(0, 2 * GLOBAL_BATCH, GLOBAL_BATCH / lc_comm_size(comm), true, &train));
    LC_TRY_GOTO(status, done, lc_dataloader_share(train, &mine));
    LC_TRY_GOTO(status, done, quiet_trainer(&opt, &t));
    LC_TRY_GOTO(status, done, add_callbacks(s, t, root));
    LC_TRY_GOTO(status, done, lc_trainer_begin(t, &m.base));
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        begun = true;
        LC_TRY_GOTO(status, done, lc_dataloader_begin(train, epoch, 0));
        for (lc_batch *b;;) {
            double loss;
            LC_TRY_GOTO(status, done, lc_dataloader_next(train, &b));
            if (!b) break;
            LC_TRY_GOTO(status, done, lc_trainer_step(t, b, &loss));
        }
        lc_dataloader_end(train);
        begun = false;
        LC_TRY_GOTO(status, done, lc_trainer_end_epoch(t));
    }
    LC_TRY_GOTO(status, done, lc_trainer_end(t));
done:
    if (begun) lc_dataloader_end(train);
    status = end(status, t, &m.base, train);
    lc_dataloader_free(train);
    net_release(&m);
    return status;
}

/* The tuner, before a fit. */
static lc_status tuning(const scenario *s, lc_comm *comm, const char *root)
{
    wave_values v = WAVE_DEFAULTS;
    lc_module *m = NULL;
    lc_trainer *t = NULL;
    lc_lr_find_result curve = {0};
    lc_scale_batch_size_result size;
    lc_trainer_options opt = options_of(s, comm, root);
    lc_status status = LC_OK;
    v.samples = 30;
    v.batch_size = 4;
    v.width = 3;
    opt.max_steps = 2;
    LC_TRY_GOTO(status, done, lc_module_new(&wave_class, &v, 1, &m));
    LC_TRY_GOTO(status, done, quiet_trainer(&opt, &t));
    LC_TRY_GOTO(status, done, add_callbacks(s, t, root));
    LC_TRY_GOTO(status, done, lc_tuner_lr_find(t, m, NULL, &curve, .num_training = 3, .min_lr = 1e-3, .max_lr = 0.1));
    LC_TRY_GOTO(status, done, lc_tuner_scale_batch_size(t, m, NULL, &size, .steps_per_trial = 1, .max_val = 8));
    LC_TRY_GOTO(status, done, lc_trainer_fit(t, m));
done:
    if (status < 0) {
        char message[1024];
        snprintf(message, sizeof message, "%s", lc_error_message());
        lc_status after = m ? train_alone(t, m, NULL) : LC_OK;
        status = after < 0 ? lc_fail_context(after, "afterwards") : lc_fail(status, "%s", message);
        t = NULL;
    }
    lc_lr_find_release(&curve);
    lc_trainer_free(t);
    lc_module_free(m);
    return status;
}

/* ---- a loop of the program's own, without a trainer ---- */

/* opt NULL: gradients that are not used. */
static lc_status fabric_steps(lc_fabric *f, net *m, lc_optimizer *opt, lc_dataloader *l)
{
    LC_TRY(lc_dataloader_begin(l, 0, 0));
    for (lc_batch *b;;) {
        LC_TRY(lc_dataloader_next(l, &b));
        if (!b) return LC_OK;
        LC_TRY(lc_fabric_begin(f));
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, lc_cross_entropy(forward(m, b->x), b->y));
        if (opt) lc_fabric_clip_gradients(f, opt, .max_norm = 0.5);
        if (opt) lc_fabric_step(f, opt);
        LC_TRY(lc_fabric_end(f));
    }
}

static lc_status fabric_loop(lc_fabric *f, net *m, lc_optimizer *opt, lc_dataloader *l, const char *path)
{
    lc_state *state;
    LC_TRY(lc_fabric_setup(f, &m->base, &opt, 1));
    LC_TRY(lc_fabric_setup_dataloader(f, l));
    LC_TRY(fabric_steps(f, m, opt, l));
    LC_TRY(lc_state_new(&state));
    LC_TRY(lc_fabric_save(f, path, state));
    LC_TRY(lc_fabric_load(f, path, &state));
    lc_state_free(state);
    LC_TRY(lc_fabric_barrier(f));
    return fabric_steps(f, m, NULL, l);
}

static lc_status fabric(const scenario *s, lc_comm *comm, const char *root)
{
    net m = {0};
    char path[400];
    lc_fabric *f = NULL;
    lc_dataloader *l = NULL;
    lc_optimizer *opt = NULL;
    lc_status status = LC_OK;
    snprintf(path, sizeof path, "%s/fabric.ckpt", root);
    LC_TRY_GOTO(status, done, net_init(&m, s, (uint64_t)(1 + lc_comm_rank(comm))));
    opt = lc_adamw(&m.base, .lr = 0.02);
    LC_TRY_GOTO(status, done, loader_of(0, 2 * GLOBAL_BATCH, GLOBAL_BATCH / lc_comm_size(comm), true, &l));
    LC_TRY_GOTO(status, done,
                lc_fabric_new(&f, .strategy = s->strategy, .comm = comm, .shard_size = s->shard_size,
                              .state_dict_type = s->files, .threads = 1));
    LC_TRY_GOTO(status, done, fabric_loop(f, &m, opt, l, path));
done:
    lc_fabric_free(f);
    if (status >= 0) status = lc_comm_barrier(comm, NULL); /* the program owns it again */
    lc_optimizer_free(opt);
    lc_dataloader_free(l);
    net_release(&m);
    return status;
}

static const scenario scenarios[] = {
    {"calls", barriers, 2},
    {"calls, carried", barriers, 2, .carried = true},
    {"ddp", trainings, 3, "ddp", .callbacks = {best_and_last, stopping, on_exception}},
    {"ddp, carried", trainings, 2, "ddp", .carried = true, .callbacks = {every_step, norms}},
    {"ddp, files of all", trainings, 2, "ddp", .files = "sharded", .callbacks = {best_and_last, mean}},
    {"ddp, compressed", trainings, 2, "ddp", .compression = "bf16", .callbacks = {rate_finder, spikes, histograms}},
    {"ddp, norms", trainings, 3, "ddp", .norms = true, .callbacks = {best_and_last, swa}},
    {"ddp, manually", trainings, 2, "ddp", .manual = true, .norms = true, .even = true, .callbacks = {best_and_last}},
    {"ddp, own loaders", trainings, 2, "ddp", .own_loaders = true, .even = true, .callbacks = {every_step, writer}},
    {"ddp, deterministic", trainings, 2, "ddp", .deterministic = true, .callbacks = {best_and_last}},
    {"sharded_1", trainings, 3, "sharded_1", .callbacks = {best_and_last, ema, windows}},
    {"sharded_2", trainings, 2, "sharded_2", .callbacks = {best_and_last, pruning, finetuning}},
    {"sharded_2, deterministic", trainings, 2, "sharded_2", .deterministic = true, .callbacks = {every_step, windows}},
    {"sharded_3", trainings, 3, "sharded_3", .callbacks = {best_and_last, stopping, histograms, on_exception}},
    {"sharded_3, carried", trainings, 2, "sharded_3", .carried = true, .callbacks = {best_and_last, mean}},
    {"sharded_3, full files", trainings, 2, "sharded_3", .files = "full", .callbacks = {every_step, swa, spikes}},
    {"sharded_3, norms", trainings, 2, "sharded_3", .norms = true, .even = true, .callbacks = {pruning, rate_finder}},
    {"sharded_hybrid", trainings, 4, "sharded_hybrid", 2, .callbacks = {best_and_last, ema}},
    {"sharded_hybrid, carried", trainings, 4, "sharded_hybrid", 2, .carried = true, .callbacks = {every_step}},
    {"own loop, ddp", own_loop, 2, "ddp", .callbacks = {every_step}},
    {"own loop, sharded_3", own_loop, 2, "sharded_3", .manual = true, .callbacks = {every_step}},
    {"tuning, ddp", tuning, 3, "ddp"},
    {"tuning, sharded_3", tuning, 2, "sharded_3"},
    {"fabric, ddp", fabric, 2, "ddp"},
    {"fabric, sharded_3", fabric, 2, "sharded_3", .files = "sharded"},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* ---- ranks ---- */

typedef struct rank_run {
    const scenario *s;
    const char *root;
    lc_comm *comm;
    failing_plan plan;
    long calls; /* calls that it has made */
    lc_status status;
    char message[1024];
    pthread_t thread;
} rank_run;

static void *be_rank(void *arg)
{
    rank_run *r = arg;
    r->status = r->s->run(r->s, r->comm, r->root);
    if (r->status < 0) snprintf(r->message, sizeof r->message, "%s", lc_error_message());
    return NULL;
}

/* A rank that does not end fails the test, but does not block it. */
static bool join(rank_run *r, const struct timespec *until)
{
    return pthread_timedjoin_np(r->thread, NULL, until) == 0;
}

/* Rank `rank` fails in its call `at`; at 0: none does. Returns whether all ranks have ended. */
static bool run_ranks(const scenario *s, int rank, long at, failure how, rank_run *r)
{
    lc_comm *inner[MOST_RANKS];
    struct timespec until;
    bool ended = true;
    const char *root = fresh_dir("run");
    CHECK_OK(lc_comm_threads(s->ranks, inner));
    for (int i = 0; i < s->ranks; i++) {
        r[i] = (rank_run){.s = s, .root = root, .plan = {.rank = i, .carried = s->carried, .how = how}};
        atomic_store(&r[i].plan.at, i == rank ? at : 0);
        CHECK_OK(failing_comm_new(inner[i], &r[i].plan, &r[i].comm));
    }
    for (int i = 0; i < s->ranks; i++) CHECK(!pthread_create(&r[i].thread, NULL, be_rank, &r[i]));
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)patience(20);
    for (int i = 0; i < s->ranks; i++) {
        if (join(&r[i], &until)) continue;
        if (ended) printf("  %s, call %ld of rank %d %s: rank %d hangs\n", s->name, at, rank, failure_names[how], i);
        ended = false;
        lc_comm_abort(inner[0], "the test has waited long enough");
        pthread_join(r[i].thread, NULL);
    }
    for (int i = 0; i < s->ranks; i++) {
        lc_comm_free(r[i].comm);
        r[i].calls = atomic_load(&r[i].plan.calls);
    }
    return ended;
}

static void show(const rank_run *r, int n)
{
    for (int i = 0; i < n; i++)
        printf("  rank %d, %ld calls: %s: %s\n", i, r[i].calls, lc_status_text(r[i].status), r[i].message);
}

/* Whether a run in which that call fails ends correctly. */
static bool ends(const scenario *s, const long *calls, int rank, long at, failure how)
{
    rank_run r[MOST_RANKS];
    char text[96], want[96];
    bool good = run_ranks(s, rank, at, how, r), reached = r[rank].calls >= at;
    snprintf(text, sizeof text, "%s, call %ld of rank %d %s", s->name, at, rank, failure_names[how]);
    failing_text(&r[rank].plan, want, sizeof want);
    for (int i = 0; i < s->ranks && good; i++) {
        /* A rank that has nothing left to do need not get the error. */
        bool may_end_well = !reached || (i != rank && r[i].calls >= calls[i]);
        good = r[i].status < 0 ? strstr(r[i].message, want) != NULL : may_end_well;
    }
    if (getenv("LIGHTC_TEST_SHOW") || !good) printf("%s: %s\n", text, good ? "good" : "BAD");
    if (!good) show(r, s->ranks);
    return good;
}

static void check(const scenario *s)
{
    enum { AT_MOST = RACES_ALONE ? 4 : 24 }; /* runs */
    rank_run r[MOST_RANKS];
    long calls[MOST_RANKS], all = 0;
    int bad = 0;
    CHECK(run_ranks(s, -1, 0, REFUSED, r));
    for (int i = 0; i < s->ranks; i++) {
        if (r[i].status < 0) TEST_FAIL("%s, rank %d: %s", s->name, i, r[i].message);
        all += calls[i] = r[i].calls;
    }
    if (getenv("LIGHTC_TEST_SHOW")) printf("%s: %ld calls\n", s->name, all);
    long n = all * FAILURES, stride = getenv("LIGHTC_TEST_ALL") || n <= AT_MOST ? 1 : n / AT_MOST;
    for (long k = stride / 2; k < n && bad < 3; k += stride) { /* each may have hung */
        long at = k / FAILURES;
        int rank = 0;
        for (; at >= calls[rank]; rank++) at -= calls[rank];
        bad += !ends(s, calls, rank, at + 1, (failure)((k + k / stride) % FAILURES));
    }
    if (bad) TEST_FAIL("%s: %d of the runs with a failing call do not end as they should", s->name, bad);
}

static void check_those_with(const char *name)
{
    const char *only = getenv("LIGHTC_TEST_ONLY");
    for (int i = 0; i < SCENARIOS; i++)
        if (!strncmp(scenarios[i].name, name, strlen(name)) && (!only || strstr(scenarios[i].name, only)))
            check(&scenarios[i]);
}

TEST(calls)
{
    check_those_with("calls");
}
TEST(ddp)
{
    check_those_with("ddp");
}
TEST(sharded)
{
    check_those_with("sharded_1");
    check_those_with("sharded_2");
    check_those_with("sharded_3");
}
TEST(hybrid)
{
    check_those_with("sharded_hybrid");
}
TEST(loops_of_the_program)
{
    check_those_with("own loop");
    check_those_with("fabric");
}
TEST(tuner)
{
    check_those_with("tuning");
}

TEST_MAIN
