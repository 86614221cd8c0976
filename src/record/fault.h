/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels found wrong with values that they were given: an index that does not exist.
 *
 * A graph has one record, which all of its calls point to. A kernel that meets a bad index writes the record (the first
 * kernel wins) and goes on without using the index; nothing else is written, so a step without one costs nothing. The
 * executor reads the record where that is free: between two calls on the CPU, so that no update is made with what comes
 * after it. A device that runs on by itself has the record in its own memory, written with one compare-and-swap, and it
 * is read together with the first value of the step that is read. */
#ifndef LC_RECORD_FAULT_H
#define LC_RECORD_FAULT_H

#include <lightc/op.h>

#include <stdatomic.h>
#include <stdbool.h>

enum { LC__FAULT_EMPTY, LC__FAULT_WRITING, LC__FAULT_WRITTEN };

typedef struct lc__fault {
    atomic_int state;
    const lc_call *call;
    lc_bad_index bad;
} lc__fault;

static inline bool lc__fault_is_set(lc__fault *f)
{
    return atomic_load_explicit(&f->state, memory_order_relaxed) != LC__FAULT_EMPTY;
}

#endif
