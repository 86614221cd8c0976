/* SPDX-License-Identifier: Apache-2.0 */
/* "ops": a row for each kernel call of the plans, and one for each operator: time, FLOP/s, bytes/s. FLOPs count
 * products (matrices, convolutions, attention, recurrent layers); bytes count reads and writes, in caches or memory.
 * Also counts the plans that were made. */
#include "base/owned.h"
#include "profilers/profilers.h"

#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *name, *kernel;
    lc_site site;
    int64_t calls, ns, least_ns;
    double flop, bytes; /* of one call */
    int ndim;
    int64_t shape[8];
} row;

typedef struct ops {
    row *rows; /* open addressing; name NULL: free */
    size_t n, cap;
    bool full;
    int64_t plans, plans_ns; /* that were made */
} ops;

static size_t hash(const lc_span *s)
{
    uint64_t h = (uint64_t)(uintptr_t)s->name * 31 + (uint64_t)(uintptr_t)s->owner;
    h = h * 31 + (uint64_t)(uintptr_t)s->site.file + (uint64_t)s->site.line;
    h = (h ^ (uint64_t)s->bytes) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h >> 20);
}

static bool same(const row *r, const lc_span *s)
{
    return r->name == s->name && r->kernel == s->owner && r->site.file == s->site.file &&
           r->site.line == s->site.line && r->bytes == s->bytes && r->flop == s->flop && r->ndim == s->ndim &&
           (s->ndim < 0 || !memcmp(r->shape, s->shape, (size_t)s->ndim * sizeof *r->shape));
}

static row *find(const ops *p, const lc_span *s)
{
    size_t i = hash(s) & (p->cap - 1);
    while (p->rows[i].name && !same(&p->rows[i], s)) i = (i + 1) & (p->cap - 1);
    return &p->rows[i];
}

static lc_span span_of(const row *r)
{
    return (lc_span){.name = r->name,
                     .owner = r->kernel,
                     .site = r->site,
                     .flop = r->flop,
                     .bytes = r->bytes,
                     .ndim = r->ndim,
                     .shape = r->shape};
}

static bool grow(ops *p)
{
    ops bigger = *p;
    bigger.cap = p->cap ? 2 * p->cap : 256;
    bigger.rows = calloc(bigger.cap, sizeof *bigger.rows);
    if (!bigger.rows) return false;
    for (size_t i = 0; i < p->cap; i++) {
        if (!p->rows[i].name) continue;
        lc_span s = span_of(&p->rows[i]);
        *find(&bigger, &s) = p->rows[i];
    }
    free(p->rows);
    *p = bigger;
    return true;
}

static void ops_span(void *self, const lc_span *s)
{
    ops *p = self;
    if (s->kind == LC_SPAN_PLAN) {
        p->plans++;
        p->plans_ns += s->end_ns - s->start_ns;
        return;
    }
    if (2 * p->n >= p->cap && !grow(p)) {
        p->full = true;
        return;
    }
    row *r = find(p, s);
    if (!r->name) {
        *r = (row){.name = s->name, .kernel = s->owner, .site = s->site, .flop = s->flop, .bytes = s->bytes};
        r->ndim = s->ndim < 8 ? s->ndim : 8;
        if (s->ndim > 0) memcpy(r->shape, s->shape, (size_t)r->ndim * sizeof *r->shape);
        p->n++;
    }
    int64_t ns = s->end_ns - s->start_ns;
    if (!r->calls || ns < r->least_ns) r->least_ns = ns;
    r->calls++;
    r->ns += ns;
}

static int by_name(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int longest_first(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return x->ns == y->ns ? strcmp(x->name, y->name) : x->ns < y->ns ? 1 : -1;
}

static void heading(FILE *out, const char *what)
{
    fprintf(out, "\n%-24s %9s %11s %7s %11s %11s %9s %9s\n", what, "calls", "total (ms)", "%", "mean (us)",
            "least (us)", "GFLOP/s", "GB/s");
}

static void numbers(FILE *out, const char *name, const row *r, double flop, double bytes, double all)
{
    double ns = (double)r->ns > 0 ? (double)r->ns : 1;
    char shown[128];
    fprintf(out, "%-24s %9lld %11.3f %7.2f %11.2f %11.2f", lc_printable(name, false, shown, sizeof shown),
            (long long)r->calls, 1e-6 * ns, 100 * ns / all, 1e-3 * ns / (double)r->calls, 1e-3 * (double)r->least_ns);
    if (flop > 0)
        fprintf(out, " %9.2f", flop / ns);
    else
        fprintf(out, " %9s", "-");
    fprintf(out, " %9.2f", bytes / ns);
}

static lc_status ops_report(void *self, const char *stage, double seconds, FILE *out)
{
    ops *p = self;
    size_t n = 0;
    double all = 0, flop = 0;
    for (size_t i = 0; i < p->cap; i++) {
        if (!p->rows[i].name) continue;
        p->rows[n++] = p->rows[i];
        all += (double)p->rows[n - 1].ns;
        flop += p->rows[n - 1].flop * (double)p->rows[n - 1].calls;
    }
    fprintf(out, "operators of %s: %.6g s of %.6g s, %.6g GFLOP (%.4g GFLOP/s)\n", stage, 1e-9 * all, seconds,
            1e-9 * flop, all > 0 ? flop / all : 0);
    fprintf(out, "plans made: %lld, in %.6g s%s\n", (long long)p->plans, 1e-9 * (double)p->plans_ns,
            p->plans ? " (LIGHTC_PLAN_DUMP=FILE writes why)" : "");
    /* A row per operator: all its calls together. */
    if (n) qsort(p->rows, n, sizeof *p->rows, by_name);
    row *kinds = calloc(n + 1, sizeof *kinds);
    if (!kinds) return lc_fail(LC_ERR_MEMORY, "out of memory: the report of a profiler");
    size_t n_kinds = 0;
    for (size_t i = 0; i < n; i++) {
        if (!n_kinds || strcmp(kinds[n_kinds - 1].name, p->rows[i].name) != 0)
            kinds[n_kinds++] = (row){.name = p->rows[i].name};
        row *k = &kinds[n_kinds - 1];
        if (!k->calls || p->rows[i].least_ns < k->least_ns) k->least_ns = p->rows[i].least_ns;
        k->calls += p->rows[i].calls;
        k->ns += p->rows[i].ns;
        k->flop += p->rows[i].flop * (double)p->rows[i].calls;
        k->bytes += p->rows[i].bytes * (double)p->rows[i].calls;
    }
    if (n_kinds) qsort(kinds, n_kinds, sizeof *kinds, longest_first);
    heading(out, "operator");
    for (size_t i = 0; i < n_kinds; i++) {
        numbers(out, kinds[i].name, &kinds[i], kinds[i].flop, kinds[i].bytes, all);
        fprintf(out, "\n");
    }
    free(kinds);
    /* A row per node. */
    if (n) qsort(p->rows, n, sizeof *p->rows, longest_first);
    heading(out, "node");
    for (size_t i = 0; i < n; i++) {
        const row *r = &p->rows[i];
        const char *file = r->site.file ? strrchr(r->site.file, '/') : NULL;
        char shown[2][128];
        numbers(out, r->name, r, r->flop * (double)r->calls, r->bytes * (double)r->calls, all);
        fprintf(out, "  %s:%d  %s",
                lc_printable(file           ? file + 1
                             : r->site.file ? r->site.file
                                            : "?",
                             false, shown[0], sizeof shown[0]),
                r->site.line, lc_printable(r->kernel, false, shown[1], sizeof shown[1]));
        for (int d = 0; d < r->ndim; d++) fprintf(out, "%s%lld", d ? "," : "  [", (long long)r->shape[d]);
        fprintf(out, "%s\n", r->ndim > 0 ? "]" : "");
    }
    if (p->full) fprintf(out, "some calls are missing: out of memory\n");
    free(p->rows);
    *p = (ops){0};
    return LC_OK;
}

static void ops_release(void *self)
{
    free(((ops *)self)->rows);
}

static const lc_profiler_ops ops_ops = {
    LC_PROFILER_OPS_INIT("ops"),
    .suffix = "txt",
    .shown = true,
    .wants = LC_SPAN_OP | LC_SPAN_PLAN,
    .span = ops_span,
    .report = ops_report,
    .free = lc__owned_free,
};

lc_status lc__ops_profiler_new(lc_profiler *out)
{
    *out = (lc_profiler){&ops_ops, lc__owned_new(sizeof(ops), ops_release)};
    return out->self ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: a profiler");
}
