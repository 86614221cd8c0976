/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering: the samples of a batch are read from the dataset into one piece of memory for each field, and mixed. */
#ifndef LC_DATA_GATHER_H
#define LC_DATA_GATHER_H

#include "data/epoch.h"
#include "device/pin.h"

#include <stdatomic.h>

/* Room for a batch, and what became of gathering it. */
typedef struct lc__slot {
    void *data[LC_MAX_BATCH_TENSORS];
    lc__pin pin;                                          /* of this memory */
    size_t bytes;                                         /* of it */
    int64_t batch;                                        /* the batch in this slot, -1: none */
    int64_t sizes[LC_MAX_BATCH_TENSORS][LC_MAX_DIMS - 1]; /* with padding: those of the tensors in it, per sample */
    lc_status status;
    char error[1024];
} lc__slot;

/* What a thread that gathers needs for itself; {0} is empty. */
typedef struct lc__gatherer {
    void *scratch;
    atomic_llong ns;                               /* how long it has gathered, */
    atomic_llong read_ns, decode_ns, transform_ns; /* and what of it the library's datasets know */
    int64_t last_ns, untimed;                      /* the last batch that was timed, and how many since then were not */
    uint64_t *keys;                                /* one per sample of a batch */
    void *before[LC_MAX_BATCH_TENSORS]; /* with a mix the sample that the first one is mixed with; with padding one that
                                           is copied to its place */
    int thread;                         /* its number in spans; 0: the thread that calls next */
} lc__gatherer;

typedef struct lc__gathering {
    lc__padding *padding; /* NULL: all samples have one size */
    lc_mix mix;
    double mix_alpha;
    _Atomic(lc_span_fn *) observe; /* called for batches; NULL: none */
    void *observe_ctx;
} lc__gathering;

/* n slots with room for `room` samples each, or with padding for the largest batch; registered with a device (NULL:
 * with none). */
lc_status lc__slots_new(const lc_dataset *d, const lc__padding *p, int n, int64_t room, const lc_device *on,
                        lc__slot **out) LC_MUST_USE;
void lc__slots_free(lc__slot *slots, int n);

/* Makes room for batches of up to `room` samples. */
lc_status lc__gatherer_grow(lc__gatherer *w, const lc__epoch *e, const lc__gathering *g, int64_t room) LC_MUST_USE;
void lc__gatherer_release(lc__gatherer *w);

/* Gathers this rank's share of batch b into a slot, once no device reads it any more; s->status says whether it could.
 * On any thread, while e and g stay as they are. */
void lc__gather_batch(const lc__epoch *e, const lc__gathering *g, int64_t b, lc__rank_share share, lc__slot *s,
                      lc__gatherer *w);

#endif
