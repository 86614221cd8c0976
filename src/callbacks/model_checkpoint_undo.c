/* SPDX-License-Identifier: Apache-2.0 */
/* ModelCheckpoint counts a checkpoint as soon as its save begins: it may become the best, and another is to be removed
 * for it. If the save fails, the state from before is restored, as if there had been no trigger. */
#include "core/resume/resume.h"
#include "callbacks/model_checkpoint.h"
#include "core/resume/after_save.h"

#include <string.h>

void lc__mc_free_memory(model_checkpoint *c)
{
    for (int i = 0; i < c->n_best; i++) free(c->best[i].path);
    free(c->best);
    free(c->best_path), free(c->kth_path), free(c->last_path);
    c->best = NULL;
    c->n_best = c->cap_best = 0;
    c->best_path = c->kth_path = c->last_path = NULL;
    if (!c->before) return;
    lc__mc_free_memory(c->before);
    free(c->before);
    c->before = NULL;
}

static void forget_before(model_checkpoint *c)
{
    if (c->before) lc__mc_free_memory(c->before);
    free(c->before);
    c->before = NULL;
}

static lc_status copy(const model_checkpoint *c, model_checkpoint *b)
{
    *b = *c;
    b->before = NULL;
    b->n_best = 0, b->cap_best = c->n_best + 1;
    b->best_path = b->kth_path = b->last_path = NULL;
    b->best = calloc((size_t)b->cap_best, sizeof *b->best);
    if (!b->best) return lc_fail(LC_ERR_MEMORY, "out of memory: the list of checkpoints");
    for (int i = 0; i < c->n_best; i++) {
        LC_TRY(lc__copy_text(c->best[i].path, &b->best[i].path));
        b->best[i].score = c->best[i].score;
        memcpy(b->best[i].training, c->best[i].training, sizeof b->best[i].training);
        b->n_best++;
    }
    if (c->best_path) LC_TRY(lc__copy_text(c->best_path, &b->best_path));
    if (c->kth_path) LC_TRY(lc__copy_text(c->kth_path, &b->kth_path));
    return c->last_path ? lc__copy_text(c->last_path, &b->last_path) : LC_OK;
}

lc_status lc__mc_begin_save(model_checkpoint *c, lc_trainer *t)
{
    LC_TRY(lc__settle(t, LC__SETTLE_RESULT));
    if (!c->claimed) LC_TRY(lc__mc_claim(t));
    forget_before(c);
    model_checkpoint *b = calloc(1, sizeof *b);
    if (!b) return lc_fail(LC_ERR_MEMORY, "out of memory: the list of checkpoints");
    lc_status status = copy(c, b);
    if (status < 0) {
        lc__mc_free_memory(b);
        free(b);
        return status;
    }
    c->before = b;
    return LC_OK;
}

void lc__mc_settled(void *self, bool saved)
{
    model_checkpoint *c = self, *b = c->before;
    c->missed = saved ? LC__MISSED_NONE : c->saving;
    c->before = NULL;
    if (!b) return;
    if (!saved) {
        lc__mc_free_memory(c);
        c->best = b->best, c->n_best = b->n_best, c->cap_best = b->cap_best;
        c->best_path = b->best_path, c->kth_path = b->kth_path, c->last_path = b->last_path;
        c->best_score = b->best_score, c->kth_value = b->kth_value, c->current = b->current;
        c->has_best_score = b->has_best_score, c->has_current = b->has_current;
        c->has_last = b->has_last, c->last_is_own = b->last_is_own;
        c->last_step_saved = b->last_step_saved;
    } else {
        lc__mc_free_memory(b);
    }
    free(b);
}
