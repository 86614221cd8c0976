/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/history.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* ---- the ring ----
 * Every store releases and every load acquires: a reader that saw any part of a newer call finds the number changed. */

static struct lc__past_call *slot(lc__history *h, uint64_t number)
{
    return &h->calls[number % LC__HISTORY];
}

void lc__history_begin(lc__history *h, uint64_t number, const lc_comm_call *call)
{
    struct lc__past_call *p = slot(h, number);
    atomic_store_explicit(&p->number, 0, memory_order_release);
    bool direct = call->op == LC_COMM_SEND || call->op == LC_COMM_RECV;
    atomic_store_explicit(&p->collective, direct ? 0 : ++h->collectives, memory_order_release);
    atomic_store_explicit(&p->begun, lc__now_ns(), memory_order_release);
    atomic_store_explicit(&p->count, call->count, memory_order_release);
    atomic_store_explicit(&p->op, (int)call->op, memory_order_release);
    atomic_store_explicit(&p->reduce, (int)call->reduce, memory_order_release);
    atomic_store_explicit(&p->dtype, (int)call->dtype, memory_order_release);
    atomic_store_explicit(&p->peer, call->peer, memory_order_release);
    atomic_store_explicit(&p->done, false, memory_order_release);
    atomic_store_explicit(&p->number, number, memory_order_release);
}

void lc__history_done(lc__history *h, uint64_t number)
{
    struct lc__past_call *p = slot(h, number);
    if (atomic_load_explicit(&p->number, memory_order_relaxed) == number)
        atomic_store_explicit(&p->done, true, memory_order_release);
}

bool lc__history_get(const lc__history *h, int i, lc__call_record *out)
{
    const struct lc__past_call *p = &h->calls[i];
    uint64_t number = atomic_load_explicit(&p->number, memory_order_acquire);
    if (!number) return false;
    *out = (lc__call_record){
        .number = number,
        .collective = atomic_load_explicit(&p->collective, memory_order_acquire),
        .begun = atomic_load_explicit(&p->begun, memory_order_acquire),
        .done = atomic_load_explicit(&p->done, memory_order_acquire),
        .call = {.op = (lc_collective)atomic_load_explicit(&p->op, memory_order_acquire),
                 .reduce = (lc_reduce_op)atomic_load_explicit(&p->reduce, memory_order_acquire),
                 .dtype = (lc_dtype)atomic_load_explicit(&p->dtype, memory_order_acquire),
                 .peer = atomic_load_explicit(&p->peer, memory_order_acquire),
                 .count = atomic_load_explicit(&p->count, memory_order_acquire)},
    };
    return atomic_load_explicit(&p->number, memory_order_acquire) == number;
}

/* ---- the last calls ---- */

static void keep_oldest(struct lc__last_call *oldest, const struct lc__last_call *one)
{
    bool older = !oldest->record.number || one->record.begun < oldest->record.begun;
    if (!one->record.done && older) *oldest = *one;
}

void lc__history_oldest(const lc__history *h, const char *group, struct lc__last_call *oldest)
{
    struct lc__last_call one = {0};
    snprintf(one.group, sizeof one.group, "%s", group);
    for (int i = 0; i < LC__HISTORY; i++)
        if (lc__history_get(h, i, &one.record)) keep_oldest(oldest, &one);
}

uint64_t lc__history_activity(const lc__history *h)
{
    uint64_t newest = 0, ended = 0;
    lc__call_record r;
    for (int i = 0; i < LC__HISTORY; i++) {
        if (!lc__history_get(h, i, &r)) continue;
        newest = r.number > newest ? r.number : newest;
        ended += r.done;
    }
    return newest * (LC__HISTORY + 1) + ended;
}

static void keep(lc__last_calls *l, const struct lc__last_call *one)
{
    int at = l->n;
    keep_oldest(&l->stuck, one);
    while (at > 0 && l->calls[at - 1].record.begun > one->record.begun) at--;
    if (l->n == LC__LAST_CALLS) { /* the oldest makes room */
        if (at-- == 0) return;
        memmove(l->calls, l->calls + 1, (size_t)at * sizeof *l->calls);
    } else {
        memmove(l->calls + at + 1, l->calls + at, (size_t)(l->n++ - at) * sizeof *l->calls);
    }
    l->calls[at] = *one;
}

void lc__last_calls_add(lc__last_calls *l, const lc__history *h, const char *group)
{
    struct lc__last_call one = {0};
    snprintf(one.group, sizeof one.group, "%s", group);
    for (int i = 0; i < LC__HISTORY; i++)
        if (lc__history_get(h, i, &one.record)) keep(l, &one);
}

void lc__last_calls_text(const lc__last_calls *l, char *text, size_t size)
{
    size_t n = 0;
    if (size) *text = 0;
    for (int i = 0; i < l->n && n < size; i++) {
        bool replaced = i == 0 && l->stuck.record.number && l->stuck.record.begun < l->calls[0].record.begun;
        const struct lc__last_call *one = replaced ? &l->stuck : &l->calls[i];
        char what[LC_COMM_CALL_TEXT];
        lc_comm_call_text(&one->record.call, what, sizeof what);
        int k = snprintf(text + n, size - n, "%6s%4llu %s%s%s\n", one->record.done ? "" : ">",
                         (unsigned long long)one->record.number, what, *one->group ? ", in group " : "", one->group);
        if (k > 0) n += (size_t)k;
    }
}
