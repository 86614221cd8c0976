/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a run, <default_root_dir>/lightning_logs/version_N, and its loggers.
 *
 * N is the first number for which this run's mkdir succeeds, so runs that start at the same time never share a folder.
 * A failing logger is reported once, and training continues. */
#include "base/owned.h"
#include "base/status.h"
#include "base/args.h"
#include "core/logging/logging.h"
#include "core/options/hyperparameters.h"
#include "core/options/options.h"
#include "comm/agree.h"
#include "base/io.h"
#include "core/hooks/trainer_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int next_version(const char *dir)
{
    int next = 0;
    DIR *d = opendir(dir);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        char *end;
        if (strncmp(e->d_name, "version_", 8) != 0 || e->d_name[8] < '0' || e->d_name[8] > '9') continue;
        long v = strtol(e->d_name + 8, &end, 10);
        if (!*end && v >= next && v < 2000000000) next = (int)v + 1;
    }
    closedir(d);
    return next;
}

lc_status lc__take_version(const char *root_dir, const char *name, int *version, char **run_dir)
{
    char dir[4096], path[4200];
    int n = snprintf(dir, sizeof dir, "%s/%s", root_dir, name);
    if (n < 0 || (size_t)n >= sizeof dir) return lc_fail(LC_ERR_IO, "the path %.100s... is too long", root_dir);
    LC_TRY(lc__make_dirs(&lc__io_system, dir));
    for (int v = next_version(dir);; v++) {
        snprintf(path, sizeof path, "%s/version_%d", dir, v);
        if (mkdir(path, 0777) == 0) {
            *version = v;
            LC_TRY(lc__sync_dir(&lc__io_system, dir)); /* durable checkpoints below it need a durable name */
            return lc__copy_text(path, run_dir);
        }
        if (errno != EEXIST) return lc__io_fail(errno, "make directory", path);
    }
}

/* A unique text: time, process and a hash of both. */
lc_status lc__new_run_id(char **out)
{
    char id[64];
    uint64_t now = (uint64_t)lc__realtime_ns();
    uint64_t mixed = lc_random_key(now, (uint64_t)getpid() ^ (uint64_t)lc__now_ns());
    snprintf(id, sizeof id, "%llx-%x-%08x", (unsigned long long)now / 1000, (unsigned)getpid(), (unsigned)mixed);
    return lc__copy_text(id, out);
}

lc_status lc__loggers_take(const lc_logger *given, int n, lc_logger *list, int *n_list)
{
    lc_status status = LC_OK;
    for (int i = 0; i < n; i++) {
        const lc_logger_ops *o = given[i].ops;
        lc_status s =
            lc__ops_check(sizeof *o, o, offsetof(lc_logger_ops, log_hyperparameters), "a logger", "LC_LOGGER_OPS_INIT");
        if (s >= 0 && (!o->name || !o->start || !o->log_row))
            s = lc_fail(LC_ERR_ARGUMENT, "a logger needs ops with a name, start and log_row");
        for (int k = 0; s >= 0 && k < *n_list && given[i].self && LC__SLOT(o, free); k++)
            if (list[k].self == given[i].self && list[k].ops == o) /* it would be freed twice */
                s = lc_fail(LC_ERR_ARGUMENT, "the logger %s is in the list twice; make another", o->name);
        if (s >= 0) s = lc__own(LC__SLOT(o, free), given[i].self, "logger", o->name);
        if (s >= 0)
            list[(*n_list)++] = given[i];
        else
            status = s;
    }
    return status;
}

lc_status lc__loggers_open(lc_trainer *t)
{
    const char *names = t->opt.logger ? t->opt.logger : t->opt.n_loggers ? "none" : "csv,sqlite";
    int cap = t->opt.n_loggers + 8;
    if (!strcmp(names, "true")) names = "csv,sqlite";
    bool none = !strcmp(names, "none") || !strcmp(names, "false");
    t->logging->loggers = calloc((size_t)cap, sizeof *t->logging->loggers);
    t->logging->logger_failed = calloc((size_t)cap, sizeof *t->logging->logger_failed);
    if (!t->logging->loggers || !t->logging->logger_failed) {
        LC__FREE_LIST_UNLESS_OWNED(t->opt.loggers, t->opt.n_loggers);
        return lc_fail(LC_ERR_MEMORY, "out of memory: loggers");
    }
    LC_TRY(lc__loggers_take(t->opt.loggers, t->opt.n_loggers, t->logging->loggers, &t->logging->n_loggers));
    /* fast_dev_run and barebones write nothing. */
    if (none || t->opt.fast_dev_run || t->opt.barebones) return LC_OK;
    for (const char *p = names; *p;) {
        size_t length = strcspn(p, ",");
        const char *command = strstr(p, ":|");
        if (command && command < p + length) length = strlen(p); /* a command may have commas, so it is the last */
        if (length) {
            char one[4096];
            if (length >= sizeof one) return lc_fail(LC_ERR_CONFIG, "logger=%.60s...: a name is too long", names);
            snprintf(one, sizeof one, "%.*s", (int)length, p);
            if (t->logging->n_loggers == cap) return lc_fail(LC_ERR_CONFIG, "logger=%.60s: too many loggers", names);
            LC_TRY(lc_logger_new(one, &t->logging->loggers[t->logging->n_loggers]));
            t->logging->n_loggers++;
        }
        p += length;
        if (*p == ',') p++;
    }
    return LC_OK;
}

void lc__logger_result(lc_trainer *t, int i, lc_status s, unsigned before, const char *what)
{
    if (s >= 0 || t->logging->logger_failed[i]) return;
    (void)lc__said(s, before);
    t->logging->logger_failed[i] = true;
    lc_trainer_message(t, LC_WARNING, "logger %s could not %s: %s (training goes on%s)",
                       t->logging->loggers[i].ops->name, what, lc_error_message(),
                       strcmp(what, "start") ? "; reported once" : " without it");
}

void lc__loggers_status(lc_trainer *t, const char *status)
{
    for (int i = 0; t->logging->loggers_started && i < t->logging->n_loggers; i++)
        if (LC__SLOT(t->logging->loggers[i].ops, log_status))
            LC__LOGGER_CALL(t, i, log_status, "record the status of the run", l_->self, status);
}

static void log_message(lc_trainer *t, lc_level level, const char *text)
{
    for (int i = 0; i < t->logging->n_loggers; i++)
        if (LC__SLOT(t->logging->loggers[i].ops, log_message))
            LC__LOGGER_CALL(t, i, log_message, "keep up", l_->self, level, text); /* reported once */
}

/* Called on rank 0 only. */
static lc_status start_loggers(lc_trainer *t)
{
    lc_status status = LC_OK;
    char(*values)[LC__OPTION_SPACE] = NULL;
    lc_named_text *options = NULL;
    int n;
    const char *name = t->opt.run_name ? t->opt.run_name : LC__RUN_NAME;
    if (!t->run_dir) LC_TRY(lc__take_version(t->root_dir, name, &t->logging->version, &t->run_dir));
    if (!t->logging->run_id) LC_TRY(lc__new_run_id(&t->logging->run_id));
    if (lc__config_write(&t->opt, t->run_dir) < 0) lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
    const lc_option *table = lc_trainer_option_table(&n);
    values = malloc((size_t)n * sizeof *values);
    options = malloc((size_t)n * sizeof *options);
    if (!values || !options) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: options for loggers");
        goto done;
    }
    for (int i = 0; i < n; i++)
        options[i] = (lc_named_text){table[i].name, lc__option_text(&table[i], &t->opt, values[i])};
    lc_run_info run = {.root_dir = t->root_dir,
                       .name = name,
                       .run_dir = t->run_dir,
                       .version = t->logging->version,
                       .options = options,
                       .n_options = n,
                       .resumed = t->ckpt_path != NULL,
                       .resumed_step = t->resumed_step,
                       .run_id = t->logging->run_id};
    t->logging->loggers_started = true;
    t->log_message = log_message;
    for (int i = 0; i < t->logging->n_loggers; i++) LC__LOGGER_CALL(t, i, start, "start", l_->self, &run);
done:
    free(values);
    free(options);
    return status;
}

lc_status lc__loggers_start(lc_trainer *t)
{
    /* fast_dev_run and barebones do not use the program's loggers either. */
    bool starts = t->logging->n_loggers && !t->logging->loggers_started && !t->opt.fast_dev_run && !t->opt.barebones;
    lc__first_error e = {0};
    if (t->logging->loggers_started) lc__loggers_status(t, "running");
    /* Rank 0 takes the folder and logs; the other ranks get its path, even if they were given other loggers. */
    if (starts && lc__is_rank_zero(t)) lc__first_error_note(&e, start_loggers(t));
    int32_t said[] = {starts, e.status, t->logging->version};
    LC_TRY(lc__from_rank_zero(t->comm, said, sizeof said));
    if (!said[0]) return LC_OK;
    if (said[1] < 0)
        return e.status < 0 ? lc__first_error_status(&e) : lc_fail(LC_ERR_PEER, "rank 0 could not start its loggers");
    t->logging->version = said[2];
    return lc__ranks_text(t->comm, &t->run_dir);
}

lc_status lc__loggers_row(lc_trainer *t, const lc_log_row *row)
{
    if (!t->logging->loggers_started) return LC_OK;
    for (int i = 0; i < t->logging->n_loggers; i++) LC__LOGGER_CALL(t, i, log_row, "write a row", l_->self, row);
    return LC_OK;
}

void lc__loggers_flush(lc_trainer *t)
{
    if (!t->logging->loggers_started) return;
    for (int i = 0; i < t->logging->n_loggers; i++)
        if (LC__SLOT(t->logging->loggers[i].ops, flush)) LC__LOGGER_CALL(t, i, flush, "flush", l_->self);
}

void lc__loggers_finish(lc_trainer *t, const char *status)
{
    while (t->logging->n_loggers) { /* a finished logger gets no messages: those go to the remaining ones */
        const lc_logger l = t->logging->loggers[0];
        t->logging->n_loggers--;
        memmove(t->logging->loggers, t->logging->loggers + 1,
                (size_t)t->logging->n_loggers * sizeof *t->logging->loggers);
        memmove(t->logging->logger_failed, t->logging->logger_failed + 1,
                (size_t)t->logging->n_loggers * sizeof *t->logging->logger_failed);
        /* Data lost now is reported, even if the logger's failure was reported before. */
        unsigned before = lc__error_count();
        if (t->logging->loggers_started && LC__SLOT(l.ops, finish) &&
            lc__said(l.ops->finish(l.self, status), before) < 0)
            lc_trainer_message(t, LC_WARNING, "logger %s could not finish: %s", l.ops->name, lc_error_message());
        if (LC__SLOT(l.ops, free)) l.ops->free(l.self);
    }
    free(t->logging->loggers);
    free(t->logging->logger_failed);
    t->logging->loggers = NULL;
    t->logging->logger_failed = NULL;
    t->logging->n_loggers = 0;
}

void lc__note_checkpoint(lc_trainer *t, const char *path, int64_t step, double score, bool has_score)
{
    if (!t->logging->loggers_started) return;
    for (int i = 0; i < t->logging->n_loggers; i++) {
        if (LC__SLOT(t->logging->loggers[i].ops, log_checkpoint))
            LC__LOGGER_CALL(t, i, log_checkpoint, "record a checkpoint", l_->self, path, step, score, has_score);
    }
}

void lc__note_removed_checkpoint(lc_trainer *t, const char *path)
{
    for (int i = 0; t->logging->loggers_started && i < t->logging->n_loggers; i++) {
        if (LC__SLOT(t->logging->loggers[i].ops, log_checkpoint_removed))
            LC__LOGGER_CALL(t, i, log_checkpoint_removed, "record a removed checkpoint", l_->self, path);
    }
}

lc_status lc__checkpoint_dir(lc_trainer *t, lc__str *out)
{
    if (t->opt.dirpath)
        lc__str_add(out, "%s", lc__dir_or_here(t->opt.dirpath));
    else
        lc__str_add(out, "%s/checkpoints", t->run_dir ? t->run_dir : t->root_dir);
    return out->failed ? lc_fail(LC_ERR_MEMORY, "out of memory: the path of checkpoints") : LC_OK;
}
