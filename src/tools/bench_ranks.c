/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of `lightc bench comm`.
 *
 * Ranks of "shm" and "tcp" are forked processes, with this one as rank 0 (for "shm+tcp" on two simulated hosts); ranks
 * of "mpi" are this program under mpirun, which prints its measurements as lines ("row ..."). As a rank of `lightc
 * launch` the program measures the backend of these ranks. */
#define _GNU_SOURCE
#include "base/thread.h"
#include "bench_comm.h"

#include <errno.h>
#include <limits.h>
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
#include <unistd.h>

enum { BLOB = 4096 };

/* Pins each rank to a core if there are enough, as mpirun does: two ranks on one core only wait for each other. */
static void pin(int rank, int size)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < size) return;
    int cpu = 0;
    for (int left = rank; !CPU_ISSET(cpu, &all) || left-- > 0; cpu++) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one)) return; /* leave it to the system */
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
    t->status = bench_all_points(t->comm, t->o, -1);
    if (t->status < 0) {
        snprintf(t->why, sizeof t->why, "%s", lc_error_message());
        lc_comm_abort(t->comm, t->why);
    }
    return NULL;
}

lc_status bench_threads(bench *o, int size)
{
    lc_comm *comms[MOST_RANKS];
    thread_rank ranks[MOST_RANKS];
    lc_status status = LC_OK;
    LC_TRY(lc_comm_threads(size, comms));
    for (int i = 0; i < size; i++) {
        ranks[i] = (thread_rank){.comm = comms[i], .o = o};
        if (lc__thread_start(&ranks[i].thread, thread_main, &ranks[i], "rank %d", i) < 0) {
            fprintf(stderr, "error: %s\n", lc_error_message());
            exit(1); /* the others would wait for it */
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
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = meet, .ctx = d};
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
    if (status >= 0) status = bench_all_points(c, o, node);
    if (status < 0) lc_comm_abort(c, lc_error_message());
    lc_comm_free(c);
    return status;
}

/* Nothing else detects a killed rank: the others would wait for it forever. */
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

lc_status bench_processes(bench *o, int size, const char *backend)
{
    pthread_t watcher;
    pid_t parent = getpid();
    int children = 0;
    page *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return lc_fail(LC_ERR_MEMORY, "out of memory: what ranks report to each other");
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
    LC_TRY(lc__thread_start(&watcher, watch, &children, "watching the ranks"));
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

/* ---- ranks started by another program ---- */

static bool under_mpirun(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
}

bool bench_is_rank(void)
{
    return under_mpirun() || getenv("LIGHTC_RANK");
}

lc_status bench_open(lc_comm **out)
{
    /* Under lightc launch, with or without mpirun. */
    return getenv("LIGHTC_RANK") || getenv("LIGHTC_SECRET") ? lc_comm_world(out) : lc_comm_mpi(out);
}

int bench_node(void)
{
    const char *node = getenv("LIGHTC_NODE_RANK");
    return node ? atoi(node) : -1;
}

/* Passes on all options except the ranks. */
lc_status bench_mpirun(bench *o, int size)
{
    char self[PATH_MAX], command[PATH_MAX + 512], line[1024], why[1024] = "no output";
    bool explained = false;
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
            bench_keep(o, &r);
        } else if (!strncmp(line, "error: ", 7) || (!explained && strlen(line) > 3 && line[0] != '-')) {
            /* the message of this program, or else the first line of mpirun */
            line[strcspn(line, "\n")] = 0;
            snprintf(why, sizeof why, "%s", line);
            explained = true;
        }
    }
    if (pclose(f) == 0) return LC_OK;
    return lc_fail(LC_ERR_PEER, "under mpirun: %s", why);
}

/* ---- for other sub-commands ---- */

lc_status bench_pair(const char *backend, double seconds, bench_line *out)
{
    row rows[LINK_ROWS];
    bench o = {.collectives = "send", .max_bytes = LINK_BYTES, .seconds = seconds, .quiet = true, .found = rows};
    LC_TRY(bench_processes(&o, 2, backend));
    *out = bench_fit(rows, 0, o.n);
    return LC_OK;
}
