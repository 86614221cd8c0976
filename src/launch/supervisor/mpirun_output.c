/* SPDX-License-Identifier: Apache-2.0 */
/* The output of ranks started by mpirun. Ranks other than 0 send it in frames (comm/world/prints.h) over mpirun's
 * standard error, which is a pipe to this process. Frames go into the ranks' files, all else to this process's standard
 * error.
 *
 * A thread reads and writes it, since the terminal may be stopped, and a pager may be slow: the supervisor must not
 * wait for them. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "launch/supervisor/supervisor.h"

#include "comm/control/times.h"
#include "comm/world/prints.h"
#include "base/descriptors.h"
#include "base/thread.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIPE_BYTES = 1 << 20 };

struct lc__gather {
    const char *root;
    int *files, n; /* the caller's, by rank; -1: none yet */
    int from;
    lc__blame blame;
    size_t line_n;
    char line[256]; /* the current line outside frames, as far as it has arrived */
    atomic_bool ended;
    atomic_long shown;
    pthread_t thread;
    lc__prints frames;
    char block[64 << 10];
};

/* mpirun prints "mpirun noticed that process rank 1 with PID 7 on node a exited on signal 6 (Aborted)", or "Process
 * name: [[7,1],1]" and below it "Exit code: 3". */
void lc__mpirun_blames(const char *line, lc__blame *b)
{
    const char *at = strstr(line, "noticed that process rank "), *name = strstr(line, "Process name: [");
    const char *comma = name ? strrchr(name, ',') : NULL, *code = strstr(line, "Exit code:");
    const char *by = at ? strstr(at, "exited on signal ") : NULL;
    int rank, number;
    if (b->rank < 0 && at && sscanf(at, "noticed that process rank %d", &rank) == 1) {
        b->rank = rank;
        if (by && sscanf(by, "exited on signal %d", &number) == 1 && number > 0 && number < 128) b->status = number;
    }
    if (b->rank < 0 && comma && sscanf(comma, ",%d]", &rank) == 1) b->rank = rank;
    if (b->rank >= 0 && b->status < 0 && code && sscanf(code, "Exit code: %d", &number) == 1)
        b->status = W_EXITCODE(number & 255, 0);
}

static void read_lines(lc__gather *g, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && g->blame.status < 0; i++) {
        if (g->line_n < sizeof g->line - 1) g->line[g->line_n++] = bytes[i];
        if (bytes[i] != '\n') continue;
        g->line[g->line_n] = 0;
        g->line_n = 0;
        lc__mpirun_blames(g->line, &g->blame);
    }
}

/* If nobody reads the output anymore, it is dropped and training continues. */
static void show(void *ctx, const char *bytes, size_t n)
{
    lc__gather *g = ctx;
    read_lines(g, bytes, n);
    if (lc__show(2, bytes, n)) atomic_fetch_add(&g->shown, 1);
}

/* If the disk is full, the rest is lost. */
static void keep(void *ctx, int rank, const char *bytes, size_t n)
{
    lc__gather *g = ctx;
    if (rank >= g->n) return;
    if (g->files[rank] < 0 && lc__output_open(g->root, &g->files[rank]) < 0) return;
    (void)!lc__show(g->files[rank], bytes, n);
}

/* Processes started by mpirun may keep the other end of the pipe open after its end; so, after its end, an empty pipe
 * is the end of the output. */
static void *gather(void *arg)
{
    lc__gather *g = arg;
    struct pollfd p = {.fd = g->from, .events = POLLIN};
    for (;;) {
        bool ended = atomic_load(&g->ended);
        ssize_t n = read(g->from, g->block, sizeof g->block);
        if (n > 0) lc__prints_take(&g->frames, g->block, (size_t)n);
        if (n > 0 || (n < 0 && errno == EINTR)) continue;
        if (n == 0 || errno != EAGAIN || ended) break;
        poll(&p, 1, LC__LOOK_MS);
    }
    lc__prints_end(&g->frames);
    return NULL;
}

lc_status lc__gather_start(const char *root, const char *mark, int *files, int n, int *fd, lc__gather **out)
{
    lc_status status = LC_OK;
    int ends[2] = {-1, -1};
    lc__gather *g = calloc(1, sizeof *g);
    *fd = -1;
    *out = NULL;
    if (!g) return lc_fail(LC_ERR_MEMORY, "out of memory: the output of %d ranks", n);
    lc__descriptors_allow(2 * n); /* the coordinator of as many ranks needs one for each, too */
    g->root = root;
    g->files = files;
    g->n = n;
    g->blame = LC__BLAMES_NOBODY;
    g->frames = (lc__prints){.other = show, .of_rank = keep, .ctx = g};
    snprintf(g->frames.mark, sizeof g->frames.mark, "%s", mark);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        status = lc__io_fail(errno, "make a pipe for", "the output of ranks");
        goto failed;
    }
    g->from = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES); /* optional */
    LC_TRY_GOTO(status, failed, lc__thread_start(&g->thread, gather, g, "the output of ranks"));
    *fd = ends[1];
    *out = g;
    return LC_OK;
failed:
    if (ends[0] >= 0) close(ends[0]), close(ends[1]);
    free(g);
    return status;
}

lc__blame lc__gather_end(lc__gather *g, double patience)
{
    struct timespec until;
    if (!g) return LC__BLAMES_NOBODY;
    atomic_store(&g->ended, true);
    for (long before = -1; before != atomic_load(&g->shown);) {
        before = atomic_load(&g->shown);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1 + (time_t)patience;
        if (pthread_timedjoin_np(g->thread, NULL, &until) == 0) goto joined;
    }
    pthread_cancel(g->thread); /* it is in write: nobody reads anymore, as with an abandoned pager */
    pthread_join(g->thread, NULL);
joined:;
    lc__blame blame = g->blame;
    close(g->from);
    free(g);
    return blame;
}
