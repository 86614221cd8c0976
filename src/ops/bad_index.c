/* SPDX-License-Identifier: Apache-2.0 */
/* Indices that are out of range: the record that kernels write (record/fault.h). */
#include "base/handle.h"
#include "record/fault.h"

bool lc__call_has_bad_index(const lc_call *call)
{
    return call->fault && lc__fault_is_set(call->fault);
}

void lc_call_bad_index(const lc_call *call, const lc_bad_index *bad)
{
    LC__NEEDS(call, );
    LC__NEEDS(bad, );
    lc__fault *f = call->fault;
    if (call->origin) call = call->origin;
    if (!f) return; /* the call belongs to no step: it is being timed or tested */
    int state;
    do state = atomic_exchange_explicit(&f->state, LC__FAULT_WRITING, memory_order_acquire);
    while (state == LC__FAULT_WRITING); /* by another thread of the call */
    if (state == LC__FAULT_EMPTY || (f->call == call && bad->at < f->bad.at)) {
        f->call = call;
        f->bad = *bad;
    }
    atomic_store_explicit(&f->state, LC__FAULT_WRITTEN, memory_order_release);
}
