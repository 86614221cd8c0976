/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions kept by the trainer: for each batch, a tensor with the samples of all ranks.
 *
 * Ranks have consecutive slices of a global batch. The results of predict_step are concatenated, so that every rank
 * holds the same as a single rank would: all samples once, in the order of the data. */
#include "core/loop/loop.h"
#include "core/input/input.h"
#include "core/hooks/trainer_internal.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

static lc_status append(lc_trainer *t, int loader, const lc_type *type, const void *data, size_t bytes)
{
    lc__predictions *p = &t->loop->predictions[loader];
    lc_tensor *copy = NULL;
    lc_status status;
    LC_TRY_GOTO(status, done, lc_tensor_new(type->dtype, type->ndim, type->shape, &copy));
    LC_TRY_GOTO(status, done, lc_tensor_write(copy, data, bytes));
    LC_TRY_GOTO(status, done, lc__grow(&p->t, &p->cap, p->n, 1, "predictions"));
    p->t[p->n++] = copy;
    copy = NULL;
done:
    lc_tensor_unref(copy);
    return status;
}

static size_t bytes_of(const lc_type *type)
{
    size_t n = lc_dtype_size(type->dtype);
    for (int i = 0; i < type->ndim; i++) n *= (size_t)type->shape[i];
    return n;
}

/* Slices differ only in the first dimension; ranks without a sample have none (dtype 0). *whole: the concatenated
 * type. */
static lc_status join_types(const lc_type *all, int n, lc_type *whole)
{
    *whole = (lc_type){0};
    for (int r = 0; r < n; r++) {
        if (!all[r].dtype) continue;
        if (!whole->dtype) {
            *whole = all[r];
            continue;
        }
        bool same = whole->ndim == all[r].ndim && whole->ndim > 0 && whole->dtype == all[r].dtype;
        for (int i = 1; i < whole->ndim && same; i++) same = whole->shape[i] == all[r].shape[i];
        if (!same)
            return lc_fail(LC_ERR_SHAPE, "predict_step: the predictions of the ranks cannot be concatenated: the first "
                                         "dimension must be the samples, and the others must be equal on all ranks (or "
                                         "set discard_predictions and write them in a callback)");
        whole->shape[0] += all[r].shape[0];
    }
    return LC_OK;
}

static lc_status gather(lc_trainer *t, int loader, const lc_type *mine, const void *data)
{
    int n = t->n_ranks;
    lc_status status;
    size_t most = 0, at = 0;
    char *slices = NULL, *padded = NULL;
    lc_type whole, *all = calloc((size_t)n, sizeof *all);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: predictions of %d ranks", n);
    LC_TRY_GOTO(status, done, lc_comm_all_gather(t->comm, mine, all, (int64_t)sizeof *mine, LC_U8, NULL));
    LC_TRY_GOTO(status, done, join_types(all, n, &whole));
    if (!whole.dtype) goto done; /* predict_step returned nothing */
    for (int r = 0; r < n; r++) most = all[r].dtype && bytes_of(&all[r]) > most ? bytes_of(&all[r]) : most;
    padded = calloc(1, most + 1);
    slices = malloc(most * (size_t)n + 1);
    if (!padded || !slices) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: predictions of %d ranks", n);
        goto done;
    }
    if (mine->dtype) memcpy(padded, data, bytes_of(mine));
    LC_TRY_GOTO(status, done, lc_comm_all_gather(t->comm, padded, slices, (int64_t)most, LC_U8, NULL));
    for (int r = 0; r < n; r++) { /* closes the gaps */
        size_t bytes = all[r].dtype ? bytes_of(&all[r]) : 0;
        memmove(slices + at, slices + (size_t)r * most, bytes);
        at += bytes;
    }
    status = append(t, loader, &whole, slices, at);
done:
    free(all);
    free(padded);
    free(slices);
    return status;
}

lc_status lc__keep_prediction(lc_trainer *t, int loader, lc_tensor *value)
{
    lc_type type;
    lc_status status = LC_OK;
    void *data = NULL;
    memset(&type, 0, sizeof type);
    if (value) {
        const lc_type *given = lc_tensor_type(value);
        type.dtype = given->dtype;
        type.ndim = given->ndim;
        memcpy(type.shape, given->shape, (size_t)given->ndim * sizeof *given->shape);
        data = malloc(bytes_of(&type) + 1);
        if (!data) return lc_fail(LC_ERR_MEMORY, "out of memory: a prediction of %zu bytes", bytes_of(&type));
        status = lc_tensor_read(value, data, bytes_of(&type));
    }
    /* Predictions for a rank's own loader are not shared. */
    bool shared = t->comm && lc__source_is_shared(&t->input->eval.s[loader]);
    if (status >= 0 && shared)
        status = gather(t, loader, &type, data);
    else if (status >= 0 && value)
        status = append(t, loader, &type, data, bytes_of(&type));
    free(data);
    return status;
}

void lc__forget_predictions(lc_trainer *t)
{
    t->loop->keeps_predictions = false;
    for (int i = 0; i < LC_MAX_LOADERS; i++) {
        lc__predictions *p = &t->loop->predictions[i];
        for (int64_t k = 0; k < p->n; k++) lc_tensor_unref(p->t[k]);
        p->n = 0;
    }
    t->loop->no_prediction = false;
}
