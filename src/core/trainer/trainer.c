/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees a trainer. */
#include "base/args.h"
#include "base/io.h"
#include "core/trainer/matmul_precision.h"
#include "core/trainer/memory_limit.h"
#include "core/hooks/hooks.h"
#include "builtin.h"
#include "core/checkpoint/joint.h"
#include "comm/comm_internal.h"
#include "base/handle.h"
#include "core/split/chunks.h"
#include "core/options/options.h"
#include "core/split/device_parts.h"
#include "core/hooks/profiling.h"
#include "core/ranks/rank_times.h"
#include "core/ranks/ranks.h"
#include "core/resume/after_save.h"
#include "core/hooks/trainer_internal.h"
#include "core/input/input.h"
#include "core/logging/logging.h"
#include "core/loop/loop.h"
#include "core/resume/resume.h"
#include "core/trainer/run.h"
#include "core/trainer/start_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- options that depend on each other ---- */

static lc_status one_of(const char *name, const char *value, const char *a, const char *b)
{
    if (!value || !strcmp(value, a) || !strcmp(value, b)) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "%s is \"%.60s\"; it must be %s or %s", name, value, a, b);
}

static lc_status barebones(const lc_trainer_options *o)
{
    static const lc_trainer_options usual = LC_TRAINER_OPTIONS_INIT;
    bool logs = o->logger && strcmp(o->logger, "none") != 0 && strcmp(o->logger, "false") != 0;
    bool every = o->log_every_n_steps && o->log_every_n_steps != usual.log_every_n_steps;
    bool sanity = o->num_sanity_val_steps && o->num_sanity_val_steps != usual.num_sanity_val_steps;
    const char *clash = o->enable_checkpointing == LC_ON   ? "enable_checkpointing"
                        : o->enable_progress_bar == LC_ON  ? "enable_progress_bar"
                        : o->enable_model_summary == LC_ON ? "enable_model_summary"
                        : o->fast_dev_run                  ? "fast_dev_run"
                        : o->detect_anomaly                ? "detect_anomaly"
                        : o->profiler || o->n_profilers    ? "a profiler"
                        : every                            ? "log_every_n_steps"
                        : sanity                           ? "num_sanity_val_steps"
                        : logs                             ? "logger"
                        : o->n_loggers                     ? "loggers"
                                                           : NULL;
    return clash ? lc_fail(LC_ERR_CONFIG, "barebones and %s cannot both be on", clash) : LC_OK;
}

static lc_status check_options(const lc_trainer_options *o)
{
    int64_t limit;
    LC_TRY(lc__accelerator_check(o->accelerator));
    LC_TRY(lc__memory_limit_parse(o->memory_limit, &limit));
    LC_TRY(lc__trainer_options_check(o));
    lc_matmul_precision products;
    LC_TRY(lc__matmul_precision_parse(o->float32_matmul_precision, &products));
    if (o->check_val_every_n_epoch == LC_UNSET && o->val_check_interval.unit == LC_UNIT_FRACTION)
        return lc_fail(LC_ERR_CONFIG, "val_check_interval must be a number of batches (100) or a time (10m) when "
                                      "check_val_every_n_epoch is none");
    LC_TRY(one_of("gradient_clip_algorithm", o->gradient_clip_algorithm, "norm", "value"));
    return one_of("mode", o->mode, "min", "max");
}

/* Options that stand for several others. */
static lc_status expand_options(lc_trainer_options *o)
{
    if (o->barebones) {
        LC_TRY(barebones(o));
        o->enable_checkpointing = o->enable_progress_bar = o->enable_model_summary = LC_OFF;
        o->num_sanity_val_steps = 0;
        o->log_every_n_steps = 0;
    }
    if (o->fast_dev_run > 0) {
        lc_duration n = LC_BATCHES(o->fast_dev_run);
        o->max_steps = o->fast_dev_run;
        o->max_epochs = 1;
        o->limit_train_batches = o->limit_val_batches = o->limit_test_batches = o->limit_predict_batches = n;
        o->num_sanity_val_steps = 0;
        o->val_check_interval = LC_FRACTION(1);
        o->check_val_every_n_epoch = 1;
        o->early_stopping = NULL;
    }
    if (o->overfit_batches.unit != LC_UNIT_NONE && o->overfit_batches.value > 0)
        o->limit_train_batches = o->limit_val_batches = o->overfit_batches;
    return LC_OK;
}

static lc_status resolve_durations(lc_trainer_options *o)
{
    /* val_check_interval=2ep is another way to say check_val_every_n_epoch. */
    if (o->val_check_interval.unit == LC_UNIT_EPOCHS) {
        if (o->val_check_interval.value < 1 || o->check_val_every_n_epoch != 1)
            return lc_fail(LC_ERR_CONFIG,
                           "val_check_interval=%gep must be at least one epoch, and cannot be combined with "
                           "check_val_every_n_epoch, which means the same",
                           o->val_check_interval.value);
        o->check_val_every_n_epoch = (int64_t)o->val_check_interval.value;
        o->val_check_interval = (lc_duration){0};
    }
    /* max_time=3ep and 500st are other ways to say max_epochs and max_steps. */
    switch (o->max_time.unit) {
    case LC_UNIT_NONE:
    case LC_UNIT_SECONDS:
        break;
    case LC_UNIT_EPOCHS:
        o->max_epochs = (int64_t)o->max_time.value;
        break;
    case LC_UNIT_STEPS:
        o->max_steps = (int64_t)o->max_time.value;
        break;
    default:
        return lc_fail(LC_ERR_CONFIG, "max_time needs a unit: 30s, 10m, 2h, 00:02:30:00, 3ep or 500st");
    }
    return LC_OK;
}

static lc_status resolve(lc_trainer *t)
{
    lc_trainer_options *o = &t->opt;
    LC_TRY(check_options(o));
    LC_TRY(expand_options(o));
    LC_TRY(resolve_durations(o));
    t->max_steps = o->max_steps;
    t->min_steps = o->min_steps == LC_UNSET ? 0 : o->min_steps;
    t->min_epochs = o->min_epochs != LC_UNSET ? o->min_epochs : t->min_steps > 0 ? 1 : 0;
    t->max_epochs = o->max_epochs;
    if (t->max_epochs == LC_UNSET)
        t->max_epochs = t->max_steps == -1 && o->max_time.unit != LC_UNIT_SECONDS ? 1000 : -1;
    t->accumulate = t->accumulate_next = o->accumulate_grad_batches;
    return LC_OK;
}

/* Options point to these once a trainer has what they held. */
static const struct {
    lc_callback callbacks;
    lc_logger loggers;
    lc_profiler profilers;
    lc_precision precision_plugin;
} taken;

static lc_status check_list(const char *name, int n, const void *list, const void *if_taken)
{
    LC_TRY(lc__list_check(name, n, list));
    if (!n || list != if_taken) return LC_OK;
    return lc_fail(LC_ERR_STATE,
                   "the %s of these options belong to the trainer that was made of them before; make new ones, and set "
                   ".%s again, for each trainer",
                   name, name);
}

static lc_status check_not_taken(const lc_trainer_options *opt)
{
#define CHECK_LIST(list) LC_TRY(check_list(#list, LC__SLOT(opt, n_##list), LC__SLOT(opt, list), &taken.list))
    CHECK_LIST(callbacks);
    CHECK_LIST(loggers);
    CHECK_LIST(profilers);
#undef CHECK_LIST
    if (LC__SLOT(opt, precision_plugin) == &taken.precision_plugin)
        return lc_fail(LC_ERR_STATE, "the precision_plugin of these options belongs to the trainer that was made of "
                                     "them before; make a new one, and set it again, for each trainer");
    if (LC__SLOT(opt, storage) != &lc__texts_taken) return LC_OK;
    return lc_fail(LC_ERR_STATE, "the texts of these options belong to the trainer that was made of them before; for "
                                 "each trainer begin with LC_TRAINER_OPTIONS_INIT and parse again");
}

/* Another trainer must not free again what this one frees. What has nothing to free may be shared. */
static void mark_taken(lc_trainer_options *opt)
{
#define FREES(list, n)                                                                                                 \
    for (int i = 0; i < LC__SLOT(opt, n) && opt->list != &taken.list; i++)                                             \
        if (opt->list[i].self && opt->list[i].ops && LC__SLOT(opt->list[i].ops, free)) opt->list = &taken.list
    FREES(callbacks, n_callbacks);
    FREES(loggers, n_loggers);
    FREES(profilers, n_profilers);
#undef FREES
    if (LC__SLOT(opt, precision_plugin)) opt->precision_plugin = &taken.precision_plugin;
    if (LC__SLOT(opt, storage)) opt->storage = (void *)&lc__texts_taken;
}

/* Takes ownership of callbacks, loggers, profilers and the precision: of all of them, even if one fails. */
static lc_status take_over(lc_trainer *t)
{
    lc__first_error e = {0};
    for (int i = 0; i < t->opt.n_callbacks; i++)
        lc__first_error_note(&e, lc_trainer_add_callback(t, t->opt.callbacks[i]));
    lc__first_error_note(&e, lc__loggers_open(t));
    lc__first_error_note(
        &e, lc__precision_take(t->opt.precision, t->opt.precision_plugin, &t->precision, &t->precision_self));
    t->opt.precision_plugin = NULL;
    lc__first_error_note(&e, lc__profiling_open(t));
    return lc__first_error_status(&e);
}

/* Adds callbacks that the options ask for and the program did not supply. */
static lc_status add_default_callbacks(lc_trainer *t)
{
    for (int i = 0; i < t->n_callbacks; i++) LC_TRY(lc__check_callback(t, t->callbacks[i])); /* options are resolved */
    for (lc__default_callback *const *make = lc__builtin->callbacks; *make; make++) {
        lc_callback cb;
        bool wanted = false;
        LC_TRY((*make)(t, &wanted, &cb));
        if (wanted) LC_TRY(lc_trainer_add_callback(t, cb));
    }
    return LC_OK;
}

/* A trainer with the state of its rooms. */
typedef struct whole {
    lc_trainer t; /* first */
    lc__input input;
    lc__logging logging;
    lc__ranks ranks;
    lc__resume resume;
    lc__loop loop;
    lc__run run;
} whole;

static lc_trainer *allocate(void)
{
    whole *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->t.input = &w->input;
    w->t.logging = &w->logging;
    w->t.ranks = &w->ranks;
    w->t.resume = &w->resume;
    w->t.loop = &w->loop;
    w->t.run = &w->run;
    return &w->t;
}

static lc_status start_strategy(lc_trainer *t)
{
    lc__security unused; /* a misspelled value is an error even with one rank */
    LC_TRY(lc__security_find(t->opt.comm_security, &unused));
    LC_TRY(lc_strategy_find(t->opt.strategy, &t->strategy));
    lc_strategy_request ask = lc__strategy_request(&t->opt);
    lc_status s = t->strategy->setup_environment(&t->strategy_self, &ask);
    if (s < 0) {
        t->strategy = NULL; /* nothing to tear down */
        return s;
    }
    t->comm = t->strategy->comm(t->strategy_self);
    t->rank = t->comm ? lc_comm_rank(t->comm) : 0;
    t->n_ranks = t->comm ? lc_comm_size(t->comm) : 1;
    if (t->n_ranks == 1) t->comm = NULL;
    LC_TRY(lc__request_check(&ask, t->strategy, t->comm, t->opt.deterministic));
    if (t->opt.gather_parameters || t->strategy->shard_parameters) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "gather_parameters=false: with the strategy %s every rank has whole parameters; use "
                   "--strategy sharded or sharded_hybrid, or drop it",
                   t->strategy->name);
}

lc_status lc_trainer_new(lc_trainer_options *opt, lc_trainer **out)
{
    static const lc_trainer_options defaults = LC_TRAINER_OPTIONS_INIT;
    lc_status status = LC_OK;
    if (out) *out = NULL;
    if (opt)
        LC_TRY(lc__ops_check(sizeof *opt, opt, offsetof(lc_trainer_options, max_epochs), "a trainer",
                             "LC_TRAINER_OPTIONS_INIT"));
    if (opt) LC_TRY(check_not_taken(opt));
    lc_trainer *t = allocate();
    if (!t) return lc_fail(LC_ERR_MEMORY, "out of memory: a trainer");
    t->mark = LC__MARK_OF(TRAINER);
    t->opt = defaults;
    if (opt) {
        memcpy(&t->opt, opt, opt->size);
        t->storage = LC__SLOT(opt, storage);
        mark_taken(opt);
    }
    t->hooks_dirty = true;
    lc__logging_init(t);
    lc__input_close(t); /* nothing is open yet */
    LC_TRY_GOTO(status, done, take_over(t));
    LC_TRY_GOTO(status, done, out ? LC_OK : lc__is_null(__func__, "out"));
    LC_TRY_GOTO(status, done, resolve(t));
    LC_TRY_GOTO(status, done, lc__launch_trainer(&t->opt));
    if (status == LC_STOP) goto done;
    LC_TRY_GOTO(status, done, start_strategy(t));
    LC_TRY_GOTO(status, done,
                lc__state_dict_type(t->opt.state_dict_type, t->strategy, &t->resume->sharded_checkpoints));
    LC_TRY_GOTO(status, done, lc__on_save_error(t->opt.on_save_error, &t->resume->stops_on_save_error));
    LC_TRY_GOTO(status, done, lc__copy_text(lc__dir_or_here(t->opt.default_root_dir), &t->root_dir));
    t->making_defaults = true;
    status = add_default_callbacks(t);
    t->making_defaults = false;
    if (status < 0) goto done;
    LC_TRY_GOTO(status, done, lc__hooks_rebuild(t));
    *out = t;
    t = NULL;
done:
    lc_trainer_free(t);
    return status;
}

void lc_trainer_free(lc_trainer *t)
{
    if (!t) return;
    LC__IS(t, TRAINER, );
    if (t->in_run && (!t->run->own_loop || t->depth)) {
        lc__defer_error(t, lc_fail(LC_ERR_STATE, "lc_trainer_free: the trainer is running; free it after the run"));
        return;
    }
    lc_comm *comm = t->comm;
    if (t->resume->writer && !lc__ckpt_is_joint(t->resume->writer))
        t->comm = NULL; /* other ranks may free their trainers at another time */
    if (lc__settle(t, LC__SETTLE_ALL) < 0) lc_trainer_message(t, LC_ERROR, "%s", lc_error_message());
    t->comm = comm;
    lc_ckpt_writer_free(t->resume->writer);
    lc__loggers_finish(t, t->run_state == LC_RUN_INTERRUPTED
                              ? (atomic_load(&t->ranks->signal) ? "interrupted" : "failed")
                              : "success");
    lc__input_close(t);
    lc__device_parts_free(t);
    lc__optimizers_free(t);
    if (t->in_run && t->m) lc__batch_norms_release(t); /* the program did not end its own loop */
    if (t->strategy && t->strategy->teardown) t->strategy->teardown(t->strategy_self);
    lc__chunks_free(t);
    lc__rank_times_free(t);
    lc_graph_free(t->graph);
    if (t->in_run && t->m) t->m->trainer = NULL;
    lc__callbacks_free(t);
    lc__hooks_free(t);
    lc__profiling_free(t);
    lc__logging_free(t);
    lc__loop_free(t);
    lc__resume_free(t);
    if (t->precision.teardown) t->precision.teardown(t->precision_self);
    lc_options_free(t->storage);
    free(t->deferred_message);
    free(t->root_dir);
    free(t->run_dir);
    free(t->ckpt_path);
    lc__signals_end(t);
    lc__mark_clear(&t->mark);
    free(t);
}

lc_status lc_trainer_set_accumulate_grad_batches(lc_trainer *t, int64_t n)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    if (n < 1) return lc_fail(LC_ERR_ARGUMENT, "accumulate_grad_batches must be at least 1, not %lld", (long long)n);
    LC_TRY(lc__check_accumulation(t, n));
    t->accumulate_next = n;
    return LC_OK;
}
