/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the ranks of a host have exposed to each other, and an all_reduce in it: every rank combines its part of
 * all contributions in place, and writes the result to all of them. That is one pass over memory instead of four copies
 * through a ring.
 *
 * A call passes the place of its data as a token, by which the other ranks find it in their mapping of the memory. */
#ifndef LC_COMM_EXCHANGE_EXPOSED_H
#define LC_COMM_EXCHANGE_EXPOSED_H

#include "comm/comm_internal.h"

enum {
    LC__EXPOSED = 16,             /* pieces of memory, at most */
    LC__EXPOSED_LEAST = 16 << 10, /* bytes of the smallest call that is worth asking for */
};

typedef struct lc__exposed {
    int rank, size;
    int64_t numbers; /* how many pieces so far, exposed or not: the same on all ranks */
    bool any; /* whether any was exposed so far: the same on all ranks, which may release it at different times */
    struct {
        int64_t number;
        size_t bytes; /* 0: this entry is free */
        char **at;    /* [size]: of each rank, as this process sees it */
    } pieces[LC__EXPOSED];
} lc__exposed;

/* `data` is a mapping of the file `fd`; -1: this rank has none. If some ranks cannot see the files of others, exposed
 * memory is not used. `meeting` is that of these ranks. Collective. */
lc_status lc__exposed_add(lc__exposed *x, void *data, size_t bytes, int fd, const lc__meeting *meeting) LC_MUST_USE;
/* Call it as often as the memory was added. */
void lc__exposed_remove(lc__exposed *x, const void *data);
void lc__exposed_release(lc__exposed *x);

/* -1: not all of it is exposed. */
int64_t lc__exposed_token(const lc__exposed *x, const void *data, int64_t bytes);
/* Whether all ranks see the data of all at these tokens [size]. The data must be in one piece, since a rank may have
 * released a piece that it no longer uses. */
bool lc__exposed_is_common(const lc__exposed *x, const int64_t *tokens);
/* Combines some more of this rank's part of an all_reduce whose data is at the ranks' tokens, after the *combined bytes
 * that are done. parts [size]: scratch memory. */
lc_status lc__exposed_combine(const lc__exposed *x, const lc_comm_call *call, const int64_t *tokens, const void **parts,
                              int64_t *combined, bool *done) LC_MUST_USE;

#endif
