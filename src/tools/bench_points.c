/* SPDX-License-Identifier: Apache-2.0 */
/* The points of `lightc bench comm`, and the lines through them.
 *
 * A point is a collective, a number of bytes and a number of ranks. It is measured in batches of calls; the time of a
 * batch is that of its slowest rank, divided by the number of calls. A line, seconds = alpha + beta * bytes, is fitted
 * to the points of a collective with the smallest relative errors, for predictions; its largest error within the range
 * is reported.
 *
 * If all ranks are processes of one host, all_reduce is measured a second time, in memory that they share. Send and
 * receive are measured for each class of link (place.h), between two ranks while the others wait. */
#include "bench_comm.h"
#include "place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 7 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool bench_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ',')) return true;
    return !strcmp(list, "all");
}

enum { IN_OWN_MEMORY = LC_COLLECTIVES };

typedef struct buffers {
    float *in, *out;       /* [ranks * max_bytes] */
    void *own;             /* [max_bytes]; NULL: no shared memory */
    const rank_link *link; /* for send */
} buffers;

/* There and back, for send. */
static lc_status ping_pong(lc_comm *c, const buffers *b, int64_t n)
{
    int me = lc_comm_rank(c), x = b->link->a, y = b->link->b;
    if (me != x && me != y) return LC_OK;
    for (int turn = 0; turn < 2; turn++)
        LC_TRY((me == x) == (turn == 0) ? lc_comm_send(c, b->in, n, LC_F32, x + y - me, NULL)
                                        : lc_comm_recv(c, b->out, n, LC_F32, x + y - me, NULL));
    return LC_OK;
}

static lc_status call(lc_comm *c, const buffers *b, int op, int64_t n)
{
    if (op == LC_COMM_SEND) return ping_pong(c, b, n);
    const lc_comm_call one = {(lc_collective)op, LC_COMM_SUM, LC_F32, 0, b->in, b->out, n};
    return lc_comm_start(c, &one, NULL);
}

/* Repeated sums in place would stay in the cache of the rank that computed them: each rank rewrites its values. */
static lc_status reduce_fresh(lc_comm *c, const buffers *b, int64_t n, int calls, double *seconds)
{
    float *x = b->own;
    for (int i = 0; i < calls; i++) {
        for (int64_t k = 0; k < n; k++) x[k] = 1;
        LC_TRY(lc_comm_barrier(c, NULL));
        double start = now();
        LC_TRY(lc_comm_all_reduce(c, x, x, n, LC_F32, LC_COMM_SUM, NULL));
        *seconds += now() - start;
    }
    return LC_OK;
}

/* Adds to *seconds the time that this rank takes for the calls. */
static lc_status part(lc_comm *c, const buffers *b, int op, int64_t n, int calls, double *seconds)
{
    LC_TRY(lc_comm_barrier(c, NULL));
    if (op == IN_OWN_MEMORY) return reduce_fresh(c, b, n, calls, seconds);
    double start = now();
    for (int i = 0; i < calls; i++) LC_TRY(call(c, b, op, n));
    *seconds += now() - start;
    return LC_OK;
}

/* Makes `calls` calls, or fewer: on a busy machine they may take a thousand times as long as expected. Each part has as
 * many calls as all before it, and none begins after twice `most` seconds. */
static lc_status batch(lc_comm *c, const buffers *b, int op, int64_t n, int calls, double most, double *seconds)
{
    double mine = 0, all = 0;
    int done = 0;
    while (done < calls && all < 2 * most) {
        int next = done == 0 ? 1 : done < calls - done ? done : calls - done;
        LC_TRY(part(c, b, op, n, next, &mine));
        LC_TRY(lc_comm_all_reduce(c, &mine, &all, 1, LC_F64, LC_COMM_MAX, NULL)); /* all ranks decide alike */
        done += next;
    }
    *seconds = all / (done * (op == LC_COMM_SEND ? 2 : 1));
    return LC_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static const char *name_of(const buffers *b, int op)
{
    if (op == IN_OWN_MEMORY) return OWN_MEMORY;
    return op == LC_COMM_SEND ? b->link->what : lc_collective_name((lc_collective)op);
}

static lc_status point(lc_comm *c, const buffers *b, const bench *o, int op, int64_t bytes, row *out)
{
    int64_t n = bytes / (int64_t)sizeof(float);
    double t[BATCHES], once = 0;
    LC_TRY(batch(c, b, op, n, 1, o->seconds, &once)); /* warm up memory and connections */
    LC_TRY(batch(c, b, op, n, 3, o->seconds, &once));
    /* All ranks know the slowest rank's time, so all make the same number of calls. */
    int calls = once * 1e5 < o->seconds ? 100000 : (int)(o->seconds / once);
    for (int i = 0; i < BATCHES; i++) LC_TRY(batch(c, b, op, n, calls > 1 ? calls : 1, o->seconds, &t[i]));
    qsort(t, BATCHES, sizeof *t, ascending);
    *out = (row){
        .ranks = lc_comm_size(c), .bytes = bytes, .median = t[BATCHES / 2], .least = t[0], .most = t[BATCHES - 1]};
    snprintf(out->backend, sizeof out->backend, "%s", lc_comm_name(c));
    snprintf(out->collective, sizeof out->collective, "%s", name_of(b, op));
    return LC_OK;
}

static void show(const row *r, bool as_row)
{
    if (as_row)
        printf("row %s %d \"%s\" %lld %.9g %.9g %.9g\n", r->backend, r->ranks, r->collective, (long long)r->bytes,
               r->median, r->least, r->most);
    else
        printf("%-8s %5d  %-22s %10lld %12.2f %12.2f %12.2f %10.3f\n", r->backend, r->ranks, r->collective,
               (long long)r->bytes, r->median * 1e6, r->least * 1e6, r->most * 1e6,
               (double)r->bytes / r->median * 1e-9);
    fflush(stdout);
}

void bench_keep(bench *o, const row *r)
{
    if (o->n < MOST_ROWS) o->found[o->n++] = *r;
    if (!o->quiet) show(r, o->rows);
}

static lc_status sizes(lc_comm *c, const buffers *b, bench *o, int op)
{
    for (int64_t bytes = 4; bytes <= o->max_bytes; bytes *= bytes < 1 << 20 ? 8 : 4) {
        row r;
        LC_TRY(point(c, b, o, op, op == LC_COMM_BARRIER ? 0 : bytes, &r));
        if (lc_comm_rank(c) == 0) bench_keep(o, &r);
        if (op == LC_COMM_BARRIER) break;
    }
    return LC_OK;
}

static lc_status buffers_new(size_t size, buffers *b)
{
    *b = (buffers){.in = calloc(1, size), .out = calloc(1, size)};
    return b->in && b->out ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: two times %zu bytes", size);
}

lc_status bench_all_points(lc_comm *c, bench *o, int node)
{
    lc_status status = LC_OK;
    buffers b;
    rank_link links[MOST_LINKS];
    place *places = calloc((size_t)lc_comm_size(c), sizeof *places);
    LC_TRY_GOTO(status, done, buffers_new((size_t)o->max_bytes * (size_t)lc_comm_size(c), &b));
    if (!places) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: places of ranks"));
    if (!strcmp(lc_comm_name(c), "shm") && bench_listed(o->collectives, lc_collective_name(LC_COMM_ALL_REDUCE)))
        LC_TRY_GOTO(status, done, lc_comm_alloc_mem(c, (size_t)o->max_bytes, &b.own));
    for (int op = LC_COMM_BARRIER; op < LC_COMM_SEND; op++)
        if (bench_listed(o->collectives, lc_collective_name((lc_collective)op)))
            LC_TRY_GOTO(status, done, sizes(c, &b, o, op));
    if (b.own) LC_TRY_GOTO(status, done, sizes(c, &b, o, IN_OWN_MEMORY));
    if (!bench_listed(o->collectives, lc_collective_name(LC_COMM_SEND))) goto done;
    LC_TRY_GOTO(status, done, place_gather(c, node, places));
    int n = place_links(places, lc_comm_size(c), links);
    for (int i = 0; i < n; i++) {
        b.link = &links[i];
        /* A class of links has a name only if there are several. */
        if (n == 1) snprintf(links[i].what, sizeof links[i].what, "%s", lc_collective_name(LC_COMM_SEND));
        LC_TRY_GOTO(status, done, sizes(c, &b, o, LC_COMM_SEND));
    }
done:
    free(places);
    free(b.in), free(b.out);
    lc_comm_free_mem(c, b.own);
    return status;
}

/* ---- lines ---- */

bench_line bench_fit(const row *r, int first, int last)
{
    double aa = 0, ab = 0, bb = 0, a = 0, b = 0;
    bench_line f = {0};
    for (int i = first; i < last; i++) {
        double u = 1 / r[i].median, v = (double)r[i].bytes / r[i].median;
        aa += u * u, ab += u * v, bb += v * v, a += u, b += v;
    }
    double d = aa * bb - ab * ab;
    if (d > 0) f.alpha = (a * bb - b * ab) / d, f.beta = (b * aa - a * ab) / d;
    if (d <= 0 || f.beta < 0) f.beta = 0, f.alpha = a / aa;
    if (f.alpha < 0) f.alpha = 0, f.beta = b / bb;
    for (int i = first; i < last; i++) {
        double ratio = (f.alpha + f.beta * (double)r[i].bytes) / r[i].median;
        f.off = fmax(f.off, fmax(ratio, 1 / ratio));
    }
    return f;
}

lc_status bench_link(lc_comm *c, int a, int b, double seconds, bench_line *out)
{
    row rows[LINK_ROWS];
    bench o = {.max_bytes = LINK_BYTES, .seconds = seconds, .quiet = true, .found = rows};
    const rank_link link = {.a = a, .b = b};
    buffers m;
    lc_status status = buffers_new(LINK_BYTES, &m);
    m.link = &link;
    if (status >= 0) status = sizes(c, &m, &o, LC_COMM_SEND);
    if (status >= 0 && lc_comm_rank(c) == 0) *out = bench_fit(rows, 0, o.n);
    free(m.in), free(m.out);
    return status;
}
