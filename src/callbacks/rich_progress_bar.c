/* SPDX-License-Identifier: Apache-2.0 */
/* RichProgressBar: one bar for the run, one for the epoch, one for evaluations, and a line of metrics, redrawn in place
 * and in colors. If lines cannot be redrawn (a log file) it is the plain progress bar.
 *
 * The block of lines is always the last thing on the screen: `drawn` is its number of lines; the cursor is at its
 * end. */
#include "base/clock.h"
#include "base/c_locale.h"
#include "core/logging/logging.h"
#include "callbacks/terminal.h"
#include "base/handle.h"

#include <stdio.h>
#include <string.h>

typedef struct bar {
    bool shown;
    int64_t done, total, first; /* first: the start (not 0 after a resume); total -1: unknown */
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
    if (r->term.color) lc__str_add(&r->text, "\033[%sm", code);
}

/* How much is shown after a bar, from everything to the least. */
typedef enum detail { ALL, NO_RATE, NO_REMAINING_TIME, NO_TIME, DETAILS } detail;
enum { NAME = 15 }; /* columns */

static void add_right(const rich_bar *r, lc__str *out, const bar *b, double seconds, double rate, detail d)
{
    lc__str_clear(out);
    lc__str_add(out, " %lld/", (long long)b->done);
    if (b->total > 0)
        lc__str_add(out, "%lld", (long long)b->total);
    else
        lc__str_add(out, "?");
    if (d < NO_TIME) {
        lc__str_add(out, " ");
        lc__add_time(out, seconds);
    }
    if (b->total > 0 && d < NO_REMAINING_TIME) {
        lc__str_add(out, r->term.unicode ? " • " : " < ");
        lc__add_remaining(out, b->done, b->total, rate);
    }
    if (d < NO_RATE) {
        lc__str_add(out, " ");
        lc__add_rate(out, rate);
    }
}

/* "Epoch 3/9  ━━━━━━━━╸─────────  12/40  00:03 • 00:09  13.2it/s" */
static void add_bar(rich_bar *r, const bar *b, const char *name, const char *color)
{
    double seconds = (double)(lc__now_ns() - b->start_ns) * 1e-9;
    double rate = seconds > 0 ? (double)(b->done - b->first) / seconds : 0;
    int room = lc__terminal_width(&r->term) - 1; /* a line that wraps could not be drawn over */
    lc__str right = {0};
    for (detail d = ALL; d < DETAILS; d++) {
        add_right(r, &right, b, seconds, rate, d);
        if (right.n && NAME + lc__columns(right.s) <= room) break;
    }
    int used = NAME + (right.failed || !right.n ? 0 : lc__columns(right.s)),
        width = used > room ? NAME - (used - room) : NAME;
    int cells = room - used - 1 < 40 ? room - used - 1 : 40;
    char title[64];
    snprintf(title, sizeof title - 3, "%s", name);
    if (width < 1) {
        width = NAME; /* the total is unknown */
        lc__str_clear(&right);
    }
    lc__cut_name(title, (size_t)width, r->term.unicode);
    lc__add_padded(&r->text, title, width);
    if (cells >= 5) {
        double full = b->total > 0 ? (double)cells * (double)b->done / (double)b->total : 0;
        int whole = (int)full;
        paint(r, b->total > 0 && b->done >= b->total ? "32" : color);
        for (int i = 0; i < whole && i < cells; i++) lc__str_add(&r->text, r->term.unicode ? "━" : "=");
        if (whole < cells) lc__str_add(&r->text, r->term.unicode ? (full - whole >= 0.5 ? "╸" : "╺") : ">");
        paint(r, "90");
        for (int i = whole + 1; i < cells; i++) lc__str_add(&r->text, r->term.unicode ? "━" : "-");
        paint(r, "0");
    }
    if (!right.failed && right.n) lc__str_add(&r->text, "%s", right.s);
    lc__str_free(&right);
}

/* " name: value"; the name of the first metric is cut if it does not fit. */
static int metric_text(const rich_bar *r, const lc_metric_value *v, bool first, int room, char *item, size_t size)
{
    char name[104], value[32];
    lc_printable(v->name, false, name, sizeof name - 3);
    int n = lc__snprintf(value, sizeof value, ": %.3g", v->value);
    if (first && room > n) lc__cut_name(name, (size_t)(room - n), r->term.unicode);
    snprintf(item, size, "%s%s", name, value);
    return lc__columns(item);
}

/* As many metrics as fit; the version is shown only if that does not cut the first metric. */
static int metrics_line(rich_bar *r, lc_trainer *t)
{
    const lc__metric_map *m = lc__metrics(t, LC_PROGRESS_BAR_METRICS);
    int room = lc__terminal_width(&r->term) - 1, used = 0;
    char item[160], version[32];
    int n = t->logging->version < 0 ? 0 : snprintf(version, sizeof version, "v_num: %d", t->logging->version);
    if (n && m->n && n + 2 + metric_text(r, &m->v[0], false, room, item, sizeof item) > room) n = 0;
    for (int i = -1; i < m->n; i++) {
        if (i < 0 && !n) continue;
        if (i < 0)
            snprintf(item, sizeof item, "%s", version);
        else
            n = metric_text(r, &m->v[i], !used, room, item, sizeof item);
        if (used + n + 2 * (used > 0) > room && used) break;
        if (!used) lc__str_add(&r->text, "\n");
        paint(r, "3");
        lc__str_add(&r->text, "%s%s", used ? "  " : "", item);
        paint(r, "0");
        used += n + 2 * (used > 0);
    }
    if (used) lc__str_add(&r->text, "\033[K");
    return used > 0;
}

/* Moves to the beginning of the block; the lines below are drawn over or erased. */
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
    lc__terminal_show(&r->term, &r->text);
}

static bool due(rich_bar *r)
{
    int64_t now = lc__coarse_ns();
    if (now - r->drawn_ns < r->interval_ns) return false;
    r->drawn_ns = now;
    return true;
}

/* Keeps the block, so that further output is below it; or erases it. */
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
    lc__terminal_show(&r->term, &r->text);
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
    return rp_epoch_start(self, t); /* a run resumed inside an epoch has no on_train_epoch_start */
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
    rich_bar *r = self;
    r->eval.shown = false;
    if (t->stage == LC_STAGE_FIT) {
        draw(r, t);
        return LC_OK;
    }
    leave(r, false);
    lc__add_results(&r->text, &r->term, t, "36");
    lc__terminal_show(&r->term, &r->text);
    return LC_OK;
}

static lc_status rp_train_end(void *self, lc_trainer *t)
{
    rich_bar *r = self;
    if (r->drawn || !r->a.leave) draw(r, t); /* else the last epoch's end has left the bars */
    leave(r, true);
    return LC_OK;
}

static lc_status rp_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    (void)t, (void)status, (void)message;
    leave(self, true);
    return LC_OK;
}

/* The text takes the block's place, and the next update draws it below. */
static void rp_message(void *self, lc_trainer *t, lc_level level, const char *text)
{
    rich_bar *r = self;
    (void)t;
    leave(r, false);
    if (level != LC_INFO) {
        paint(r, level == LC_ERROR ? "31" : "33");
        lc__str_add(&r->text, "%s: ", lc_level_name(level));
        paint(r, "0");
    }
    lc__str_add(&r->text, "%s\n", text);
    lc__terminal_show(&r->term, &r->text);
}

static void rp_release(void *self)
{
    rich_bar *r = self;
    leave(r, true);
    lc__str_free(&r->text);
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
    .free = lc__owned_free,
};

lc_status lc_rich_progress_bar_new(const lc_rich_progress_bar_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_rich_progress_bar, given);
    if (!(args->refresh_rate > 0))
        return lc_fail(LC_ERR_CONFIG,
                       "RichProgressBar: refresh_rate is %g; it must be positive (no bar: enable_progress_bar)",
                       args->refresh_rate);
    lc__terminal term = lc__terminal_find(args->fd, (lc_progress_style)args->style);
    if (!term.live || term.off) return lc_progress_bar(out, .fd = args->fd, .style = LC_PROGRESS_LINES);
    rich_bar *r = lc__owned_new(sizeof *r, rp_release);
    if (!r) return lc_fail(LC_ERR_MEMORY, "out of memory: RichProgressBar");
    r->a = *args;
    r->term = term;
    r->interval_ns = (int64_t)(1e9 / args->refresh_rate);
    *out = (lc_callback){&lc__rich_progress_bar_ops, r};
    return LC_OK;
}
