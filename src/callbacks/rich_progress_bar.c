/* SPDX-License-Identifier: Apache-2.0 */
/* RichProgressBar: one bar for the run, one for the epoch, one for what evaluates, and a line of metrics, drawn over
 * one another in colours. Where lines cannot be drawn anew (a log file) it is the plain progress bar.
 *
 * The block of lines is always the last thing on the screen: `drawn` says how many lines it has, the cursor stands at
 * its end. Each update is one write(2). */
#include "callbacks/terminal.h"
#include "base/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bar {
    bool shown;
    int64_t done, total, first; /* first: where it began (not 0 after a resume); total -1: unknown */
    int64_t start_ns;
} bar;

typedef struct rich_bar {
    lc_rich_progress_bar_args a;
    lc__terminal term;
    bar run, epoch, eval;
    int64_t number; /* of the epoch that is shown */
    const char *eval_name;
    int drawn;
    int64_t interval_ns, drawn_ns;
    lc__str text;
} rich_bar;

/* ---- drawing ---- */

static void paint(rich_bar *r, const char *code)
{
    if (r->term.colour) lc__str_add(&r->text, "\033[%sm", code);
}

/* "Epoch 3/9  ━━━━━━━━╸─────────  12/40  00:03 • 00:09  13.2it/s" */
static void add_bar(rich_bar *r, const bar *b, const char *name, const char *colour)
{
    double seconds = (double)(lc__now_ns() - b->start_ns) * 1e-9;
    double rate = seconds > 0 ? (double)(b->done - b->first) / seconds : 0;
    lc__str right = {0};
    lc__str_add(&right, " %lld/", (long long)b->done);
    if (b->total > 0)
        lc__str_add(&right, "%lld ", (long long)b->total);
    else
        lc__str_add(&right, "? ");
    lc__add_time(&right, seconds);
    if (b->total > 0) {
        lc__str_add(&right, r->term.unicode ? " • " : " < ");
        lc__add_time(&right, rate > 0 ? (double)(b->total - b->done) / rate : INFINITY);
    }
    lc__str_add(&right, " ");
    lc__add_rate(&right, rate);
    int columns = lc__terminal_width(&r->term), used = 15 + (right.failed ? 0 : (int)right.n);
    int cells = columns - used - 2 < 40 ? columns - used - 2 : 40;
    lc__str_add(&r->text, "%-15.15s", name);
    if (cells >= 5) {
        double full = b->total > 0 ? (double)cells * (double)b->done / (double)b->total : 0;
        int whole = (int)full;
        paint(r, b->total > 0 && b->done >= b->total ? "32" : colour);
        for (int i = 0; i < whole && i < cells; i++) lc__str_add(&r->text, r->term.unicode ? "━" : "=");
        if (whole < cells) lc__str_add(&r->text, r->term.unicode ? (full - whole >= 0.5 ? "╸" : "╺") : ">");
        paint(r, "90");
        for (int i = whole + 1; i < cells; i++) lc__str_add(&r->text, r->term.unicode ? "━" : "-");
        paint(r, "0");
    }
    if (!right.failed) lc__str_add(&r->text, "%s", right.s);
    lc__str_free(&right);
}

static int metrics_line(rich_bar *r, lc_trainer *t)
{
    const lc__metric_map *m = &t->metrics[LC_PROGRESS_BAR_METRICS];
    int columns = lc__terminal_width(&r->term), used = 0;
    char item[160], name[101];
    for (int i = -1; i < m->n; i++) {
        if (i < 0 && t->version < 0) continue;
        int n = i < 0 ? snprintf(item, sizeof item, "v_num: %d", t->version)
                      : snprintf(item, sizeof item, "%s: %.3g", lc_printable(m->v[i].name, false, name, sizeof name),
                                 m->v[i].value);
        if (used + n + 2 > columns) break;
        if (!used) lc__str_add(&r->text, "\n");
        paint(r, "3");
        lc__str_add(&r->text, "%s%s", used ? "  " : "", item);
        paint(r, "0");
        used += n + 2;
    }
    if (used) lc__str_add(&r->text, "\033[K");
    return used > 0;
}

static void show(rich_bar *r)
{
    if (!r->text.failed && r->text.n) lc__show(r->term.fd, r->text.s, r->text.n);
    lc__str_clear(&r->text);
}

/* To the beginning of the block; what is below is drawn over or wiped. */
static void home(rich_bar *r)
{
    if (r->drawn > 1) lc__str_add(&r->text, "\033[%dA", r->drawn - 1);
    if (r->drawn) lc__str_add(&r->text, "\r");
}

static void draw(rich_bar *r, lc_trainer *t)
{
    char name[48];
    int before = r->drawn, lines = 0;
    home(r);
    const bar *bars[] = {&r->run, &r->epoch, &r->eval};
    for (int i = 0; i < 3; i++) {
        if (!bars[i]->shown) continue;
        if (i == 0)
            snprintf(name, sizeof name, "Training");
        else if (i == 1 && t->max_epochs > 0)
            snprintf(name, sizeof name, "Epoch %lld/%lld", (long long)r->number, (long long)t->max_epochs - 1);
        else if (i == 1)
            snprintf(name, sizeof name, "Epoch %lld", (long long)r->number);
        else
            snprintf(name, sizeof name, "%s", r->eval_name);
        if (lines++) lc__str_add(&r->text, "\n");
        add_bar(r, bars[i], name, i == 0 ? "36" : i == 1 ? "35" : "33");
        lc__str_add(&r->text, "\033[K");
    }
    if (lines) lines += metrics_line(r, t);
    if (before > lines) lc__str_add(&r->text, "\033[J");
    r->drawn = lines;
    show(r);
}

static bool due(rich_bar *r)
{
    int64_t now = lc__coarse_ns();
    if (now - r->drawn_ns < r->interval_ns) return false;
    r->drawn_ns = now;
    return true;
}

/* The block stays, and what follows stands below it; or it goes. */
static void leave(rich_bar *r, bool stays)
{
    if (!r->drawn) return;
    if (stays) {
        lc__str_add(&r->text, "\n");
    } else {
        home(r);
        lc__str_add(&r->text, "\033[J");
    }
    r->drawn = 0;
    show(r);
}

/* ---- hooks ---- */

static lc_status rp_epoch_start(void *self, lc_trainer *t)
{
    rich_bar *r = self;
    r->epoch = (bar){true, t->batches_done, lc_trainer_num_training_batches(t), t->batches_done, lc__now_ns()};
    r->run.done = r->number = t->current_epoch;
    draw(r, t);
    return LC_OK;
}

static lc_status rp_train_start(void *self, lc_trainer *t)
{
    rich_bar *r = self;
    r->run = (bar){t->max_epochs > 1, t->current_epoch, t->max_epochs, t->current_epoch, lc__now_ns()};
    return rp_epoch_start(self, t); /* a run that is resumed inside of an epoch has no on_train_epoch_start */
}

static lc_status rp_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    rich_bar *r = self;
    (void)o, (void)b, (void)i;
    r->epoch.done = t->batches_done;
    if (due(r)) draw(r, t);
    return LC_OK;
}

static lc_status rp_epoch_end(void *self, lc_trainer *t)
{
    rich_bar *r = self;
    r->epoch.done = t->batches_done;
    r->run.done = t->current_epoch + 1;
    draw(r, t);
    if (r->a.leave) leave(r, true);
    return LC_OK;
}

static lc_status rp_eval_start(void *self, lc_trainer *t)
{
    rich_bar *r = self;
    r->eval_name = lc__eval_name(t);
    r->eval = (bar){true, 0, lc__eval_batches(t), 0, lc__now_ns()};
    draw(r, t);
    return LC_OK;
}

static lc_status rp_eval_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i,
                                   int loader)
{
    rich_bar *r = self;
    (void)o, (void)b, (void)i, (void)loader;
    r->eval.done++;
    if (due(r)) draw(r, t);
    return LC_OK;
}

/* Results of validate and test, as a table. */
static lc_status rp_eval_end(void *self, lc_trainer *t)
{
    char name[256];
    rich_bar *r = self;
    r->eval.shown = false;
    if (t->stage == LC_STAGE_FIT) {
        draw(r, t);
        return LC_OK;
    }
    leave(r, false);
    for (int i = 0; i < t->n_results; i++)
        for (int k = 0; k < t->n_result_values[i]; k++) {
            paint(r, "36");
            lc__str_add(&r->text, "%-10s ", lc_stage_name(t->stage));
            paint(r, "0");
            lc__str_add(&r->text, "%-32s %.6g\n", lc_printable(t->result_values[i][k].name, false, name, sizeof name),
                        t->result_values[i][k].value);
        }
    show(r);
    return LC_OK;
}

static lc_status rp_train_end(void *self, lc_trainer *t)
{
    draw(self, t);
    leave(self, true);
    return LC_OK;
}

static lc_status rp_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    (void)t, (void)status, (void)message;
    leave(self, true);
    return LC_OK;
}

/* The text takes the block's place, and the next update draws it below. */
static void rp_message(void *self, lc_trainer *t, const char *level, const char *text)
{
    rich_bar *r = self;
    (void)t;
    leave(r, false);
    if (strcmp(level, "info") != 0) {
        paint(r, strcmp(level, "error") ? "33" : "31");
        lc__str_add(&r->text, "%s: ", level);
        paint(r, "0");
    }
    lc__str_add(&r->text, "%s\n", text);
    show(r);
}

static void rp_free(void *self)
{
    rich_bar *r = self;
    leave(r, true);
    lc__str_free(&r->text);
    free(r);
}

const lc_callback_ops lc__rich_progress_bar_ops = {
    LC_CALLBACK_OPS_INIT("RichProgressBar"),
    .kind = LC__KIND_PROGRESS_BAR,
    .no_vote = true,
    .ranks = LC_RANK_ZERO,
    .on_train_start = rp_train_start,
    .on_train_epoch_start = rp_epoch_start,
    .on_train_batch_end = rp_batch_end,
    .on_train_epoch_end = rp_epoch_end,
    .on_train_end = rp_train_end,
    .on_validation_start = rp_eval_start,
    .on_validation_batch_end = rp_eval_batch_end,
    .on_validation_end = rp_eval_end,
    .on_test_start = rp_eval_start,
    .on_test_batch_end = rp_eval_batch_end,
    .on_test_end = rp_eval_end,
    .on_predict_start = rp_eval_start,
    .on_predict_batch_end = rp_eval_batch_end,
    .on_predict_end = rp_eval_end,
    .on_exception = rp_exception,
    .on_message = rp_message,
    .free = rp_free,
};

lc_status lc_rich_progress_bar_new(const lc_rich_progress_bar_args *args, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    static const lc_rich_progress_bar_args defaults = {0};
    if (!args) args = &defaults;
    lc__terminal term = lc__terminal_find(args->fd, (lc_progress_style)args->style);
    if (!term.live || term.off)
        return lc_progress_bar_new(&(lc_progress_bar_args){.fd = args->fd, .style = LC_PROGRESS_LINES}, out);
    rich_bar *r = calloc(1, sizeof *r);
    if (!r) return lc_fail(LC_ERR_MEMORY, "out of memory: RichProgressBar");
    r->a = *args;
    r->term = term;
    r->interval_ns = (int64_t)(1e9 / (args->refresh_rate > 0 ? args->refresh_rate : 10));
    *out = (lc_callback){&lc__rich_progress_bar_ops, r};
    return LC_OK;
}
