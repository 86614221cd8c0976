/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering: the samples of a batch are read from the dataset into one piece of memory for each field, and mixed. */
#ifndef LC_DATA_GATHER_H
#define LC_DATA_GATHER_H

#include "data/epoch.h"
#include "device/pin.h"

/* Room for a batch, and what became of gathering it. */
typedef struct lc__slot {
    void *data[LC_MAX_BATCH_TENSORS];
    lc__pin pin;   /* of this memory */
    int64_t batch; /* the batch in this slot, -1: none */
    lc_status status;
    char error[1024];
} lc__slot;

/* What a thread that gathers needs for itself; {0} is empty. */
typedef struct lc__gatherer {
    void *scratch;
    uint64_t *keys;                     /* one per sample of a batch */
    void *before[LC_MAX_BATCH_TENSORS]; /* the sample that the first one is mixed with; only with a mix */
    int thread;                         /* its number in spans; 0: the thread that calls next */
} lc__gatherer;

typedef struct lc__gathering {
    lc_mix mix;
    double mix_alpha;
    lc_span_fn *observe; /* called for batches; NULL: none */
    void *observe_ctx;
} lc__gathering;

/* n slots with room for `room` samples each, registered with a device; NULL: with none. */
lc_status lc__slots_new(const lc_dataset *d, int n, int64_t room, const lc_device *on, lc__slot **out) LC_MUST_USE;
void lc__slots_free(lc__slot *slots, int n);

/* Makes room for batches of up to `room` samples. */
lc_status lc__gatherer_grow(lc__gatherer *w, const lc__epoch *e, lc_mix mix, int64_t room) LC_MUST_USE;
void lc__gatherer_release(lc__gatherer *w);

/* Gathers a part of batch b into a slot, once no device reads it any more; s->status tells whether it could. On any
 * thread, while e and g stay as they are. */
void lc__gather_batch(const lc__epoch *e, const lc__gathering *g, int64_t b, lc__batch_part part, lc__slot *s,
                      lc__gatherer *w);

#endif
