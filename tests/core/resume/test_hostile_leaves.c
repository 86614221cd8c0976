/* SPDX-License-Identifier: Apache-2.0 */
/* Each value of a checkpoint's state in turn is replaced by one that lightc never writes: numbers that no run reaches,
 * NaN, another kind, nothing at all. A training that resumes from it either works or says what is wrong with which
 * file; it does not crash, hang or take unlimited memory. Each schedule and each optimizer is tested with its own
 * state.
 *
 * A test goes through one in eleven of all pairs of a value and a change; LIGHTC_TEST_ALL=1 goes through all. */
#define ONE_CYCLE_STEPS 40
#include "callback_net.h"
#include "every_schedule.h"
#include "scratch.h"
#include "optim/optim_internal.h"
#include "optim/sched/sched_internal.h"

#include <lightc/callbacks.h>
#include <lightc/checkpoint.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MOST_CALLBACKS = 16, LONGEST = 20 /* longest training, in seconds */ };

typedef lc_optimizer *make_optimizer(void *m, lc_tensor **list, int n);

typedef struct setup {
    make_optimizer *optimizer;
    make_scheduler *scheduler;
    bool needs_metric, matrices_only, callbacks, averages_late;
    int64_t accumulate;
} setup;

typedef struct hostile {
    net n; /* must be first */
    const setup *setup;
    const char *save; /* saves a checkpoint after `stop` batches and ends there; NULL: trains to the end */
    int64_t stop, seen;
    lc_trainer *trainer;
    struct {
        double lr;
        int64_t batch_size;
    } tuned;
} hostile;

/* ---- the training ---- */

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = NULL;
    (void)i;
    for (int k = 0; k < b->n_parts; k++) {
        lc_tensor *part = lc_mse_loss(net_forward((net *)self, b->parts[k]->x), b->parts[k]->y);
        loss = loss ? lc_add(loss, part) : part;
    }
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON);
    return loss;
}

static bool is_matrix(void *ctx, const char *path, lc_module *owner, lc_tensor *p)
{
    return lc_tensor_ndim(p) == 2 && net_trains(ctx, path, owner, p);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const setup *s = ((hostile *)self)->setup;
    lc_tensor **list;
    int n;
    LC_TRY(lc_module_parameters(self, s->matrices_only ? is_matrix : net_trains, NULL, &list, &n));
    lc_optimizer *opt = s->optimizer(self, list, n);
    free(list);
    if (!opt) return LC_ERR_CONFIG;
    LC_TRY(lc_optimizers_add(out, opt));
    if (!s->scheduler) return LC_OK;
    lc_scheduler_config c = {.scheduler = s->scheduler(opt)};
    c.interval = s->needs_metric ? LC_INTERVAL_EPOCH : LC_INTERVAL_STEP;
    c.monitor = s->needs_metric ? "val_loss" : NULL;
    c.reduce_on_plateau = s->needs_metric;
    return lc_optimizers_add_scheduler(out, c);
}

static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataset *data = ((net *)self)->data;
    lc_dataloader *parts[2], *both;
    LC_TRY(lc_dataloader_new(&parts[0], .dataset = data, .batch_size = 6, .shuffle = true, .seed = 7));
    LC_TRY(lc_dataloader_new(&parts[1], .dataset = data, .batch_size = 9, .shuffle = true, .seed = 8));
    LC_TRY(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, parts, &both));
    return lc_loaders_add(out, both);
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    hostile *m = (hostile *)self;
    (void)o, (void)b, (void)i;
    if (!m->save || self->trainer != m->trainer || ++m->seen < m->stop) return LC_OK; /* not the tuner's trainer */
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, m->save, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

static const lc_module_ops hostile_ops = {
    LC_MODULE_OPS_INIT("hostile"),
    .training_step = training_step,
    .validation_step = net_validation_step,
    .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader,
    .val_dataloader = net_val_dataloader,
    .on_train_batch_end = on_train_batch_end,
};

static const lc_option tuned_fields[] = {
    {"lr", LC_OPTION_FLOAT, 0, 0, 0, "learning rate", {0}},
    {"batch_size", LC_OPTION_INT, sizeof(double), 1, 1000, "samples in a batch", {0}},
};

static int add_callbacks(const setup *s, const char *dir, lc_callback *cb)
{
    static const double lr = 0.05;
    static const lc_accumulation windows[] = {{0, 2}, {2, 3}};
    int n = 0;
    CHECK_OK(lc_early_stopping(&cb[n++], .monitor = "val_loss", .patience = 9));
    CHECK_OK(lc_timer_new(1e6, false, &cb[n++]));
    CHECK_OK(lc_spike_detection(&cb[n++], .skip = true, .window = 3, .rtol = 0.2, .exclude_batches_path = dir));
    CHECK_OK(lc_backbone_finetuning(&cb[n++], .unfreeze_backbone_at_epoch = 1, .backbone_initial_lr = 1e-3));
    CHECK_OK(lc_model_pruning(&cb[n++], .pruning_fn = "random_unstructured", .amount_count = 2,
                              .resample_parameters = true, .prune_on_train_epoch_end = LC_OFF));
    CHECK_OK(lc_gradient_accumulation_scheduler(&cb[n++], .scheduling = windows, .n_scheduling = 2));
    CHECK_OK(lc_ema_weight_averaging(&cb[n++], .update_every_n_steps = 1));
    CHECK_OK(lc_stochastic_weight_averaging(&cb[n++], .swa_lrs = &lr, .n_swa_lrs = 1,
                                            .swa_epoch_start = LC_EPOCHS(s->averages_late ? 2 : 1),
                                            .annealing_epochs = 2));
    CHECK_OK(lc_model_checkpoint(&cb[n++], .dirpath = dir, .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON));
    CHECK_OK(lc_learning_rate_finder(&cb[n++], .num_training = 5));
    CHECK_OK(lc_batch_size_finder(&cb[n++], .init_val = 2, .max_val = 3, .steps_per_trial = 1));
    return n;
}

/* From `from` (NULL: the start) to the end, or to `save` after `stop` batches. */
static lc_status train(const setup *s, const char *dir, const char *from, const char *save, int64_t stop)
{
    hostile m = {0};
    lc_callback cb[MOST_CALLBACKS];
    net_init(&m.n);
    m.n.base.ops = &hostile_ops;
    m.setup = s;
    m.save = save;
    m.stop = stop;
    m.tuned.lr = 0.01;
    m.tuned.batch_size = 3;
    lc_module_save_hyperparameters(&m.n.base, tuned_fields, 2, &m.tuned);
    lc_trainer_options o = world_options(dir);
    o.callbacks = cb;
    if (s->callbacks) o.n_callbacks = add_callbacks(s, dir, cb);
    o.enable_checkpointing = s->callbacks ? LC_ON : LC_OFF;
    o.max_epochs = 4;
    o.accumulate_grad_batches = s->accumulate ? s->accumulate : 1;
    o.threads = 1;
    CHECK_OK(lc_trainer_new(&o, &m.trainer));
    lc_status status = lc_trainer_fit(m.trainer, &m.n.base, .ckpt_path = from);
    char why[1024];
    snprintf(why, sizeof why, "%s", lc_error_message());
    lc_trainer_free(m.trainer);
    net_release(&m.n);
    return status < 0 ? lc_fail(status, "%s", why) : status;
}

/* ---- one value changed ---- */

typedef enum change {
    LOWEST,
    HIGHEST,
    BELOW_ZERO,
    ZERO,
    NOT_A_NUMBER,
    INFINITE,
    HUGE_DOUBLE,
    HALF,
    EMPTY_TEXT,
    LONG_TEXT,
    NOTHING,
    TRUE_,
    EMPTY_OBJECT,
    EMPTY_ARRAY,
    MISSING,
    CHANGES
} change;

static const char *const changes[] = {"INT64_MIN", "INT64_MAX", "-1",   "0",    "NaN", "Infinity", "1e300",  "0.5",
                                      "\"\"",      "\"7f...\"", "null", "true", "{}",  "[]",       "missing"};

typedef struct copying {
    int at, target; /* the index of the value to change, among all in their order */
    change how;
    const char *root; /* only below this member; NULL: everywhere */
    char where[512];
} copying;

static lc_status put_change(lc_state *to, const char *key, change how)
{
    lc_state *child;
    char text[513];
    memset(text, '7', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (size_t i = 1; i < sizeof text - 1; i += 2) text[i] = 'f';
    switch (how) {
    case LOWEST:
        return lc_state_set_int(to, key, INT64_MIN);
    case HIGHEST:
        return lc_state_set_int(to, key, INT64_MAX);
    case BELOW_ZERO:
        return lc_state_set_int(to, key, -1);
    case ZERO:
        return lc_state_set_int(to, key, 0);
    case NOT_A_NUMBER:
        return lc_state_set_double(to, key, NAN);
    case INFINITE:
        return lc_state_set_double(to, key, INFINITY);
    case HUGE_DOUBLE:
        return lc_state_set_double(to, key, 1e300);
    case HALF:
        return lc_state_set_double(to, key, 0.5);
    case EMPTY_TEXT:
        return lc_state_set_text(to, key, "");
    case LONG_TEXT:
        return lc_state_set_text(to, key, text);
    case NOTHING:
        return lc_state_set_text(to, key, NULL);
    case TRUE_:
        return lc_state_set_bool(to, key, true);
    case EMPTY_OBJECT:
        return lc_state_set_object(to, key, &child);
    case EMPTY_ARRAY:
        return lc_state_set_array(to, key, &child);
    default:
        return LC_OK; /* MISSING */
    }
}

static lc_status copy_value(copying *c, const lc_state *from, lc_state *to, const char *key, const char *where)
{
    lc_state *child = NULL, *copy;
    lc_state_kind kind = lc_state_kind_of(from);
    if (c->at++ == c->target) {
        snprintf(c->where, sizeof c->where, "%s", where);
        return put_change(to, key, c->how);
    }
    if (kind == LC_STATE_OBJECT) LC_TRY(lc_state_set_object(to, key, &child));
    if (kind == LC_STATE_ARRAY) LC_TRY(lc_state_set_array(to, key, &child));
    for (int64_t i = 0; child && i < lc_state_length(from); i++) {
        char path[512];
        const char *name = lc_state_key_at(from, i);
        if (name)
            snprintf(path, sizeof path, "%s.%s", where, name);
        else
            snprintf(path, sizeof path, "%s[%lld]", where, (long long)i);
        LC_TRY(copy_value(c, lc_state_at(from, i), child, name, path));
    }
    if (child) return LC_OK;
    LC_TRY(lc_state_copy(from, &copy));
    return lc_state_set_tree(to, key, copy);
}

/* Copies the checkpoint with one value changed. False: there are no more values. */
static bool write_changed(lc_checkpoint *good, const char *to, copying *c)
{
    lc_ckpt_writer *w;
    const lc_state *root = lc_checkpoint_state(good);
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(lc_ckpt_begin(w, to));
    c->at = 0;
    c->where[0] = 0;
    for (int64_t i = 0; i < lc_state_length(root); i++) {
        const char *key = lc_state_key_at(root, i);
        lc_state *copy;
        if (!c->root || !strcmp(c->root, key)) {
            CHECK_OK(copy_value(c, lc_state_at(root, i), lc_ckpt_state(w), key, key));
        } else {
            CHECK_OK(lc_state_copy(lc_state_at(root, i), &copy));
            CHECK_OK(lc_state_set_tree(lc_ckpt_state(w), key, copy));
        }
    }
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc_safetensors *f = lc_checkpoint_tensors(good, (lc_ckpt_kind)k);
        for (int64_t i = 0; f && i < lc_safetensors_count(f); i++)
            CHECK_OK(lc_ckpt_add_stored(w, (lc_ckpt_kind)k, f, i));
    }
    CHECK_OK(lc_ckpt_commit(w, true));
    lc_ckpt_writer_free(w);
    return c->target < c->at;
}

/* A malformed value is reported with the file. Others may lead the run into an error of its own, but never to an
 * allocation for them or to an internal error. */
static bool is_refusal(lc_status s)
{
    if (s == LC_ERR_FORMAT || s == LC_ERR_NOT_FOUND) return strstr(lc_error_message(), "bad.ckpt") != NULL;
    return s != LC_ERR_MEMORY && s != LC_ERR_INTERNAL && s != LC_ERR_IO;
}

/* In a process of its own, so that a crash ends nothing else. */
static bool resumes_or_refuses(const setup *s, const char *dir, const char *bad, const copying *c, const char *who)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm((unsigned)patience(LONGEST));
        lc_status end = train(s, dir, bad, NULL, 0);
        bool good = end >= 0 || is_refusal(end);
        if (!good)
            printf("  %s, %s = %s: %s: %s\n", who, c->where, changes[c->how], lc_status_text(end), lc_error_message());
        fflush(stdout);
        _exit(good ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status)) printf("  %s, %s = %s: signal %d\n", who, c->where, changes[c->how], WTERMSIG(status));
    return status == 0;
}

static void change_all(const setup *s, const char *who, const char *root, int64_t stop)
{
    char dir[300], good[400], bad[400];
    lc_checkpoint *c;
    snprintf(dir, sizeof dir, "%s", fresh_dir("leaves"));
    snprintf(good, sizeof good, "%s/good.ckpt", dir);
    snprintf(bad, sizeof bad, "%s/bad.ckpt", dir);
    CHECK_STATUS(train(s, dir, NULL, good, stop), LC_ERR_USER);
    CHECK_OK(lc_checkpoint_open(good, &c));
    int every = getenv("LIGHTC_TEST_ALL") ? 1 : 11; /* no divisor in common with CHANGES: each change is made */
    copying copy = {.root = root, .target = -1};
    write_changed(c, bad, &copy);
    CHECK_OK(train(s, dir, bad, NULL, 0)); /* the rewriting itself does no harm */
    int n = copy.at, failures = 0;
    const lc_state *callbacks = lc_state_find(lc_checkpoint_state(c), "callbacks");
    CHECK(n > 0 && (lc_state_length(callbacks) > 0) == s->callbacks);
    for (int k = 0; k < n * CHANGES; k += every) {
        copy.target = k / CHANGES;
        copy.how = (change)(k % CHANGES);
        CHECK(write_changed(c, bad, &copy));
        failures += !resumes_or_refuses(s, dir, bad, &copy, who);
    }
    if (failures) TEST_FAIL("%d changes", failures);
    lc_checkpoint_close(c);
}

/* ---- optimizers ---- */

#define OPTIMIZER(name, ...)                                                                                           \
    static lc_optimizer *name(void *m, lc_tensor **list, int n)                                                        \
    {                                                                                                                  \
        return lc_##name(m, .parameters = list, .n_parameters = n, __VA_ARGS__);                                       \
    }
OPTIMIZER(sgd, .lr = 0.01, .momentum = 0.9)
OPTIMIZER(adam, .lr = 0.01)
OPTIMIZER(nadam, .lr = 0.01)
OPTIMIZER(muon, .lr = 0.01)
OPTIMIZER(lbfgs, .lr = 0.1, .max_iter = 3, .history_size = 4)

/* ---- the tests ---- */

/* Inside an accumulation window of the second epoch. */
TEST(a_training_with_every_callback)
{
    change_all(&(setup){.optimizer = adam, .scheduler = exponential_lr, .callbacks = true, .accumulate = 1},
               "callbacks", NULL, 7);
}

TEST(every_schedule)
{
    size_t n = sizeof schedulers / sizeof *schedulers;
    for (const lc_scheduler_ops *const *ops = lc__scheduler_table; *ops; ops++) {
        size_t i = 0;
        while (i < n && strcmp(schedulers[i].name, (*ops)->name) != 0) i++;
        if (i == n) TEST_FAIL("there is no line for %s", (*ops)->name);
        change_all(&(setup){.optimizer = adam, .scheduler = schedulers[i].make, .needs_metric = (*ops)->needs_metric},
                   schedulers[i].name, "schedulers", 7);
    }
}

TEST(optimizers)
{
    static const struct {
        const char *name;
        make_optimizer *make;
    } list[] = {{"SGD", sgd}, {"Adam", adam}, {"NAdam", nadam}, {"Muon", muon}, {"LBFGS", lbfgs}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        change_all(&(setup){.optimizer = list[i].make, .matrices_only = list[i].make == muon}, list[i].name,
                   "optimizers", 7);
}

TEST_MAIN
