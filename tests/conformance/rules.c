/* SPDX-License-Identifier: Apache-2.0 */
#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- questions about a case ---- */

static const lc_state *callback(const lc_state *c, const char *type, int64_t i)
{
    const lc_state *list = get(c, "callbacks");
    for (int64_t k = 0; k < lc_state_length(list); k++)
        if (!strcmp(get_text(lc_state_at(list, k), "type", ""), type) && i-- == 0) {
            const lc_state *args = get(lc_state_at(list, k), "args");
            return args ? args : lc_state_at(list, k);
        }
    return NULL;
}

static bool trains(const lc_state *c)
{
    return get_double(get(c, "module"), "lr", 0) != 0;
}

static bool logs(const lc_state *c, const char *list, const char *name)
{
    const lc_state *l = get(get(c, "module"), list);
    size_t n;
    for (int64_t i = 0; i < lc_state_length(l); i++) {
        const char *have = get_text(lc_state_at(l, i), "name", "");
        n = strlen(have);
        if (!strncmp(have, name, n) && (!name[n] || !strcmp(name + n, "_epoch") || !strcmp(name + n, "_step")))
            return true;
    }
    return false;
}

/* A ModelCheckpoint that saves every n steps and monitors a name that training does not log. */
static const char *step_monitor(const lc_state *c)
{
    const lc_state *a;
    for (int64_t i = 0; (a = callback(c, "ModelCheckpoint", i)); i++) {
        const char *monitor = get_text(a, "monitor", NULL);
        if (get_int(a, "every_n_train_steps", 0) > 0 && monitor && !logs(c, "log_train", monitor)) return monitor;
    }
    return NULL;
}

static bool is_int(const lc_state *s, int64_t value)
{
    return s && lc_state_kind_of(s) == LC_STATE_INT && get_int(s, NULL, 0) == value;
}

/* ---- rewrites ---- */

/* Removes the entries that begin with `what` from a trace, beginning at `from`. */
static void drop(char *from, const char *what)
{
    size_t n = strlen(what);
    for (char *p = from; p && *p;) {
        char *end = strchr(p, ' ');
        end = end ? end + 1 : p + strlen(p);
        if (!strncmp(p, what, n))
            memmove(p, end, strlen(end) + 1);
        else
            p = end;
    }
}

/* Whether Lightning's hooks were recorded. lightc's module always is, so that its trace says what a run did. */
static bool is_traced(const lc_state *c)
{
    return get_bool(c, "trace", true);
}

static char *resumed(const outcome *o)
{
    char *mark = o->tr.text ? strstr(o->tr.text, "-- resume --") : NULL;
    return mark ? strstr(mark, " cb.") ? strstr(mark, " cb.") + 1 : mark : NULL;
}

/* Removes numbers that follow from the weight. */
static void forget_values(outcome *o)
{
    static const char *const keep[] = {"step=", "epoch=", "val_loss", "lr-"};
    char *out = o->rows;
    strcpy(o->weight, "*");
    snprintf(o->metrics, sizeof o->metrics, "*");
    for (const char *p = o->rows; *p;) {
        size_t n = strcspn(p, " |"), name = strcspn(p, "=");
        bool kept = false;
        for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) kept |= !strncmp(p, keep[i], strlen(keep[i]));
        memmove(out, p, kept || name > n ? n : name + 1);
        out += kept || name > n ? n : name + 1;
        p += n;
        if (*p) *out++ = *p++;
    }
    *out = 0;
}

static void forget_files(outcome *o)
{
    o->files[0] = o->checkpoints[0] = 0;
    drop(o->tr.text, "cb.on_save_checkpoint");
    drop(o->tr.text, "m.on_save_checkpoint");
}

static void forget_all(outcome *o)
{
    free(o->tr.text);
    *o = (outcome){0};
}

/* ---- the rules ---- */

static bool threw(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)c, (void)got;
    return want->error && want->tr.text && strstr(want->tr.text, "cb.on_exception") &&
           strstr(want->tr.text, "cb.setup");
}
static void add_teardown(const lc_state *c, outcome *got, outcome *want)
{
    char item[128];
    (void)c, (void)got;
    snprintf(item, sizeof item, "cb.teardown:%lld,%lld m.teardown:%lld,%lld ", (long long)want->current_epoch,
             (long long)want->global_step, (long long)want->current_epoch, (long long)want->global_step);
    char *text = realloc(want->tr.text, want->tr.n + strlen(item) + 1);
    if (!text) return;
    strcpy(text + strlen(text), item);
    want->tr.text = text;
}

static bool accumulates(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)got, (void)want;
    return get_int(get(c, "trainer"), "accumulate_grad_batches", 1) > 1 ||
           get_int(get(get(c, "resume"), "trainer"), "accumulate_grad_batches", 1) > 1 ||
           callback(c, "GradientAccumulationScheduler", 0);
}
static void divide_by_k(run_settings *how)
{
    how->divide_by_k = true;
}

static bool interval_of_one(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)got, (void)want;
    return is_int(get(get(c, "trainer"), "val_check_interval"), 1) &&
           get_int(get(c, "trainer"), "check_val_every_n_epoch", 1) == 1 &&
           (!get(get(c, "trainer"), "check_val_every_n_epoch") ||
            is_int(get(get(c, "trainer"), "check_val_every_n_epoch"), 1));
}
static void at_epochs(run_settings *how)
{
    how->callbacks_at_epochs = true;
}

static bool step_frequency(const lc_state *c, const outcome *got, const outcome *want)
{
    const lc_state *s = get(get(c, "module"), "scheduler");
    (void)got, (void)want;
    return s && !strcmp(get_text(s, "interval", "epoch"), "step") &&
           (get_int(s, "frequency", 1) > 1 || get(get(c, "module"), "end_epoch_at"));
}
static void forget_rates(const lc_state *c, outcome *got, outcome *want)
{
    outcome *both[] = {got, want};
    if (got->failed && strstr(got->message, "the scheduler")) { /* the metric is looked up at another step */
        forget_all(got);
        forget_all(want);
        return;
    }
    for (int i = 0; i < 2; i++) {
        drop(both[i]->tr.text, "m.lr_scheduler_step");
        forget_values(both[i]);
        both[i]->checkpoints[0] = 0;
        for (char *p = both[i]->rows; trains(c) && (p = strstr(p, "lr-"));) { /* learning rates as well */
            size_t n = strcspn(p, "="), value = strcspn(p + n, " |");
            memmove(p + n, p + n + value, strlen(p + n + value) + 1);
            p += n;
        }
    }
}

static bool mid_epoch(const lc_state *c, const outcome *got, const outcome *want)
{
    const char *from = resumed(want), *first = from ? strstr(from, "on_train_batch_start") : NULL;
    const char *epoch = from ? strstr(from, "on_train_epoch_start") : NULL;
    (void)got;
    return get(c, "resume") && is_traced(c) && first && (!epoch || epoch > first);
}
static void before_first_batch(outcome *o)
{
    char *from = resumed(o), *to = from ? strstr(from, "cb.on_train_batch_start") : NULL;
    if (to) memmove(from, to, strlen(to) + 1);
}
static void resume_exactly(const lc_state *c, outcome *got, outcome *want)
{
    (void)c;
    before_first_batch(got);
    before_first_batch(want);
    forget_values(got);
    forget_values(want);
    got->early[0] = want->early[0] = 0;
}

static int count(const char *from, const char *what)
{
    int n = 0;
    for (; from && (from = strstr(from, what)); from++) n++;
    return n;
}
static bool plateau_resumed(const lc_state *c, const outcome *got, const outcome *want)
{
    const lc_state *s = get(get(c, "module"), "scheduler");
    bool resumes_plateau = get(c, "resume") && s && !strcmp(get_text(s, "kind", ""), "plateau") && resumed(got);
    if (!is_traced(c)) return resumes_plateau;
    return resumes_plateau && resumed(want) &&
           count(resumed(got), "m.lr_scheduler_step") == count(resumed(want), "m.lr_scheduler_step") + 1;
}
static void step_pending(const lc_state *c, outcome *got, outcome *want)
{
    char *from = strstr(resumed(got), "m.lr_scheduler_step"), *end = from ? strchr(from, ' ') : NULL;
    if (is_traced(c) && end) memmove(from, end + 1, strlen(end + 1) + 1);
    forget_values(got);
    forget_values(want);
}

static bool resumes(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)got, (void)want;
    return get(c, "resume") != NULL;
}
/* Removes values that only the checkpoint had. */
static void forget_metrics(const lc_state *c, outcome *got, outcome *want)
{
    (void)c;
    for (char *p = got->metrics; *p && *p != '*';) {
        size_t n = strcspn(p, "=") + 1, whole = strcspn(p, " ") + 1;
        bool found = false;
        for (const char *w = want->metrics; *w && !found; w += strcspn(w, " "), w += *w == ' ')
            found = !strncmp(w, p, n);
        if (found)
            p += whole;
        else
            memmove(p, p + whole, strlen(p + whole) + 1);
    }
}

/* Whether every checkpoint of the case is from the end of a whole epoch, after its validation. */
static bool saves_whole_epochs(const lc_state *c)
{
    static const char *const parts[] = {"max_steps",
                                        "limit_train_batches",
                                        "limit_val_batches",
                                        "val_check_interval",
                                        "check_val_every_n_epoch",
                                        "overfit_batches",
                                        "accumulate_grad_batches"};
    const lc_state *a, *m = get(c, "module");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (get(get(c, "trainer"), parts[i]) || get(get(get(c, "resume"), "trainer"), parts[i])) return false;
    for (int64_t i = 0; (a = callback(c, "ModelCheckpoint", i)); i++)
        if (get(a, "every_n_train_steps") || get(a, "save_on_train_epoch_end")) return false;
    return get_bool(c, "sized", true) && get(c, "n_val") && !is_int(get(c, "n_val"), 0) && !get(m, "stop_at") &&
           !get(m, "end_epoch_at") && !get(m, "skip_at") && !callback(c, "EarlyStopping", 0) &&
           !callback(c, "GradientAccumulationScheduler", 0);
}
static bool resumes_from_last(const lc_state *c)
{
    const char *file = get_text(get(c, "resume"), "file", "");
    return !strncmp(file, "last", 4) || *file == '*';
}
/* Without other checkpoints Lightning writes `last` when the training is over. */
static bool saves_only_last(const lc_state *c)
{
    const lc_state *a;
    for (int64_t i = 0; (a = callback(c, "ModelCheckpoint", i)); i++)
        if (get_int(a, "save_top_k", 1) == 0) return true;
    return false;
}
/* "cb.on_train_batch_start:1,4": the first batch after a resume. */
static const char *first_batch(const outcome *o, size_t *n)
{
    const char *from = resumed(o), *p = from ? strstr(from, "cb.on_train_batch_start") : NULL;
    *n = p ? strcspn(p, " ") : 0;
    return p;
}
static bool resumes_elsewhere(const lc_state *c, const outcome *got, const outcome *want)
{
    size_t n, k;
    if (!get(c, "resume") || !resumed(got)) return false;
    if (resumes_from_last(c) && saves_only_last(c)) return true;
    if (saves_whole_epochs(c)) return false;
    if (!is_traced(c)) return true; /* the place is not known */
    if (!resumed(want)) return false;
    const char *a = first_batch(got, &n), *b = first_batch(want, &k);
    bool same = a && b && n == k && !strncmp(a, b, n);
    /* In the same place, but Lightning's loader starts over without being counted, or repeats the end of the epoch. */
    bool longer = !get_bool(c, "sized", true) || callback(c, "GradientAccumulationScheduler", 0);
    bool twice = count(resumed(want), "cb.on_train_epoch_end") > count(resumed(got), "cb.on_train_epoch_end");
    bool repeats = get(get(get(c, "resume"), "trainer"), "max_steps") || (get(get(c, "trainer"), "max_steps") && twice);
    return !same || longer || repeats;
}
static void forget_resumed(const lc_state *c, outcome *got, outcome *want)
{
    outcome *both[] = {got, want};
    (void)c;
    for (int i = 0; i < 2; i++) {
        if (resumed(both[i])) *strstr(both[i]->tr.text, "-- resume --") = 0;
        both[i]->ran = false;
        both[i]->files[0] = both[i]->result[0] = 0;
        both[i]->failed = false;
        both[i]->status = LC_OK;
        both[i]->error = NULL;
    }
}

static bool saves_again(const lc_state *c, const outcome *got, const outcome *want)
{
    if (!get(c, "resume") || !resumed(got)) return false;
    if (!is_traced(c)) return count(want->files, ".ckpt") > count(got->files, ".ckpt");
    return resumed(want) &&
           count(resumed(want), "cb.on_save_checkpoint") == count(resumed(got), "cb.on_save_checkpoint") + 1;
}
static void forget_saves(const lc_state *c, outcome *got, outcome *want)
{
    (void)c;
    forget_files(got);
    forget_files(want);
}

static bool ended_before_minimum(const lc_state *c, const outcome *got, const outcome *want)
{
    const lc_state *t = get(c, "trainer");
    bool stops = callback(c, "EarlyStopping", 0) || get(get(c, "module"), "stop_at");
    return stops && (get(t, "min_epochs") || get(t, "min_steps")) && want->should_stop &&
           got->global_step == want->global_step && (!got->should_stop || strcmp(got->early, want->early));
}
static bool predicted_nested(const lc_state *c, const outcome *got, const outcome *want)
{
    return !strcmp(get_text(c, "action", "fit"), "predict") && lc_state_length(get(c, "n_val")) > 1 && want->error &&
           !strcmp(want->error, "AttributeError") && !got->failed;
}

static bool saves_with_validation(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)got, (void)want;
    return step_monitor(c) != NULL;
}
static void forget_saved(const lc_state *c, outcome *got, outcome *want)
{
    (void)c;
    if (got->status == LC_ERR_CONFIG &&
        strstr(got->message,
               "could not find the monitored key")) { /* it is missing when validation has run: an error */
        forget_all(got);
        forget_all(want);
        return;
    }
    forget_files(got);
    forget_files(want);
}

static bool waits_for_minimum(const lc_state *c, const outcome *got, const outcome *want)
{
    const lc_state *t = get(c, "trainer");
    return callback(c, "EarlyStopping", 0) && (get_int(t, "min_epochs", 0) > 1 || get_int(t, "min_steps", 0) > 0) &&
           got->global_step > want->global_step && !strncmp(got->rows, want->rows, strlen(want->rows));
}
static void forget_end(const lc_state *c, outcome *got, outcome *want)
{
    (void)c;
    forget_all(got);
    forget_all(want);
}

static bool predicted_nothing(const lc_state *c, const outcome *got, const outcome *want)
{
    return !strcmp(get_text(c, "action", "fit"), "predict") && want->error && !strcmp(want->error, "TypeError") &&
           !got->failed && !*got->result;
}
static void no_error(const lc_state *c, outcome *got, outcome *want)
{
    (void)c, (void)got;
    want->failed = false;
    want->error = NULL;
}

static bool refused(const lc_state *c, const outcome *got, const outcome *want)
{
    return got->status == LC_ERR_CONFIG && !strncmp(got->message, "gradient_clip_val", 17) &&
           get_double(get(c, "trainer"), "gradient_clip_val", 0) < 0 && !want->failed;
}

static bool divided_by_zero(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)c;
    return want->error && !strcmp(want->error, "ZeroDivisionError") && got->status == LC_ERR_CONFIG;
}

static bool saves_last(const lc_state *c, const outcome *got, const outcome *want)
{
    const lc_state *a;
    (void)got, (void)want;
    for (int64_t i = 0; (a = callback(c, "ModelCheckpoint", i)); i++)
        if (get_bool(a, "save_last", *get_text(a, "save_last", ""))) return true; /* or "link" */
    return false;
}
static void forget_last(const lc_state *c, outcome *got, outcome *want)
{
    outcome *both[] = {got, want};
    (void)c;
    for (int i = 0; i < 2; i++) {
        drop(both[i]->tr.text, "cb.on_save_checkpoint");
        drop(both[i]->tr.text, "m.on_save_checkpoint");
        for (char *p = both[i]->checkpoints; (p = strstr(p, "last=last"));) {
            p += strlen("last=");
            memmove(p, p + strcspn(p, ";"), strlen(p + strcspn(p, ";")) + 1);
        }
        for (char *p = both[i]->files; *p;) {
            size_t n = strcspn(p, " ") + 1;
            const char *base = p + n;
            while (base > p && base[-1] != '/') base--;
            if (!strncmp(base, "last.ckpt", 9) || !strncmp(base, "last-v", 6))
                memmove(p, p + n, strlen(p + n) + 1);
            else
                p += n;
        }
    }
}

static bool checked_early(const lc_state *c, const outcome *got, const outcome *want)
{
    if (got->status != LC_ERR_CONFIG || !(strstr(got->message, "limit_") || strstr(got->message, "overfit_batches")))
        return false;
    if (!is_traced(c)) return want->failed;
    return got->tr.text && want->tr.text &&
           (got->global_step < want->global_step || strlen(got->tr.text) < strlen(want->tr.text));
}

static bool clips_nothing(const lc_state *c, const outcome *got, const outcome *want)
{
    return !strcmp(get_text(get(c, "trainer"), "gradient_clip_algorithm", ""), "value") &&
           get(get(c, "module"), "skip_at") && want->error && !strcmp(want->error, "RuntimeError") && !got->failed;
}

static bool with_another(const lc_state *c, const outcome *got, const outcome *want)
{
    const lc_state *a;
    bool saves = false;
    for (int64_t i = 0; (a = callback(c, "ModelCheckpoint", i)); i++) saves |= get_bool(a, "save_on_exception", false);
    return saves && want->error && count(got->files, ".ckpt") == count(want->files, ".ckpt") + 1;
}

/* `last` may link to a checkpoint that is still kept for the run that continues from it. */
static bool continues_a_link(const lc_state *c, const outcome *got, const outcome *want)
{
    return saves_last(c, got, want) && resumes_from_last(c) && count(got->files, ".ckpt") > count(want->files, ".ckpt");
}

/* OnExceptionCheckpoint, in a run that failed before it trained. */
static bool failed_at_start(const lc_state *c, const outcome *got, const outcome *want)
{
    return callback(c, "OnExceptionCheckpoint", 0) && got->failed && want->failed && got->global_step == 0 &&
           want->global_step == 0;
}

static bool averages_twice(const lc_state *c, const outcome *got, const outcome *want)
{
    int n = !!callback(c, "WeightAveraging", 0) + !!callback(c, "WeightAveraging", 1) +
            !!callback(c, "EMAWeightAveraging", 0) + !!callback(c, "EMAWeightAveraging", 1);
    (void)want;
    return n > 1 && got->status == LC_ERR_CONFIG;
}

/* SWA whose first epoch is never reached. */
static bool averages_too_late(const lc_state *c, const outcome *got, const outcome *want)
{
    const lc_state *a = callback(c, "StochasticWeightAveraging", 0);
    int64_t epochs = get_int(get(c, "trainer"), "max_epochs", -1);
    (void)got, (void)want;
    return a && lc_state_kind_of(get(a, "swa_epoch_start")) == LC_STATE_INT && epochs >= 0 &&
           get_int(a, "swa_epoch_start", 0) > epochs;
}
static void forget_weight(const lc_state *c, outcome *got, outcome *want)
{
    (void)c;
    got->weight[0] = want->weight[0] = 0;
}

static bool averages_in_a_failure(const lc_state *c, const outcome *got, const outcome *want)
{
    return got->failed && want->failed && (callback(c, "WeightAveraging", 0) || callback(c, "EMAWeightAveraging", 0));
}

static bool accumulates_twice(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)want;
    return callback(c, "GradientAccumulationScheduler", 1) && got->status == LC_ERR_CONFIG;
}

static bool failed_at_epoch_end(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)c;
    return got->failed && want->failed && strstr(got->message, "on_train_epoch_end");
}
static void forget_all_metrics(const lc_state *c, outcome *got, outcome *want)
{
    (void)c;
    got->metrics[0] = want->metrics[0] = 0;
}

static bool nothing_left(const lc_state *c, const outcome *got, const outcome *want)
{
    const char *from = get(c, "resume") ? resumed(got) : NULL;
    (void)want;
    return from && !strstr(from, "m.training_step") && !want->failed &&
           (!got->failed || strstr(got->message, "needs a logger"));
}
static void forget_ends(const lc_state *c, outcome *got, outcome *want)
{
    bool same = got->global_step == want->global_step && want->current_epoch - got->current_epoch <= 0;
    (void)c;
    if (got->failed || !same) { /* of a callback in on_train_start, or early stopping that is in the checkpoint */
        forget_all(got);
        forget_all(want);
        return;
    }
    got->current_epoch = want->current_epoch;
    outcome *both[] = {got, want};
    for (int i = 0; i < 2; i++) {
        drop(resumed(both[i]), "cb.");
        drop(resumed(both[i]), "m.");
    }
}

static bool has_only_weights(const lc_state *c, const outcome *got, const outcome *want)
{
    return get(c, "resume") && got->status == LC_ERR_CONFIG && strstr(got->message, "save_weights_only") &&
           want->failed && strstr(want->message, "save_weights_only");
}

/* Options that lightc refuses, and the least values that it takes. */
static bool out_of_range(const lc_state *c, const outcome *got, const outcome *want)
{
    static const struct {
        const char *name;
        int64_t least;
    } options[] = {{"num_sanity_val_steps", -1}, {"log_every_n_steps", 0}, {"accumulate_grad_batches", 1}};
    const lc_state *a;
    if (want->failed || !got->failed) return false;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (get_int(get(c, "trainer"), options[i].name, options[i].least) < options[i].least) return true;
    for (int64_t i = 0; (a = callback(c, "EarlyStopping", i)); i++)
        if (get_int(a, "patience", 0) < 0) return true;
    return strstr(got->message, "a value needs a name");
}

static bool named_early(const lc_state *c, const outcome *got, const outcome *want)
{
    (void)c;
    return got->status == LC_ERR_CONFIG && want->failed &&
           (strstr(got->message, "needs monitor") || strstr(got->message, "of checkpoints has") ||
            strstr(got->message, "in a checkpoint's filename"));
}

const rule rules[] = {
    {.name = "teardown",
     .applies = threw,
     .rewrite = add_teardown,
     .reason = "an error is followed by on_exception and teardown; Lightning leaves teardown out"},
    {.name = "short window",
     .applies = accumulates,
     .set = divide_by_k,
     .reason = "the last, shorter window is divided by its length; Lightning divides by accumulate_grad_batches"},
    {.name = "interval 1",
     .applies = interval_of_one,
     .set = at_epochs,
     .reason = "val_check_interval=1 is every batch; Lightning's callbacks take it for 1.0, the whole epoch"},
    {.name = "scheduler frequency",
     .applies = step_frequency,
     .rewrite = forget_rates,
     .reason = "the frequency of an interval of steps counts optimizer steps; Lightning counts batches in the epoch"},
    {.name = "another place",
     .applies = resumes_elsewhere,
     .rewrite = forget_resumed,
     .reason =
         "a run resumes where it stopped; after a stop, with max_steps, without validation or with loaders of unknown "
         "length Lightning begins the next epoch, ends the last one twice, or continues one that is over"},
    {.name = "nothing left",
     .applies = nothing_left,
     .rewrite = forget_ends,
     .reason = "a run that ends where it is resumed calls the hooks of its start and end, counts its last epoch, and "
               "keeps the decision of early stopping; Lightning skips the former and forgets the latter"},
    {.name = "saved once",
     .applies = saves_again,
     .rewrite = forget_saves,
     .reason = "a resumed run knows which step it has saved; Lightning saves it again"},
    {.name = "exact resume",
     .applies = mid_epoch,
     .rewrite = resume_exactly,
     .reason = "a run resumes with the data it has not seen, and completes its epoch; Lightning restarts the loader "
               "and skips validation and end hooks of an epoch saved at its last batch"},
    {.name = "pending plateau",
     .applies = plateau_resumed,
     .rewrite = step_pending,
     .reason = "a plateau scheduler whose step was due after the checkpoint steps when the run continues"},
    {.name = "resumed metrics",
     .applies = resumes,
     .rewrite = forget_metrics,
     .reason = "metrics are part of a checkpoint; Lightning's are empty until something is logged again"},
    {.name = "monitored steps",
     .applies = saves_with_validation,
     .rewrite = forget_saved,
     .reason = "every_n_train_steps with a monitor of validation saves after the validation that is due"},
    {.name = "continued link", /* before "last", which forgets the links */
     .applies = continues_a_link,
     .rewrite = forget_saves,
     .reason = "the checkpoint that a run continues from is not removed, also if it was named by a link"},
    {.name = "last",
     .applies = saves_last,
     .rewrite = forget_last,
     .reason = "last is the newest state at every trigger, and a link if that was saved already; Lightning saves it "
               "again, and only when another checkpoint was written"},
    {.name = "saved on an exception",
     .applies = with_another,
     .rewrite = forget_saves,
     .reason = "a checkpoint saved on an exception gets a name of its own; Lightning overwrites one of the same name"},
    {.name = "nothing to save",
     .applies = failed_at_start,
     .rewrite = forget_saves,
     .reason = "OnExceptionCheckpoint saves a fit that has begun to train; Lightning saves whatever there is"},
    {.name = "two averages",
     .applies = averages_twice,
     .rewrite = forget_end,
     .reason = "a model validates with one average, so two are refused; in Lightning the later one replaces the first"},
    {.name = "late averages",
     .applies = averages_too_late,
     .rewrite = forget_weight,
     .reason =
         "averages that never begin leave the trained weights; Lightning ends with those from before the training"},
    {.name = "averages in a failure",
     .applies = averages_in_a_failure,
     .rewrite = forget_weight,
     .reason = "a validation with averages that fails gives the model its weights back; Lightning leaves the averages"},
    {.name = "two accumulation schedules",
     .applies = accumulates_twice,
     .rewrite = forget_end,
     .reason = "two GradientAccumulationSchedulers are refused; in Lightning the later one holds"},
    {.name = "metrics of an epoch that fails at its end",
     .applies = failed_at_epoch_end,
     .rewrite = forget_all_metrics,
     .reason = "values of an epoch are computed before its end hooks; in Lightning when they are first asked for"},
    {.name = "limits",
     .applies = checked_early,
     .rewrite = forget_end,
     .reason = "limits are checked before the training; Lightning checks those of validation when that first runs"},
    {.name = "nothing to clip",
     .applies = clips_nothing,
     .rewrite = forget_end,
     .reason = "clipping by value accepts a step without gradients, on which PyTorch fails"},
    {.name = "minimum",
     .applies = waits_for_minimum,
     .rewrite = forget_end,
     .reason =
         "early stopping decides again when min_epochs and min_steps are met; in Lightning the first decision holds"},
    {.name = "unmet minimum",
     .applies = ended_before_minimum,
     .rewrite = forget_end,
     .reason = "a decision to stop early is withdrawn while a minimum is not met; in Lightning it holds"},
    {.name = "nested predictions",
     .applies = predicted_nested,
     .rewrite = forget_end,
     .reason = "the recorder adds up predictions of one loader only"},
    {.name = "empty prediction",
     .applies = predicted_nothing,
     .rewrite = no_error,
     .reason = "predict without batches gives no predictions; Lightning gives None, over which the recorder fails"},
    {.name = "negative clipping",
     .applies = refused,
     .rewrite = forget_end,
     .reason = "options are checked against their ranges; Lightning ignores a negative gradient_clip_val"},
    {.name = "only weights",
     .applies = has_only_weights,
     .rewrite = forget_end,
     .reason = "a checkpoint with only weights is refused before it is loaded; Lightning loads what there is first"},
    {.name = "ranges",
     .applies = out_of_range,
     .rewrite = forget_end,
     .reason =
         "numbers are checked against their ranges, and values need names; Lightning takes negative and empty ones"},
    {.name = "names",
     .applies = named_early,
     .rewrite = forget_end,
     .reason = "the format of a checkpoint's name, and that there is a monitor, are checked before the training; "
               "Lightning finds out when it saves or stops"},
    {.name = "zero",
     .applies = divided_by_zero,
     .rewrite = forget_end,
     .reason = "intervals and windows of 0 are refused at the start; Lightning fails when it divides by them"},
};
const int n_rules = sizeof rules / sizeof *rules;
