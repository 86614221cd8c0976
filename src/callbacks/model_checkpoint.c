/* SPDX-License-Identifier: Apache-2.0 */
/* ModelCheckpoint: saves the best, the newest, or every so often.
 *
 * Files are written by a thread from a snapshot; a file that makes room is removed when the new one is safe. Unlike
 * Lightning's, `last` is the newest state at every trigger, and a checkpoint of a batch after which a validation is due
 * is saved behind it, with its values (unless what is monitored is logged in training). */
#include "callbacks/callbacks.h"
#include "core/ranks.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct kept {
    char *path;
    double score;
} kept;

typedef struct model_checkpoint {
    lc_model_checkpoint_args a;
    char *dirpath, *filename, *monitor, *mode;
    char *dir; /* where it saves, known from setup on */
    char *key;
    bool max;
    int64_t k;
    kept *best; /* the kept ones, in the order they came */
    int n_best, cap_best;
    char *best_path, *kth_path, *last_path;
    double best_score, kth_value, current;
    bool has_best_score, has_current;
    int64_t last_step_saved;
    int64_t last_time_ns;
    bool deferred;
} model_checkpoint;

static lc_status set_text(char **to, const char *from)
{
    char *copy;
    LC_TRY(lc__copy_text(from, &copy));
    free(*to);
    *to = copy;
    return LC_OK;
}

static bool better(const model_checkpoint *c, double a, double b)
{
    return c->max ? a > b : a < b;
}

static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

/* ---- where and when ---- */

static lc_status mc_setup(void *self, lc_trainer *t, lc_stage stage)
{
    model_checkpoint *c = self;
    if (stage != LC_STAGE_FIT) return LC_OK;
    free(c->dir);
    c->dir = NULL;
    c->last_time_ns = lc__now_ns();
    if (c->dirpath) return lc__copy_text(c->dirpath, &c->dir);
    lc__str dir = {0};
    lc_status s = lc__checkpoint_dir(t, &dir);
    if (s >= 0) s = lc__copy_text(dir.s, &c->dir);
    lc__str_free(&dir);
    return s;
}

static bool skip(const model_checkpoint *c, const lc_trainer *t)
{
    return t->opt.fast_dev_run || t->stage != LC_STAGE_FIT || t->sanity || c->last_step_saved == t->global_step;
}

static bool at_train_epoch_end(const model_checkpoint *c, const lc_trainer *t)
{
    if (c->a.save_on_train_epoch_end) return c->a.save_on_train_epoch_end == LC_ON;
    lc_duration v = t->opt.val_check_interval;
    if (v.unit == LC_UNIT_SECONDS || t->opt.check_val_every_n_epoch != 1) return false;
    if (!t->enable_validation) return true;
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

/* Also by what another ModelCheckpoint is still having written. */
static bool taken(const lc_trainer *t, const char *path)
{
    struct stat st;
    for (int i = 0; i < lc_trainer_callback_count(t); i++) {
        lc_callback cb = lc_trainer_callback(t, i);
        if (cb.ops->setup == mc_setup && holds(cb.self, path)) return true;
    }
    return lstat(path, &st) == 0;
}

/* DIR/NAME.ckpt, with -v1, -v2, ... where that is taken (unless what has it will be removed). */
static lc_status make_path(model_checkpoint *c, lc_trainer *t, const char *removed, char **out)
{
    lc__str name = {0}, path = {0};
    lc_status s = lc__checkpoint_name(t, c->filename ? c->filename : "{epoch}-{step}",
                                      c->a.auto_insert_metric_name != LC_OFF, &name);
    for (int version = 0; s >= 0; version++) {
        lc__str_clear(&path);
        lc__str_add(&path, "%s/%s", c->dir, name.s ? name.s : "");
        if (version) lc__str_add(&path, "-v%d", version);
        lc__str_add(&path, ".ckpt");
        if (path.failed) {
            s = lc_fail(LC_ERR_MEMORY, "out of memory: the path of a checkpoint");
            break;
        }
        if (c->a.enable_version_counter == LC_OFF || !taken(t, path.s) || (removed && !strcmp(removed, path.s))) {
            s = lc__copy_text(path.s, out);
            break;
        }
    }
    lc__str_free(&name);
    lc__str_free(&path);
    if (s >= 0) s = lc__text_from_rank_zero(t, out); /* what is taken may look different from there */
    if (s < 0) free(*out), *out = NULL;
    return s;
}

static bool may_remove(const model_checkpoint *c, const lc_trainer *t, const char *old, const char *new_path)
{
    size_t n = strlen(c->dir);
    if (!strcmp(old, new_path)) return false;
    if (strncmp(old, c->dir, n) != 0 || old[n] != '/') return false; /* never outside of our directory */
    char real[PATH_MAX];
    return !(t->ckpt_path && realpath(old, real) && !strcmp(real, t->ckpt_path)); /* nor what this run continues */
}

static lc_status save(model_checkpoint *c, lc_trainer *t, const char *path)
{
    c->last_step_saved = t->global_step;
    LC_TRY(lc__save_checkpoint(t, path, c->a.save_weights_only, c->a.wait));
    lc__note_checkpoint(t, path, c->has_current ? c->current : 0, c->has_current);
    if (c->a.verbose)
        lc_trainer_message(t, "info", "epoch %lld, step %lld: saved %s", (long long)t->current_epoch,
                           (long long)t->global_step, path);
    return LC_OK;
}

/* Files are rank 0's. */
static lc_status then_remove(lc_trainer *t, const char *path)
{
    return lc__is_rank_zero(t) ? lc_ckpt_then_remove(t->writer, path) : LC_OK;
}

static lc_status then_link(lc_trainer *t, const char *path)
{
    return lc__is_rank_zero(t) ? lc_ckpt_then_link(t->writer, path) : LC_OK;
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

static lc_status keep_best(model_checkpoint *c, lc_trainer *t, double score)
{
    char *removed = NULL, *path = NULL;
    lc_status s;
    if (isnan(score)) score = c->max ? -INFINITY : INFINITY;
    if (c->k > 0 && c->n_best == c->k) {
        int w = worst(c);
        removed = c->best[w].path;
        drop_best(c, w);
    }
    LC_TRY_GOTO(s, done, make_path(c, t, removed, &path));
    for (int i = c->n_best - 1; i >= 0; i--) /* without a version counter the new one may take the place of another */
        if (!strcmp(c->best[i].path, path)) {
            free(c->best[i].path);
            drop_best(c, i);
        }
    if (c->n_best == c->cap_best) {
        int cap = c->cap_best ? 2 * c->cap_best : 8;
        kept *best = realloc(c->best, (size_t)cap * sizeof *best);
        if (!best) {
            s = lc_fail(LC_ERR_MEMORY, "out of memory: the list of checkpoints");
            goto done;
        }
        c->best = best;
        c->cap_best = cap;
    }
    c->current = score;
    c->has_current = true;
    const char *at = path;
    c->best[c->n_best++] = (kept){path, score};
    path = NULL;
    int b = 0;
    for (int i = 1; i < c->n_best; i++)
        if (better(c, c->best[i].score, c->best[b].score)) b = i;
    LC_TRY_GOTO(s, done, set_text(&c->best_path, c->best[b].path));
    c->best_score = c->best[b].score;
    c->has_best_score = true;
    if (c->n_best == c->k) {
        int w = worst(c);
        LC_TRY_GOTO(s, done, set_text(&c->kth_path, c->best[w].path));
        c->kth_value = c->best[w].score;
    }
    s = save(c, t, at);
    if (s >= 0 && removed && may_remove(c, t, removed, at)) s = then_remove(t, removed);
done:
    free(removed);
    free(path);
    return s;
}

static lc_status keep_newest(model_checkpoint *c, lc_trainer *t)
{
    char *path = NULL, *previous = c->best_path;
    LC_TRY(make_path(c, t, previous, &path));
    c->best_path = path;
    lc_status s = save(c, t, path);
    if (s >= 0 && c->k == 1 && previous && may_remove(c, t, previous, path)) s = then_remove(t, previous);
    free(previous);
    return s;
}

static lc_status missing_key(model_checkpoint *c, lc_trainer *t)
{
    char known[400] = "";
    size_t n = 0;
    const lc__metric_map *m = &t->metrics[LC_CALLBACK_METRICS];
    for (int i = 0; i < m->n && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "'%s', ", m->v[i].name);
    lc_status s = lc_fail(LC_ERR_CONFIG,
                          "`ModelCheckpoint(monitor='%s')` could not find the monitored key in the returned metrics: "
                          "[%s'epoch', 'step']. HINT: Did you call lc_log(self, \"%s\", value)?",
                          c->monitor, known, c->monitor);
    if (t->val_has_run) return s;
    lc_trainer_message(t, "warning", "%s", lc_error_message());
    return LC_OK;
}

/* Rank 0's value, so that all ranks decide alike. *found: whether there is one. */
static lc_status find_metric(lc_trainer *t, const char *name, bool *found, double *out)
{
    LC_TRY(lc__metric_from_rank_zero(t, name, found, out));
    if (*found) return LC_OK;
    *found = !strcmp(name, "epoch") || !strcmp(name, "step");
    if (*found) *out = (double)(*name == 'e' ? t->current_epoch : t->global_step);
    return LC_OK;
}

static lc_status save_topk(model_checkpoint *c, lc_trainer *t)
{
    double score;
    bool found;
    if (c->k == 0) return LC_OK;
    if (!c->monitor) return keep_newest(c, t);
    LC_TRY(find_metric(t, c->monitor, &found, &score));
    if (!found) return missing_key(c, t);
    if (c->k != -1 && c->n_best >= c->k && !better(c, score, c->best[worst(c)].score)) return LC_OK;
    return keep_best(c, t, score);
}

/* `saved`: the checkpoint that was saved just now is the last one, and gets a link. */
static lc_status save_last(model_checkpoint *c, lc_trainer *t, bool saved)
{
    if (c->a.save_last != LC_ON) return LC_OK;
    lc__str path = {0};
    lc_status s = LC_OK;
    /* A last.ckpt that is not ours stays. */
    for (int version = 0; !path.failed; version++) {
        lc__str_clear(&path);
        lc__str_add(&path, "%s/last", c->dir);
        if (version) lc__str_add(&path, "-v%d", version);
        lc__str_add(&path, ".ckpt");
        if (path.failed || c->a.enable_version_counter == LC_OFF || !taken(t, path.s) ||
            (c->last_path && !strcmp(path.s, c->last_path)))
            break;
    }
    if (path.failed)
        s = lc_fail(LC_ERR_MEMORY, "out of memory: the path of a checkpoint");
    else {
        s = set_text(&c->last_path, path.s);
        if (s >= 0) s = lc__text_from_rank_zero(t, &c->last_path);
        if (s >= 0) s = saved ? then_link(t, c->last_path) : save(c, t, c->last_path);
    }
    lc__str_free(&path);
    return s;
}

/* One trigger: the best ones, then `last`. */
static lc_status trigger(model_checkpoint *c, lc_trainer *t)
{
    int64_t before = c->last_step_saved;
    LC_TRY(save_topk(c, t));
    bool saved = c->last_step_saved != before;
    return save_last(c, t, saved);
}

/* Whether validation, if one follows this batch, may change the monitored value. */
static bool waits_for_validation(const model_checkpoint *c, const lc_trainer *t)
{
    const lc__results *r = &t->train_results;
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
        LC_TRY(lc__from_rank_zero(t, &time, sizeof time));
        if (time) c->last_time_ns = now;
    }
    if (!steps && !time) return LC_OK;
    bool found = true;
    if (c->monitor) LC_TRY(find_metric(t, c->monitor, &found, &value));
    bool missing = !found;
    /* Lightning takes the batches before the first step for step 0, which is a multiple of every n: what is saved
     * behind validations is saved behind the first one, too. */
    if (skip(c, t)) {
        c->deferred |= missing && t->enable_validation && t->global_step == 0 && !at_train_epoch_end(c, t);
        return LC_OK;
    }
    if (c->monitor && t->enable_validation && (missing || (lc__validation_due(t) && waits_for_validation(c, t)))) {
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
    /* What is missing now may be logged for the whole epoch. */
    if (deferred && at_train_epoch_end(c, t)) LC_TRY(find_metric(t, c->monitor, &found, &value));
    if (!found) return LC_OK;
    c->deferred = false;
    if (!deferred && (at_train_epoch_end(c, t) || !epoch_due(c, t))) return LC_OK;
    return trigger(c, t);
}

static lc_status mc_train_end(void *self, lc_trainer *t)
{
    model_checkpoint *c = self;
    if (c->a.save_last == LC_ON && !skip(c, t) && t->global_step > 0) LC_TRY(save_last(c, t, false));
    return lc__settle(t, true);
}

static lc_status mc_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    model_checkpoint *c = self;
    char *path = NULL;
    (void)message;
    if (!c->a.save_on_exception || status == LC_ERR_INTERRUPTED || !c->dir || skip(c, t) || t->global_step == 0)
        return LC_OK;
    LC_TRY(make_path(c, t, NULL, &path));
    lc_status s = lc__save_checkpoint(t, path, c->a.save_weights_only, true);
    free(path);
    return s;
}

/* ---- state ---- */

static const char *mc_key(void *self)
{
    return ((model_checkpoint *)self)->key;
}

static lc_status mc_save(void *self, lc_trainer *t, lc_state *out)
{
    model_checkpoint *c = self;
    lc_state *list, *o;
    (void)t;
    LC_TRY(lc_state_set_text(out, "monitor", c->monitor));
    LC_TRY(lc_state_set_text(out, "dirpath", c->dir));
    LC_TRY(lc_state_set_text(out, "best_model_path", c->best_path));
    LC_TRY(lc_state_set_text(out, "kth_best_model_path", c->kth_path));
    LC_TRY(lc_state_set_text(out, "last_model_path", c->last_path));
    LC_TRY(lc_state_set_bool(out, "has_best_model_score", c->has_best_score));
    LC_TRY(lc_state_set_double(out, "best_model_score", c->best_score));
    LC_TRY(lc_state_set_bool(out, "has_current_score", c->has_current));
    LC_TRY(lc_state_set_double(out, "current_score", c->current));
    LC_TRY(lc_state_set_double(out, "kth_value", c->kth_value));
    LC_TRY(lc_state_set_int(out, "last_step_saved", c->last_step_saved));
    LC_TRY(lc_state_set_bool(out, "deferred", c->deferred));
    LC_TRY(lc_state_set_array(out, "best_k_models", &list));
    for (int i = 0; i < c->n_best; i++) {
        LC_TRY(lc_state_set_object(list, NULL, &o));
        LC_TRY(lc_state_set_text(o, "path", c->best[i].path));
        LC_TRY(lc_state_set_double(o, "score", c->best[i].score));
    }
    return LC_OK;
}

static lc_status get_path(const lc_state *in, const char *key, char **out)
{
    const char *text;
    if (lc_state_kind_of(lc_state_find(in, key)) == LC_STATE_NULL) return LC_OK;
    LC_TRY(lc_state_get_text(in, key, &text));
    return set_text(out, text);
}

/* What rank 0 sees: files are its own, and all ranks must remember the same. */
static lc_status is_there(lc_trainer *t, const char *path, bool *out)
{
    struct stat st;
    *out = path && stat(path, &st) == 0;
    return lc__from_rank_zero(t, out, sizeof *out);
}

static lc_status mc_load(void *self, lc_trainer *t, const lc_state *in)
{
    model_checkpoint *c = self;
    char *dir = NULL;
    const lc_state *list;
    LC_TRY(get_path(in, "dirpath", &dir));
    bool same = dir && c->dir && !strcmp(dir, c->dir);
    free(dir);
    LC_TRY(lc__from_rank_zero(t, &same, sizeof same));
    LC_TRY(get_path(in, "best_model_path", &c->best_path));
    LC_TRY(lc_state_get_bool(in, "has_best_model_score", &c->has_best_score));
    LC_TRY(lc_state_get_double(in, "best_model_score", &c->best_score));
    LC_TRY(lc_state_get_int(in, "last_step_saved", &c->last_step_saved));
    LC_TRY(lc_state_get_bool(in, "deferred", &c->deferred));
    if (!same) {
        lc_trainer_message(t, "info",
                           "checkpoints go to another directory than before (%s); of the old ones only the "
                           "best is remembered",
                           text_or_empty(c->dir));
        return LC_OK;
    }
    LC_TRY(get_path(in, "kth_best_model_path", &c->kth_path));
    LC_TRY(get_path(in, "last_model_path", &c->last_path));
    LC_TRY(lc_state_get_bool(in, "has_current_score", &c->has_current));
    LC_TRY(lc_state_get_double(in, "current_score", &c->current));
    LC_TRY(lc_state_get_double(in, "kth_value", &c->kth_value));
    LC_TRY(lc_state_get_array(in, "best_k_models", &list));
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        const lc_state *o = lc_state_at(list, i);
        bool there;
        kept item = {0};
        LC_TRY(get_path(o, "path", &item.path));
        lc_status s = is_there(t, item.path, &there);
        if (s < 0 || !there || lc_state_get_double(o, "score", &item.score) < 0) {
            free(item.path); /* it has gone since */
            LC_TRY(s);
            continue;
        }
        kept *best = realloc(c->best, (size_t)(c->n_best + 1) * sizeof *best);
        if (!best) {
            free(item.path);
            return lc_fail(LC_ERR_MEMORY, "out of memory: the list of checkpoints");
        }
        c->best = best;
        c->cap_best = c->n_best + 1;
        c->best[c->n_best++] = item;
    }
    return LC_OK;
}

static void mc_free(void *self)
{
    model_checkpoint *c = self;
    for (int i = 0; i < c->n_best; i++) free(c->best[i].path);
    free(c->best);
    free(c->dirpath), free(c->filename), free(c->monitor), free(c->mode), free(c->dir), free(c->key);
    free(c->best_path), free(c->kth_path), free(c->last_path);
    free(c);
}

const lc_callback_ops lc__model_checkpoint_ops = {
    LC_CALLBACK_OPS_INIT("ModelCheckpoint"),
    .no_vote = true,
    .monitors = true,
    .saves_checkpoints = true,
    .setup = mc_setup,
    .on_train_batch_end = mc_batch_end,
    .on_validation_end = mc_validation_end,
    .on_train_epoch_end = mc_epoch_end,
    .on_train_end = mc_train_end,
    .on_exception = mc_exception,
    .save_state = mc_save,
    .load_state = mc_load,
    .state_key = mc_key,
    .free = mc_free,
};

static lc_status check(const lc_model_checkpoint_args *a, int64_t k)
{
    int triggers = (a->every_n_train_steps > 0) + (a->every_n_epochs > 0) + (a->train_time_interval > 0);
    if (a->every_n_train_steps < 0 || a->every_n_epochs < 0 || a->train_time_interval < 0)
        return lc_fail(LC_ERR_CONFIG,
                       "ModelCheckpoint: every_n_train_steps, every_n_epochs and train_time_interval must "
                       "not be negative");
    if (triggers > 1)
        return lc_fail(LC_ERR_CONFIG, "ModelCheckpoint: give at most one of every_n_train_steps, every_n_epochs and "
                                      "train_time_interval");
    if (k < -1)
        return lc_fail(LC_ERR_CONFIG, "ModelCheckpoint: save_top_k is %lld; it must be -1 (all) or more", (long long)k);
    if (!a->monitor && k > 1)
        return lc_fail(
            LC_ERR_CONFIG,
            "ModelCheckpoint: save_top_k=%lld needs monitor, the metric that says which are best; without it "
            "save_top_k may be -1, 0 or 1",
            (long long)k);
    if (a->mode && strcmp(a->mode, "min") != 0 && strcmp(a->mode, "max") != 0)
        return lc_fail(LC_ERR_CONFIG, "ModelCheckpoint: mode is \"%.40s\"; it must be min or max", a->mode);
    return LC_OK;
}

lc_status lc_model_checkpoint_new(const lc_model_checkpoint_args *args, lc_callback *out)
{
    static const lc_model_checkpoint_args defaults = {0};
    if (!args) args = &defaults;
    int64_t k = args->save_top_k == LC_SAVE_NONE ? 0 : args->save_top_k == 0 ? 1 : args->save_top_k;
    LC_TRY(check(args, k));
    model_checkpoint *c = calloc(1, sizeof *c);
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: ModelCheckpoint");
    c->a = *args;
    c->k = k;
    if (!c->a.every_n_train_steps && !c->a.every_n_epochs && !(c->a.train_time_interval > 0)) c->a.every_n_epochs = 1;
    c->max = args->mode && !strcmp(args->mode, "max");
    lc__str key = {0};
    lc__str_add(&key,
                "ModelCheckpoint{'monitor': %s%s%s, 'mode': '%s', 'every_n_train_steps': %lld, 'every_n_epochs': "
                "%lld, 'train_time_interval': %g}",
                args->monitor ? "'" : "", args->monitor ? args->monitor : "None", args->monitor ? "'" : "",
                c->max ? "max" : "min", (long long)c->a.every_n_train_steps, (long long)c->a.every_n_epochs,
                c->a.train_time_interval);
    c->key = key.s;
    if (key.failed || !lc__dup(args->dirpath, &c->dirpath) || !lc__dup(args->filename, &c->filename) ||
        !lc__dup(args->monitor, &c->monitor) || !lc__dup(args->mode, &c->mode)) {
        mc_free(c);
        return lc_fail(LC_ERR_MEMORY, "out of memory: ModelCheckpoint");
    }
    *out = (lc_callback){&lc__model_checkpoint_ops, c};
    return LC_OK;
}

lc_status lc_model_checkpoint_get(const lc_callback *cb, lc_model_checkpoint_info *out)
{
    if (!cb || !cb->ops || strcmp(cb->ops->name, lc__model_checkpoint_ops.name) != 0 || cb->ops->free != mc_free)
        return lc_fail(LC_ERR_ARGUMENT, "this callback is no ModelCheckpoint");
    const model_checkpoint *c = cb->self;
    *out = (lc_model_checkpoint_info){text_or_empty(c->best_path), text_or_empty(c->last_path),
                                      text_or_empty(c->dir ? c->dir : c->dirpath), c->has_best_score, c->best_score};
    return LC_OK;
}
