/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share. */
#ifndef LC_PARALLEL_DEVICES_DEVICES_IMPL_H
#define LC_PARALLEL_DEVICES_DEVICES_IMPL_H

#include "device/staging.h"
#include "parallel/devices/devices.h"
#include "parallel/devices/team.h"

/* A tensor of the module. */
typedef struct lc__device_entry {
    lc_tensor *original;  /* referenced */
    void *device_data;    /* the original's address and flat buffer when the handles were made */
    lc_flat *flat;        /* only compared */
    lc_tensor **replicas; /* by device, owned; NULL: the original is used */
    size_t at;            /* its place in `sent` */
    bool is_buffer;
} lc__device_entry;

/* Gradients of one flat buffer. */
typedef struct lc__shared_flat {
    lc_flat *host;       /* referenced */
    lc_flat **of;        /* by device, owned; NULL: the host's own */
    lc__staging *copies; /* [n + 1]: where the gradients of the devices, and the host's, are added */
} lc__shared_flat;

enum { LC__DEVICES_OTHERS = 4 };

struct lc__devices {
    lc_graph *host;
    int n;
    bool copies;
    lc_graph **graphs;
    double *weights; /* by device: the weight of its loss */
    lc__team *team;
    const lc__tree *tree;                  /* borrowed; NULL: batches are not cut into chunks */
    lc__tree **trees;                      /* by device */
    lc_module *module;                     /* borrowed */
    lc_tensor *others[LC__DEVICES_OTHERS]; /* borrowed */
    int n_others;
    lc_optimizer **optimizers; /* borrowed */
    int n_optimizers;
    lc__device_entry *entries;
    int n_entries, cap_entries;
    lc__shared_flat *flats;
    int n_flats;
    size_t copied_bytes; /* copied to one device before each step */
    lc__staging sent;    /* values on their way from the host graph's device to the others */
    size_t sent_bytes;
    int64_t max_bytes; /* of the host's steps and all devices' together; 0: no bound */
    /* ---- the step ---- */
    int parts;    /* 0: no step is open */
    bool reduces; /* the gradients of what runs now are added next */
    lc_plan **plans;
    const void **sources; /* [n][n + 1], for a reduction */
};

/* Device i's gradients of a flat buffer. */
static inline lc_flat *lc__flat_on(const lc__shared_flat *f, int i)
{
    return f->of[i] ? f->of[i] : f->host;
}

/* Whether device i's handle of a tensor is a copy. On a device with memory of its own every handle is. */
static inline bool lc__is_copy(const lc__devices *d, const lc__device_entry *e, int i)
{
    return e->is_buffer || d->copies || d->graphs[i]->on != d->host->on;
}

/* Whether a tensor's value gets to device i by way of `sent`. */
static inline bool lc__is_sent(const lc__devices *d, const lc__device_entry *e, int i)
{
    return e->original->on == d->host->on && e->original->on != d->graphs[i]->on;
}

/* A copy that fails is reported by the device's next call. */
static inline void lc__copy_value(const lc_tensor *to, const lc_tensor *from)
{
    (void)!lc__device_copy(to->on, to->device_data, from->on, from->device_data, from->bytes);
}

/* part_access.c: the slots of the host's graph. */
extern const lc__parts_ops lc__devices_parts;

/* gradients.c: enqueues copies of device i's gradients to the host, and with those of device 0 of the host graph's, for
 * lc__devices_reduce. */
void lc__devices_read_gradients(const lc__devices *d, int i);
/* Adds the gradients of the devices that took part in the step to the host's. */
void lc__devices_reduce(lc__devices *d);

#endif
