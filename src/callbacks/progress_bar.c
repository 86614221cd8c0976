/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar: one line that is redrawn in a terminal, occasional whole lines elsewhere. */
#include "base/clock.h"
#include "base/c_locale.h"
#include "core/logging/logging.h"
#include "callbacks/terminal.h"
#include "base/handle.h"

#include <stdio.h>
#include <string.h>

#define WIDE         100000 /* columns: all metrics fit */
#define LINE_SECONDS 30.0   /* between lines within an epoch, without a terminal */

typedef struct progress_bar {
    lc__terminal term;
    bool open; /* the terminal shows an unfinished line */
    int64_t interval_ns, drawn_ns, start_ns, line_ns, eval_start_ns;
    int64_t start_batch; /* of the epoch: not 0 after a resume */
    int64_t eval_batch;
    lc__str text;
} progress_bar;

/* ---- pieces of text ---- */

/* Whether the value of the epoch follows: then that of the last step is left out. */
static bool has_epoch_value(const lc__metric_map *m, const char *name)
{
    static const char step[] = "_step";
    size_t n = strlen(name), end = sizeof step - 1;
    char epoch[256];
    if (n <= end || n + 2 > sizeof epoch || strcmp(name + n - end, step) != 0) return false;
    snprintf(epoch, sizeof epoch, "%.*s_epoch", (int)(n - end), name);
    return lc__map_find(m, epoch) >= 0;
}

/* Adds as many whole metrics as fit into `room` columns; the first one's name is cut if need be. */
static void add_metrics(const progress_bar *p, lc__str *out, lc_trainer *t, bool version, bool steps,
                        const char *between, int room)
{
    const lc__metric_map *m = lc__metrics(t, LC_PROGRESS_BAR_METRICS);
    char name[259], value[32];
    if (version && t->logging->version >= 0) lc__str_add(out, "%sv_num=%d", between, t->logging->version);
    bool first = true;
    for (int i = 0; i < m->n; i++) {
        if (!steps && has_epoch_value(m, m->v[i].name)) continue;
        const char *before = out->n && out->s[out->n - 1] == '[' ? "" : between;
        int n = (out->n ? lc__columns(out->s) : 0) + (int)strlen(before) +
                lc__snprintf(value, sizeof value, "=%.3g", m->v[i].value);
        lc_printable(m->v[i].name, false, name, sizeof name - 3);
        if (first && n < room) lc__cut_name(name, (size_t)(room - n), p->term.unicode);
        if (n + lc__columns(name) <= room) {
            lc__str_add(out, "%s%s%s", before, name, value);
            first = false;
        }
    }
}

static void add_bar(const progress_bar *p, lc__str *out, double part, int cells)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double full = part * cells;
    if (p->term.color) lc__str_add(out, "\033[32m");
    for (int i = 0; i < cells; i++) {
        double cell = full - i;
        if (p->term.unicode)
            lc__str_add(out, "%s", cell >= 1 ? "█" : cell <= 0 ? " " : eighths[(int)(cell * 8)]);
        else
            lc__str_add(out, "%s", cell >= 1 ? "#" : cell > 0 ? "-" : " ");
    }
    if (p->term.color) lc__str_add(out, "\033[0m");
}

/* ---- drawing ---- */

/* How much is shown, from everything to the least, if a line has little room: a truncated number would be wrong. */
typedef enum detail {
    ALL,
    NO_VERSION,
    NO_REMAINING_TIME,
    NO_RATE,
    NO_STEP_VALUES,
    NO_TIME,
    FEW_METRICS,
    NO_METRICS,
    NO_COUNT,
    DETAILS
} detail;

static void add_right(const progress_bar *p, lc__str *out, lc_trainer *t, int64_t done, int64_t total, double seconds,
                      double rate, detail d, int room)
{
    /* Metrics of the fit say nothing about a test. */
    bool metrics = t->stage == LC_STAGE_FIT && d < NO_METRICS && lc__metrics(t, LC_PROGRESS_BAR_METRICS)->n > 0;
    lc__str_clear(out);
    if (d >= NO_COUNT) return;
    lc__str_add(out, " %lld/", (long long)done);
    if (total > 0)
        lc__str_add(out, "%lld", (long long)total);
    else
        lc__str_add(out, "?");
    if (d >= NO_TIME && !metrics) return;
    lc__str_add(out, " [");
    if (d < NO_TIME) lc__add_time(out, seconds);
    if (total > 0 && d < NO_REMAINING_TIME) {
        lc__str_add(out, "<");
        lc__add_remaining(out, done, total, rate);
    }
    if (d < NO_RATE) {
        lc__str_add(out, ", ");
        lc__add_rate(out, rate);
    }
    size_t before = out->n;
    if (metrics || (t->stage == LC_STAGE_FIT && d < NO_VERSION))
        add_metrics(p, out, t, d < NO_VERSION, d < NO_STEP_VALUES, ", ", d == FEW_METRICS ? room - 1 : WIDE);
    if (d == FEW_METRICS && out->n == before)
        out->n -= 2, out->s[out->n] = 0; /* none */
    else
        lc__str_add(out, "]");
}

/* "Epoch 3:  45%|####     | 250/550 [00:12<00:14, 20.10it/s, train_loss=0.31]" */
static void draw(progress_bar *p, lc_trainer *t, const char *what, int64_t done, int64_t total, int64_t first,
                 int64_t start_ns)
{
    enum { SHORT = 10, SHORTEST = 5 }; /* bars */
    double seconds = (double)(lc__now_ns() - start_ns) * 1e-9;
    double rate = seconds > 0 ? (double)(done - first) / seconds : 0;
    lc__str left = {0}, right = {0};
    lc__str_add(&left, "%s: ", what);
    if (total > 0) lc__str_add(&left, "%3d%%", (int)(100 * done / total));
    int columns = lc__terminal_width(&p->term), cells = 0;
    int room = columns - (int)left.n - 1; /* a line that wraps could not be drawn over */
    if (room < 1) room = 1;
    for (detail d = ALL; d < DETAILS; d++) {
        add_right(p, &right, t, done, total, seconds, rate, d, room);
        int used = right.n ? lc__columns(right.s) : 0;
        cells = room - used - 2;
        if (cells >= SHORT || (d >= NO_VERSION && used <= room)) break;
    }
    if (!left.failed && !right.failed) {
        lc__str_add(&p->text, "\r%.*s", columns - 1, left.s);
        if (total > 0 && cells >= SHORTEST) {
            lc__str_add(&p->text, "|");
            add_bar(p, &p->text, (double)done / (double)total, cells > 40 ? 40 : cells);
            lc__str_add(&p->text, "|");
        }
        lc__str_add(&p->text, "%s\033[K", right.n ? right.s : "");
        p->open = true;
        lc__terminal_show(&p->term, &p->text);
    }
    lc__str_free(&left);
    lc__str_free(&right);
}

static void line(progress_bar *p, lc_trainer *t, int64_t done, int64_t total)
{
    double seconds = (double)(lc__now_ns() - p->start_ns) * 1e-9;
    lc__str *out = &p->text;
    double rate = seconds > 0 ? (double)(done - p->start_batch) / seconds : 0;
    lc__str_add(out, "Epoch %lld: ", (long long)t->current_epoch);
    if (total > 0)
        lc__str_add(out, "%3d%% %lld/%lld [", (int)(100 * done / total), (long long)done, (long long)total);
    else
        lc__str_add(out, "%lld [", (long long)done);
    lc__add_time(out, seconds);
    if (total > done) {
        lc__str_add(out, "<");
        lc__add_remaining(out, done, total, rate);
    }
    lc__str_add(out, ", ");
    lc__add_rate(out, rate);
    lc__str_add(out, "]");
    add_metrics(p, out, t, false, true, " ", WIDE);
    lc__str_add(out, "\n");
    lc__terminal_show(&p->term, &p->text);
    p->line_ns = lc__now_ns();
}

static void close_line(progress_bar *p)
{
    if (p->open) lc__show(p->term.fd, "\n", 1);
    p->open = false;
}

static void draw_training(progress_bar *p, lc_trainer *t)
{
    char what[40];
    snprintf(what, sizeof what, "Epoch %lld", (long long)t->current_epoch);
    draw(p, t, what, t->batches_done, lc_trainer_num_training_batches(t), p->start_batch, p->start_ns);
}

/* ---- hooks ---- */

static lc_status pb_epoch_start(void *self, lc_trainer *t)
{
    progress_bar *p = self;
    p->start_ns = p->line_ns = lc__now_ns();
    p->start_batch = t->batches_done;
    p->drawn_ns = 0;
    return LC_OK;
}

static lc_status pb_train_start(void *self, lc_trainer *t)
{
    return pb_epoch_start(self, t); /* a run resumed inside an epoch has no on_train_epoch_start */
}

static lc_status pb_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    progress_bar *p = self;
    (void)o, (void)b, (void)i;
    if (p->term.off) return LC_OK;
    int64_t now = lc__coarse_ns();
    if (now - p->drawn_ns < p->interval_ns) return LC_OK;
    p->drawn_ns = now;
    if (p->term.live)
        draw_training(p, t);
    else if ((double)(now - p->line_ns) * 1e-9 >= LINE_SECONDS)
        line(p, t, t->batches_done, lc_trainer_num_training_batches(t));
    return LC_OK;
}

static lc_status pb_epoch_end(void *self, lc_trainer *t)
{
    progress_bar *p = self;
    if (p->term.off) return LC_OK;
    if (p->term.live) {
        draw_training(p, t);
        close_line(p);
    } else {
        line(p, t, t->batches_done, lc_trainer_num_training_batches(t));
    }
    return LC_OK;
}

static lc_status pb_eval_start(void *self, lc_trainer *t)
{
    progress_bar *p = self;
    (void)t;
    p->eval_batch = 0;
    p->eval_start_ns = lc__now_ns();
    return LC_OK;
}

static lc_status pb_eval_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i,
                                   int loader)
{
    progress_bar *p = self;
    (void)o, (void)b, (void)i, (void)loader;
    p->eval_batch++;
    if (p->term.off || !p->term.live) return LC_OK;
    int64_t now = lc__coarse_ns();
    if (now - p->drawn_ns < p->interval_ns) return LC_OK;
    p->drawn_ns = now;
    draw(p, t, lc__eval_name(t), p->eval_batch, lc__eval_batches(t), 0, p->eval_start_ns);
    return LC_OK;
}

static lc_status pb_results(void *self, lc_trainer *t)
{
    progress_bar *p = self;
    if (p->term.off || t->stage == LC_STAGE_FIT) return LC_OK;
    if (p->term.live && p->open) lc__show(p->term.fd, "\r\033[K", 4);
    p->open = false;
    lc__add_results(&p->text, &p->term, t, NULL);
    lc__terminal_show(&p->term, &p->text);
    return LC_OK;
}

static lc_status pb_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    (void)t, (void)status, (void)message;
    close_line(self);
    return LC_OK;
}

static void pb_message(void *self, lc_trainer *t, lc_level level, const char *text)
{
    progress_bar *p = self;
    (void)t;
    if (p->term.off) return;
    if (p->open) lc__str_add(&p->text, "\r\033[K");
    p->open = false;
    if (level != LC_INFO) lc__str_add(&p->text, "%s: ", lc_level_name(level));
    lc__str_add(&p->text, "%s\n", text);
    lc__terminal_show(&p->term, &p->text);
}

static void pb_release(void *self)
{
    progress_bar *p = self;
    close_line(p);
    lc__str_free(&p->text);
}

const lc_callback_ops lc__progress_bar_ops = {
    LC_CALLBACK_OPS_INIT("ProgressBar"),
    .no_vote = true,
    .ranks = LC_RANK_ZERO,
    .on_train_start = pb_train_start,
    .on_train_epoch_start = pb_epoch_start,
    .on_train_batch_end = pb_batch_end,
    .on_train_epoch_end = pb_epoch_end,
    .on_validation_start = pb_eval_start,
    .on_validation_batch_end = pb_eval_batch_end,
    .on_validation_end = pb_results,
    .on_test_start = pb_eval_start,
    .on_test_batch_end = pb_eval_batch_end,
    .on_test_end = pb_results,
    .on_predict_start = pb_eval_start,
    .on_predict_batch_end = pb_eval_batch_end,
    .on_predict_end = pb_results,
    .on_exception = pb_exception,
    .on_message = pb_message,
    .free = lc__owned_free,
};

lc_status lc_progress_bar_new(const lc_progress_bar_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_progress_bar, given);
    if (!(args->refresh_rate > 0))
        return lc_fail(LC_ERR_CONFIG,
                       "ProgressBar: refresh_rate is %g; it must be positive (no bar: enable_progress_bar)",
                       args->refresh_rate);
    progress_bar *p = lc__owned_new(sizeof *p, pb_release);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory: the progress bar");
    p->term = lc__terminal_find(args->fd, (lc_progress_style)args->style);
    p->interval_ns = (int64_t)(1e9 / args->refresh_rate);
    *out = (lc_callback){&lc__progress_bar_ops, p};
    return LC_OK;
}
