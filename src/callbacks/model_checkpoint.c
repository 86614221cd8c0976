/* SPDX-License-Identifier: Apache-2.0 */
/* ModelCheckpoint: saves the best checkpoints, the newest, or one at intervals.
 *
 * Files are written by a thread from a snapshot; a replaced file is removed once the new one is safe. Unlike
 * Lightning's, `last` is the newest state at every trigger, and a checkpoint of a batch after which a validation is due
 * is saved after the validation, with its values (unless the monitored metric is logged in training).
 *
 * Several runs may share a directory: each reserves its names before it saves, and counts and removes only checkpoints
 * of its own training (docs/checkpoints.md, "Runs that share a directory"). Paths read from a checkpoint are not
 * trusted. */
#include "callbacks/model_checkpoint.h"

#include "core/loop/loop.h"
#include "core/resume/resume.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "base/grow.h"
#include "base/io.h"
#include "base/json.h"
#include "core/checkpoint/removal.h"
#include "core/checkpoint/taken.h"
#include "core/options/options.h"
#include "base/handle.h"
#include "comm/agree.h"
#include "core/logging/results_ranks.h"
#include "core/resume/after_save.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool better(const model_checkpoint *c, double a, double b)
{
    return c->max ? a > b : a < b;
}

static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

/* ---- where and when ---- */

static lc_status find_dir(model_checkpoint *c, lc_trainer *t)
{
    if (c->dirpath) return lc__copy_text(c->dirpath, &c->dir);
    lc__str dir = {0};
    lc_status s = lc__checkpoint_dir(t, &dir);
    if (s >= 0) s = lc__copy_text(dir.s, &c->dir);
    lc__str_free(&dir);
    return s;
}

static lc_status check_text(const char *name, const char *text)
{
    if (!text || !lc__utf8_first_bad(text, strlen(text))) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "%s \"%.200s\" is not UTF-8, which checkpoints store; rename it", name, text);
}

/* Said before the training, not by the first save. */
static lc_status check_texts(const model_checkpoint *c, const lc_trainer *t)
{
    char space[LC__OPTION_SPACE];
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    for (int i = 0; i < n; i++) LC_TRY(check_text(table[i].name, lc__option_text(&table[i], &t->opt, space)));
    LC_TRY(check_text("dirpath", c->dir));
    return check_text("filename", c->filename);
}

static lc_status mc_setup(void *self, lc_trainer *t, lc_stage stage)
{
    model_checkpoint *c = self;
    if (stage != LC_STAGE_FIT) return LC_OK;
    free(c->dir);
    c->dir = NULL;
    lc__mc_release(c);
    c->last_time_ns = lc__now_ns();
    LC_TRY(find_dir(c, t));
    return t->opt.fast_dev_run ? LC_OK : check_texts(c, t);
}

static lc_status mc_teardown(void *self, lc_trainer *t, lc_stage stage)
{
    model_checkpoint *c = self;
    if (stage != LC_STAGE_FIT) return LC_OK;
    if (!c->claimed) lc__mc_clean_claim(c, t);
    lc__mc_release(c);
    return LC_OK;
}

static bool skip(const model_checkpoint *c, const lc_trainer *t)
{
    return t->opt.fast_dev_run || t->stage != LC_STAGE_FIT || t->sanity || c->last_step_saved == t->global_step;
}

static bool at_train_epoch_end(const model_checkpoint *c, const lc_trainer *t)
{
    if (c->a.save_on_train_epoch_end != LC_AUTO) return c->a.save_on_train_epoch_end == LC_ON;
    lc_duration v = t->opt.val_check_interval;
    if (v.unit == LC_UNIT_SECONDS || t->opt.check_val_every_n_epoch != 1) return false;
    if (!t->input->enable_validation) return true;
    return v.unit == LC_UNIT_NONE || (v.unit == LC_UNIT_FRACTION && v.value == 1);
}

static bool epoch_due(const model_checkpoint *c, const lc_trainer *t)
{
    return c->a.every_n_epochs >= 1 && (t->current_epoch + 1) % c->a.every_n_epochs == 0;
}

/* ---- saving ---- */

static bool holds(const model_checkpoint *c, const char *path)
{
    for (int i = 0; i < c->n_best; i++)
        if (!strcmp(c->best[i].path, path)) return true;
    return c->best_path && !strcmp(c->best_path, path);
}

/* Whether a ModelCheckpoint of this run has saved `path`, or is still writing it. */
static bool is_held(const lc_trainer *t, const char *path)
{
    for (int i = 0; i < lc_trainer_callback_count(t); i++) {
        lc_callback cb = lc_trainer_callback(t, i);
        if (cb.ops->setup == mc_setup && holds(cb.self, path)) return true;
    }
    return false;
}

/* Whether the name is taken. If it is free, this run reserves it for the next save; only rank 0 knows. */
static lc_status taken(lc_trainer *t, const char *path, bool *out)
{
    struct stat st;
    *out = is_held(t, path) || lstat(path, &st) == 0;
    return *out || !lc__is_rank_zero(t) ? LC_OK : lc__take_checkpoint_name(t, path, out);
}

/* DIR/NAME.ckpt, with -v1, -v2, ... if it is taken (unless its owner will be removed). */
static lc_status make_path(model_checkpoint *c, lc_trainer *t, const char *removed, char **out)
{
    lc__str name = {0}, path = {0};
    int64_t epoch = t->current_epoch - c->again; /* at the end of the training the last epoch is counted already */
    lc_status s = lc__checkpoint_name(t, epoch, c->filename && *c->filename ? c->filename : "{epoch}-{step}",
                                      c->a.auto_insert_metric_name, &name);
    for (int version = 0; s >= 0; version++) {
        lc__str_clear(&path);
        lc__str_add(&path, "%s/%s", c->dir, name.s ? name.s : "");
        if (version) lc__str_add(&path, "-v%d", version);
        lc__str_add(&path, ".ckpt");
        if (path.failed) {
            s = lc_fail(LC_ERR_MEMORY, "out of memory: the path of a checkpoint");
            break;
        }
        bool is_taken = false;
        bool reused = removed && !strcmp(removed, path.s) && lc__may_reuse(t, path.s);
        if (c->a.enable_version_counter && !reused) s = taken(t, path.s, &is_taken);
        if (s >= 0 && !is_taken) {
            s = lc__copy_text(path.s, out);
            break;
        }
    }
    lc__str_free(&name);
    lc__str_free(&path);
    if (s >= 0) s = lc__ranks_text(t->comm, out); /* other ranks may see other files: rank 0 decides */
    if (s < 0) free(*out), *out = NULL;
    return s;
}

static bool may_remove(const model_checkpoint *c, const lc_trainer *t, const char *old, const char *new_path)
{
    char real[PATH_MAX];
    if (!strcmp(old, new_path) || !lc__mc_is_below(c, old)) return false;         /* never outside of our directory */
    return !(t->ckpt_path && realpath(old, real) && !strcmp(real, t->ckpt_path)); /* nor what this run continues */
}

/* *saved: the checkpoint is saved or being written; if not, everything is as before lc__mc_begin_save. */
static lc_status save(model_checkpoint *c, lc_trainer *t, const char *path, lc__missed what, bool *saved)
{
    const lc__save_plan plan = {.path = path,
                                .weights_only = c->a.save_weights_only,
                                .wait = c->a.wait,
                                .verbose = c->a.verbose,
                                .is_retry = c->retries,
                                .score = c->has_current ? c->current : 0,
                                .has_score = c->has_current,
                                .owner = c,
                                .settled = lc__mc_settled};
    c->last_step_saved = t->global_step;
    c->saving = what;
    c->missed = LC__MISSED_NONE;
    lc_status s = lc__save(t, &plan);
    *saved = s >= 0 && c->missed == LC__MISSED_NONE;
    return s;
}

/* Undoes lc__mc_begin_save if the save failed. */
static lc_status end_save(model_checkpoint *c, lc_status s)
{
    if (s < 0 && c->before) lc__mc_settled(c, false);
    return s;
}

/* Rank 0 owns the files. The path is looked up below our directory, without following links, and removed if this
 * training has saved it. */
static lc_status then_remove(const model_checkpoint *c, lc_trainer *t, const char *path)
{
    if (!lc__is_rank_zero(t)) return LC_OK;
    lc__saves_replaced(t, path);
    return lc__ckpt_then_remove_in(t->resume->writer, path, strlen(c->dir));
}

static int worst(const model_checkpoint *c)
{
    int w = 0;
    for (int i = 1; i < c->n_best; i++)
        if (better(c, c->best[w].score, c->best[i].score)) w = i;
    return w;
}

static void drop_best(model_checkpoint *c, int i)
{
    c->n_best--;
    memmove(c->best + i, c->best + i + 1, (size_t)(c->n_best - i) * sizeof *c->best);
}

/* *gives_way: the path to remove in its place, in new memory. */
static lc_status keep_best(model_checkpoint *c, lc_trainer *t, double score, bool *failed, char **gives_way)
{
    char *removed = NULL, *path = NULL;
    bool saved = false;
    lc_status s;
    LC_TRY(lc__mc_begin_save(c, t));
    if (isnan(score)) score = c->max ? -INFINITY : INFINITY;
    if (c->k > 0 && c->n_best == c->k) {
        int w = worst(c);
        removed = c->best[w].path;
        drop_best(c, w);
    }
    LC_TRY_GOTO(s, done, make_path(c, t, removed, &path));
    for (int i = c->n_best - 1; i >= 0; i--) /* without a version counter the new file may replace a kept one */
        if (!strcmp(c->best[i].path, path)) {
            free(c->best[i].path);
            drop_best(c, i);
        }
    LC_TRY_GOTO(s, done, lc__grow(&c->best, &c->cap_best, c->n_best, 1, "the list of checkpoints"));
    c->current = score;
    c->has_current = true;
    c->best[c->n_best] = (lc__kept){.score = score};
    LC_TRY_GOTO(s, done, lc__copy_text(path, &c->best[c->n_best].path));
    c->n_best++;
    int b = 0;
    for (int i = 1; i < c->n_best; i++)
        if (better(c, c->best[i].score, c->best[b].score)) b = i;
    LC_TRY_GOTO(s, done, lc__set_text(&c->best_path, c->best[b].path));
    c->best_score = c->best[b].score;
    c->has_best_score = true;
    if (c->n_best == c->k) {
        int w = worst(c);
        LC_TRY_GOTO(s, done, lc__set_text(&c->kth_path, c->best[w].path));
        c->kth_value = c->best[w].score;
    }
    s = save(c, t, path, LC__MISSED_BEST, &saved);
    if (saved && removed && may_remove(c, t, removed, path)) *gives_way = removed, removed = NULL;
    *failed = !saved;
done:
    free(removed);
    free(path);
    return end_save(c, s);
}

static lc_status keep_newest(model_checkpoint *c, lc_trainer *t, bool *failed, char **gives_way)
{
    char *path = NULL, *previous = NULL;
    bool saved = false;
    lc_status s = LC_OK;
    LC_TRY(lc__mc_begin_save(c, t));
    if (c->best_path) LC_TRY_GOTO(s, done, lc__copy_text(c->best_path, &previous));
    LC_TRY_GOTO(s, done, make_path(c, t, previous, &path));
    LC_TRY_GOTO(s, done, lc__set_text(&c->best_path, path));
    s = save(c, t, path, LC__MISSED_BEST, &saved);
    if (saved && c->k == 1 && previous && may_remove(c, t, previous, path)) *gives_way = previous, previous = NULL;
    *failed = !saved;
done:
    free(previous);
    free(path);
    return end_save(c, s);
}

static lc_status missing_key(model_checkpoint *c, lc_trainer *t)
{
    char known[400] = "";
    size_t n = 0;
    const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
    for (int i = 0; i < m->n && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "'%s', ", m->v[i].name);
    lc_status s = lc_fail(LC_ERR_CONFIG,
                          "`ModelCheckpoint(monitor='%s')` could not find the monitored key in the returned metrics: "
                          "[%s'epoch', 'step']. HINT: Did you call lc_log(self, \"%s\", value)?",
                          c->monitor, known, c->monitor);
    if (t->loop->val_has_run) return s;
    lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
    return LC_OK;
}

/* Rank 0's value, so that all ranks make the same decision. *found: whether there is one. A logged epoch or step counts
 * as a whole number, as in the names of files. */
static lc_status find_metric(lc_trainer *t, const char *name, bool *found, double *out)
{
    bool counts = !strcmp(name, "epoch") || !strcmp(name, "step");
    LC_TRY(lc__metric_from_rank_zero(t, name, found, out));
    if (!counts) return LC_OK;
    *out = *found ? trunc(*out) : (double)(*name == 'e' ? t->current_epoch : t->global_step);
    *found = true;
    return LC_OK;
}

/* *failed: the save was attempted, and failed. */
static lc_status save_topk(model_checkpoint *c, lc_trainer *t, bool *failed, char **gives_way)
{
    double score;
    bool found;
    if (c->k == 0) return LC_OK;
    if (!c->monitor) return keep_newest(c, t, failed, gives_way);
    LC_TRY(find_metric(t, c->monitor, &found, &score));
    if (!found) return missing_key(c, t);
    if (c->k != -1 && c->n_best >= c->k && !better(c, score, c->best[worst(c)].score)) return LC_OK;
    return keep_best(c, t, score, failed, gives_way);
}

/* Whether `last` has this name already, or can take it. *name reserves it for a link; with `name` NULL it is reserved
 * for the next save. Only rank 0's answer counts. */
static lc_status is_last(model_checkpoint *c, lc_trainer *t, const char *path, lc__taken **name, bool *out)
{
    bool there, mine = c->last_path && !strcmp(path, c->last_path);
    *out = true;
    if (!c->a.enable_version_counter || !lc__is_rank_zero(t)) return LC_OK;
    bool ours = lc__may_become_last(t, path, &there);
    if (mine && (there ? ours : c->has_last)) return LC_OK; /* if it does not exist, it is being written */
    bool is_taken = there || (!mine && is_held(t, path));
    if (!is_taken) LC_TRY(name ? lc__take_name(path, &is_taken, name) : lc__take_checkpoint_name(t, path, &is_taken));
    *out = !is_taken;
    return LC_OK;
}

/* Sets last_path to DIR/last.ckpt, or last-vN if that name is not ours. `name`: as in is_last. */
static lc_status find_last_path(model_checkpoint *c, lc_trainer *t, lc__taken **name)
{
    lc__str path = {0};
    bool found = false;
    lc_status s = LC_OK;
    for (int version = 0; s >= 0 && !found; version++) {
        lc__str_clear(&path);
        lc__str_add(&path, "%s/last", c->dir);
        if (version) lc__str_add(&path, "-v%d", version);
        lc__str_add(&path, ".ckpt");
        s = path.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: the path of a checkpoint")
                        : is_last(c, t, path.s, name, &found);
    }
    if (s >= 0) s = lc__set_text(&c->last_path, path.s);
    if (s >= 0) s = lc__ranks_text(t->comm, &c->last_path);
    c->has_last = s >= 0;
    lc__str_free(&path);
    return s;
}

/* Links `last` to the checkpoint that was just saved. */
static lc_status link_last(model_checkpoint *c, lc_trainer *t)
{
    lc__taken *name = NULL;
    if (!c->a.save_last) return LC_OK;
    lc_status s = find_last_path(c, t, &name);
    if (s < 0 || !lc__is_rank_zero(t)) {
        lc__taken_release(name);
        return s;
    }
    if (c->last_is_own) lc__saves_replaced(t, c->last_path);
    c->last_is_own = false;
    return lc__ckpt_then_link_taken(t->resume->writer, c->last_path, name);
}

static lc_status save_last(model_checkpoint *c, lc_trainer *t)
{
    char *path = NULL; /* a copy: a failed save resets last_path */
    bool saved;
    if (!c->a.save_last) return LC_OK;
    LC_TRY(lc__mc_begin_save(c, t));
    lc_status s = find_last_path(c, t, NULL);
    c->last_is_own = true;
    if (s >= 0) s = lc__copy_text(c->last_path, &path);
    if (s >= 0) s = save(c, t, path, LC__MISSED_LAST, &saved);
    free(path);
    return end_save(c, s);
}

/* One trigger: saves the best, then `last`, and only then removes the checkpoint that gives way: `last` may still link
 * to it. */
static lc_status trigger(model_checkpoint *c, lc_trainer *t)
{
    bool failed = false;
    char *gives_way = NULL;
    lc_status s = save_topk(c, t, &failed, &gives_way);
    if (s >= 0 && !failed) s = c->last_step_saved == t->global_step ? link_last(c, t) : save_last(c, t);
    if (s >= 0 && gives_way) s = then_remove(c, t, gives_way);
    free(gives_way);
    return s;
}

/* Checkpoints that are kept for their score need the metric; `last` alone does not. */
static bool ranks_by_metric(const model_checkpoint *c)
{
    return c->monitor && c->k != 0;
}

/* Whether validation, if one follows this batch, may change the monitored value. */
static bool waits_for_validation(const model_checkpoint *c, const lc_trainer *t)
{
    const lc__results *r = &t->logging->train_results;
    if (t->is_last_batch && !at_train_epoch_end(c, t)) return true; /* as Lightning, whatever is monitored */
    for (int i = 0; i < r->n; i++)
        if (r->e[i].active && (!strcmp(r->e[i].name, c->monitor) || !strcmp(r->e[i].step_name, c->monitor) ||
                               !strcmp(r->e[i].epoch_name, c->monitor)))
            return false;
    return true;
}

/* ---- hooks ---- */

static lc_status mc_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    model_checkpoint *c = self;
    double value;
    (void)o, (void)b, (void)i;
    bool steps = c->a.every_n_train_steps >= 1 && t->global_step % c->a.every_n_train_steps == 0;
    bool time = false;
    if (!steps && !(c->a.train_time_interval > 0)) return LC_OK;
    if (c->a.train_time_interval > 0) {
        int64_t now = lc__now_ns();
        time = (double)(now - c->last_time_ns) * 1e-9 >= c->a.train_time_interval;
        LC_TRY(lc__from_rank_zero(t->comm, &time, sizeof time));
        if (time) c->last_time_ns = now;
    }
    if (!steps && !time) return LC_OK;
    bool found = true;
    if (ranks_by_metric(c)) LC_TRY(find_metric(t, c->monitor, &found, &value));
    bool missing = !found;
    /* Lightning counts batches before the first step as step 0, which is a multiple of every n: a checkpoint saved
     * after validations is therefore also saved after the first validation. */
    if (skip(c, t)) {
        c->deferred |= missing && t->input->enable_validation && t->global_step == 0 && !at_train_epoch_end(c, t);
        return LC_OK;
    }
    if (ranks_by_metric(c) && t->input->enable_validation &&
        (missing || (lc__validation_due(t) && waits_for_validation(c, t)))) {
        c->deferred = true;
        return LC_OK;
    }
    return trigger(c, t);
}

static lc_status mc_epoch_end(void *self, lc_trainer *t)
{
    model_checkpoint *c = self;
    double value;
    if (skip(c, t) || !at_train_epoch_end(c, t)) return LC_OK;
    bool deferred = c->deferred, found = true;
    c->deferred = false;
    if (deferred) LC_TRY(find_metric(t, c->monitor, &found, &value));
    if (!found) return missing_key(c, t);
    return epoch_due(c, t) ? trigger(c, t) : LC_OK;
}

static lc_status mc_validation_end(void *self, lc_trainer *t)
{
    model_checkpoint *c = self;
    bool deferred = c->deferred, found = true;
    double value;
    if (skip(c, t)) return LC_OK;
    /* A metric that is missing now may be logged at the end of the epoch. */
    if (deferred && at_train_epoch_end(c, t)) LC_TRY(find_metric(t, c->monitor, &found, &value));
    if (!found) return LC_OK;
    c->deferred = false;
    if (!deferred && (at_train_epoch_end(c, t) || !epoch_due(c, t))) return LC_OK;
    return trigger(c, t);
}

static lc_status mc_train_end(void *self, lc_trainer *t)
{
    model_checkpoint *c = self;
    LC_TRY(lc__settle(t, LC__SETTLE_ALL));
    if (skip(c, t) || t->global_step == 0) return LC_OK;
    c->retries = c->missed != LC__MISSED_NONE; /* the last chance */
    c->again = c->missed == LC__MISSED_BEST && t->current_epoch > 0;
    lc_status s = c->missed == LC__MISSED_BEST ? trigger(c, t) : save_last(c, t);
    c->again = c->retries = false;
    LC_TRY(s);
    return lc__settle(t, LC__SETTLE_ALL);
}

static lc_status mc_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    model_checkpoint *c = self;
    char *path = NULL;
    (void)message;
    if (c->a.save_on_exception) lc__settle_before_the_end(t);
    if (!c->a.save_on_exception || status == LC_ERR_INTERRUPTED || !c->dir || skip(c, t) || t->global_step == 0)
        return LC_OK;
    if (!c->claimed) LC_TRY(lc__mc_claim(t));
    LC_TRY(make_path(c, t, NULL, &path));
    lc_status s = lc__save_checkpoint(t, path, c->a.save_weights_only);
    free(path);
    if (s >= 0) s = link_last(c, t);
    return s < 0 ? s : lc__settle(t, LC__SETTLE_ALL);
}

static const char *mc_key(void *self)
{
    return ((model_checkpoint *)self)->key;
}

static const char *mc_best_path(void *self, double *score)
{
    const model_checkpoint *c = self;
    *score = c->has_best_score ? c->best_score : LC_NOT_GIVEN;
    return c->best_path;
}

static const char *mc_dirpath(void *self)
{
    const model_checkpoint *c = self;
    return c->dir ? c->dir : c->dirpath;
}

static void mc_release(void *self)
{
    model_checkpoint *c = self;
    lc__mc_release(c);
    lc__mc_free_memory(c);
    free(c->dirpath), free(c->filename), free(c->monitor), free(c->mode), free(c->dir), free(c->key);
}

const lc_callback_ops lc__model_checkpoint_ops = {
    LC_CALLBACK_OPS_INIT("ModelCheckpoint"),
    .no_vote = true,
    .monitors = true,
    .saves_checkpoints = true,
    .setup = mc_setup,
    .teardown = mc_teardown,
    .on_train_batch_end = mc_batch_end,
    .on_validation_end = mc_validation_end,
    .on_train_epoch_end = mc_epoch_end,
    .on_train_end = mc_train_end,
    .on_exception = mc_exception,
    .save_state = lc__mc_save,
    .load_state = lc__mc_load,
    .state_key = mc_key,
    .best_path = mc_best_path,
    .dirpath = mc_dirpath,
    .free = lc__owned_free,
};

static lc_status check(const lc_model_checkpoint_args *a, int64_t k)
{
    int triggers = (a->every_n_train_steps > 0) + (a->every_n_epochs > 0) + (a->train_time_interval > 0);
    if ((a->every_n_train_steps < 0 && a->every_n_train_steps != LC_UNSET) ||
        (a->every_n_epochs < 0 && a->every_n_epochs != LC_UNSET) || a->train_time_interval < 0)
        return lc_fail(LC_ERR_CONFIG,
                       "ModelCheckpoint: every_n_train_steps, every_n_epochs and train_time_interval must "
                       "not be negative");
    if (triggers > 1)
        return lc_fail(LC_ERR_CONFIG, "ModelCheckpoint: give at most one of every_n_train_steps, every_n_epochs and "
                                      "train_time_interval");
    if (k < -1)
        return lc_fail(LC_ERR_CONFIG, "ModelCheckpoint: save_top_k is %lld; it must be -1 (all) or more", (long long)k);
    if (!a->monitor && k > 1)
        return lc_fail(LC_ERR_CONFIG,
                       "ModelCheckpoint: save_top_k=%lld needs monitor, the metric that ranks checkpoints; without it "
                       "save_top_k may be -1, 0 or 1",
                       (long long)k);
    if (a->mode && strcmp(a->mode, "min") != 0 && strcmp(a->mode, "max") != 0)
        return lc_fail(LC_ERR_CONFIG, "ModelCheckpoint: mode is \"%.40s\"; it must be min or max", a->mode);
    return a->filename ? lc__checkpoint_name_check(a->filename) : LC_OK;
}

/* Without a trigger, not even one that is 0, every epoch is one. */
static void set_triggers(lc_model_checkpoint_args *a)
{
    bool given = a->every_n_train_steps != LC_UNSET || a->every_n_epochs != LC_UNSET || a->train_time_interval > 0;
    if (a->every_n_train_steps == LC_UNSET) a->every_n_train_steps = 0;
    if (a->every_n_epochs == LC_UNSET) a->every_n_epochs = given ? 0 : 1;
}

lc_status lc_model_checkpoint_new(const lc_model_checkpoint_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_model_checkpoint, given);
    int64_t k = args->save_top_k;
    LC_TRY(check(args, k));
    model_checkpoint *c = lc__owned_new(sizeof *c, mc_release);
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: ModelCheckpoint");
    c->a = *args;
    c->k = k;
    set_triggers(&c->a);
    c->max = args->mode && !strcmp(args->mode, "max");
    lc__str key = {0};
    lc__str_add(&key,
                "ModelCheckpoint{'monitor': %s%s%s, 'mode': '%s', 'every_n_train_steps': %lld, 'every_n_epochs': "
                "%lld, 'train_time_interval': %g}",
                args->monitor ? "'" : "", args->monitor ? args->monitor : "None", args->monitor ? "'" : "",
                c->max ? "max" : "min", (long long)c->a.every_n_train_steps, (long long)c->a.every_n_epochs,
                c->a.train_time_interval);
    c->key = key.s;
    const char *dirpath = args->dirpath ? lc__dir_or_here(args->dirpath) : NULL;
    if (key.failed || !lc__dup(dirpath, &c->dirpath) || !lc__dup(args->filename, &c->filename) ||
        !lc__dup(args->monitor, &c->monitor) || !lc__dup(args->mode, &c->mode)) {
        lc__owned_free(c);
        return lc_fail(LC_ERR_MEMORY, "out of memory: ModelCheckpoint");
    }
    *out = (lc_callback){&lc__model_checkpoint_ops, c};
    return LC_OK;
}

lc_status lc_model_checkpoint_get(const lc_callback *cb, lc_model_checkpoint_info *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!cb || !cb->ops || LC__SLOT(cb->ops, best_path) != mc_best_path)
        return lc_fail(LC_ERR_ARGUMENT, "this callback is not a ModelCheckpoint");
    const model_checkpoint *c = cb->self;
    *out = (lc_model_checkpoint_info){text_or_empty(c->best_path), text_or_empty(c->last_path),
                                      text_or_empty(mc_dirpath(cb->self)), c->has_best_score, c->best_score};
    return LC_OK;
}
