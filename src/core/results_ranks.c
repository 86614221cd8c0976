/* SPDX-License-Identifier: Apache-2.0 */
/* Names of logged values, for ranks that had no samples to log any with. Ranks put values together in the order of
 * their names, and all have the same batches of an epoch, so that the first one tells them. */
#include "core/ranks.h"

#include <stdlib.h>
#include <string.h>

/* An entry as it is sent; its name follows. */
typedef struct sent {
    int64_t length, hook, loader, source, on_step, on_epoch, of_metric;
    lc_log_args args; /* without its site */
} sent;

static bool pack(const lc__results *r, lc__str *out)
{
    for (int i = 0; i < r->n; i++) {
        const lc__logged *e = &r->e[i];
        if (!lc__is_of_all_ranks(e)) continue;
        sent s;
        memset(&s, 0, sizeof s);
        s.length = (int64_t)strlen(e->base) + 1;
        s.hook = e->hook, s.loader = e->loader, s.source = e->source;
        s.on_step = e->on_step, s.on_epoch = e->on_epoch, s.of_metric = e->of_metric;
        s.args = e->args;
        s.args.site = (lc_site){0};
        lc__str_add_bytes(out, (const char *)&s, sizeof s);
        lc__str_add_bytes(out, e->base, (size_t)s.length);
    }
    return !out->failed;
}

/* Entry `i`, at place `to`: those between move up. */
static void move_entry(lc__results *r, int i, int to)
{
    lc__logged e = r->e[i];
    memmove(&r->e[to + 1], &r->e[to], (size_t)(i - to) * sizeof e);
    r->e[to] = e;
}

static lc_status take(lc_trainer *t, lc__results *r, const sent *s, const char *name, int to)
{
    lc__logged *e = lc__results_find(r, name, (lc_hook)s->hook, (int)s->loader);
    if (!e) {
        e = lc__results_add(t, r, name, (lc_hook)s->hook, (int)s->loader, &s->args, s->on_step, s->on_epoch);
        if (!e) return LC_ERR_MEMORY;
        e->of_metric = s->of_metric;
    }
    e->given = e->base; /* what it was found by does not last */
    e->active = true;
    e->source = (int)s->source;
    move_entry(r, (int)(e - r->e), to);
    return LC_OK;
}

static lc_status unpack(lc_trainer *t, lc__results *r, const char *text, size_t n)
{
    int to = 0;
    for (size_t at = 0; at < n; to++) {
        sent s;
        memcpy(&s, text + at, sizeof s);
        LC_TRY(take(t, r, &s, text + at + sizeof s, to));
        at += sizeof s + (size_t)s.length;
    }
    r->cursor = 0;
    return LC_OK;
}

lc_status lc__share_names(lc_trainer *t, lc__results *r, const lc__source *source, const lc_batch *batch)
{
    lc__str text = {0};
    if (!t->comm || !lc__source_is_shared(source) || !lc__leaves_ranks_empty(t, source, batch)) return LC_OK;
    bool empty = lc__is_empty_share(batch);
    int64_t n, first = empty ? 0 : t->n_ranks - t->rank; /* the first rank has the largest number */
    LC_TRY(lc_comm_all_reduce(t->comm, &first, &first, 1, LC_I64, LC_COMM_MAX, NULL));
    int from = t->n_ranks - (int)first;
    if (!first) return LC_OK;
    if (t->rank == from && !pack(r, &text)) {
        lc__str_free(&text);
        return lc_fail(LC_ERR_MEMORY, "out of memory: the names of logged values");
    }
    n = (int64_t)text.n;
    lc_status status = lc_comm_broadcast(t->comm, &n, 1, LC_I64, from, NULL);
    char *all = status >= 0 && t->rank != from ? malloc((size_t)n + 1) : text.s;
    if (status >= 0 && n && !all) status = lc_fail(LC_ERR_MEMORY, "out of memory: the names of logged values");
    if (status >= 0 && n) status = lc_comm_broadcast(t->comm, all, n, LC_U8, from, NULL);
    if (status >= 0 && n && empty) status = unpack(t, r, all, (size_t)n);
    if (t->rank != from) free(all);
    lc__str_free(&text);
    return status;
}
