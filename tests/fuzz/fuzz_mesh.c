/* SPDX-License-Identifier: Apache-2.0 */
/* How data connections begin (src/comm/transport/tcp_mesh.c): rank 1 of 3 connects to rank 0, and rank 2 and strangers
 * connect to it. Each of them sends what is right, changed by the input: its first byte is how many bytes arrive at a
 * time and whether the run has a secret; then CHANGE bytes for each change of what is sent on a connection, or of what
 * the other ranks sent in the meeting. Time, random numbers and sockets are simulated here, so nothing waits.
 *
 * Whatever is sent, the ranks meet, or there is a printable error and no connection remains; and a connection on which
 * something other than the right proof was sent is never accepted. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/net/guests.h"
#include "comm/net/proof.h"
#include "comm/net/socket.h"

#include <poll.h>
#include <stdint.h>

static double clock_here(void);
static int poll_here(struct pollfd *fds, nfds_t n, int milliseconds);
static lc_status listen_here(const char *address, int *port, int *out);
static lc_status connect_here(lc_status (*check)(void *ctx), void *ctx, const char *address, int port, double deadline,
                              int *out);
static int accept_here(int listener, double now, lc__guest *out);
static lc_status nonce_here(uint8_t nonce[LC__NONCE]);

#define lc__seconds              clock_here
#define poll                     poll_here
#define lc__socket_listen        listen_here
#define lc__socket_connect_while connect_here
#define lc__guest_accept         accept_here
#define lc__proof_nonce          nonce_here
#include "comm/transport/tcp_mesh.c"
#undef poll

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

enum { SIZE = 3, OWN = 1, STREAMS = 3, STRANGERS = 2, ENDS = 2 * STREAMS + STRANGERS, CHANGE = 4, MOST = 32 };
enum { CARDS = ENDS, AGREED, PLACES }; /* places of changes, after those on connections */

typedef enum kind { FLIP, SET, CUT, MORE, KINDS } kind;

typedef struct change {
    uint8_t where, kind, at, value;
} change;
_Static_assert(sizeof(change) == CHANGE, "a change is read as it is");

/* The other end of a connection. */
typedef struct end {
    uint8_t bytes[512];
    size_t n, sent;
    int theirs, own; /* own: sent by rank 1 */
    bool open, cut;
    bool wrong; /* it sends something other than what is right */
} end;

static end ends[ENDS];
static change changes[MOST];
static int n_changes, meetings, called, accepted;
static size_t piece;
static double now_here;

static double clock_here(void)
{
    return now_here;
}

static lc_status nonce_here(uint8_t nonce[LC__NONCE])
{
    memset(nonce, 'n', LC__NONCE);
    return LC_OK;
}

static lc_status listen_here(const char *address, int *port, int *out)
{
    (void)address;
    *port = 1;
    *out = dup(0);
    return *out < 0 ? LC_ERR_IO : LC_OK;
}

static int open_end(end *e)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) abort();
    e->theirs = fds[0], e->own = fds[1], e->open = true;
    return fds[1];
}

static lc_status connect_here(lc_status (*check)(void *ctx), void *ctx, const char *address, int port, double deadline,
                              int *out)
{
    (void)check, (void)ctx, (void)deadline;
    if (!memchr(address, 0, sizeof((lc__tcp_card *)0)->address)) abort(); /* it must be a terminated text */
    if (called == STREAMS) return lc_fail(LC_ERR_IO, "cannot connect to %s:%d: refused", address, port);
    *out = open_end(&ends[called++]);
    return LC_OK;
}

static int accept_here(int listener, double now, lc__guest *out)
{
    (void)listener;
    errno = EAGAIN;
    if (accepted == STREAMS + STRANGERS) return -1;
    *out = (lc__guest){.since = now, .from = 1};
    return open_end(&ends[STREAMS + accepted++]);
}

/* Delivers some of what the other ends send; if there is nothing, time passes. */
static int poll_here(struct pollfd *fds, nfds_t n, int milliseconds)
{
    bool some = false;
    (void)milliseconds;
    for (int i = 0; i < ENDS; i++) {
        end *e = &ends[i];
        size_t k = e->n - e->sent < piece ? e->n - e->sent : piece;
        if (!e->open) continue;
        if (k) e->sent += k, some |= send(e->theirs, e->bytes + e->sent - k, k, MSG_NOSIGNAL) > 0;
        if (e->cut && e->sent == e->n) close(e->theirs), e->theirs = -1, e->open = false;
    }
    now_here += some ? 0.01 : 0.5;
    return poll(fds, n, 0);
}

/* ---- correct messages ---- */

static void change_bytes(const change *c, uint8_t *bytes, size_t n)
{
    uint8_t *b = &bytes[((size_t)c->at * 4 + c->value % 4) % n];
    if (c->kind % KINDS == FLIP)
        *b ^= (uint8_t)(1 << c->value % 8);
    else
        *b = c->value;
}

static void write_ends(const uint8_t key[LC__PROOF])
{
    for (int i = 0; i < ENDS; i++) {
        end *e = &ends[i];
        bool calls = i >= STREAMS; /* rank 2, or a stranger */
        int stream = i % STREAMS;
        uint8_t answer[ANSWER] = {0}, right[sizeof e->bytes], other[LC__PROOF] = {0};
        *e = (end){.theirs = -1, .own = -1};
        lc__put_u32(answer, calls ? 2 : OWN);
        lc__put_u32(answer + 4, (uint32_t)stream);
        memset(answer + WHO, calls ? 'p' : 'n', LC__NONCE);
        uint8_t asked[LC__NONCE];
        memset(asked, calls ? 'n' : 'p', LC__NONCE);
        const lc__proof_ask ask = ask_of(calls ? LC__PROOF_CALLER : LC__PROOF_LISTENER, asked, answer, calls ? OWN : 0);
        uint8_t *proof = calls ? answer + WHO + LC__NONCE : e->bytes + LC__NONCE;
        if (!calls) memcpy(e->bytes, asked, LC__NONCE);
        if (lc__proof_make(i < 2 * STREAMS ? key : other, LC__PROOF, &ask, proof) < 0) abort();
        if (calls) memcpy(e->bytes, answer, ANSWER);
        e->n = calls ? ANSWER : LC__NONCE + LC__PROOF;
        memcpy(right, e->bytes, e->n);
        size_t n = e->n;
        for (int k = 0; k < n_changes; k++) {
            const change *c = &changes[k];
            if (c->where % PLACES != i) continue;
            if (c->kind % KINDS == CUT)
                e->n = c->at % (e->n + 1), e->cut = true;
            else if (c->kind % KINDS == MORE)
                e->n = e->n + c->at < sizeof e->bytes ? e->n + c->at : e->n;
            else if (e->n)
                change_bytes(c, e->bytes, e->n);
        }
        e->wrong = i >= 2 * STREAMS || e->n < n || memcmp(right, e->bytes, n) != 0;
    }
}

/* Changes one byte, or as many as an address has. */
static void change_card(const change *c, lc__tcp_card *card)
{
    uint8_t *bytes = (uint8_t *)card;
    if (c->kind < 128)
        change_bytes(c, bytes, sizeof *card);
    else
        memset(bytes + c->at, c->value, sizeof card->address);
}

static lc_status gather(void *ctx, const void *mine, void *all, size_t bytes)
{
    lc__tcp_card *cards = all;
    if (bytes != sizeof *cards) abort();
    for (int i = 0; i < SIZE; i++) {
        memset(&cards[i], 0, sizeof cards[i]);
        if (i == OWN) memcpy(&cards[i], mine, bytes);
        if (i == OWN) continue;
        snprintf(cards[i].address, sizeof cards[i].address, "127.0.0.1");
        cards[i].port = 1;
        cards[i].security = ((const lc__tcp_card *)mine)->security;
        memset(cards[i].token, 't', LC__TCP_TOKEN);
        for (int k = 0; k < n_changes; k++)
            if (changes[k].where % PLACES == (meetings ? AGREED : CARDS) && changes[k].kind / KINDS % SIZE == i)
                change_card(&changes[k], &cards[i]);
    }
    meetings++;
    (void)ctx;
    return LC_OK;
}

static void check_message(void)
{
    const char *text = lc_error_message();
    if (!*text) abort();
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\n') || *text == 127) abort();
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    unsigned int random = seed;
    if (!size || size + CHANGE > room || rand_r(&random) % 2) return LLVMFuzzerMutate(data, size, room);
    size -= (size - 1) % CHANGE;
    for (int i = 0; i < CHANGE; i++) data[size++] = (uint8_t)(rand_r(&random) >> 8);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[SIZE * STREAMS];
    lc__tcp_keys keys[SIZE * STREAMS];
    uint8_t token[LC__TCP_TOKEN], key[LC__PROOF];
    if (!size) return 0;
    lc__tcp_place here = {.address = "127.0.0.1", .security = LC__SECURITY_ENCRYPT, .silence = 1};
    if (data[0] % 2) snprintf(here.secret, sizeof here.secret, "a secret of the run");
    piece = 1 + data[0] / 2;
    n_changes = meetings = called = accepted = 0;
    now_here = 1000;
    for (data++, size--; size >= CHANGE && n_changes < MOST; data += CHANGE, size -= CHANGE)
        memcpy(&changes[n_changes++], data, CHANGE);
    memset(token, 't', sizeof token);
    if (lc__tcp_key(here.secret, token, key) < 0) abort();
    write_ends(key);
    const lc__meeting meeting = {LC_MEETING_INIT, .all_gather = gather};
    lc_status s = lc__tcp_mesh(LC_OK, &here, OWN, SIZE, NULL, STREAMS, &meeting, fds, keys);
    if (s < 0) check_message();
    if (!n_changes && s < 0) abort();
    for (int i = 0; i < SIZE * STREAMS; i++) {
        if ((fds[i] >= 0) != (s >= 0 && i / STREAMS != OWN)) abort();
        for (int k = 0; k < ENDS && fds[i] >= 0; k++)
            if (ends[k].own == fds[i] && ends[k].wrong) abort();
        if (fds[i] >= 0) close(fds[i]);
    }
    for (int i = 0; i < ENDS; i++)
        if (ends[i].theirs >= 0) close(ends[i].theirs);
    return 0;
}
