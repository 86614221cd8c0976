/* SPDX-License-Identifier: Apache-2.0 */
/* A second set of the values of a module's parameters (and buffers): averages, or weights to restore later. If a
 * strategy keeps parameters in slices, so are the copies. All functions are then called on all ranks. */
#ifndef LC_CALLBACKS_SHADOW_H
#define LC_CALLBACKS_SHADOW_H

#include "callbacks/callbacks.h"

typedef struct lc__shadow {
    lc_tensor **of, **copy; /* of: borrowed from the module; copy: of the same type and layout */
    lc_tensor *(*views)[2]; /* views of sliced tensors and copies, for operators; NULL: not needed yet */
    char **paths;
    bool *copied; /* a buffer that updates copy */
    int n;
    void *scratch[2]; /* each as large as the largest tensor */
    size_t scratch_bytes;
} lc__shadow;

/* Persistent buffers have no copies, or an update copies them, or it averages them. */
typedef enum lc__shadow_buffers { LC__NO_BUFFERS, LC__COPY_BUFFERS, LC__AVERAGE_BUFFERS } lc__shadow_buffers;

/* Copies the current values of parameters, and of buffers unless it has none. */
lc_status lc__shadow_new(lc_module *m, lc__shadow_buffers buffers, lc__shadow *out) LC_MUST_USE;
void lc__shadow_free(lc__shadow *s);
/* copy += weight * (tensor - copy), on the trainer's graph: in the open step, or in a separate one. Integers are
 * copied; with weight 1 everything is. */
lc_status lc__shadow_update(lc__shadow *s, lc_trainer *t, double weight) LC_MUST_USE;
lc_status lc__shadow_swap(lc__shadow *s) LC_MUST_USE;
lc_status lc__shadow_give(lc__shadow *s) LC_MUST_USE; /* tensor = copy */
/* The copy of a tensor; NULL if it has none. */
lc_tensor *lc__shadow_of(const lc__shadow *s, const lc_tensor *of);
/* Calls fn("PREFIX.PATH", copy), or with `of` the tensor itself: for visit_tensors. */
lc_status lc__shadow_visit(lc__shadow *s, const char *prefix, bool of, lc_callback_tensor_fn *fn,
                           void *ctx) LC_MUST_USE;

#endif
