/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_path=last: the newest checkpoint of any run below the root directory from which training can continue.
 * ckpt_path=best in a program that has saved nothing itself: the best one of that run, as recorded in its newest
 * checkpoint. Restarted ranks (LIGHTC_RESTARTED) continue from the newest checkpoint that this fit of this run has
 * written, since other runs, and other fits of the program, may write below the same directory. */
#include "core/resume/resume.h"
#include "base/io.h"
#include "core/logging/logging.h"
#include "core/checkpoint/find_newest.h"
#include "core/checkpoint/removal.h"
#include "core/hooks/trainer_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

lc__ckpt_origin lc__origin(const lc_trainer *t)
{
    lc__ckpt_origin origin = {.fit = t->resume->fit_number};
    const char *run = getenv("LIGHTC_RUN");
    size_t n = 0;
    while (run && isalnum((unsigned char)run[n])) n++;
    if (run && !run[n] && n < sizeof origin.run) memcpy(origin.run, run, n);
    if (t->resume->training) snprintf(origin.training, sizeof origin.training, "%s", t->resume->training);
    return origin;
}

/* Adds the checkpoints of a directory. One that is missing or cannot be read has none, but others may. */
static lc_status look(lc__ckpt_list *list, const char *dir, const lc__ckpt_origin *origin)
{
    if (*dir) (void)!lc__ckpt_restore_names(dir);
    lc_status s = *dir ? lc__ckpt_list_add(list, dir, origin) : LC_OK;
    return s == LC_ERR_MEMORY ? s : LC_OK;
}

static lc_status look_below(const lc_trainer *t, lc__ckpt_list *list, const lc__ckpt_origin *origin)
{
    const char *name = t->opt.run_name ? t->opt.run_name : LC__RUN_NAME;
    char dir[PATH_MAX];
    lc_status status = LC_OK;
    snprintf(dir, sizeof dir, "%s/checkpoints", t->root_dir);
    LC_TRY(look(list, dir, origin));
    snprintf(dir, sizeof dir, "%s/%s", t->root_dir, name);
    DIR *d = opendir(dir);
    for (struct dirent *e; status >= 0 && d && (e = readdir(d));) {
        if (strncmp(e->d_name, "version_", 8) != 0) continue;
        int n = snprintf(dir, sizeof dir, "%s/%s/%s/checkpoints", t->root_dir, name, e->d_name);
        if (n > 0 && (size_t)n < sizeof dir) status = look(list, dir, origin);
    }
    if (d) closedir(d);
    return status;
}

/* Looks in all directories in which runs of this program save checkpoints. */
static lc_status look_everywhere(const lc_trainer *t, lc__ckpt_list *list, const lc__ckpt_origin *origin)
{
    for (int i = 0; i < t->n_callbacks; i++) {
        const lc__callback *cb = t->callbacks[i];
        const char *dir = cb->ops.dirpath ? cb->ops.dirpath(cb->self) : NULL;
        if (dir) LC_TRY(look(list, dir, origin));
    }
    return t->opt.dirpath ? look(list, lc__dir_or_here(t->opt.dirpath), origin) : look_below(t, list, origin);
}

static lc_status none(const lc_trainer *t)
{
    const char *name = t->opt.run_name ? t->opt.run_name : LC__RUN_NAME;
    if (t->opt.dirpath)
        return lc_fail(LC_ERR_NOT_FOUND, "there is no checkpoint below %s", lc__dir_or_here(t->opt.dirpath));
    return lc_fail(LC_ERR_NOT_FOUND, "there is no checkpoint below %s/%s", t->root_dir, name);
}

static lc_status find(const lc_trainer *t, const lc__ckpt_origin *origin, char *path, size_t size)
{
    lc__ckpt_list list = {0};
    lc_status status = look_everywhere(t, &list, origin);
    const char *found = status >= 0 ? lc__ckpt_list_newest(&list, t->stage == LC_STAGE_FIT) : NULL;
    if (status >= 0 && !found)
        status = none(t);
    else if (found && strlen(found) >= size)
        status = lc_fail(LC_ERR_IO, "the path %.100s... is too long", found);
    else if (found)
        memcpy(path, found, strlen(found) + 1);
    lc__ckpt_list_free(&list);
    return status;
}

lc_status lc__find_last(const lc_trainer *t, char *path, size_t size)
{
    return find(t, NULL, path, size);
}

bool lc__find_restart(const lc_trainer *t, char *path, size_t size)
{
    const char *since = getenv("LIGHTC_RESTARTED"); /* "": started by mpirun, for the first time */
    const lc__ckpt_origin origin = lc__origin(t);
    return since && *since && *origin.run && find(t, &origin, path, size) >= 0;
}

/* The best path that a callback left in the state of a checkpoint (lc_callback_ops.best_path), or "". */
static const char *best_in(const lc_state *root)
{
    const lc_state *callbacks;
    const char *path = "";
    if (lc_state_get_object(root, "callbacks", &callbacks) < 0) return "";
    for (int64_t i = 0; i < lc_state_length(callbacks); i++)
        if (lc_state_get_text(lc_state_at(callbacks, i), "best_model_path", &path) == LC_OK && *path) return path;
    return "";
}

lc_status lc__find_best(const lc_trainer *t, char *path, size_t size)
{
    lc_status status = LC_OK;
    lc_checkpoint *c = NULL;
    char last[PATH_MAX];
    struct stat st;
    LC_TRY(lc__find_last(t, last, sizeof last));
    LC_TRY(lc_checkpoint_open(last, &c));
    const char *best = best_in(lc_checkpoint_state(c)), *base = strrchr(best, '/');
    if (!*best) {
        status = lc_fail(LC_ERR_NOT_FOUND, "the run of %s did not save a best checkpoint", last);
        goto done;
    }
    /* The path as recorded or, if the program now runs elsewhere, the same name next to the newest checkpoint. */
    char *slash = strrchr(last, '/');
    int n;
    if (stat(best, &st) == 0 || !slash || !base)
        n = snprintf(path, size, "%s", best);
    else
        n = snprintf(path, size, "%.*s%s", (int)(slash - last), last, base);
    if (n < 0 || (size_t)n >= size) status = lc_fail(LC_ERR_IO, "the path %.100s... is too long", best);
done:
    lc_checkpoint_close(c);
    return status;
}
