/* SPDX-License-Identifier: Apache-2.0 */
/* Profilers in a run: the spans each receives, and where reports are written. */
#include "core/hooks/profiling.h"

#include "base/owned.h"
#include "base/args.h"
#include "base/c_locale.h"
#include "base/grow.h"
#include "engine/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROFILERS = 8 };

struct lc__profiling {
    lc_profiler list[MAX_PROFILERS];
    int n;
    unsigned wants;
    int64_t begin_ns;
    char owner[128];  /* "[Module]NAME" */
    char **callbacks; /* "[Callback]NAME", in order of first use */
    int n_callbacks;
};

static lc_status add(lc__profiling *p, lc_profiler one)
{
    LC_TRY(lc__ops_check(sizeof *one.ops, one.ops, offsetof(lc_profiler_ops, free), "a profiler",
                         "LC_PROFILER_OPS_INIT(\"name\")"));
    if (!one.ops->name || !one.ops->span || !one.ops->report)
        return lc_fail(LC_ERR_ARGUMENT, "a profiler needs ops with a name, span and report");
    LC_TRY(lc__own(LC__SLOT(one.ops, free), one.self, "profiler", one.ops->name));
    if (p->n == MAX_PROFILERS) {
        if (LC__SLOT(one.ops, free)) one.ops->free(one.self);
        return lc_fail(LC_ERR_CONFIG, "profiler: at most %d", MAX_PROFILERS);
    }
    p->list[p->n++] = one;
    p->wants |= one.ops->wants;
    return LC_OK;
}

lc_status lc__profiling_open(lc_trainer *t)
{
    const char *names = t->opt.profiler;
    if (!t->opt.n_profilers && (!names || !*names || !strcmp(names, "none"))) return LC_OK;
    t->profiling = calloc(1, sizeof *t->profiling);
    if (!t->profiling) {
        LC__FREE_LIST_UNLESS_OWNED(t->opt.profilers, t->opt.n_profilers);
        return lc_fail(LC_ERR_MEMORY, "out of memory: profilers");
    }
    lc_status status = LC_OK;
    for (int i = 0; i < t->opt.n_profilers; i++) {
        lc_status added = add(t->profiling, t->opt.profilers[i]); /* frees a profiler that is too many */
        if (added < 0) status = added;
    }
    LC_TRY(status);
    for (const char *p = names ? names : ""; *p && strcmp(p, "none") != 0;) {
        size_t length = strcspn(p, ",");
        char one[64];
        lc_profiler made;
        snprintf(one, sizeof one, "%.*s", (int)length, p);
        if (length) {
            LC_TRY(lc_profiler_new(one, &made));
            LC_TRY(add(t->profiling, made));
        }
        p += length + (p[length] == ',');
    }
    return LC_OK;
}

void lc__profiling_free(lc_trainer *t)
{
    lc__profiling *p = t->profiling;
    if (!p) return;
    for (int i = 0; i < p->n; i++)
        if (LC__SLOT(p->list[i].ops, free)) p->list[i].ops->free(p->list[i].self);
    for (int i = 0; i < p->n_callbacks; i++) free(p->callbacks[i]);
    free(p->callbacks);
    free(p);
    t->profiling = NULL;
}

/* Also called by the loaders' threads, so it reads only what does not change during a run. */
static void report_span(void *ctx, const lc_span *span)
{
    const lc__profiling *p = ctx;
    for (int i = 0; i < p->n; i++)
        if (p->list[i].ops->wants & span->kind) p->list[i].ops->span(p->list[i].self, span);
}

void lc__profiling_begin(lc_trainer *t)
{
    lc__profiling *p = t->profiling;
    p->begin_ns = lc__now_ns();
    snprintf(p->owner, sizeof p->owner, "[Module]%s", t->mo.name ? t->mo.name : "module");
    if (p->wants & (LC_SPAN_OP | LC_SPAN_PLAN)) lc__graph_observe(t->graph, report_span, p);
}

void lc__profiling_watch(lc_trainer *t, lc_dataloader *loader, bool on)
{
    if (t->profiling->wants & LC_SPAN_LOADER) lc_dataloader_observe(loader, on ? report_span : NULL, t->profiling);
}

/* The name of a callback in profiles, made once. */
static const char *callback_owner(lc__profiling *p, const char *name)
{
    static const char prefix[] = "[Callback]";
    for (int i = 0; i < p->n_callbacks; i++)
        if (!strcmp(p->callbacks[i] + sizeof prefix - 1, name)) return p->callbacks[i];
    if (lc__grow_one(&p->callbacks, p->n_callbacks, "names of callbacks") < 0) return prefix;
    size_t n = strlen(name);
    char *text = malloc(sizeof prefix + n);
    if (!text) return prefix;
    memcpy(text, prefix, sizeof prefix - 1);
    memcpy(text + sizeof prefix - 1, name, n + 1);
    return p->callbacks[p->n_callbacks++] = text;
}

void lc__profile_hook(lc_trainer *t, const char *callback, int64_t start_ns)
{
    lc__profiling *p = t->profiling;
    lc_span s = {.kind = LC_SPAN_ACTION,
                 .name = lc_hook_name(t->hook),
                 .owner = callback ? callback_owner(p, callback) : p->owner,
                 .start_ns = start_ns,
                 .end_ns = lc__now_ns()};
    report_span(p, &s);
}

void lc__profile_action(lc_trainer *t, const char *name, int64_t start_ns)
{
    lc_span s = {
        .kind = LC_SPAN_ACTION, .name = name, .owner = "[Trainer]", .start_ns = start_ns, .end_ns = lc__now_ns()};
    report_span(t->profiling, &s);
}

void lc__profile_loader(lc_trainer *t, const char *name, double seconds, int64_t batches)
{
    const int64_t now = lc__now_ns();
    lc_span s = {.kind = LC_SPAN_DATA,
                 .name = name,
                 .owner = "[Loader]",
                 .start_ns = now - (int64_t)(1e9 * seconds),
                 .end_ns = now,
                 .number = batches};
    if (seconds > 0 && batches > 0) report_span(t->profiling, &s);
}

void lc__profile_memory(lc_trainer *t, const char *name, int64_t bytes)
{
    lc_span s = {.kind = LC_SPAN_MEMORY, .name = name, .owner = "[Memory]", .number = bytes};
    report_span(t->profiling, &s);
}

/* ---- reports ---- */

static lc_status write_report(lc_trainer *t, const lc_profiler *p, const char *stage, double seconds)
{
    lc_status status = LC_OK;
    char *path = NULL, *text = NULL;
    lc__str shown = {0};
    size_t n = 0;
    FILE *f = NULL;
    LC_TRY(lc__format(&path, "%s/%s-%s.%s", t->run_dir ? t->run_dir : t->root_dir, stage, p->ops->name,
                      p->ops->suffix ? p->ops->suffix : "txt"));
    LC_TRY_GOTO(status, done, lc__make_dirs_of(&lc__io_system, path));
    LC_TRY_GOTO(status, done, lc__open_stream(path, O_TRUNC, &f));
    locale_t before = lc__c_locale_begin();
    unsigned errors = lc__error_count();
    status = lc__answered(p->ops->report(p->self, stage, seconds, f), errors, "report", "a profiler");
    lc__c_locale_end(before);
    if (status < 0) goto done;
    bool failed = ferror(f) != 0;
    failed |= fclose(f) != 0;
    f = NULL;
    if (failed) {
        status = lc__io_fail(errno ? errno : EIO, "write the profile", path);
        goto done;
    }
    lc_trainer_message(t, LC_INFO, "profile: %s", path);
    if (p->ops->shown && t->opt.enable_progress_bar != LC_OFF &&
        lc__io_read_file(&lc__io_system, path, 1 << 20, &text, &n) >= 0) {
        lc__str_add_printable(&shown, text, true);
        if (!shown.failed) lc__show(2, shown.s, shown.n);
    }
done:
    if (f) fclose(f);
    lc__str_free(&shown);
    free(text);
    free(path);
    return status;
}

void lc__profiling_end(lc_trainer *t)
{
    lc__profiling *p = t->profiling;
    if (!p->begin_ns) return; /* the run failed before it began */
    double seconds = 1e-9 * (double)(lc__now_ns() - p->begin_ns);
    p->begin_ns = 0;
    if (t->graph) lc__graph_observe(t->graph, NULL, NULL);
    for (int i = 0; i < p->n; i++)
        if (write_report(t, &p->list[i], lc_stage_name(t->stage), seconds) < 0)
            lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
}
