/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank listens on a port of its own, all tell each other where, and of each two ranks the higher one connects. A
 * connection begins with a greeting: a random number that rank 0 has drawn for this group and told its members, and who
 * it is. Whoever cannot say that is turned away. */
#define _GNU_SOURCE
#include "comm/tcp_mesh.h"
#include "comm/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define CONNECT_TIME 30.0 /* seconds */
enum { TOKEN = LC__TCP_TOKEN, CALLERS = 256 };

typedef struct greeting {
    unsigned char token[TOKEN];
    int32_t rank, stream;
} greeting;

/* A connection that has not finished its greeting. */
typedef struct caller {
    int fd;
    size_t n;
    greeting g;
} caller;

typedef struct mesh {
    int rank, size, streams, listener;
    const lc__tcp_card *cards;
    const bool *without;
    int *fds;
    double until;
    caller callers[CALLERS];
    int n_callers;
    struct pollfd polled[CALLERS + 1];
} mesh;

static bool connects(const mesh *m, int rank)
{
    return rank != m->rank && !(m->without && m->without[rank]);
}

static lc_status greet(const mesh *m, int peer, int stream)
{
    const lc__tcp_card *to = &m->cards[peer];
    greeting g = {.rank = m->rank, .stream = stream};
    int fd = -1;
    memcpy(g.token, m->cards[0].token, TOKEN);
    LC_TRY(lc__socket_connect(to->address, to->port, m->until, &fd));
    m->fds[peer * m->streams + stream] = fd;
    if (lc__socket_send(fd, &g, sizeof g) != (ssize_t)sizeof g)
        return lc_fail(LC_ERR_IO, "greeting rank %d at %s, port %d: %s", peer, to->address, to->port, strerror(errno));
    return LC_OK;
}

/* Whether the caller is done with: it is a rank's connection now, or turned away. */
static bool hear(mesh *m, caller *c)
{
    ssize_t k = lc__socket_recv(c->fd, (char *)&c->g + c->n, sizeof c->g - c->n);
    if (k >= 0 && (c->n += (size_t)k) < sizeof c->g) return false;
    int rank = c->g.rank, stream = c->g.stream;
    if (k >= 0 && lc__same_secret(c->g.token, m->cards[0].token, TOKEN) && rank > m->rank && rank < m->size &&
        connects(m, rank) && stream >= 0 && stream < m->streams && m->fds[rank * m->streams + stream] < 0)
        m->fds[rank * m->streams + stream] = c->fd;
    else
        close(c->fd);
    return true;
}

/* A rank that is still to come, or -1. */
static int missing(const mesh *m)
{
    for (int i = (m->rank + 1) * m->streams; i < m->size * m->streams; i++)
        if (m->fds[i] < 0 && connects(m, i / m->streams)) return i / m->streams;
    return -1;
}

static lc_status await_callers(mesh *m)
{
    int rank;
    while ((rank = missing(m)) >= 0) {
        double left = m->until - lc__seconds();
        if (left <= 0)
            return lc_fail(LC_ERR_PEER, "rank %d did not connect to rank %d at %s, port %d, within %g s", rank, m->rank,
                           m->cards[m->rank].address, m->cards[m->rank].port, CONNECT_TIME);
        m->polled[0] = (struct pollfd){.fd = m->n_callers < CALLERS ? m->listener : -1, .events = POLLIN};
        for (int i = 0; i < m->n_callers; i++)
            m->polled[1 + i] = (struct pollfd){.fd = m->callers[i].fd, .events = POLLIN};
        if (poll(m->polled, 1 + (nfds_t)m->n_callers, (int)(left * 1000) + 1) <= 0) continue;
        int kept = 0, before = m->n_callers;
        for (int i = 0; i < before; i++)
            if (!m->polled[1 + i].revents || !hear(m, &m->callers[i])) m->callers[kept++] = m->callers[i];
        m->n_callers = kept;
        for (int fd; m->n_callers < CALLERS && (fd = lc__socket_accept(m->listener)) >= 0;)
            m->callers[m->n_callers++] = (caller){.fd = fd};
    }
    return LC_OK;
}

static lc_status connect_all(mesh *m)
{
    m->until = lc__seconds() + CONNECT_TIME;
    for (int i = 0; i < m->rank; i++)
        for (int s = 0; s < m->streams && connects(m, i); s++) LC_TRY(greet(m, i, s));
    return await_callers(m);
}

static lc_status prepare(lc_status prepared, const char *address, int rank, lc__tcp_card *mine, int *listener)
{
    int port = 0;
    LC_TRY(prepared);
    if (rank == 0 && getrandom(mine->token, TOKEN, 0) != TOKEN)
        return lc_fail(LC_ERR_IO, "random numbers: %s", strerror(errno));
    if (strlen(address) >= sizeof mine->address)
        return lc_fail(LC_ERR_ARGUMENT, "the address \"%s\" is too long", address);
    LC_TRY(lc__socket_listen(address, &port, listener));
    snprintf(mine->address, sizeof mine->address, "%s", address);
    mine->port = port;
    return LC_OK;
}

/* All ranks tell how it went; the first failure is everybody's. */
static lc_status agree(const lc__meeting *meeting, int size, lc_status mine, lc__tcp_card *card_of_mine,
                       lc__tcp_card *cards)
{
    lc_status theirs = mine < 0 ? mine : LC_ERR_PEER;
    if (mine < 0) snprintf(card_of_mine->why, sizeof card_of_mine->why, "%s", lc_error_message());
    LC_TRY(meeting->all_gather(meeting->ctx, card_of_mine, cards, sizeof *cards));
    for (int i = 0; i < size; i++)
        if (cards[i].why[0])
            return lc_fail(theirs, "rank %d: %.*s", i, (int)strnlen(cards[i].why, sizeof cards[i].why), cards[i].why);
    return LC_OK;
}

lc_status lc__tcp_mesh(lc_status prepared, const char *address, int rank, int size, const bool *without, int streams,
                       const lc__meeting *meeting, int *fds)
{
    lc_status status = LC_OK;
    lc__tcp_card mine = {0}, *cards = calloc((size_t)size, sizeof *cards);
    mesh *m = calloc(1, sizeof *m);
    for (int i = 0; i < size * streams && prepared >= 0; i++) fds[i] = -1;
    if (!cards || !m) {
        free(cards), free(m);
        return lc_fail(LC_ERR_MEMORY, "out of memory: connections of %d ranks", size);
    }
    *m = (mesh){
        .rank = rank, .size = size, .streams = streams, .listener = -1, .cards = cards, .without = without, .fds = fds};
    LC_TRY_GOTO(status, done,
                agree(meeting, size, prepare(prepared, address, rank, &mine, &m->listener), &mine, cards));
    status = agree(meeting, size, connect_all(m), &mine, cards);
done:
    if (m->listener >= 0) close(m->listener);
    for (int i = 0; i < m->n_callers; i++) close(m->callers[i].fd);
    for (int i = 0; i < size * streams && status < 0 && prepared >= 0; i++)
        if (fds[i] >= 0) close(fds[i]), fds[i] = -1;
    free(cards);
    free(m);
    return status;
}
