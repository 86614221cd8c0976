/* SPDX-License-Identifier: Apache-2.0 */
/* WeightAveraging and EMAWeightAveraging: the average of the weights over the steps of a training.
 *
 * During validation, and after the end of the training, the model holds the average and the copy holds the weights that
 * training continues with (`swapped`); otherwise it is the other way around. A checkpoint's model is always the
 * average, so that loading it gives what was validated; the other weights are saved with it as "current". */
#include "callbacks/shadow.h"
#include "base/handle.h"
#include "core/ranks/ranks.h"
#include "base/state_count.h"

typedef struct averaging {
    lc_weight_averaging_args mean; /* should_update, use_buffers */
    lc_ema_weight_averaging_args ema;
    bool is_ema;
    lc__shadow shadow; /* empty: not in a fit yet */
    bool swapped, ended;
    bool over; /* the continued training had already ended, and no batch was left */
    int64_t latest_update_step, latest_update_epoch, n_averaged;
} averaging;

static lc_status make_shadow(averaging *a, lc_trainer *t)
{
    if (a->shadow.n) return LC_OK;
    bool average = a->is_ema ? a->ema.use_buffers : a->mean.use_buffers;
    return lc__shadow_new(t->m, average ? LC__AVERAGE_BUFFERS : LC__COPY_BUFFERS, &a->shadow);
}

static lc_status wa_setup(void *self, lc_trainer *t, lc_stage stage)
{
    averaging *a = self;
    int holders = 0;
    for (int i = 0; i < t->n_callbacks; i++) holders += t->callbacks[i]->ops.saved_tensor != NULL;
    if (holders > 1)
        return lc_fail(LC_ERR_CONFIG,
                       "%d callbacks average the weights of the model (WeightAveraging, EMAWeightAveraging); "
                       "validation can use only one average, so keep one of them",
                       holders);
    if (stage != LC_STAGE_FIT) return LC_OK;
    lc__shadow_free(&a->shadow);
    a->swapped = a->ended = a->over = false;
    a->latest_update_step = a->n_averaged = 0;
    a->latest_update_epoch = -1;
    return LC_OK;
}

static lc_status wa_fit_start(void *self, lc_trainer *t)
{
    return make_shadow(self, t);
}

static lc_status wa_train_start(void *self, lc_trainer *t)
{
    (void)t;
    ((averaging *)self)->over = false;
    return LC_OK;
}

/* ---- averaging ---- */

static bool due(const averaging *a, int64_t step, int64_t epoch)
{
    const lc_ema_weight_averaging_args *e = &a->ema;
    if (!a->is_ema) return a->mean.should_update ? a->mean.should_update(a->mean.context, step, epoch) : step >= 0;
    if (step >= 0)
        return e->update_every_n_steps > 0 && step >= e->update_starting_at_step && step % e->update_every_n_steps == 0;
    return e->update_starting_at_epoch != LC_UNSET && epoch >= e->update_starting_at_epoch;
}

static lc_status update(averaging *a, lc_trainer *t)
{
    double weight = !a->n_averaged ? 1 : a->is_ema ? 1 - a->ema.decay : 1 / (double)(a->n_averaged + 1);
    LC_TRY(lc__shadow_update(&a->shadow, t, weight));
    a->n_averaged++;
    return LC_OK;
}

static lc_status wa_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    averaging *a = self;
    (void)o, (void)b, (void)i;
    if (t->global_step <= a->latest_update_step || !due(a, t->global_step - 1, -1)) return LC_OK;
    LC_TRY(update(a, t));
    a->latest_update_step = t->global_step;
    return LC_OK;
}

static lc_status wa_epoch_end(void *self, lc_trainer *t)
{
    averaging *a = self;
    if (t->current_epoch <= a->latest_update_epoch || !due(a, -1, t->current_epoch)) return LC_OK;
    LC_TRY(update(a, t));
    a->latest_update_epoch = t->current_epoch;
    return LC_OK;
}

/* ---- swapping ---- */

static lc_status swap(averaging *a, bool average_in_model)
{
    if (!a->shadow.n || a->ended || a->swapped == average_in_model) return LC_OK;
    LC_TRY(lc__shadow_swap(&a->shadow));
    a->swapped = average_in_model;
    return LC_OK;
}

static lc_status wa_validation_start(void *self, lc_trainer *t)
{
    return t->stage == LC_STAGE_FIT ? swap(self, true) : LC_OK;
}

static lc_status wa_validation_end(void *self, lc_trainer *t)
{
    return t->stage == LC_STAGE_FIT ? swap(self, false) : LC_OK;
}

static lc_status wa_train_end(void *self, lc_trainer *t)
{
    averaging *a = self;
    LC_TRY(lc__buffers_from_rank_zero(t)); /* afterwards this would change only the buffers in the model */
    LC_TRY(swap(a, true));
    a->ended = true;
    return LC_OK;
}

static lc_status wa_teardown(void *self, lc_trainer *t, lc_stage stage)
{
    averaging *a = self;
    (void)t;
    return stage == LC_STAGE_FIT ? swap(a, a->over) : LC_OK; /* after an error during validation, too */
}

/* ---- state ---- */

static lc_status wa_save(void *self, lc_trainer *t, lc_state *out)
{
    averaging *a = self;
    (void)t;
    LC_TRY(lc_state_set_int(out, "latest_update_step", a->latest_update_step));
    LC_TRY(lc_state_set_int(out, "latest_update_epoch", a->latest_update_epoch));
    LC_TRY(lc_state_set_bool(out, "ended", a->ended || a->over));
    return lc_state_set_int(out, "n_averaged", a->n_averaged);
}

static lc_status wa_load(void *self, lc_trainer *t, const lc_state *in)
{
    averaging *a = self;
    LC_TRY(lc__state_get_count(in, "latest_update_step", 0, &a->latest_update_step));
    LC_TRY(lc__state_get_count(in, "latest_update_epoch", -1, &a->latest_update_epoch));
    LC_TRY(lc__state_get_count(in, "n_averaged", 0, &a->n_averaged));
    if (lc_state_find(in, "ended")) LC_TRY(lc_state_get_bool(in, "ended", &a->over));
    return make_shadow(a, t); /* the model holds the average now */
}

static lc_status wa_visit(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx)
{
    averaging *a = self;
    (void)t;
    return lc__shadow_visit(&a->shadow, "current", !a->swapped, fn, ctx);
}

static lc_tensor *wa_saved(void *self, lc_trainer *t, lc_tensor *of)
{
    averaging *a = self;
    (void)t;
    return a->swapped ? NULL : lc__shadow_of(&a->shadow, of);
}

static void wa_release(void *self)
{
    lc__shadow_free(&((averaging *)self)->shadow);
}

#define AVERAGING_OPS(text)                                                                                            \
    {                                                                                                                  \
        LC_CALLBACK_OPS_INIT(text),                                                                                    \
            .no_vote = true, .setup = wa_setup, .on_fit_start = wa_fit_start, .on_train_start = wa_train_start,        \
            .on_train_batch_end = wa_batch_end, .on_validation_epoch_start = wa_validation_start,                      \
            .on_validation_epoch_end = wa_validation_end, .on_train_epoch_end = wa_epoch_end,                          \
            .on_train_end = wa_train_end, .teardown = wa_teardown, .save_state = wa_save, .load_state = wa_load,       \
            .free = lc__owned_free, .visit_tensors = wa_visit, .saved_tensor = wa_saved,                               \
    }
static const lc_callback_ops mean_ops = AVERAGING_OPS("WeightAveraging");
static const lc_callback_ops ema_ops = AVERAGING_OPS("EMAWeightAveraging");

lc_status lc_weight_averaging_new(const lc_weight_averaging_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_weight_averaging, given);
    averaging *a = lc__owned_new(sizeof *a, wa_release);
    if (!a) return lc_fail(LC_ERR_MEMORY, "out of memory: WeightAveraging");
    a->mean = *args;
    *out = (lc_callback){&mean_ops, a};
    return LC_OK;
}

lc_status lc_ema_weight_averaging_new(const lc_ema_weight_averaging_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_ema_weight_averaging, given);
    averaging *a = lc__owned_new(sizeof *a, wa_release);
    if (!a) return lc_fail(LC_ERR_MEMORY, "out of memory: EMAWeightAveraging");
    a->ema = *args;
    a->is_ema = true;
    if (!(a->ema.decay >= 0 && a->ema.decay <= 1)) {
        double decay = a->ema.decay;
        lc__owned_free(a);
        return lc_fail(LC_ERR_CONFIG, "EMAWeightAveraging: decay is %g; it must be in [0, 1]", decay);
    }
    *out = (lc_callback){&ema_ops, a};
    return LC_OK;
}
