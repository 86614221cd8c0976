/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a train loader in checkpoints, if it has any: `loader` or, if ranks have their own loaders at different
 * positions, `loaders`, one for each rank. */
#include "core/input/input.h"
#include "comm/agree.h"
#include "core/hooks/trainer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__source_remember(lc__source *s)
{
    size_t n = 0;
    LC_TRY(lc_dataloader_save(s->loader, NULL, &n));
    if (n > s->cap_state) {
        unsigned char *state = realloc(s->state, n);
        if (!state) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of a loader's state", n);
        s->state = state;
        s->cap_state = n;
    }
    s->n_state = n;
    return n ? lc_dataloader_save(s->loader, s->state, &s->n_state) : LC_OK;
}

bool lc__source_has_state(const lc__source *s)
{
    size_t n = 0;
    return s->loader && (lc_dataloader_save(s->loader, NULL, &n) < 0 || n > 0);
}

/* key NULL: `out` is an array. */
static lc_status set_hex(lc_state *out, const char *key, const unsigned char *state, size_t n)
{
    lc__str hex = {0};
    for (size_t i = 0; i < n; i++) lc__str_add(&hex, "%02x", state[i]);
    lc_status status = hex.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of a loader's state", n)
                                  : lc_state_set_text(out, key, n ? hex.s : "");
    lc__str_free(&hex);
    return status;
}

/* *most: bytes of the largest state. Collective. */
static lc_status compare(lc_comm *comm, const lc__source *s, int64_t *most, bool *same)
{
    int64_t n = (int64_t)s->n_state, size[] = {n, -n}, differs;
    LC_TRY(lc_comm_all_reduce(comm, size, size, 2, LC_I64, LC_COMM_MAX, NULL));
    *most = size[0];
    *same = size[0] == -size[1];
    if (!*same || n == 0) return LC_OK;
    unsigned char *theirs = malloc(s->n_state);
    if (!theirs) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of a loader's state", s->n_state);
    memcpy(theirs, s->state, s->n_state);
    lc_status status = lc_comm_broadcast(comm, theirs, n, LC_U8, 0, NULL);
    differs = memcmp(theirs, s->state, s->n_state) != 0;
    free(theirs);
    if (status >= 0) status = lc_comm_all_reduce(comm, &differs, &differs, 1, LC_I64, LC_COMM_MAX, NULL);
    *same = !differs;
    return status;
}

/* Rank 0 writes the states of all ranks. Collective. */
static lc_status save_each(lc_comm *comm, const lc__source *s, int64_t most, lc_state *out)
{
    int ranks = lc_comm_size(comm);
    bool root = lc_comm_rank(comm) == 0;
    int64_t n = (int64_t)s->n_state, *sizes = calloc((size_t)ranks, sizeof *sizes);
    unsigned char *mine = calloc(1, (size_t)most), *all = calloc(root ? (size_t)ranks : 1, (size_t)most);
    lc_status status = LC_OK;
    lc_state *list;
    if (!sizes || !mine || !all)
        LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: the states of %d ranks' loaders", ranks));
    if (n) memcpy(mine, s->state, s->n_state);
    LC_TRY_GOTO(status, done, lc_comm_gather(comm, &n, sizes, 1, LC_I64, 0, NULL));
    LC_TRY_GOTO(status, done, lc_comm_gather(comm, mine, all, most, LC_U8, 0, NULL));
    if (!root) goto done;
    LC_TRY_GOTO(status, done, lc_state_set_array(out, "loaders", &list));
    for (int r = 0; r < ranks && status >= 0; r++)
        status = set_hex(list, NULL, all + (size_t)r * (size_t)most, (size_t)sizes[r]);
done:
    free(sizes);
    free(mine);
    free(all);
    return status;
}

lc_status lc__source_save(lc_comm *comm, lc__source *s, lc_state *out)
{
    int64_t most;
    bool same = true;
    if (!s->loader) return LC_OK;
    LC_TRY(lc__ranks_agree(comm, s->length >= 0 || s->which < 0 ? lc__source_remember(s) : LC_OK));
    if (comm) LC_TRY(compare(comm, s, &most, &same));
    if (!same) return save_each(comm, s, most, out);
    return s->n_state ? set_hex(out, "loader", s->state, s->n_state) : LC_OK;
}

lc_status lc__source_saved(const lc_trainer *t, const lc_state *in, char **hex)
{
    const lc_state *list;
    const char *text;
    free(*hex);
    *hex = NULL;
    if (lc_state_find(in, "loader")) {
        LC_TRY(lc_state_get_text(in, "loader", &text));
        return lc__copy_text(text, hex);
    }
    if (!lc_state_find(in, "loaders")) return LC_OK;
    LC_TRY(lc_state_get_array(in, "loaders", &list));
    if (lc_state_length(list) != t->n_ranks)
        return lc_fail(LC_ERR_CONFIG,
                       "the checkpoint %s is of %lld ranks whose train loaders were at different positions, but this "
                       "run has %d; continue with %lld ranks, or load only the weights (lc_module_load_checkpoint)",
                       t->ckpt_path, (long long)lc_state_length(list), t->n_ranks, (long long)lc_state_length(list));
    LC_TRY(lc_state_get_text(lc_state_at(list, t->rank), NULL, &text));
    return *text ? lc__copy_text(text, hex) : LC_OK;
}

lc_status lc__source_load(lc__source *s, const char *hex)
{
    size_t n = strlen(hex) / 2;
    unsigned char *bytes = malloc(n + !n);
    lc_status status = LC_OK;
    if (!bytes) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of a loader's state", n);
    for (size_t i = 0; i < n && status >= 0; i++) {
        unsigned v;
        if (sscanf(hex + 2 * i, "%2x", &v) != 1)
            status = lc_fail(LC_ERR_FORMAT, "the state of the train loader in the checkpoint is invalid");
        bytes[i] = (unsigned char)v;
    }
    if (status >= 0) status = lc_dataloader_load(s->loader, bytes, n);
    free(bytes);
    return status < 0 ? lc_fail_context(status, "the state of the train loader") : LC_OK;
}
