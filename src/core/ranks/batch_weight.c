/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's share of each batch: reported to the strategy, with a warning if shares cannot be equal. */
#include "core/ranks/ranks.h"

#include "core/ranks/rank_times.h"
#include "data/batch_slice.h"

#include <stdio.h>

void lc__weigh_batch(lc_trainer *t, const lc_batch *batch)
{
    double weight = 1;
    lc__rank_times_start(t);
    if (!t->comm || !t->strategy->before_backward) return;
    if (batch && batch->global_size > 0)
        weight = (double)batch->size * lc_comm_size(t->comm) / (double)batch->global_size;
    t->strategy->before_backward(t->strategy_self, weight);
}

/* With `deterministic`, each chunk has the same part of every loader's batch. */
static bool cut_into_chunks(const lc_trainer *t)
{
    return t->opt.deterministic && t->stage != LC_STAGE_PREDICT;
}

static bool is_uneven(const lc_batch *batch, int64_t shares)
{
    bool uneven = lc__batch_units(batch, shares) == 0;
    int64_t all = lc__batch_samples(batch);
    for (int i = 0; i < batch->n_parts && !uneven; i++) { /* the program's own loader may not divide evenly */
        const lc_batch *b = batch->parts[i];
        uneven = b && b->size * all != batch->size * lc__batch_samples(b);
    }
    return uneven;
}

void lc__warn_uneven(lc_trainer *t, const lc_batch *batch, int64_t shares)
{
    lc__str sizes = {0};
    char loader[40] = "train";
    if (t->ranks->uneven_parts_reported || shares < 2 || cut_into_chunks(t) || !is_uneven(batch, shares)) return;
    t->ranks->uneven_parts_reported = true;
    for (int i = 0; i < batch->n_parts; i++)
        if (batch->parts[i])
            lc__str_add(&sizes, "%s%lld", sizes.n ? ", " : "", (long long)lc__batch_samples(batch->parts[i]));
    if (t->validating || t->stage != LC_STAGE_FIT)
        snprintf(loader, sizeof loader, "%s %d", lc_stage_name(t->stage), t->dataloader_idx);
    lc_trainer_message(
        t, LC_WARNING,
        "the combined %s loader has a batch whose parts have %s samples, which %lld %s cannot divide equally: some "
        "samples count more than with one, and results differ slightly; drop_last skips such batches",
        loader, sizes.failed ? "different numbers of" : sizes.s, (long long)shares,
        t->device_parts ? "devices" : "ranks");
    lc__str_free(&sizes);
}

lc_status lc__begin_batch(lc_trainer *t, const lc_batch *batch, int64_t passes)
{
    if (batch->n_parts && batch->global_size > 0) lc__warn_uneven(t, batch, t->n_ranks);
    if (!t->comm || !t->strategy->begin_batch) return LC_OK;
    return t->strategy->begin_batch(t->strategy_self, lc__is_empty_share(batch) ? 0 : passes);
}

lc_status lc__end_batch(lc_trainer *t)
{
    return t->comm && t->strategy->end_batch ? t->strategy->end_batch(t->strategy_self) : LC_OK;
}
