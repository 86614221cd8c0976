/* SPDX-License-Identifier: Apache-2.0 */
/* A ModelCheckpoint's list of checkpoints across runs, and which of them are its own: those whose manifests name its
 * training, whatever the state of a restored checkpoint lists. */
#include "core/resume/resume.h"
#include "core/logging/logging.h"
#include "callbacks/model_checkpoint.h"
#include "base/grow.h"
#include "core/checkpoint/removal.h"
#include "comm/agree.h"
#include "base/state_count.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool lc__mc_is_below(const model_checkpoint *c, const char *path)
{
    size_t n = strlen(c->dir);
    return !strncmp(path, c->dir, n) && path[n] == '/';
}

static bool is_of(const char *path, const char *training)
{
    char of[48];
    return lc__ckpt_training_of(path, of) && !strcmp(of, training);
}

bool lc__may_reuse(const lc_trainer *t, const char *path)
{
    struct stat st;
    return lstat(path, &st) < 0 || (t->resume->training && is_of(path, t->resume->training));
}

static bool may_give_way(const lc_trainer *t, const char *path, bool is_link)
{
    struct stat st;
    if (is_of(path, t->resume->training)) return true;
    return is_link && (stat(path, &st) < 0 || is_of(path, ""));
}

/* Meanwhile the writer's thread may remove the file or move a link: then look again. */
bool lc__may_become_last(const lc_trainer *t, const char *path, bool *there)
{
    struct stat seen, now;
    while ((*there = lstat(path, &seen) == 0) && t->resume->training) {
        bool is_link = S_ISLNK(seen.st_mode);
        if ((is_link || S_ISDIR(seen.st_mode)) && may_give_way(t, path, is_link)) return true;
        bool same = lstat(path, &now) == 0 && now.st_ino == seen.st_ino && now.st_mode == seen.st_mode &&
                    now.st_dev == seen.st_dev;
        if (same) return false;
    }
    return false;
}

/* ---- the training's id ---- */

void lc__mc_release(model_checkpoint *c)
{
    lc__taken_release(c->training);
    c->training = NULL;
    c->claimed = false;
}

void lc__mc_clean_claim(const model_checkpoint *c, const lc_trainer *t)
{
    char *name = NULL;
    if (!c->dir || !t->resume->training || !lc__is_rank_zero(t)) return;
    int dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && lc__format(&name, LC__TAKEN "training-%s", t->resume->training) >= 0) lc__taken_clean(dir, name);
    if (dir >= 0) close(dir);
    free(name);
}

static model_checkpoint *checkpoint_at(const lc_trainer *t, int i)
{
    lc_callback cb = lc_trainer_callback(t, i);
    return cb.ops->best_path == lc__model_checkpoint_ops.best_path ? cb.self : NULL;
}

/* *taken: another process holds the id in that directory. Callbacks of this run with the same directory share one
 * reservation. */
static lc_status claim(lc_trainer *t, model_checkpoint *c, bool *taken)
{
    char *path = NULL;
    *taken = false;
    for (int i = 0; i < lc_trainer_callback_count(t); i++) {
        const model_checkpoint *other = checkpoint_at(t, i);
        if (other && other->training && !strcmp(other->dir, c->dir)) return LC_OK;
    }
    LC_TRY(lc__format(&path, "%s/training-%s", c->dir, t->resume->training));
    lc_status s = lc__take_name(path, taken, &c->training);
    free(path);
    return s;
}

static lc_status claim_all(lc_trainer *t, bool *taken)
{
    *taken = false;
    for (int i = 0; i < lc_trainer_callback_count(t) && !*taken; i++) {
        model_checkpoint *c = checkpoint_at(t, i);
        if (c && c->dir) LC_TRY(claim(t, c, taken));
    }
    return LC_OK;
}

/* On rank 0. */
static lc_status claim_or_begin(lc_trainer *t)
{
    bool taken;
    LC_TRY(claim_all(t, &taken));
    if (!taken) return LC_OK;
    for (int i = 0; i < lc_trainer_callback_count(t); i++)
        if (checkpoint_at(t, i)) lc__mc_release(checkpoint_at(t, i));
    char *id;
    LC_TRY(lc__new_run_id(&id));
    free(t->resume->training);
    t->resume->training = id;
    lc_trainer_message(t, LC_INFO,
                       "another process continues the same training in the same directory: from now on this run counts "
                       "as a separate training and does not remove the checkpoints they share");
    return claim_all(t, &taken);
}

lc_status lc__mc_claim(lc_trainer *t)
{
    if (t->resume->training) {
        LC_TRY(lc__ranks_agree(t->comm, lc__is_rank_zero(t) ? claim_or_begin(t) : LC_OK));
        LC_TRY(lc__ranks_text(t->comm, &t->resume->training));
    }
    for (int i = 0; i < lc_trainer_callback_count(t); i++)
        if (checkpoint_at(t, i)) checkpoint_at(t, i)->claimed = true;
    return LC_OK;
}

/* ---- saved state ---- */

lc_status lc__mc_save(void *self, lc_trainer *t, lc_state *out)
{
    model_checkpoint *c = self;
    lc_state *list, *o;
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
        if (*c->best[i].training && t->resume->training && strcmp(c->best[i].training, t->resume->training) != 0)
            LC_TRY(lc_state_set_text(o, "training", c->best[i].training));
    }
    return LC_OK;
}

static lc_status get_path(const lc_state *in, const char *key, char **out)
{
    const char *text;
    if (lc_state_kind_of(lc_state_find(in, key)) == LC_STATE_NULL) return LC_OK;
    LC_TRY(lc_state_get_text(in, key, &text));
    return lc__set_text(out, text);
}

/* Whether `path` is a checkpoint of the continued training below our directory: names read from a checkpoint are looked
 * up there, without following links. Rank 0 looks, as it owns the files, and all ranks must agree. `training` "": the
 * checkpoint was saved before trainings had ids; it counts, and is never removed. */
static lc_status is_ours(const model_checkpoint *c, lc_trainer *t, const char *path, const char *training, bool *out)
{
    int dir = -1;
    const char *name;
    *out = false;
    if (lc__is_rank_zero(t) && path && lc__mc_is_below(c, path) &&
        lc__open_parent(path, strlen(c->dir), &dir, &name) >= 0) {
        struct stat st;
        *out = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && is_of(path, training);
        close(dir);
    }
    return lc__from_rank_zero(t->comm, out, sizeof *out);
}

static void forget(model_checkpoint *c)
{
    while (c->n_best) free(c->best[--c->n_best].path);
}

static lc_status load_kept(model_checkpoint *c, lc_trainer *t, const lc_state *o, const char *training, int *foreign)
{
    lc__kept item = {0};
    bool ours = false;
    struct stat st;
    if (lc_state_get_double(o, "score", &item.score) < 0) return LC_OK;
    lc_status s = get_path(o, "path", &item.path);
    if (s >= 0 && lc_state_find(o, "training")) s = lc_state_get_text(o, "training", &training);
    if (s >= 0) s = is_ours(c, t, item.path, training, &ours);
    snprintf(item.training, sizeof item.training, "%s", training);
    if (s >= 0 && ours) s = lc__grow(&c->best, &c->cap_best, c->n_best, 1, "the list of checkpoints");
    if (s >= 0 && ours) {
        c->best[c->n_best++] = item;
        return s;
    }
    *foreign += s >= 0 && item.path && lstat(item.path, &st) == 0; /* otherwise it no longer exists */
    free(item.path);
    return s;
}

lc_status lc__mc_load(void *self, lc_trainer *t, const lc_state *in)
{
    model_checkpoint *c = self;
    char *dir = NULL;
    const lc_state *list;
    LC_TRY(get_path(in, "dirpath", &dir));
    bool same = dir && c->dir && !strcmp(dir, c->dir);
    free(dir);
    LC_TRY(lc__from_rank_zero(t->comm, &same, sizeof same));
    LC_TRY(get_path(in, "best_model_path", &c->best_path));
    LC_TRY(lc__state_get_count(in, "last_step_saved", 0, &c->last_step_saved));
    LC_TRY(lc_state_get_bool(in, "deferred", &c->deferred));
    if (!same) {
        /* Each run has its own directory, unless the program names one. */
        if (c->dirpath)
            lc_trainer_message(t, LC_INFO,
                               "checkpoints go to a different directory than before (%s); of the old ones only the "
                               "path of the best is kept",
                               c->dir ? c->dir : "");
        return LC_OK;
    }
    LC_TRY(lc_state_get_bool(in, "has_best_model_score", &c->has_best_score));
    LC_TRY(lc_state_get_double(in, "best_model_score", &c->best_score));
    LC_TRY(get_path(in, "kth_best_model_path", &c->kth_path));
    const char *training = t->resume->restoring_from ? lc__checkpoint_origin(t->resume->restoring_from)->training : "";
    LC_TRY(get_path(in, "last_model_path", &c->last_path));
    c->has_last = false; /* checked again at the next save */
    LC_TRY(lc_state_get_bool(in, "has_current_score", &c->has_current));
    LC_TRY(lc_state_get_double(in, "current_score", &c->current));
    LC_TRY(lc_state_get_double(in, "kth_value", &c->kth_value));
    LC_TRY(lc_state_get_array(in, "best_k_models", &list));
    forget(c);
    int foreign = 0;
    for (int64_t i = 0; i < lc_state_length(list); i++)
        LC_TRY(load_kept(c, t, lc_state_at(list, i), training, &foreign));
    if (foreign)
        lc_trainer_message(t, LC_WARNING,
                           "ModelCheckpoint: %d of the checkpoints that %s names in %s were saved by another training; "
                           "they are not counted and not removed",
                           foreign, t->ckpt_path, c->dir);
    if (c->n_best && !*training)
        lc_trainer_message(t, LC_INFO,
                           "the checkpoints in %s were saved by a version of lightc that did not record their "
                           "training; they are counted but not removed",
                           c->dir);
    return LC_OK;
}
