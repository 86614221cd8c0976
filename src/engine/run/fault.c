/* SPDX-License-Identifier: Apache-2.0 */
/* Indices that do not exist: the record that kernels write, and the sentence that is made of it. */
#include "base/handle.h"
#include "base/str.h"
#include "record/graph_impl.h"

enum { EMPTY, WRITING, WRITTEN };

void lc_call_bad_index(const lc_call *call, const lc_bad_index *bad)
{
    LC__NEEDS(call, );
    LC__NEEDS(bad, );
    lc__fault *f = call->fault;
    if (!f) return; /* a call of no step: it is timed, or tested */
    int state = atomic_load_explicit(&f->state, memory_order_acquire);
    for (;;) {
        if (state == WRITING) {
            state = atomic_load_explicit(&f->state, memory_order_acquire);
            continue;
        }
        if (state == WRITTEN && (f->call != call || f->bad.at <= bad->at)) return;
        if (atomic_compare_exchange_weak_explicit(&f->state, &state, WRITING, memory_order_acquire,
                                                  memory_order_acquire))
            break;
    }
    if (state == EMPTY || (f->call == call && bad->at < f->bad.at)) {
        f->call = call;
        f->bad = *bad;
    }
    atomic_store_explicit(&f->state, WRITTEN, memory_order_release);
}

static void place_of(const lc_view *v, int64_t at, lc__str *to)
{
    int64_t index[LC_MAX_DIMS];
    for (int d = v->ndim - 1; d >= 0; d--) {
        index[d] = at % v->shape[d];
        at /= v->shape[d];
    }
    for (int d = 0; d < v->ndim; d++) lc__str_add(to, "%s%lld", d ? "," : "[", (long long)index[d]);
    if (v->ndim) lc__str_add(to, "]");
}

lc_status lc__fault_take(lc__fault *f, lc_site site)
{
    const lc_call *c = f->call;
    const lc_bad_index *bad = &f->bad;
    lc__str place = {0}, other = {0};
    char name[64];
    lc__operand_name(c->op, bad->input, name, sizeof name);
    place_of(&c->in[bad->input], bad->at, &place);
    if (bad->or_name) lc__str_add(&other, ", or %s, %lld", bad->or_name, (long long)bad->or_index);
    lc_fail(LC_ERR_ARGUMENT, "%s%s is %lld, which does not exist: allowed is 0 to %lld%s", name, place.s ? place.s : "",
            (long long)bad->index, (long long)bad->size - 1, other.s ? other.s : "");
    lc__str_free(&place);
    lc__str_free(&other);
    atomic_store_explicit(&f->state, EMPTY, memory_order_relaxed);
    return lc__call_error(c, LC_ERR_ARGUMENT, site);
}
