/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between ranks with comm_security: they carry what they carry without it, a change in transit ends the
 * group with a message that says so, and with `encrypt` the data cannot be read. */
#define _GNU_SOURCE
#include "comm_world.h"

#include "comm/comm_internal.h"
#include "comm/net/proof.h"
#include "comm/net/socket.h"
#include "comm/transport/tcp_mesh.h"
#include "comm/transport/tcp_records.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define SECRET "a secret of the run that nobody knows"

static const char *const modes[] = {"none", "auth", "encrypt"};

/* ---- data they carry ---- */

static float element(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 101);
}

/* Sums of many sizes, large messages in both directions at once, groups. */
static lc_status work(lc_comm *c, void *ctx)
{
    static const size_t sizes[] = {1, 3, 16, 17, 1000, 8192, 8193, 100000, 1000003};
    int rank = lc_comm_rank(c), size = lc_comm_size(c);
    (void)ctx;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        lc_request *r;
        RANK_CHECK(x && y);
        for (size_t i = 0; i < n; i++) x[i] = element(rank, i);
        LC_TRY(lc_comm_all_reduce(c, x, y, n, LC_F32, LC_COMM_SUM, NULL));
        for (size_t i = 0; i < n; i++) {
            float want = 0;
            for (int p = 0; p < size; p++) want += element(p, i);
            if (y[i] != want) return lc_fail(LC_ERR_INTERNAL, "%zu elements: %zu is %g, not %g", n, i, y[i], want);
        }
        int next = (rank + 1) % size, last = (rank + size - 1) % size;
        LC_TRY(lc_comm_send(c, x, n, LC_F32, next, &r));
        LC_TRY(lc_comm_recv(c, y, n, LC_F32, last, NULL));
        LC_TRY(lc_comm_wait(r));
        for (size_t i = 0; i < n; i++) RANK_CHECK(y[i] == element(last, i));
        free(x), free(y);
    }
    lc_comm *half;
    int64_t one = 1;
    LC_TRY(lc_comm_split(c, rank % 2, rank, &half));
    LC_TRY(lc_comm_all_reduce(half, &one, &one, 1, LC_I64, LC_COMM_SUM, NULL));
    RANK_CHECK(one == (size + 1 - rank % 2) / 2);
    lc_comm_free(half);
    return LC_OK;
}

TEST(sealed_connections_carry_everything)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    for (int m = 0; m < 3; m++) {
        setenv("LIGHTC_COMM_SECURITY", modes[m], 1);
        for (int mixed = 0; mixed < 2; mixed++) {
            world *w = world_run(mixed ? "shm+tcp/2" : "tcp", 3, work, NULL);
            for (int i = 0; i < 3; i++)
                if (w->ranks[i].status < 0) TEST_FAIL("%s, rank %d: %s", modes[m], i, w->ranks[i].message);
            world_free(w);
        }
    }
    unsetenv("LIGHTC_COMM_SECURITY");
}

/* ---- an attacker in between ---- */

typedef enum trick { NOTHING, FLIP, HEAD, REPEAT, DROP, SWAP, TRICKS } trick;

/* The bytes of one connection in one direction, split into the opening messages and the records. */
typedef struct stream {
    uint8_t bytes[1 << 18], held[LC__RECORD_MOST];
    size_t n, begins, n_held;
    int records;
} stream;

enum { STREAMS = 3, WORDS = 2, ANSWER = 8 + LC__NONCE + LC__PROOF, SECOND = 1 };

typedef struct between {
    int listener, port, to, mode;
    trick trick;
    bool up; /* the trick is played on rank 1's data */
    int fds[STREAMS][2], n;
    stream streams[STREAMS][2];
    atomic_int stop, done, seen; /* seen: the pattern of the data */
    pthread_t thread;
} between;

static const char pattern[16] = "this is the data";

static void send_all(int fd, const uint8_t *data, size_t n)
{
    while (n) {
        ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100);
            continue;
        }
        if (k <= 0) return;
        data += k, n -= (size_t)k;
    }
}

static void pass_record(between *b, stream *s, bool changes, int to, uint8_t *data, size_t n)
{
    int number = s->records++;
    if (memmem(data, n, pattern, sizeof pattern)) atomic_store(&b->seen, 1);
    if (s->n_held) {
        send_all(to, data, n), send_all(to, s->held, s->n_held);
        s->n_held = 0;
        return;
    }
    bool its = changes && number == SECOND && b->trick != NOTHING;
    if (its && b->trick == FLIP) data[n / 2] ^= 4;
    if (its && b->trick == HEAD) data[1] ^= 64;
    if (its && b->trick == SWAP) memcpy(s->held, data, s->n_held = n);
    if (its && (b->trick == DROP || b->trick == SWAP)) return;
    send_all(to, data, n);
    if (its && b->trick == REPEAT) send_all(to, data, n);
}

/* Without records everything is passed on, and the first message that is large enough is changed. */
static void pass_plain(between *b, stream *s, int side, int to)
{
    if (memmem(s->bytes, s->n, pattern, sizeof pattern)) atomic_store(&b->seen, 1);
    if (b->trick == FLIP && side == (b->up ? 0 : 1) && s->n > 4096 && !atomic_exchange(&b->done, 1))
        s->bytes[s->n / 2] ^= 128;
    send_all(to, s->bytes, s->n);
    s->n = 0;
}

static bool take(between *b, int c, int side)
{
    stream *s = &b->streams[c][side];
    int to = b->fds[c][1 - side];
    ssize_t k = recv(b->fds[c][side], s->bytes + s->n, sizeof s->bytes - s->n, 0);
    if (k <= 0) return k < 0 && (errno == EAGAIN || errno == EINTR);
    s->n += (size_t)k;
    size_t at = 0;
    if (s->begins) { /* the proofs */
        at = s->n < s->begins ? s->n : s->begins;
        send_all(to, s->bytes, at);
        s->begins -= at;
    }
    memmove(s->bytes, s->bytes + at, s->n - at);
    s->n -= at, at = 0;
    if (!b->mode || c == WORDS) {
        pass_plain(b, s, side, to);
        return true;
    }
    while (s->n - at >= LC__RECORD_HEAD) {
        uint32_t size = 0;
        memcpy(&size, s->bytes + at, 4);
        size_t whole = LC__RECORD_HEAD + size + LC__SEAL_TAG;
        if (size > LC__RECORD || s->n - at < whole) break;
        pass_record(b, s, c == 0 && side == (b->up ? 0 : 1), to, s->bytes + at, whole);
        at += whole;
    }
    memmove(s->bytes, s->bytes + at, s->n - at);
    s->n -= at;
    return true;
}

static void *go_between(void *arg)
{
    between *b = arg;
    while (!atomic_load(&b->stop)) {
        struct pollfd p[2 * STREAMS + 1];
        int n = 0;
        for (int i = 0; i < b->n; i++)
            for (int side = 0; side < 2; side++) p[n++] = (struct pollfd){.fd = b->fds[i][side], .events = POLLIN};
        p[n] = (struct pollfd){.fd = b->n < STREAMS ? b->listener : -1, .events = POLLIN};
        if (poll(p, (nfds_t)n + 1, 20) <= 0) continue;
        for (int i = 0; i < n; i++)
            if (p[i].revents && p[i].fd >= 0 && !take(b, i / 2, i % 2)) {
                for (int side = 0; side < 2; side++) close(b->fds[i / 2][side]), b->fds[i / 2][side] = -1;
                break;
            }
        if (!p[n].revents || b->n == STREAMS) continue;
        int fd = lc__socket_accept(b->listener, NULL);
        if (fd < 0) continue;
        b->fds[b->n][0] = fd;
        if (lc__socket_connect("127.0.0.1", b->to, lc__seconds() + 5, &b->fds[b->n][1]) < 0) abort();
        b->streams[b->n][0].begins = ANSWER;
        b->streams[b->n][1].begins = LC__NONCE + LC__PROOF;
        b->n++;
    }
    for (int i = 0; i < b->n; i++)
        for (int side = 0; side < 2; side++)
            if (b->fds[i][side] >= 0) close(b->fds[i][side]);
    close(b->listener);
    return NULL;
}

typedef struct meeting {
    world_meeting m;
    between *b; /* for rank 1, which connects to rank 0 through it */
    bool met;
} meeting;

static lc_status meet(void *ctx, const void *mine, void *all, size_t bytes)
{
    meeting *m = ctx;
    LC_TRY(world_all_gather(&m->m, mine, all, bytes));
    if (m->met || bytes != sizeof(lc__tcp_card) || !m->b) return LC_OK;
    lc__tcp_card *cards = all;
    m->met = true;
    m->b->to = cards[0].port;
    LC_TRY(lc__socket_listen(NULL, &m->b->port, &m->b->listener));
    cards[0].port = m->b->port;
    return pthread_create(&m->b->thread, NULL, go_between, m->b) == 0 ? LC_OK : LC_ERR_MEMORY;
}

static struct {
    int mode, trick;
    bool up;
} asked;             /* for the ranks that are made next */
static between *its; /* in rank 1 */

static lc_status open_with_another(int rank, int size, const lc__meeting *given, lc_comm **out)
{
    lc__tcp_place here;
    if (rank == 1) its = calloc(1, sizeof *its);
    meeting m = {.m = *(world_meeting *)given->ctx, .b = rank == 1 ? its : NULL};
    if (its) its->mode = asked.mode, its->trick = (trick)asked.trick, its->up = asked.up;
    lc__meeting mine = {LC_MEETING_INIT, .all_gather = meet, .ctx = &m};
    LC_TRY(lc__tcp_place_set(&here, "127.0.0.1", SECRET, 1));
    here.security = (lc__security)asked.mode;
    return lc__comm_tcp(&here, rank, size, &mine, out);
}

/* Recognizable data goes in both directions, on both lanes. */
static lc_status exchange(lc_comm *c, void *ctx)
{
    enum { N = 1 << 18 };
    static char x[N], y[N], z[N];
    int rank = lc_comm_rank(c), other = 1 - rank;
    lc_status s = LC_OK;
    (void)ctx;
    for (int i = 0; i < N; i++) x[i] = pattern[i % (int)sizeof pattern];
    for (int k = 0; k < 8 && s >= 0; k++) {
        lc_request *r;
        s = lc_comm_all_reduce(c, x, y, N, LC_U8, LC_COMM_MAX, NULL);
        if (s >= 0) s = lc_comm_send(c, x, N, LC_U8, other, &r);
        if (s >= 0) s = lc_comm_recv(c, z, N, LC_U8, other, NULL);
        if (s >= 0) s = lc_comm_wait(r);
        if (s >= 0 && (memcmp(x, y, N) || memcmp(x, z, N))) s = lc_fail(LC_ERR_INTERNAL, "the data has changed");
    }
    char why[1024];
    snprintf(why, sizeof why, "%s", s < 0 ? lc_error_message() : "");
    if (its) {
        usleep(200000); /* rank 0 gets the error too */
        if (s >= 0 && asked.trick == NOTHING && atomic_load(&its->seen) != (asked.mode != LC__SECURITY_ENCRYPT))
            s = lc_fail(LC_ERR_INTERNAL, "the data %s be read", atomic_load(&its->seen) ? "can" : "cannot");
        else if (s < 0)
            (void)!lc_fail(s, "%s", why);
    } else if (s < 0) {
        (void)!lc_fail(s, "%s", why);
    }
    return s;
}

TEST(an_attacker_between_two_ranks_is_noticed)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    for (int mode = 0; mode < 3; mode++)
        for (int t = 0; t < TRICKS; t++)
            for (int up = 0; up < 2; up++) {
                if (!mode && t > FLIP) continue;
                asked.mode = mode, asked.trick = t, asked.up = up;
                world *w = world_new(2);
                double begun = lc__seconds();
                world_run_processes(w, open_with_another, exchange, NULL);
                const int hears = up ? 0 : 1; /* the receiver */
                char text[4096];
                snprintf(text, sizeof text, "%s, trick %d, %s: rank 0: %d, %s; rank 1: %d, %s", modes[mode], t,
                         up ? "up" : "down", (int)w->ranks[0].status, w->ranks[0].message, (int)w->ranks[1].status,
                         w->ranks[1].message);
                if (t == NOTHING && (w->ranks[0].status < 0 || w->ranks[1].status < 0)) TEST_FAIL("%s", text);
                /* the error is reported, by this rank or by the one that gave up first */
                if (t && !mode && !strstr(w->ranks[hears].message, "the data has changed")) TEST_FAIL("%s", text);
                for (int i = 0; i < 2 && t && mode; i++)
                    if (w->ranks[i].status != LC_ERR_PEER || !strstr(w->ranks[i].message, LC__TAMPERED))
                        TEST_FAIL("%s", text);
                CHECK(lc__seconds() - begun < patience(10));
                world_free(w);
            }
}

/* ---- settings that do not match ---- */

static lc_status open_differently(int rank, int size, const lc__meeting *given, lc_comm **out)
{
    lc__tcp_place here;
    LC_TRY(lc__tcp_place_set(&here, "127.0.0.1", SECRET, 1));
    here.security = rank ? LC__SECURITY_ENCRYPT : LC__SECURITY_NONE;
    return lc__comm_tcp(&here, rank, size, given, out);
}

static lc_status nothing(lc_comm *c, void *ctx)
{
    (void)c, (void)ctx;
    return LC_OK;
}

TEST(all_ranks_have_the_same)
{
    lc__security s;
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    world *w = world_new(2);
    world_run_processes(w, open_differently, nothing, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(w->ranks[i].status, LC_ERR_CONFIG);
        CHECK_CONTAINS(w->ranks[i].message, "rank 0 wants comm_security none, but rank 1 wants encrypt");
    }
    world_free(w);
    CHECK_STATUS(lc__security_find("tls", &s), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "comm_security is \"tls\"; it must be none, auth or encrypt");
}

TEST_MAIN
