/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and loads the logged values of an unfinished epoch. */
#include "core/logging/logging.h"
#include "core/hooks/trainer_internal.h"

#include <string.h>

/* Saves the digits that are not 0: place, digit, place, ... */
static lc_status save_exact(lc__logged *e, lc_state *out)
{
    lc_state *digits;
    if (!e->exact) return LC_OK;
    lc__exact_sum *s = &e->exact->epoch;
    lc__exact_tidy(s);
    LC_TRY(lc_state_set_array(out, "exact", &digits));
    for (int i = 0; i < LC__EXACT_DIGITS; i++) {
        if (!s->digit[i]) continue;
        LC_TRY(lc_state_set_int(digits, NULL, i));
        LC_TRY(lc_state_set_int(digits, NULL, s->digit[i]));
    }
    return lc_state_set_double(out, "special", s->special);
}

/* A digit is a sum of a few values below 2^32. */
#define MOST_DIGIT ((int64_t)1 << 48)

static lc_status load_exact(lc__logged *e, const lc_state *in)
{
    const lc_state *digits = lc_state_find(in, "exact");
    if (!e->exact) return LC_OK;
    *e->exact = (lc__exact_sums){0};
    if (!digits) { /* saved by a run that is not deterministic */
        lc__exact_add(&e->exact->epoch, e->sum);
        return LC_OK;
    }
    for (int64_t i = 0; i + 1 < lc_state_length(digits); i += 2) {
        int64_t place, digit;
        LC_TRY(lc_state_get_int(lc_state_at(digits, i), NULL, &place));
        LC_TRY(lc_state_get_int(lc_state_at(digits, i + 1), NULL, &digit));
        if (place < 0 || place >= LC__EXACT_DIGITS || digit < -MOST_DIGIT || digit > MOST_DIGIT)
            return lc_fail(LC_ERR_FORMAT, "the checkpoint has an invalid sum of \"%.60s\"", e->name);
        e->exact->epoch.digit[place] = digit;
    }
    return lc_state_get_double(in, "special", &e->exact->epoch.special);
}

/* Sums of doubles depend on their order: with as many ranks each continues with its own. */
static lc_status save_of_ranks(const lc_trainer *t, const lc__logged *e, lc_state *out)
{
    lc_state *all;
    if (!e->of_ranks) return LC_OK;
    LC_TRY(lc_state_set_array(out, "of_ranks", &all));
    for (int i = 0; i < 2 * t->n_ranks; i++) LC_TRY(lc_state_set_double(all, NULL, e->of_ranks[i]));
    return LC_OK;
}

/* With another number of ranks, the first continues with the sum over all, which must count once. */
static lc_status load_of_ranks(const lc_trainer *t, lc__logged *e, const lc_state *in)
{
    const lc_state *all = lc_state_find(in, "of_ranks");
    if (t->rank != 0) lc__logged_drop(e);
    if (!all || e->exact || e->of_metric || lc_state_length(all) != 2 * t->n_ranks) return LC_OK;
    LC_TRY(lc_state_get_double(lc_state_at(all, 2 * t->rank), NULL, &e->sum));
    return lc_state_get_double(lc_state_at(all, 2 * t->rank + 1), NULL, &e->weight);
}

/* In a checkpoint, a choice is 0 for auto, 1 for on, 2 for off. */
static int64_t stored_choice(lc_choice c)
{
    return LC_AUTO - c;
}

static lc_choice choice_stored_as(int64_t stored)
{
    return stored == LC_AUTO - LC_ON ? LC_ON : stored == LC_AUTO - LC_OFF ? LC_OFF : LC_AUTO;
}

lc_status lc__results_save(const lc_trainer *t, lc__results *r, lc_state *out)
{
    for (int i = 0; i < r->n; i++) {
        lc__logged *e = &r->e[i];
        lc_state *o;
        if (!e->active) continue;
        LC_TRY(lc_state_set_object(out, NULL, &o));
        LC_TRY(lc__logged_metric_save(e, o));
        LC_TRY(lc_state_set_text(o, "name", e->base));
        LC_TRY(lc_state_set_text(o, "hook", lc_hook_name(e->hook)));
        LC_TRY(lc_state_set_int(o, "loader", e->loader));
        LC_TRY(lc_state_set_bool(o, "prog_bar", e->args.prog_bar));
        LC_TRY(lc_state_set_int(o, "logger", stored_choice(e->args.logger)));
        LC_TRY(lc_state_set_int(o, "arg_on_step", stored_choice(e->args.on_step)));
        LC_TRY(lc_state_set_int(o, "arg_on_epoch", stored_choice(e->args.on_epoch)));
        LC_TRY(lc_state_set_int(o, "reduce_fx", e->args.reduce_fx));
        LC_TRY(lc_state_set_bool(o, "sync_dist", e->args.sync_dist));
        LC_TRY(lc_state_set_bool(o, "rank_zero_only", e->args.rank_zero_only));
        LC_TRY(lc_state_set_int(o, "add_dataloader_idx", stored_choice(e->args.add_dataloader_idx)));
        LC_TRY(lc_state_set_bool(o, "on_step", e->on_step));
        LC_TRY(lc_state_set_bool(o, "on_epoch", e->on_epoch));
        LC_TRY(lc_state_set_bool(o, "has_step", e->has_step));
        LC_TRY(lc_state_set_double(o, "step", e->step));
        LC_TRY(lc_state_set_double(o, "sum", e->exact && !e->of_metric ? lc__exact_value(&e->exact->epoch) : e->sum));
        LC_TRY(save_exact(e, o));
        LC_TRY(lc_state_set_double(o, "weight", e->weight));
        LC_TRY(save_of_ranks(t, e, o));
    }
    return LC_OK;
}

lc_status lc__results_load(lc_trainer *t, lc__results *r, const lc_state *in)
{
    LC_TRY(lc__results_reset(t, r));
    for (int64_t i = 0; i < lc_state_length(in); i++) {
        const lc_state *o = lc_state_at(in, i);
        const char *name, *hook_name;
        int64_t loader, logger, arg_step, arg_epoch, reduce, add;
        bool prog_bar, on_step, on_epoch, has_step, sync_dist = false, rank_zero_only = false;
        double step, sum, weight;
        LC_TRY(lc_state_get_text(o, "name", &name));
        LC_TRY(lc_state_get_text(o, "hook", &hook_name));
        LC_TRY(lc_state_get_int(o, "loader", &loader));
        LC_TRY(lc_state_get_bool(o, "prog_bar", &prog_bar));
        LC_TRY(lc_state_get_int(o, "logger", &logger));
        LC_TRY(lc_state_get_int(o, "arg_on_step", &arg_step));
        LC_TRY(lc_state_get_int(o, "arg_on_epoch", &arg_epoch));
        LC_TRY(lc_state_get_int(o, "reduce_fx", &reduce));
        LC_TRY(lc_state_get_int(o, "add_dataloader_idx", &add));
        if (lc_state_find(o, "sync_dist"))
            LC_TRY(lc_state_get_bool(o, "sync_dist", &sync_dist)); /* older checkpoints lack it */
        if (lc_state_find(o, "rank_zero_only")) LC_TRY(lc_state_get_bool(o, "rank_zero_only", &rank_zero_only));
        LC_TRY(lc_state_get_bool(o, "on_step", &on_step));
        LC_TRY(lc_state_get_bool(o, "on_epoch", &on_epoch));
        LC_TRY(lc_state_get_bool(o, "has_step", &has_step));
        LC_TRY(lc_state_get_double(o, "step", &step));
        LC_TRY(lc_state_get_double(o, "sum", &sum));
        LC_TRY(lc_state_get_double(o, "weight", &weight));
        int hook = 0;
        while (hook < LC_HOOKS && strcmp(lc_hook_name((lc_hook)hook), hook_name) != 0) hook++;
        if (hook == LC_HOOKS || loader < LC__NO_LOADER || loader >= LC_MAX_LOADERS || reduce < 0 ||
            reduce > LC_LOG_MAX || strlen(name) > LC__MOST_NAME)
            return lc_fail(LC_ERR_FORMAT, "the checkpoint has an invalid logged value \"%.60s\"", name);
        lc__logged *e = lc__results_find(r, name, (lc_hook)hook, (int)loader);
        if (!e) {
            lc_log_args args = {.prog_bar = prog_bar,
                                .logger = choice_stored_as(logger) != LC_OFF,
                                .on_step = choice_stored_as(arg_step),
                                .on_epoch = choice_stored_as(arg_epoch),
                                .sync_dist = sync_dist,
                                .rank_zero_only = rank_zero_only,
                                .reduce_fx = (unsigned char)reduce,
                                .add_dataloader_idx = choice_stored_as(add) != LC_OFF};
            e = lc__results_add(r, name, (lc_hook)hook, (int)loader, &args, on_step, on_epoch);
            if (!e) return LC_ERR_MEMORY;
        }
        e->given = e->base;
        e->active = true;
        e->has_step = has_step;
        e->step = step;
        e->sum = sum;
        e->weight = weight;
        LC_TRY(load_exact(e, o));
        LC_TRY(lc__logged_metric_load(e, o));
        LC_TRY(load_of_ranks(t, e, o));
    }
    return LC_OK;
}
