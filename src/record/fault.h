/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a fault that a kernel found in its operands: an index that is out of range.
 *
 * A graph has one record, which all of its calls point to. A kernel that meets a bad index writes the record (the first
 * kernel wins) and goes on without using the index; nothing else is written, so a step without a fault costs nothing.
 * The executor reads the record when that is free: on the CPU between two calls, so that no update uses what was
 * computed after the fault. A device that runs asynchronously keeps the record in its own memory and writes it with one
 * compare-and-swap; the host reads it together with the first value it reads of the step. */
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
    int64_t taken; /* how many faults have been reported */
} lc__fault;

static inline bool lc__fault_is_set(lc__fault *f)
{
    return atomic_load_explicit(&f->state, memory_order_relaxed) != LC__FAULT_EMPTY;
}

/* As lc_backend_host.has_bad_index. */
bool lc__call_has_bad_index(const lc_call *call);

#endif
