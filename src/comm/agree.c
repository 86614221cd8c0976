/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/agree.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

lc_status lc__ranks_agree(lc_comm *comm, lc_status mine)
{
    enum { TEXT = 1024 };
    char why[TEXT];
    if (!comm) return mine;
    int rank = lc_comm_rank(comm), first = 0;
    int size = lc_comm_size(comm), of = mine < 0 ? lc__error_rank() : -1;
    int64_t code = mine < 0 ? mine : 0, all[2] = {code ? size - rank + (of < 0 ? size : 0) : 0, 0};
    lc__copy_message(why, sizeof why);
    /* The first rank with an error of its own has the largest number; ranks with an error of another rank come
     * after. */
    LC_TRY(lc_comm_all_reduce(comm, &all[0], &all[1], 1, LC_I64, LC_COMM_MAX, NULL));
    if (!all[1]) return mine;
    first = size - (int)(all[1] > size ? all[1] - size : all[1]);
    char theirs[TEXT];
    int64_t error[2] = {code, of};
    memcpy(theirs, why, sizeof theirs);
    LC_TRY(lc_comm_broadcast(comm, error, 2, LC_I64, first, NULL));
    LC_TRY(lc_comm_broadcast(comm, theirs, TEXT, LC_U8, first, NULL));
    if (mine < 0) return lc_fail(mine, "%s", why);
    theirs[TEXT - 1] = 0;
    lc_status status = lc_fail((lc_status)error[0], "rank %d: %s", first, theirs);
    lc__note_rank(error[1] < 0 ? first : (int)error[1]);
    return status;
}

lc_status lc__ranks_any(lc_comm *comm, bool *any)
{
    uint8_t flag = *any;
    if (comm) LC_TRY(lc_comm_all_reduce(comm, &flag, &flag, 1, LC_U8, LC_COMM_MAX, NULL));
    *any = flag;
    return LC_OK;
}

lc_status lc__from_rank_zero(lc_comm *comm, void *data, size_t bytes)
{
    return comm ? lc_comm_broadcast(comm, data, (int64_t)bytes, LC_U8, 0, NULL) : LC_OK;
}

lc_status lc__ranks_text(lc_comm *comm, char **text)
{
    if (!comm) return LC_OK;
    bool root = lc_comm_rank(comm) == 0;
    int64_t n = *text && root ? (int64_t)strlen(*text) + 1 : 0;
    LC_TRY(lc_comm_broadcast(comm, &n, 1, LC_I64, 0, NULL));
    if (!root) {
        free(*text);
        *text = n ? malloc((size_t)n) : NULL;
        if (n && !*text) return lc_fail(LC_ERR_MEMORY, "out of memory: a text of rank 0");
    }
    lc_status s = n ? lc_comm_broadcast(comm, *text, n, LC_U8, 0, NULL) : LC_OK;
    if (s < 0 && !root) free(*text), *text = NULL; /* it may lack its terminator */
    return s;
}

lc_status lc__ranks_reduce_exact(lc_comm *comm, lc__exact_sum *s)
{
    if (!comm) return LC_OK;
    lc__exact_tidy(s);
    LC_TRY(lc_comm_all_reduce(comm, s->digit, s->digit, LC__EXACT_DIGITS, LC_I64, LC_COMM_SUM, NULL));
    LC_TRY(lc_comm_all_reduce(comm, &s->special, &s->special, 1, LC_F64, LC_COMM_SUM, NULL));
    lc__exact_tidy(s);
    return LC_OK;
}

lc_status lc__ranks_barrier(lc_comm *comm)
{
    return comm ? lc_comm_barrier(comm, NULL) : LC_OK;
}

/* The first line in which two texts differ. */
static lc_status differ(const lc_comm *comm, const char *what, const char *mine, const char *theirs)
{
    int a, b;
    for (;; mine += a + 1, theirs += b + 1) {
        a = (int)strcspn(mine, "\n"), b = (int)strcspn(theirs, "\n");
        if (a != b || strncmp(mine, theirs, (size_t)a) != 0 || !mine[a] || !theirs[b]) break;
    }
    return lc_fail(LC_ERR_STATE, "the ranks do not have the same %s: rank %d has %.*s but rank 0 has %.*s", what,
                   lc_comm_rank(comm), a ? a : 7, a ? mine : "nothing", b ? b : 7, b ? theirs : "nothing");
}

lc_status lc__ranks_compare(lc_comm *comm, const char *what, const lc__str *text)
{
    int64_t n = (int64_t)text->n;
    lc_status status;
    char *theirs = NULL;
    if (text->failed) return lc_fail(LC_ERR_MEMORY, "out of memory: the %s of this rank", what);
    LC_TRY(lc_comm_broadcast(comm, &n, 1, LC_I64, 0, NULL));
    theirs = calloc(1, (size_t)n + 1);
    if (!theirs) return lc_fail(LC_ERR_MEMORY, "out of memory: the %s of rank 0", what);
    memcpy(theirs, text->s, text->n < (size_t)n ? text->n : (size_t)n); /* stays its own if rank 0 is fake */
    status = lc_comm_broadcast(comm, theirs, n, LC_U8, 0, NULL);
    if (status >= 0 && strcmp(text->s, theirs) != 0) status = differ(comm, what, text->s, theirs);
    free(theirs);
    return status;
}
