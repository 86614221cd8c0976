/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_path=last: the newest good checkpoint of any run below the root directory. ckpt_path=best in a program that has
 * saved nothing itself: the best one of that run, which its newest checkpoint knows. Ranks that were started again
 * (LIGHTC_RESTARTED holds when the run began) go on from the newest that the run itself has written. */
#include "core/trainer_internal.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct newest {
    char path[PATH_MAX];
    struct timespec when;
    bool found;
} newest;

static void look(newest *best, const char *dir)
{
    char path[PATH_MAX], manifest[PATH_MAX + 32];
    struct stat st;
    if (lc_checkpoint_find_last_good(dir, path, sizeof path) != LC_OK) return;
    snprintf(manifest, sizeof manifest, "%s/manifest.json", path);
    if (stat(manifest, &st) != 0) return;
    if (best->found && (st.st_mtim.tv_sec < best->when.tv_sec ||
                        (st.st_mtim.tv_sec == best->when.tv_sec && st.st_mtim.tv_nsec <= best->when.tv_nsec)))
        return;
    memcpy(best->path, path, sizeof path);
    best->when = st.st_mtim;
    best->found = true;
}

static void look_everywhere(const lc_trainer *t, newest *best)
{
    char dir[PATH_MAX];
    if (t->opt.dirpath) {
        look(best, t->opt.dirpath);
    } else {
        const char *name = t->opt.run_name ? t->opt.run_name : LC__RUN_NAME;
        snprintf(dir, sizeof dir, "%s/checkpoints", t->root_dir);
        look(best, dir);
        snprintf(dir, sizeof dir, "%s/%s", t->root_dir, name);
        DIR *d = opendir(dir);
        for (struct dirent *e; d && (e = readdir(d));) {
            int n;
            if (strncmp(e->d_name, "version_", 8) != 0) continue;
            n = snprintf(dir, sizeof dir, "%s/%s/%s/checkpoints", t->root_dir, name, e->d_name);
            if (n > 0 && (size_t)n < sizeof dir) look(best, dir);
        }
        if (d) closedir(d);
    }
}

static lc_status give(const newest *best, char *path, size_t size)
{
    if (strlen(best->path) >= size) return lc_fail(LC_ERR_IO, "the path %.100s... is too long", best->path);
    memcpy(path, best->path, strlen(best->path) + 1);
    return LC_OK;
}

lc_status lc__find_last(lc_trainer *t, char *path, size_t size)
{
    newest best = {.found = false};
    look_everywhere(t, &best);
    if (!best.found) return lc_fail(LC_ERR_NOT_FOUND, "there is no checkpoint below %s", t->root_dir);
    return give(&best, path, size);
}

bool lc__find_restart(lc_trainer *t, char *path, size_t size)
{
    const char *since = getenv("LIGHTC_RESTARTED");
    newest best = {.found = false};
    char *fraction;
    if (!since || !*since) return false;
    long long seconds = strtoll(since, &fraction, 10);
    long nanoseconds = *fraction == '.' ? strtol(fraction + 1, NULL, 10) : 0;
    look_everywhere(t, &best);
    bool ours =
        best.found && (best.when.tv_sec > seconds || (best.when.tv_sec == seconds && best.when.tv_nsec >= nanoseconds));
    return ours && give(&best, path, size) >= 0;
}

/* The best path that some ModelCheckpoint left in the state of a checkpoint, or "". */
static const char *best_in(const lc_state *root)
{
    const lc_state *callbacks;
    const char *path = "";
    if (lc_state_get_object(root, "callbacks", &callbacks) < 0) return "";
    for (int64_t i = 0; i < lc_state_length(callbacks); i++)
        if (lc_state_get_text(lc_state_at(callbacks, i), "best_model_path", &path) == LC_OK && *path) return path;
    return "";
}

lc_status lc__find_best(lc_trainer *t, char *path, size_t size)
{
    lc_status status = LC_OK;
    lc_checkpoint *c = NULL;
    char last[PATH_MAX];
    struct stat st;
    LC_TRY(lc__find_last(t, last, sizeof last));
    LC_TRY(lc_checkpoint_open(last, &c));
    const char *best = best_in(lc_checkpoint_state(c)), *base = strrchr(best, '/');
    if (!*best) {
        status = lc_fail(LC_ERR_NOT_FOUND, "the run of %s has saved no best checkpoint", last);
        goto done;
    }
    /* As it was written; or, if the program runs elsewhere now, under that name beside the newest one. */
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
