/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank listens on its own port, all exchange their addresses, and of any two ranks the higher one connects. A
 * call begins with both proving that they belong to the group (proof.h): the listener sends a random number; the caller
 * sends its rank, a number of its own and its proof; the listener sends its proof. An end that cannot is rejected.
 *
 * The key is made of the run's secret and a random number that rank 0 has drawn for this group and sent to its members;
 * without a secret it is that number, which is as secret as the meeting was. */
#define _GNU_SOURCE
#include "comm/transport/tcp_mesh.h"
#include "comm/control/wire.h"
#include "comm/net/guests.h"
#include "comm/net/proof.h"
#include "comm/net/socket.h"
#include "base/descriptors.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_TIME 30.0 /* seconds */
#define CHECK_TIME   0.2  /* seconds between two checks whether waiting is of use */
enum { TRIES = 8, WHO = 8, ANSWER = WHO + LC__NONCE + LC__PROOF };

/* A connection that is not proven yet, from either side. */
typedef struct call {
    lc__guest guest; /* the caller, if it was not this rank */
    int fd;
    bool ours; /* this rank calls */
    int rank, stream, tries;
    uint8_t asked[LC__NONCE], answer[ANSWER], got[ANSWER];
    size_t n, want; /* bytes of `got` that have arrived, and that are expected */
    bool answered;
} call;

typedef struct mesh {
    int rank, size, streams, listener;
    const lc__meeting *meeting;
    const lc__tcp_card *cards;
    const bool *without;
    int *fds;
    lc__tcp_keys *keys; /* may be NULL */
    double until;
    uint8_t key[LC__PROOF];
    size_t key_bytes;
    call *calls; /* ours, and those of others, at most `callers` of these */
    int n_calls, callers;
    double shut; /* until when no call is accepted, as all callers have time left */
    struct pollfd *polled;
} mesh;

static bool connects(const mesh *m, int rank)
{
    return rank != m->rank && !(m->without && m->without[rank]);
}

/* ---- proving ---- */

static lc__proof_ask ask_of(lc__proof_role role, const uint8_t asked[LC__NONCE], const uint8_t answer[ANSWER],
                            int listener)
{
    lc__proof_ask ask = {.role = role};
    memcpy(ask.asked, asked, LC__NONCE);
    memcpy(ask.about, answer, WHO);
    memcpy(ask.answered, answer + WHO, LC__NONCE);
    lc__put_u32(ask.about + WHO, (uint32_t)listener);
    return ask;
}

static bool send_all(const call *c, const void *data, size_t n)
{
    return lc__socket_send(c->fd, data, n) == (ssize_t)n; /* it fits into the socket's buffer */
}

/* Answers the rank that was called, which has sent its number. */
static lc_status answer(const mesh *m, call *c)
{
    memcpy(c->asked, c->got, LC__NONCE);
    lc__put_u32(c->answer, (uint32_t)m->rank);
    lc__put_u32(c->answer + 4, (uint32_t)c->stream);
    LC_TRY(lc__proof_nonce(c->answer + WHO));
    const lc__proof_ask ask = ask_of(LC__PROOF_CALLER, c->asked, c->answer, c->rank);
    LC_TRY(lc__proof_make(m->key, m->key_bytes, &ask, c->answer + WHO + LC__NONCE));
    c->answered = true;
    c->n = 0;
    c->want = LC__PROOF;
    if (send_all(c, c->answer, ANSWER)) return LC_OK;
    return lc_fail(LC_ERR_IO, "cannot greet rank %d at %s:%d: %s", c->rank, m->cards[c->rank].address,
                   m->cards[c->rank].port, strerror(errno));
}

/* Whether a caller is a rank that is still missing; it then gets this rank's proof. */
static bool admit(const mesh *m, call *c)
{
    uint8_t mine[LC__PROOF];
    int64_t rank = lc__get_u32(c->got), stream = lc__get_u32(c->got + 4);
    const lc__proof_ask its = ask_of(LC__PROOF_CALLER, c->asked, c->got, m->rank),
                        ours = ask_of(LC__PROOF_LISTENER, c->asked, c->got, m->rank);
    if (!lc__proof_is(m->key, m->key_bytes, &its, c->got + WHO + LC__NONCE)) return false;
    if (rank <= m->rank || rank >= m->size || !connects(m, (int)rank) || stream >= m->streams) return false;
    c->rank = (int)rank;
    c->stream = (int)stream;
    return m->fds[rank * m->streams + stream] < 0 && lc__proof_make(m->key, m->key_bytes, &ours, mine) >= 0 &&
           send_all(c, mine, sizeof mine);
}

/* ---- calls ---- */

static void hang_up(call *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static lc_status make_key(const mesh *m, const call *c, lc__proof_role role, uint8_t key[LC__SEAL_KEY])
{
    uint8_t whole[LC__PROOF];
    const lc__proof_ask ask = ask_of(role, c->asked, c->ours ? c->answer : c->got, c->ours ? c->rank : m->rank);
    LC_TRY(lc__proof_make(m->key, m->key_bytes, &ask, whole));
    memcpy(key, whole, LC__SEAL_KEY);
    return LC_OK;
}

/* The call is proven: its connection becomes one of the group's. */
static lc_status establish(mesh *m, call *c)
{
    int at = c->rank * m->streams + c->stream;
    lc__tcp_keys *keys = m->keys ? &m->keys[at] : NULL;
    m->fds[at] = c->fd;
    c->fd = -1;
    if (!keys) return LC_OK;
    LC_TRY(make_key(m, c, LC__PROOF_KEY_THERE, c->ours ? keys->closes : keys->opens));
    return make_key(m, c, LC__PROOF_KEY_BACK, c->ours ? keys->opens : keys->closes);
}

static lc_status hear_rank(mesh *m, call *c)
{
    if (!c->answered) return answer(m, c);
    const lc__proof_ask ask = ask_of(LC__PROOF_LISTENER, c->asked, c->answer, c->rank);
    if (!lc__proof_is(m->key, m->key_bytes, &ask, c->got))
        return lc_fail(LC_ERR_PEER, "the process listening at %s:%d is not rank %d of this group",
                       m->cards[c->rank].address, m->cards[c->rank].port, c->rank);
    return establish(m, c);
}

static lc_status connect_call(const mesh *m, call *c)
{
    const lc__tcp_card *to = &m->cards[c->rank];
    char local[64];
    LC_TRY(lc__socket_connect_while(m->meeting->check, m->meeting->ctx, to->address, to->port, m->until, &c->fd));
    lc__socket_local(c->fd, local, sizeof local);
    if (!lc__proof_reveals() || lc__socket_is_loopback(local)) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED, "rank %d would have to send the group's secret to %s, because %s", m->rank,
                   to->address, lc__proof_why_not());
}

/* A rank that has hung up has given up, and no longer listens; or it had too many callers, and took this slow one for a
 * stranger. */
static lc_status call_again(const mesh *m, call *c)
{
    const lc__tcp_card *to = &m->cards[c->rank];
    hang_up(c);
    *c = (call){.fd = -1, .ours = true, .rank = c->rank, .stream = c->stream, .want = LC__NONCE, .tries = c->tries + 1};
    if (m->meeting->check) LC_TRY(m->meeting->check(m->meeting->ctx));
    if (c->tries < TRIES && connect_call(m, c) >= 0) return LC_OK;
    return lc_fail(LC_ERR_PEER, "rank %d at %s:%d closed the connection of rank %d", c->rank, to->address, to->port,
                   m->rank);
}

/* Handles what has arrived. */
static lc_status hear(mesh *m, call *c)
{
    ssize_t k = lc__socket_recv(c->fd, c->got + c->n, c->want - c->n);
    if (k < 0 && c->ours) return call_again(m, c);
    if (k < 0)
        hang_up(c);
    else if ((c->n += (size_t)k) < c->want)
        return LC_OK;
    else if (c->ours)
        return hear_rank(m, c);
    else if (admit(m, c))
        return establish(m, c);
    else
        hang_up(c);
    return LC_OK;
}

static lc_status call_rank(mesh *m, int rank, int stream)
{
    call *c = &m->calls[m->n_calls++];
    *c = (call){.fd = -1, .ours = true, .rank = rank, .stream = stream, .want = LC__NONCE};
    return connect_call(m, c);
}

static int count_callers(const mesh *m)
{
    int n = 0;
    for (int i = 0; i < m->n_calls; i++) n += !m->calls[i].ours;
    return n;
}

/* Makes room for the next call. False: not yet. */
static bool put_one_out(mesh *m, double now)
{
    int i = lc__guest_to_leave(m->calls, sizeof *m->calls, m->n_calls, now, &m->shut);
    if (i < 0) return false;
    hang_up(&m->calls[i]);
    m->calls[i] = m->calls[--m->n_calls];
    return true;
}

static lc_status accept_callers(mesh *m, double now)
{
    int callers = count_callers(m);
    for (int i = 0; i < m->callers && now >= m->shut; i++) {
        lc__guest guest;
        if (callers == m->callers && !put_one_out(m, now)) return LC_OK;
        if (callers == m->callers) callers--;
        int fd = lc__guest_accept(m->listener, now, &guest);
        if (fd < 0 && !lc__descriptors_lacked(errno)) return LC_OK;
        if (fd < 0 && !callers)
            return lc_fail(LC_ERR_IO,
                           "no file descriptors are left for the connections of %d ranks (ulimit -n is %lld; each "
                           "rank needs %d for each other one, and some more)",
                           m->size, lc__descriptors_limit(), m->streams);
        if (fd < 0) {
            if (!put_one_out(m, now)) return LC_OK;
            callers--;
            continue;
        }
        call *c = &m->calls[m->n_calls++];
        *c = (call){.guest = guest, .fd = fd, .want = ANSWER};
        if (lc__proof_nonce(c->asked) < 0 || !send_all(c, c->asked, sizeof c->asked)) hang_up(c);
        callers++;
    }
    return LC_OK;
}

/* A rank whose connection is not there, or -1. */
static int missing(const mesh *m)
{
    for (int i = 0; i < m->size * m->streams; i++)
        if (m->fds[i] < 0 && connects(m, i / m->streams)) return i / m->streams;
    return -1;
}

/* Forgets calls that are over, and callers that take too long. */
static void tidy(mesh *m, double now)
{
    int kept = 0;
    for (int i = 0; i < m->n_calls; i++) {
        call *c = &m->calls[i];
        if (!c->ours && now - c->guest.since > LC__GUEST_TIME) hang_up(c);
        if (c->fd >= 0) m->calls[kept++] = *c;
    }
    m->n_calls = kept;
}

/* A rank that has given up hangs up on all ranks: otherwise nothing arrives on a connection before all are made. */
static lc_status check_others(const mesh *m)
{
    char byte;
    for (int i = 0; i < m->size * m->streams; i++)
        if (m->fds[i] >= 0 && recv(m->fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            return lc_fail(LC_ERR_PEER, "rank %d closed its connection to rank %d", i / m->streams, m->rank);
    return m->meeting->check ? m->meeting->check(m->meeting->ctx) : LC_OK;
}

static void hang_up_on_all(mesh *m)
{
    if (m->listener >= 0) close(m->listener);
    m->listener = -1;
    for (int i = 0; i < m->n_calls; i++) hang_up(&m->calls[i]);
    for (int i = 0; i < m->size * m->streams; i++) {
        if (m->fds[i] >= 0) close(m->fds[i]);
        m->fds[i] = -1;
    }
}

static lc_status connect_all(mesh *m)
{
    double checked = lc__seconds();
    m->until = lc__seconds() + CONNECT_TIME;
    lc__descriptors_allow(m->size * m->streams);
    m->callers = lc__guests_most((m->size - m->rank) * m->streams);
    int rank, most = m->rank * m->streams + m->callers;
    m->calls = calloc((size_t)most, sizeof *m->calls);
    m->polled = calloc((size_t)most + 1, sizeof *m->polled);
    if (!m->calls || !m->polled) return lc_fail(LC_ERR_MEMORY, "out of memory: connections of %d ranks", m->size);
    for (int i = 0; i < m->rank; i++)
        for (int s = 0; s < m->streams && connects(m, i); s++) LC_TRY(call_rank(m, i, s));
    while ((rank = missing(m)) >= 0) {
        double now = lc__seconds(), left = m->until - now;
        if (left <= 0)
            return lc_fail(LC_ERR_PEER, "rank %d and rank %d at %s:%d did not connect within %g s", rank, m->rank,
                           m->cards[m->rank].address, m->cards[m->rank].port, CONNECT_TIME);
        double shut = m->shut - now, wait = left < CHECK_TIME ? left : CHECK_TIME;
        if (shut > 0 && shut < wait) wait = shut;
        m->polled[0] = (struct pollfd){.fd = shut > 0 ? -1 : m->listener, .events = POLLIN};
        int n = m->n_calls;
        for (int i = 0; i < n; i++) m->polled[1 + i] = (struct pollfd){.fd = m->calls[i].fd, .events = POLLIN};
        int some = poll(m->polled, 1 + (nfds_t)n, (int)(wait * 1000) + 1);
        for (int i = 0; i < n && some > 0; i++)
            if (m->polled[1 + i].revents) LC_TRY(hear(m, &m->calls[i]));
        if (now - checked >= CHECK_TIME) {
            LC_TRY(check_others(m));
            checked = now;
        }
        tidy(m, now);
        LC_TRY(accept_callers(m, lc__seconds()));
    }
    return LC_OK;
}

/* ---- opening ---- */

static lc_status prepare(lc_status prepared, const lc__tcp_place *here, int rank, lc__tcp_card *mine, int *listener)
{
    int port = 0;
    LC_TRY(prepared);
    if (rank == 0 && getrandom(mine->token, LC__TCP_TOKEN, 0) != LC__TCP_TOKEN)
        return lc_fail(LC_ERR_IO, "cannot get random numbers: %s", strerror(errno));
    LC_TRY(lc__socket_listen(here->address, &port, listener));
    snprintf(mine->address, sizeof mine->address, "%s", here->address);
    mine->port = port;
    return LC_OK;
}

static lc_status check_security(const lc__tcp_card *cards, int size)
{
    for (int i = 1; i < size; i++)
        if (cards[i].security != cards[0].security)
            return lc_fail(LC_ERR_CONFIG, "rank 0 wants comm_security %s, but rank %d wants %s",
                           lc__security_name((lc__security)cards[0].security), i,
                           lc__security_name((lc__security)cards[i].security));
    return LC_OK;
}

/* All ranks exchange their results. The first failure becomes that of all ranks; failures that are not about another
 * rank come first. */
static lc_status agree(const lc__meeting *meeting, int size, lc_status mine, lc__tcp_card *card_of_mine,
                       lc__tcp_card *cards)
{
    lc_status theirs = mine < 0 ? mine : LC_ERR_PEER;
    card_of_mine->missing = mine == LC_ERR_PEER;
    if (mine < 0) snprintf(card_of_mine->why, sizeof card_of_mine->why, "%s", lc_error_message());
    LC_TRY(meeting->all_gather(meeting->ctx, card_of_mine, cards, sizeof *cards));
    int first = -1;
    for (int i = 0; i < size; i++) cards[i].address[sizeof cards[i].address - 1] = 0;
    for (int i = 0; i < size; i++)
        if (cards[i].why[0] && (first < 0 || (cards[first].missing && !cards[i].missing))) first = i;
    if (first < 0) return LC_OK;
    return lc_fail(theirs, "rank %d: %.*s", first, (int)strnlen(cards[first].why, sizeof cards[first].why),
                   cards[first].why);
}

lc_status lc__tcp_key(const char *secret, const uint8_t token[LC__TCP_TOKEN], uint8_t key[LC__PROOF])
{
    lc__proof_ask ask = {.role = LC__PROOF_GROUP};
    memset(key, 0, LC__PROOF);
    memcpy(*secret ? ask.asked : key, token, LC__TCP_TOKEN);
    return *secret ? lc__proof_make(secret, strlen(secret), &ask, key) : LC_OK;
}

lc_status lc__tcp_mesh(lc_status prepared, const lc__tcp_place *here, int rank, int size, const bool *without,
                       int streams, const lc__meeting *meeting, int *fds, lc__tcp_keys *keys)
{
    lc_status status = LC_OK;
    lc__tcp_card mine = {.security = (int32_t)here->security}, *cards = calloc((size_t)size, sizeof *cards);
    mesh m = {.rank = rank,
              .size = size,
              .streams = streams,
              .listener = -1,
              .meeting = meeting,
              .cards = cards,
              .without = without,
              .fds = fds,
              .keys = keys,
              .key_bytes = LC__PROOF};
    for (int i = 0; i < size * streams && prepared >= 0; i++) fds[i] = -1;
    if (!cards) return lc_fail(LC_ERR_MEMORY, "out of memory: connections of %d ranks", size);
    LC_TRY_GOTO(status, done, agree(meeting, size, prepare(prepared, here, rank, &mine, &m.listener), &mine, cards));
    status = check_security(cards, size);
    if (status >= 0) status = lc__tcp_key(here->secret, cards[0].token, m.key);
    if (status >= 0) status = connect_all(&m);
    if (status < 0) hang_up_on_all(&m); /* the others notice before they exchange results */
    status = agree(meeting, size, status, &mine, cards);
done:
    if (m.listener >= 0) close(m.listener);
    for (int i = 0; i < m.n_calls; i++) hang_up(&m.calls[i]);
    for (int i = 0; i < size * streams && status < 0 && prepared >= 0; i++)
        if (fds[i] >= 0) close(fds[i]), fds[i] = -1;
    free(m.calls);
    free(m.polled);
    free(cards);
    return status;
}
