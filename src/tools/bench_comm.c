/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc bench comm`: how long collectives take on this machine, over each backend.
 *
 * A point is a collective, a number of bytes and of ranks. It is measured in batches of calls; a batch's time is that
 * of its slowest rank, over its calls. To the points of a collective a line is fitted, seconds = alpha + beta * bytes,
 * with the smallest relative errors: what predictions are made from, and how far they are off within the range.
 *
 * Ranks of "shm" and "tcp" are processes made by fork, this one being rank 0 (those of "shm+tcp" are two simulated
 * hosts); those of "mpi" are this program under mpirun, which prints its measurements as lines ("row ..."). As a rank
 * of `lightc launch` it measures what these ranks communicate over.
 *
 * If all ranks are processes of one host, all_reduce is measured a second time, in memory that they share. Send and
 * receive are measured for each class of link (place.h): of two ranks, while the others wait. */
#define _GNU_SOURCE
#include "bench.h"
#include "place.h"
#include "tools.h"

#include <lightc/lightc.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64, BATCHES = 7, MOST_ROWS = 4096, BLOB = 4096 };
#define LARGEST (1LL << 40) /* bytes */

typedef struct row {
    char backend[16], collective[64];
    int ranks;
    int64_t bytes;
    double median, least, most; /* seconds */
} row;

typedef struct bench {
    const char *backends, *collectives, *ranks, *json;
    long long max_bytes;
    double seconds; /* of a batch */
    bool rows;      /* print them for the program that started this one */
    bool quiet;     /* print nothing */
    row *found;
    int n;
} bench;

static const lc_option table[] = {
    LC_FIELD(bench, backends, "self, threads, shm, tcp, shm+tcp, mpi"),
    LC_FIELD(bench, collectives, "all, or names separated by commas"),
    LC_FIELD(bench, ranks, "numbers separated by commas"),
    LC_FIELD(bench, max_bytes, "size of the largest calls"),
    LC_FIELD(bench, seconds, "duration of a batch of calls; each point takes seven"),
    LC_FIELD(bench, json, "file for the results"),
    LC_FIELD(bench, rows, "print machine-readable lines"),
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whether `name` is in "a,b,c". */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ',')) return true;
    return !strcmp(list, "all");
}

/* Whether all of "a,b,c" are in `names`. */
static lc_status check_list(const char *option, const char *list, const char *const *names, int n)
{
    while (strcmp(list, "all") != 0) {
        int length = (int)strcspn(list, ","), i = 0;
        while (i < n && (strlen(names[i]) != (size_t)length || strncmp(list, names[i], (size_t)length) != 0)) i++;
        if (i == n) {
            char known[256] = "all";
            for (i = 0; i < n; i++) {
                size_t at = strlen(known);
                snprintf(known + at, sizeof known - at, ", %s", names[i]);
            }
            return lc_fail(LC_ERR_ARGUMENT, "%s: unknown \"%.*s\"; available: %s", option, length, list, known);
        }
        if (!list[length]) break;
        list += length + 1;
    }
    return LC_OK;
}

/* A core for each rank, where there are enough, as mpirun does: two ranks on one core only wait for each other. */
static void pin(int rank, int size)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < size) return;
    int cpu = 0;
    for (int left = rank; !CPU_ISSET(cpu, &all) || left-- > 0; cpu++) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one)) return; /* then where the system puts them */
}

/* ---- a rank ---- */

/* Beside the collectives: all_reduce in memory that ranks show each other, which is where ddp has its gradients. */
enum { IN_OWN_MEMORY = LC_COLLECTIVES };
#define OWN_MEMORY "all_reduce, own memory"

typedef struct buffers {
    float *in, *out;       /* [ranks * max_bytes] */
    void *own;             /* [max_bytes], NULL: no shared memory */
    const rank_link *link; /* of send */
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

/* Repeated sums in place would stay in the cache of the rank that made them: each rank writes its values again. */
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

static lc_status batch(lc_comm *c, const buffers *b, int op, int64_t n, int calls, double *seconds)
{
    double mine = 0;
    LC_TRY(lc_comm_barrier(c, NULL));
    if (op == IN_OWN_MEMORY) {
        LC_TRY(reduce_fresh(c, b, n, calls, &mine));
    } else {
        double start = now();
        for (int i = 0; i < calls; i++) LC_TRY(call(c, b, op, n));
        mine = now() - start;
    }
    mine /= calls * (op == LC_COMM_SEND ? 2 : 1);
    return lc_comm_all_reduce(c, &mine, seconds, 1, LC_F64, LC_COMM_MAX, NULL);
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
    LC_TRY(batch(c, b, op, n, 1, &once)); /* memory and connections that are new */
    LC_TRY(batch(c, b, op, n, 3, &once));
    /* The slowest rank's time is known to all, so all make as many calls. */
    int calls = once * 1e5 < o->seconds ? 100000 : (int)(o->seconds / once);
    for (int i = 0; i < BATCHES; i++) LC_TRY(batch(c, b, op, n, calls > 1 ? calls : 1, &t[i]));
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

static void keep(bench *o, const row *r)
{
    if (o->n < MOST_ROWS) o->found[o->n++] = *r;
    if (!o->quiet) show(r, o->rows);
}

static lc_status sizes(lc_comm *c, const buffers *b, bench *o, int op)
{
    for (int64_t bytes = 4; bytes <= o->max_bytes; bytes *= bytes < 1 << 20 ? 8 : 4) {
        row r;
        LC_TRY(point(c, b, o, op, op == LC_COMM_BARRIER ? 0 : bytes, &r));
        if (lc_comm_rank(c) == 0) keep(o, &r);
        if (op == LC_COMM_BARRIER) break;
    }
    return LC_OK;
}

static lc_status buffers_new(size_t size, buffers *b)
{
    *b = (buffers){.in = calloc(1, size), .out = calloc(1, size)};
    return b->in && b->out ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: two times %zu bytes", size);
}

/* `node`: the simulated host of this rank, or -1. */
static lc_status all_points(lc_comm *c, bench *o, int node)
{
    lc_status status = LC_OK;
    buffers b;
    rank_link links[MOST_LINKS];
    place *places = calloc((size_t)lc_comm_size(c), sizeof *places);
    LC_TRY_GOTO(status, done, buffers_new((size_t)o->max_bytes * (size_t)lc_comm_size(c), &b));
    if (!places) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: places of ranks"));
    if (!strcmp(lc_comm_name(c), "shm") && listed(o->collectives, lc_collective_name(LC_COMM_ALL_REDUCE)))
        LC_TRY_GOTO(status, done, lc_comm_alloc_mem(c, (size_t)o->max_bytes, &b.own));
    for (int op = LC_COMM_BARRIER; op < LC_COMM_SEND; op++)
        if (listed(o->collectives, lc_collective_name((lc_collective)op)))
            LC_TRY_GOTO(status, done, sizes(c, &b, o, op));
    if (b.own) LC_TRY_GOTO(status, done, sizes(c, &b, o, IN_OWN_MEMORY));
    if (!listed(o->collectives, lc_collective_name(LC_COMM_SEND))) goto done;
    LC_TRY_GOTO(status, done, place_gather(c, node, places));
    int n = place_links(places, lc_comm_size(c), links);
    for (int i = 0; i < n; i++) {
        b.link = &links[i];
        /* A class of links has a name where there are several. */
        if (n == 1) snprintf(links[i].what, sizeof links[i].what, "%s", lc_collective_name(LC_COMM_SEND));
        LC_TRY_GOTO(status, done, sizes(c, &b, o, LC_COMM_SEND));
    }
done:
    free(places);
    free(b.in), free(b.out);
    lc_comm_free_mem(c, b.own);
    return status;
}

/* ---- threads ---- */

typedef struct thread_rank {
    lc_comm *comm;
    bench *o;
    lc_status status;
    char why[512];
    pthread_t thread;
} thread_rank;

static void *thread_main(void *arg)
{
    thread_rank *t = arg;
    pin(lc_comm_rank(t->comm), lc_comm_size(t->comm));
    t->status = all_points(t->comm, t->o, -1);
    if (t->status < 0) {
        snprintf(t->why, sizeof t->why, "%s", lc_error_message());
        lc_comm_abort(t->comm, t->why);
    }
    return NULL;
}

static lc_status run_threads(bench *o, int size)
{
    lc_comm *comms[MOST_RANKS];
    thread_rank ranks[MOST_RANKS];
    lc_status status = LC_OK;
    LC_TRY(lc_comm_threads(size, comms));
    for (int i = 0; i < size; i++) {
        ranks[i] = (thread_rank){.comm = comms[i], .o = o};
        if (pthread_create(&ranks[i].thread, NULL, thread_main, &ranks[i])) {
            fprintf(stderr, "error: cannot start a thread for rank %d\n", i); /* the others would wait for it */
            exit(1);
        }
    }
    for (int i = 0; i < size; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < size; i++) {
        lc_comm_free(comms[i]);
        if (ranks[i].status < 0 && status >= 0) status = lc_fail(ranks[i].status, "rank %d: %s", i, ranks[i].why);
    }
    return status;
}

/* ---- processes ---- */

/* Shared memory through which forked ranks communicate. */
typedef struct page {
    atomic_int arrived, generation;
    char blob[MOST_RANKS][BLOB];
} page;

typedef struct desk {
    page *page;
    int rank, size;
} desk;

static void arrive(desk *d)
{
    int generation = atomic_load(&d->page->generation);
    if (atomic_fetch_add(&d->page->arrived, 1) + 1 == d->size) {
        atomic_store(&d->page->arrived, 0);
        atomic_fetch_add(&d->page->generation, 1);
    } else {
        while (atomic_load(&d->page->generation) == generation) sched_yield();
    }
}

static lc_status meet(void *ctx, const void *mine, void *all, size_t bytes)
{
    desk *d = ctx;
    if (bytes > BLOB) return lc_fail(LC_ERR_INTERNAL, "%zu bytes are more than ranks can send each other here", bytes);
    memcpy(d->page->blob[d->rank], mine, bytes);
    arrive(d);
    for (int i = 0; i < d->size; i++) memcpy((char *)all + (size_t)i * bytes, d->page->blob[i], bytes);
    arrive(d);
    return LC_OK;
}

static lc_status rank_of(bench *o, const char *backend, desk *d)
{
    lc_comm *c = NULL;
    lc_status status;
    const lc_meeting meeting = {meet, d};
    int node = -1;
    pin(d->rank, d->size);
    if (!strcmp(backend, "tcp")) {
        status = lc_comm_tcp(NULL, d->rank, d->size, &meeting, &c);
    } else if (!strcmp(backend, "shm")) {
        status = lc_comm_shm(d->rank, d->size, &meeting, &c);
    } else {
        node = d->rank * 2 / d->size;
        status = lc_comm_shm_tcp(NULL, node, d->rank, d->size, &meeting, &c);
    }
    if (status >= 0) status = all_points(c, o, node);
    if (status < 0) lc_comm_abort(c, lc_error_message());
    lc_comm_free(c);
    return status;
}

/* A rank that is killed is missed by nobody here: what waits for it would wait for ever. */
static void *watch(void *number)
{
    int status;
    for (int left = *(int *)number; left > 0; left--) {
        if (waitpid(-1, &status, 0) < 0) break;
        if (!WIFSIGNALED(status)) continue;
        fprintf(stderr, "error: a rank was killed by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
        _exit(1);
    }
    return NULL;
}

static lc_status run_processes(bench *o, int size, const char *backend)
{
    pthread_t watcher;
    pid_t parent = getpid();
    int children = 0;
    page *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return lc_fail(LC_ERR_MEMORY, "out of memory: what ranks tell each other");
    fflush(NULL);
    for (int i = 1; i < size; i++) {
        desk d = {p, i, size};
        pid_t child = fork();
        if (child < 0) return lc_fail(LC_ERR_STATE, "cannot start a rank: %s", strerror(errno));
        children++;
        if (child > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() != parent || rank_of(o, backend, &d) < 0);
    }
    if (pthread_create(&watcher, NULL, watch, &children)) return lc_fail(LC_ERR_STATE, "cannot start a thread");
    desk d = {p, 0, size};
    cpu_set_t before;
    bool known = sched_getaffinity(0, sizeof before, &before) == 0;
    lc_status status = rank_of(o, backend, &d);
    if (known && sched_setaffinity(0, sizeof before, &before))
        status = lc_fail(LC_ERR_STATE, "sched_setaffinity failed");
    pthread_join(watcher, NULL);
    munmap(p, sizeof *p);
    return status;
}

/* ---- ranks that somebody has started ---- */

static bool under_mpirun(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
}

static bool is_rank(void)
{
    return under_mpirun() || getenv("LIGHTC_RANK");
}

static lc_status open_here(lc_comm **out)
{
    /* lightc launch, by itself or through mpirun. */
    return getenv("LIGHTC_RANK") || getenv("LIGHTC_SECRET") ? lc_comm_world(out) : lc_comm_mpi(out);
}

static int node_here(void)
{
    const char *node = getenv("LIGHTC_NODE_RANK");
    return node ? atoi(node) : -1;
}

/* Everything but the ranks is passed on. */
static lc_status run_mpirun(bench *o, int size)
{
    char self[PATH_MAX], command[PATH_MAX + 512], line[1024], why[1024] = "no output";
    bool said = false;
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    if (k < 0) return lc_fail(LC_ERR_IO, "cannot find the path of this program (/proc/self/exe)");
    self[k] = 0;
    if (strchr(self, '\'') || strchr(o->collectives, '\''))
        return lc_fail(LC_ERR_ARGUMENT, "the path of this program and the collectives must not contain '");
    if (system("command -v mpirun >/dev/null") != 0)
        return lc_fail(LC_ERR_NOT_FOUND, "mpirun is not in PATH (Debian: openmpi-bin)");
    snprintf(
        command, sizeof command,
        "mpirun -n %d --oversubscribe '%s' bench comm --backends mpi --collectives '%s' --max_bytes %lld --seconds %g "
        "--rows true 2>&1",
        size, self, o->collectives, o->max_bytes, o->seconds);
    FILE *f = popen(command, "r");
    if (!f) return lc_fail(LC_ERR_IO, "cannot start mpirun");
    while (fgets(line, sizeof line, f)) {
        row r;
        long long bytes;
        if (sscanf(line, "row %15s %d \"%63[^\"]\" %lld %lf %lf %lf", r.backend, &r.ranks, r.collective, &bytes,
                   &r.median, &r.least, &r.most) == 7) {
            r.bytes = bytes;
            keep(o, &r);
        } else if (!strncmp(line, "error: ", 7) || (!said && strlen(line) > 3 && line[0] != '-')) {
            /* what this program says, else what mpirun says first */
            line[strcspn(line, "\n")] = 0;
            snprintf(why, sizeof why, "%s", line);
            said = true;
        }
    }
    if (pclose(f) == 0) return LC_OK;
    return lc_fail(LC_ERR_PEER, "under mpirun: %s", why);
}

/* ---- what comes of it ---- */

/* Least squares of relative errors over rows first..last-1: sum of ((alpha + beta * bytes) / t - 1)^2. If that makes
 * one of the two negative, it is set to zero. */
static bench_line fit_line(const row *r, int first, int last)
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

static bool same_line(const row *a, const row *b)
{
    return a->ranks == b->ranks && !strcmp(a->backend, b->backend) && !strcmp(a->collective, b->collective);
}

static void show_fits(const bench *o, FILE *json)
{
    if (!json)
        printf("\n%-8s %5s  %-22s %12s %14s %10s %8s\n", "backend", "ranks", "collective", "alpha us", "beta ns/KiB",
               "GB/s", "off by");
    for (int i = 0, k; i < o->n; i = k) {
        const row *r = &o->found[i];
        for (k = i; k < o->n && same_line(r, &o->found[k]); k++) continue;
        bench_line f = fit_line(o->found, i, k);
        if (json)
            fprintf(json,
                    "%s\n  {\"backend\": \"%s\", \"ranks\": %d, \"collective\": \"%s\", \"alpha_s\": %.6g, "
                    "\"beta_s_per_byte\": %.6g, \"off\": %.4g}",
                    i ? "," : "", r->backend, r->ranks, r->collective, f.alpha, f.beta, f.off);
        else
            printf("%-8s %5d  %-22s %12.2f %14.2f %10.2f %7.1fx\n", r->backend, r->ranks, r->collective, f.alpha * 1e6,
                   f.beta * 1024e9, f.beta > 0 ? 1e-9 / f.beta : 0, f.off);
    }
}

/* Whether line `r` is of how ddp reduces gradients there. */
static bool is_of_ddp(const bench *o, const row *r)
{
    if (r->ranks == 1) return false;
    if (!strcmp(r->collective, OWN_MEMORY)) return true;
    bool own = false;
    for (int i = 0; i < o->n; i++) {
        const row *other = &o->found[i];
        own |=
            other->ranks == r->ranks && !strcmp(other->backend, r->backend) && !strcmp(other->collective, OWN_MEMORY);
    }
    return !own && !strcmp(r->collective, lc_collective_name(LC_COMM_ALL_REDUCE));
}

/* As small as it may be, so that little is left when the backward pass ends, but with at most a tenth of latency. */
static void suggest(const bench *o)
{
    bool any = false;
    for (int i = 0, k; i < o->n; i = k) {
        const row *r = &o->found[i];
        for (k = i; k < o->n && same_line(r, &o->found[k]); k++) continue;
        if (!is_of_ddp(o, r)) continue;
        bench_line f = fit_line(o->found, i, k);
        double mb = 0.25;
        while (mb < 32 && f.alpha > 0.1 * (f.alpha + f.beta * mb * (1 << 20))) mb *= 2;
        printf("%s%d ranks over %s: --bucket_cap_mb %g\n", any ? "" : "\n", r->ranks, r->backend, mb);
        any = true;
    }
}

/* ---- for other sub-commands ---- */

enum { LINK_BYTES = 1 << 20, LINK_ROWS = 16 };

lc_status bench_link(lc_comm *c, int a, int b, double seconds, bench_line *out)
{
    row rows[LINK_ROWS];
    bench o = {.max_bytes = LINK_BYTES, .seconds = seconds, .quiet = true, .found = rows};
    const rank_link link = {.a = a, .b = b};
    buffers m;
    lc_status status = buffers_new(LINK_BYTES, &m);
    m.link = &link;
    if (status >= 0) status = sizes(c, &m, &o, LC_COMM_SEND);
    if (status >= 0 && lc_comm_rank(c) == 0) *out = fit_line(rows, 0, o.n);
    free(m.in), free(m.out);
    return status;
}

lc_status bench_pair(const char *backend, double seconds, bench_line *out)
{
    row rows[LINK_ROWS];
    bench o = {.collectives = "send", .max_bytes = LINK_BYTES, .seconds = seconds, .quiet = true, .found = rows};
    LC_TRY(run_processes(&o, 2, backend));
    *out = fit_line(rows, 0, o.n);
    return LC_OK;
}

/* ---- files ---- */

static lc_status write_json(const bench *o)
{
    double load[3] = {0};
    FILE *f = fopen(o->json, "w");
    if (!f) return lc_fail(LC_ERR_IO, "cannot write %s", o->json);
    if (getloadavg(load, 3) < 1) load[0] = -1;
    fprintf(f, "{\"lightc\": \"%s\", \"cores\": %ld, \"load\": [%.2f, %.2f, %.2f],\n \"points\": [", lc_version(),
            sysconf(_SC_NPROCESSORS_ONLN), load[0], load[1], load[2]);
    for (int i = 0; i < o->n; i++) {
        const row *r = &o->found[i];
        fprintf(f,
                "%s\n  {\"backend\": \"%s\", \"ranks\": %d, \"collective\": \"%s\", \"bytes\": %lld, \"median_s\": "
                "%.6g, \"min_s\": %.6g, \"max_s\": %.6g}",
                i ? "," : "", r->backend, r->ranks, r->collective, (long long)r->bytes, r->median, r->least, r->most);
    }
    fprintf(f, "],\n \"lines\": [");
    show_fits(o, f);
    fprintf(f, "]}\n");
    return fclose(f) ? lc_fail(LC_ERR_IO, "cannot write %s", o->json) : LC_OK;
}

/* ---- the command ---- */

static lc_status run_backend(bench *o, const char *name, int size)
{
    if (!strcmp(name, "threads")) return run_threads(o, size);
    if (!strcmp(name, "mpi")) return run_mpirun(o, size);
    return run_processes(o, size, name);
}

static const char *const names[] = {"threads", "shm", "tcp", "shm+tcp", "mpi", "self"};

/* Before everything is measured. */
static lc_status check_json(const char *path)
{
    FILE *f = path ? fopen(path, "a") : NULL;
    if (path && !f) return lc_fail(LC_ERR_IO, "json: cannot write %s: %s", path, strerror(errno));
    if (f) fclose(f);
    return LC_OK;
}

static lc_status check(const bench *o)
{
    const char *collectives[LC_COMM_SEND];
    for (int op = LC_COMM_BARRIER; op <= LC_COMM_SEND; op++)
        collectives[op - 1] = lc_collective_name((lc_collective)op);
    LC_TRY(check_list("backends", o->backends, names, sizeof names / sizeof *names));
    LC_TRY(check_list("collectives", o->collectives, collectives, LC_COMM_SEND));
    if (o->max_bytes < 4 || o->max_bytes > LARGEST || o->seconds <= 0)
        return lc_fail(LC_ERR_ARGUMENT, "max_bytes must be 4 to %lld and seconds positive", LARGEST);
    for (const char *at = o->ranks; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (atoi(at) < 2 || atoi(at) > MOST_RANKS)
            return lc_fail(LC_ERR_ARGUMENT, "ranks is %.20s; it must be 2 to %d", at, MOST_RANKS);
    return check_json(o->json);
}

static lc_status run_all(bench *o, bool chosen)
{
    if (listed(o->backends, "self")) {
        lc_comm *c = NULL;
        LC_TRY(lc_comm_self(&c));
        lc_status s = all_points(c, o, -1);
        lc_comm_free(c);
        LC_TRY(s);
    }
    for (size_t b = 0; b + 1 < sizeof names / sizeof *names; b++)
        for (const char *at = o->ranks; at && listed(o->backends, names[b]);
             at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
            int size = atoi(at);
            lc_status s = run_backend(o, names[b], size);
            if (s >= 0) continue;
            if (chosen) return lc_fail_context(s, "%s", names[b]);
            fprintf(stderr, "%s is not measured: %s\n", names[b], lc_error_message());
            break;
        }
    return LC_OK;
}

static int bench_comm(int argc, char **argv)
{
    bench o = {.collectives = "all", .max_bytes = 16 << 20, .seconds = 0.02};
    char ranks[64] = "2";
    double load[3];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (int n = 4; n <= lc_processors() && n <= 16; n *= 2)
        snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), ",%d", n);
    o.ranks = ranks;
    const lc_option_set sets[] = {{"the measurement", table, sizeof table / sizeof *table, &o}};
    void *texts = NULL;
    argv[0] = (char *)(uintptr_t) "lightc bench comm"; /* what --help shows */
    LC_MAIN_TRY(lc_options_parse(sets, 1, NULL, argc, argv, &texts));
    bool chosen = o.backends != NULL;
    if (!chosen) o.backends = "all";
    LC_MAIN_TRY(check(&o));
    o.found = calloc(MOST_ROWS, sizeof *o.found);
    if (!o.found) LC_MAIN_TRY(lc_fail(LC_ERR_MEMORY, "out of memory: results"));
    lc_comm *here = NULL;
    if (is_rank()) LC_MAIN_TRY(open_here(&here));
    bool first = !here || lc_comm_rank(here) == 0;
    if (!o.rows && first) {
        if (getloadavg(load, 3) == 3) printf("%ld cores, load %.2f %.2f %.2f\n", cores, load[0], load[1], load[2]);
        printf("%-8s %5s  %-22s %10s %12s %12s %12s %10s\n", "backend", "ranks", "collective", "bytes", "us (median)",
               "least", "most", "GB/s");
        fflush(stdout);
    }
    LC_MAIN_TRY(here ? all_points(here, &o, node_here()) : run_all(&o, chosen));
    lc_comm_free(here);
    if (!o.rows && first) show_fits(&o, NULL);
    if (!o.rows && first) suggest(&o);
    if (o.json && first) LC_MAIN_TRY(write_json(&o));
    free(o.found);
    lc_options_free(texts);
    return 0;
}

int tool_bench(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "comm")) return bench_comm(argc - 1, argv + 1);
    bool asked = argc > 1 && is_help(argv[1]);
    fprintf(asked ? stdout : stderr, "usage: lightc bench comm [--backends LIST] [--ranks LIST] [--collectives LIST]\n"
                                     "       [--max_bytes N] [--seconds S] [--json FILE]\n");
    return asked ? 0 : 2;
}
