/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a link for the core that computes, independent of lightc: two processes send each other bytes over one
 * connection, with only send and recv in separate threads, while each computes on data in its first-level cache. The
 * computing time lost is spent in the kernel, and is a lower bound for `exposed` on that link. */
#include "bench.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 160 << 20, PIECE = 512 << 10, REST_US = 2000, FLOATS = 2048, WAIT_S = 10 };

typedef struct link_end {
    int rank, fd;
    char *out, *in;
    pthread_t sender, receiver;
    atomic_int moving;
    atomic_bool broken;
} link_end;

static lc_status connect_both(link_end *e)
{
    const char *rank = getenv("RANK"), *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int on = 1;
    if (!rank || !address || !port)
        return lc_fail(LC_ERR_ARGUMENT, "link needs two processes, with RANK=0 and 1, MASTER_ADDR and MASTER_PORT");
    e->rank = atoi(rank);
    if (getaddrinfo(address, port, &hints, &found) != 0)
        return lc_fail(LC_ERR_ARGUMENT, "no address: %s port %s", address, port);
    for (double until = bench_now() + WAIT_S; bench_now() < until && e->fd < 0;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct pollfd comes = {.fd = fd, .events = POLLIN};
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (e->rank != 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0)
            e->fd = fd;
        else if (e->rank == 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0 &&
                 poll(&comes, 1, WAIT_S * 1000) == 1)
            e->fd = accept(fd, NULL, NULL);
        if (fd != e->fd) close(fd);
        if (e->fd < 0) usleep(10000);
    }
    freeaddrinfo(found);
    return e->fd < 0 ? lc_fail(LC_ERR_IO, "the other process has not connected to %s port %s", address, port) : LC_OK;
}

static void *send_all(void *end)
{
    link_end *e = end;
    ssize_t k = 1;
    for (int64_t n = 0; n < BYTES && k > 0; n += k)
        k = send(e->fd, e->out, (size_t)(BYTES - n < PIECE ? BYTES - n : PIECE), MSG_NOSIGNAL);
    if (k <= 0) e->broken = true;
    e->moving--;
    return NULL;
}

/* Lets bytes accumulate, as lightc's thread does. */
static void *receive_all(void *end)
{
    link_end *e = end;
    ssize_t k = 1;
    for (int64_t n = 0; n < BYTES && k > 0; n += k) {
        usleep(REST_US);
        k = recv(e->fd, e->in, (size_t)(BYTES - n < PIECE ? BYTES - n : PIECE), 0);
    }
    if (k <= 0) e->broken = true;
    e->moving--;
    return NULL;
}

/* Rounds per second, measured for `seconds`, or (0) while bytes move. */
static double compute(link_end *e, double seconds)
{
    static volatile float kept;
    static float x[FLOATS];
    double start = bench_now(), now;
    int64_t rounds = 0;
    do {
        for (int k = 0; k < 64; k++)
            for (int i = 0; i < FLOATS; i++) x[i] = x[i] * 0.5f + 1.0f;
        rounds++;
        now = bench_now();
    } while (seconds > 0 ? now - start < seconds : e->moving > 0);
    kept = x[0];
    (void)kept;
    return (double)rounds / (now - start);
}

/* *lost: as a share of the rate without communication. */
static lc_status measure(link_end *e, double *lost, double *seconds)
{
    char word = 0;
    double alone = compute(e, 1), start;
    if (send(e->fd, &word, 1, MSG_NOSIGNAL) != 1 || recv(e->fd, &word, 1, 0) != 1)
        return lc_fail(LC_ERR_IO, "the other process is gone");
    start = bench_now();
    e->moving = 2;
    if (pthread_create(&e->sender, NULL, send_all, e) != 0) return lc_fail(LC_ERR_MEMORY, "no thread");
    if (pthread_create(&e->receiver, NULL, receive_all, e) != 0) return lc_fail(LC_ERR_MEMORY, "no thread");
    *lost = 1 - compute(e, 0) / alone;
    *seconds = bench_now() - start;
    pthread_join(e->sender, NULL);
    pthread_join(e->receiver, NULL);
    return e->broken ? lc_fail(LC_ERR_IO, "the other process is gone") : LC_OK;
}

lc_status bench_link(const bench *b)
{
    int rounds = b->steps ? (int)b->steps : 9;
    link_end e = {.fd = -1, .out = calloc(1, PIECE), .in = calloc(1, PIECE)};
    double *lost = calloc((size_t)rounds, sizeof *lost), *seconds = calloc((size_t)rounds, sizeof *seconds);
    lc_status s = LC_OK;
    if (!e.out || !e.in || !lost || !seconds) LC_TRY_GOTO(s, done, lc_fail(LC_ERR_MEMORY, "no memory"));
    LC_TRY_GOTO(s, done, connect_both(&e));
    for (int i = 0; i < rounds; i++) LC_TRY_GOTO(s, done, measure(&e, &lost[i], &seconds[i]));
    if (e.rank == 0) {
        double median = bench_median(lost, rounds); /* sorts them */
        BENCH_EMIT(b, "link", median, "share", {"least", lost[0]}, {"most", lost[rounds - 1]},
                   {"seconds", bench_median(seconds, rounds)}, {"bytes", BYTES}, {"rounds", rounds});
    }
done:
    if (e.fd >= 0) close(e.fd);
    free(e.out), free(e.in), free(lost), free(seconds);
    return s < 0 ? s : LC_OK;
}
