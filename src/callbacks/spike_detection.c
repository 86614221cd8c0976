/* SPDX-License-Identifier: Apache-2.0 */
/* SpikeDetection: a loss far from the mean of the last losses ends the run, or its update is left out.
 *
 * To leave out an update the loss must be known before it, which splits the step's plan there; to stop the run the loss
 * is read after the step, and that of a device after the step that follows, so that the device has work meanwhile. */
#include "callbacks/callbacks.h"
#include "base/grow.h"
#include "base/handle.h"
#include "core/split/chunks.h"
#include "base/io.h"
#include "comm/agree.h"
#include "core/logging/arrivals.h"
#include "core/logging/results_ranks.h"
#include "base/state_count.h"

#include <stdlib.h>
#include <string.h>

typedef struct batch_loss {
    lc_tensor *value;
    double samples, loss;
} batch_loss;

typedef struct loss_list {
    batch_loss *e;
    int n, cap;
} loss_list;

typedef struct spikes {
    lc_spike_detection_args a;
    bool max;
    char *path;
    double *values; /* ring of the last `window` losses */
    int64_t n_values;
    double last;
    int64_t *bad; /* batches */
    int n_bad, cap_bad;
    loss_list losses; /* of the current batch, or of its chunks */
    int64_t offset;   /* of the samples of the last entry */
    loss_list sent;   /* on a device: of the batch before, which is judged late */
    bool waits;       /* it has not been judged */
    int n_arrived;
    uint64_t number; /* of the queue, when they were sent */
    int64_t sent_batch, sent_epoch;
    bool judged;     /* the current batch was judged */
    bool bad_window; /* a batch of the current accumulation window was a spike */
} spikes;

static lc_status sp_setup(void *self, lc_trainer *t, lc_stage stage)
{
    spikes *s = self;
    (void)t;
    if (stage != LC_STAGE_FIT) return LC_OK;
    s->n_values = 0;
    s->n_bad = 0;
    s->last = 0;
    s->losses.n = s->sent.n = 0;
    s->bad_window = s->judged = s->waits = false;
    return LC_OK;
}

/* ---- judging ---- */

static bool is_spike(const spikes *s, double loss)
{
    int64_t n = s->n_values < s->a.window ? s->n_values : s->a.window;
    double mean = NAN;
    if (s->a.finite_only && !isfinite(loss)) return true;
    if (s->max ? loss - s->last >= 0 : loss - s->last <= 0) return false;
    for (int64_t i = 0; i < n; i++) mean = (i ? mean : 0) + s->values[i] / (double)n;
    double off = fabs(loss - mean);
    return off >= s->a.atol && off >= fabs(s->a.rtol * mean);
}

static lc_status note(spikes *s, int64_t batch)
{
    LC_TRY(lc__grow(&s->bad, &s->cap_bad, s->n_bad, 1, "SpikeDetection"));
    s->bad[s->n_bad++] = batch;
    return LC_OK;
}

/* A JSON list, so that the next run can skip these batches. */
static lc_status write_list(const spikes *s, const lc_trainer *t, lc__str *path)
{
    lc__str text = {0};
    size_t n = s->path ? strlen(s->path) : 0;
    bool file = n > 5 && !strcmp(s->path + n - 5, ".json");
    lc__str_add(path, "%s%s", s->path ? s->path : t->root_dir, file ? "" : "/skip_batches.json");
    lc__str_add(&text, "[");
    for (int i = 0; i < s->n_bad; i++) lc__str_add(&text, "%s%lld", i ? ", " : "", (long long)s->bad[i]);
    lc__str_add(&text, "]\n");
    lc_status status =
        path->failed || text.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: the list of bad batches") : LC_OK;
    const bool writes = status >= 0 && lc__is_rank_zero(t);
    if (writes) status = lc__make_dirs_of(&lc__io_system, path->s);
    if (writes && status >= 0) status = lc__replace_file(&lc__io_system, path->s, text.s, text.n);
    lc__str_free(&text);
    return status < 0 ? lc_fail_context(status, "SpikeDetection") : LC_OK;
}

static lc_status judge(spikes *s, lc_trainer *t, double loss, int64_t epoch, int64_t batch_idx)
{
    s->judged = true;
    if (batch_idx < s->a.warmup || !is_spike(s, loss)) {
        if (!isfinite(loss)) return LC_OK;
        s->values[s->n_values++ % s->a.window] = loss;
        s->last = loss;
        return LC_OK;
    }
    s->bad_window = true;
    if (batch_idx > 0) LC_TRY(note(s, batch_idx - 1));
    LC_TRY(note(s, batch_idx));
    lc__str path = {0};
    lc_status status = write_list(s, t, &path);
    if (status >= 0 && !s->a.skip)
        status = lc_fail(LC_ERR_STATE,
                         "training spike detected in batch %lld of epoch %lld: the loss is %g after %g; the batches to "
                         "skip are listed in %.300s",
                         (long long)batch_idx, (long long)epoch, loss, s->last, path.s);
    lc__str_free(&path);
    LC_TRY(status);
    lc_trainer_message(t, LC_WARNING, "training spike in batch %lld of epoch %lld: loss %g after %g; update skipped",
                       (long long)batch_idx, (long long)epoch, loss, s->last);
    return LC_OK;
}

/* ---- the loss of a batch ---- */

static lc_status add_loss(spikes *s, const lc_trainer *t, lc_tensor *value)
{
    const lc_batch *b = t->batch;
    int64_t offset = b ? b->global_offset : 0;
    if (s->judged || offset <= s->offset) s->losses.n = 0; /* not a further chunk of the same batch */
    LC_TRY(lc__grow(&s->losses.e, &s->losses.cap, s->losses.n, 1, "SpikeDetection"));
    s->losses.e[s->losses.n++] = (batch_loss){.value = value, .samples = b && b->size > 0 ? (double)b->size : 1};
    s->offset = offset;
    s->judged = false;
    return LC_OK;
}

/* The mean over the samples of all ranks that have a loss; in deterministic training it does not depend on how chunks
 * are distributed. */
static lc_status judge_losses(spikes *s, lc_trainer *t, const loss_list *l, int64_t epoch, int64_t batch_idx)
{
    lc__exact_sum sum = {0};
    double all[2] = {0};
    for (int i = 0; i < l->n; i++) {
        lc__exact_add(&sum, l->e[i].loss * l->e[i].samples);
        all[1] += l->e[i].samples;
    }
    all[0] = lc__exact_value(&sum);
    LC_TRY(lc__ranks_reduce(t->comm, all, 2, LC_LOG_SUM));
    if (t->opt.deterministic) {
        LC_TRY(lc__ranks_reduce_exact(t->comm, &sum));
        all[0] = lc__exact_value(&sum);
    }
    return all[1] > 0 ? judge(s, t, all[0] / all[1], epoch, batch_idx) : LC_OK;
}

static lc_status judge_batch(spikes *s, lc_trainer *t, int64_t batch_idx)
{
    for (int i = 0; i < s->losses.n; i++) LC_TRY(lc_item(s->losses.e[i].value, &s->losses.e[i].loss));
    LC_TRY(judge_losses(s, t, &s->losses, t->current_epoch, batch_idx));
    s->losses.n = 0;
    return LC_OK;
}

/* ---- one batch late ---- */

static void arrived(void *ctx, double loss, lc__moment at)
{
    spikes *s = ctx;
    (void)at;
    if (s->n_arrived < s->sent.n) s->sent.e[s->n_arrived++].loss = loss;
}

static lc_status judge_sent(spikes *s, lc_trainer *t)
{
    if (!s->waits) return LC_OK;
    s->waits = false;
    LC_TRY(lc__arrivals_settle_to(t, s->number));
    return judge_losses(s, t, &s->sent, s->sent_epoch, s->sent_batch);
}

/* Judges the batch before, and sends for the losses of this one. */
static lc_status judge_late(spikes *s, lc_trainer *t, int64_t batch_idx)
{
    LC_TRY(judge_sent(s, t));
    loss_list free_list = s->sent;
    s->sent = s->losses;
    s->losses = free_list;
    s->n_arrived = 0;
    s->sent_epoch = t->current_epoch;
    s->sent_batch = batch_idx;
    for (int i = 0; i < s->sent.n; i++) LC_TRY(lc__arrivals_call(t, s->sent.e[i].value, arrived, s));
    s->number = lc__arrivals_number(t);
    s->waits = true;
    return LC_OK;
}

/* ---- hooks ---- */

static lc_status sp_before_backward(void *self, lc_trainer *t, lc_tensor *scaled)
{
    spikes *s = self;
    (void)scaled;
    return add_loss(s, t, s->a.skip ? lc_keep(t->loss) : t->loss);
}

static lc_status sp_before_step(void *self, lc_trainer *t, lc_optimizer *opt)
{
    spikes *s = self;
    (void)opt;
    if (!s->a.skip) return LC_OK;
    /* Each optimizer has a loss, perhaps of other ranks. By hand, several may have one. */
    if (!s->judged || !t->mo.manual_optimization) LC_TRY(judge_batch(s, t, t->batch_idx));
    return s->bad_window ? LC_SKIP : LC_OK;
}

static lc_status sp_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    spikes *s = self;
    (void)b;
    if (!s->judged) {
        if (!lc__tree_of(t)) s->losses.n = 0; /* use what training_step returned, whatever went through backward */
        if (!lc__tree_of(t) && o->loss) LC_TRY(add_loss(s, t, o->loss));
        LC_TRY(t->logging->arrivals && !s->a.skip ? judge_late(s, t, i) : judge_batch(s, t, i));
    }
    s->judged = false;
    s->losses.n = 0;
    if (!t->accumulating) s->bad_window = false;
    return LC_OK;
}

static lc_status sp_epoch_end(void *self, lc_trainer *t)
{
    return judge_sent(self, t);
}

/* ---- state ---- */

static lc_status sp_save(void *self, lc_trainer *t, lc_state *out)
{
    spikes *s = self;
    lc_state *list;
    LC_TRY(judge_sent(s, t)); /* no checkpoint holds the update of a spike */
    LC_TRY(lc_state_set_double(out, "last_val", s->last));
    LC_TRY(lc_state_set_bool(out, "bad_window", s->bad_window));
    LC_TRY(lc_state_set_int(out, "n_values", s->n_values));
    LC_TRY(lc_state_set_array(out, "values", &list));
    for (int64_t i = 0; i < s->a.window && i < s->n_values; i++) LC_TRY(lc_state_set_double(list, NULL, s->values[i]));
    LC_TRY(lc_state_set_array(out, "bad_batches", &list));
    for (int i = 0; i < s->n_bad; i++) LC_TRY(lc_state_set_int(list, NULL, s->bad[i]));
    return LC_OK;
}

static lc_status sp_load(void *self, lc_trainer *t, const lc_state *in)
{
    spikes *s = self;
    const lc_state *list;
    (void)t;
    LC_TRY(lc_state_get_double(in, "last_val", &s->last));
    LC_TRY(lc_state_get_bool(in, "bad_window", &s->bad_window));
    LC_TRY(lc__state_get_count(in, "n_values", 0, &s->n_values));
    LC_TRY(lc_state_get_array(in, "values", &list));
    int64_t n = lc_state_length(list);
    if (s->n_values < n || n > s->a.window || (n < s->a.window && s->n_values != n)) {
        s->n_values = 0; /* the window size changed: start empty */
        n = 0;
    }
    for (int64_t i = 0; i < n; i++) LC_TRY(lc_state_get_double(lc_state_at(list, i), NULL, &s->values[i]));
    LC_TRY(lc_state_get_array(in, "bad_batches", &list));
    s->n_bad = 0;
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        int64_t batch;
        LC_TRY(lc__state_get_count(lc_state_at(list, i), NULL, 0, &batch));
        LC_TRY(note(s, batch));
    }
    return LC_OK;
}

static void sp_release(void *self)
{
    spikes *s = self;
    free(s->path);
    free(s->values);
    free(s->losses.e);
    free(s->sent.e);
    free(s->bad);
}

static const lc_callback_ops spike_ops = {
    LC_CALLBACK_OPS_INIT("SpikeDetection"),
    .no_vote = true,
    .setup = sp_setup,
    .on_before_backward = sp_before_backward,
    .on_before_optimizer_step = sp_before_step,
    .on_train_batch_end = sp_batch_end,
    .on_train_epoch_end = sp_epoch_end,
    .save_state = sp_save,
    .load_state = sp_load,
    .free = lc__owned_free,
};

lc_status lc_spike_detection_new(const lc_spike_detection_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_spike_detection, given);
    if (args->mode && strcmp(args->mode, "min") != 0 && strcmp(args->mode, "max") != 0)
        return lc_fail(LC_ERR_CONFIG, "SpikeDetection: mode is \"%.40s\"; it must be min or max", args->mode);
    if (args->window < 1 || args->warmup < 0)
        return lc_fail(LC_ERR_CONFIG, "SpikeDetection: window must be positive, and warmup must not be negative");
    spikes *s = lc__owned_new(sizeof *s, sp_release);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: SpikeDetection");
    s->a = *args;
    s->max = args->mode && !strcmp(args->mode, "max");
    s->a.atol = fabs(args->atol);
    s->values = calloc((size_t)s->a.window, sizeof *s->values);
    if (!s->values || !lc__dup(args->exclude_batches_path, &s->path)) {
        lc__owned_free(s);
        return lc_fail(LC_ERR_MEMORY, "out of memory: SpikeDetection");
    }
    *out = (lc_callback){&spike_ops, s};
    return LC_OK;
}
