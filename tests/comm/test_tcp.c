/* SPDX-License-Identifier: Apache-2.0 */
/* What only connections do: close without a message, come from strangers, and be slow. (test_comm.c tests what all
 * transports do.) */
#define _GNU_SOURCE
#include "comm_world.h"

#include "comm/control/wire.h"
#include "comm/net/proof.h"
#include "comm/net/socket.h"
#include "comm/transport/tcp_mesh.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* ---- events ---- */

/* A counter shared by all ranks that shows how far the test is; starts at 0. */
static atomic_int *events_new(void)
{
    void *page = mmap(NULL, sizeof(atomic_int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return page;
}

static bool await(atomic_int *events, int n)
{
    for (double end = lc__seconds() + patience(10); lc__seconds() < end; usleep(1000))
        if (atomic_load(events) >= n) return true;
    return false;
}

/* ---- losing one ---- */

static lc_status die(lc_comm *c, void *ctx)
{
    enum { N = 200000 };
    static float x[N];
    LC_TRY(lc_comm_barrier(c, NULL));
    if (lc_comm_rank(c) == 1) {
        lc_request *r;
        RANK_CHECK(await(ctx, 1)); /* the other rank has passed the barrier */
        LC_TRY(lc_comm_all_reduce(c, x, x, N, LC_F32, LC_COMM_SUM, &r));
        LC_TRY(lc_comm_progress(c));
        usleep(100000); /* as much as fits is sent */
        atomic_store((atomic_int *)ctx, 2);
        kill(getpid(), SIGKILL);
    }
    atomic_store((atomic_int *)ctx, 1);
    RANK_CHECK(await(ctx, 2)); /* from here on the other rank sends nothing */
    double start = lc__seconds();
    lc_status s = lc_comm_all_reduce(c, x, x, N, LC_F32, LC_COMM_SUM, NULL);
    RANK_CHECK(s == LC_ERR_PEER);
    RANK_CHECK(strstr(lc_error_message(), "rank 1 is lost"));
    RANK_CHECK(lc__seconds() - start < patience(3));
    return LC_OK;
}

TEST(a_process_that_dies_in_a_collective_is_named)
{
    world *w = world_run("tcp", 2, die, events_new());
    if (w->ranks[0].status < 0) TEST_FAIL("rank 0: %s", w->ranks[0].message);
    CHECK(w->ranks[1].status < 0); /* it was killed */
    world_free(w);
}

/* Rank 1 leaves when everything that involves it is done; the others need not notice. */
static lc_status leave_in_order(lc_comm *c, void *ctx)
{
    enum { N = 100000 };
    static float x[N];
    (void)ctx;
    int me = lc_comm_rank(c);
    for (int i = 0; i < N; i++) x[i] = 1;
    LC_TRY(lc_comm_all_reduce(c, x, x, N, LC_F32, LC_COMM_SUM, NULL));
    if (me == 1) return LC_OK;
    usleep(200000);
    for (int k = 0; k < 3; k++) {
        if (me == 0) LC_TRY(lc_comm_send(c, x, N, LC_F32, 2, NULL));
        if (me == 2) LC_TRY(lc_comm_recv(c, x, N, LC_F32, 0, NULL));
    }
    RANK_CHECK(x[N - 1] == 3);
    /* then one of them needs it; only after all data was received, since an error is reported at once */
    usleep(200000);
    lc_status s = lc_comm_barrier(c, NULL);
    RANK_CHECK(s == LC_ERR_PEER);
    RANK_CHECK(strstr(lc_error_message(), "has left the group")); /* rank 1, or a rank that has noticed it before */
    return LC_OK;
}

TEST(a_rank_that_leaves_is_missed_only_by_ranks_that_need_it)
{
    CHECK_RANKS("tcp", 3, leave_in_order, NULL);
}

/* ---- too few descriptors ---- */

/* Rank 0 may have two more descriptors than it has, or may raise its limit as far as needed. */
static lc_status split_with_few(lc_comm *c, void *ctx)
{
    bool may_ask = *(const bool *)ctx;
    struct rlimit limit;
    lc_comm *group;
    int next = dup(2);
    close(next);
    RANK_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)next + 2;
    if (!may_ask) limit.rlim_max = limit.rlim_cur;
    if (lc_comm_rank(c) == 0) RANK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    double start = lc__seconds();
    lc_status s = lc_comm_split(c, 0, 0, &group);
    RANK_CHECK(lc__seconds() - start < patience(5));
    if (may_ask) {
        LC_TRY(s);
        LC_TRY(lc_comm_barrier(group, NULL));
        lc_comm_free(group);
        return LC_OK;
    }
    RANK_CHECK(s < 0);
    RANK_CHECK(
        strstr(lc_error_message(), "no file descriptors are left for the connections of 2 ranks (ulimit -n is "));
    return LC_OK;
}

TEST(too_few_descriptors_are_reported)
{
    for (int k = 0; k < 2; k++) {
        bool may_ask = k;
        CHECK_RANKS("tcp", 2, split_with_few, &may_ask);
    }
}

/* ---- one connection of several ---- */

/* This rank's connections, without its listener, in the order in which they were made. */
static int connected(int fds[8])
{
    int n = 0;
    for (int fd = 3; fd < 256 && n < 8; fd++) {
        char remote[64];
        lc__socket_remote(fd, remote, sizeof remote);
        if (*remote) fds[n++] = fd;
    }
    return n;
}

/* Something between two ranks, a router say, closes one of their connections on both ends. */
static lc_status lose_a_lane(lc_comm *c, void *ctx)
{
    int fds[8], lane = *(int *)ctx;
    bool done = false;
    lc_request *r;
    LC_TRY(lc_comm_barrier(c, NULL));
    RANK_CHECK(connected(fds) == LC__LANES + 1);
    if (lc_comm_rank(c) == 1) RANK_CHECK(shutdown(fds[lane], SHUT_RDWR) == 0);
    double start = lc__seconds();
    lc_status s = lc_comm_barrier(c, &r);
    if (lane == LC__LANE_DIRECT && s >= 0) s = lc_comm_wait(r); /* has another connection */
    if (lane == LC__LANE_DIRECT && s >= 0)
        s = lc_comm_rank(c) ? lc_comm_send(c, &done, 1, LC_BOOL, 0, &r) : lc_comm_recv(c, &done, 1, LC_BOOL, 1, &r);
    while (s >= 0 && lc__seconds() - start < patience(5)) s = lc_comm_poll(r, &done);
    RANK_CHECK(s == LC_ERR_PEER);
    RANK_CHECK(strstr(lc_error_message(), " is lost: one of its connections to rank "));
    RANK_CHECK(strstr(lc_error_message(), " no longer carries data (127.0.0.1 to 127.0.0.1)"));
    return LC_OK;
}

TEST(a_lane_that_closes_is_a_loss)
{
    for (int lane = 0; lane < LC__LANES; lane++) CHECK_RANKS("tcp", 2, lose_a_lane, &lane);
}

/* ---- control messages ---- */

static lc_status end_without_a_word(lc_comm *c, void *ctx)
{
    int fds[8];
    (void)ctx;
    lc_status s = lc_comm_barrier(c, NULL); /* the end may come before rank 0 has passed the barrier */
    if (lc_comm_rank(c) == 1) {
        RANK_CHECK(s >= 0 && connected(fds) == LC__LANES + 1);
        lc__wire words = {.fd = dup(fds[LC__LANES])};
        RANK_CHECK(lc__wire_put(&words, LC__FRAME_END, NULL, 0, "", 0) && lc__wire_flush(&words));
        lc__wire_release(&words);
        return LC_OK;
    }
    RANK_CHECK(s == LC_ERR_PEER || lc_comm_barrier(c, NULL) == LC_ERR_PEER);
    RANK_CHECK(strstr(lc_error_message(), "rank 1 has ended the group without a reason"));
    return LC_OK;
}

TEST(an_end_that_came_without_a_reason_has_a_message)
{
    CHECK_RANKS("tcp", 2, end_without_a_word, NULL);
}

/* ---- a rank that is busy for long ---- */

static lc_status open_impatient(int rank, int size, const lc__meeting *meeting, lc_comm **out)
{
    lc__tcp_place here;
    LC_TRY(lc__tcp_place_set(&here, "127.0.0.1", "", 0.5));
    return lc__comm_tcp(&here, rank, size, meeting, out);
}

/* Data sent to it, much at once and much in small pieces, fills all buffers on the way; its kernel still answers. */
static lc_status be_busy_for_long(lc_comm *c, void *ctx)
{
    enum { N = 8 << 20, PIECES = 20000, PIECE = 64 };
    static char x[N];
    static lc_request *r[PIECES];
    lc_request *all;
    (void)ctx;
    LC_TRY(lc_comm_barrier(c, NULL));
    if (lc_comm_rank(c) == 1) usleep(4000000);
    LC_TRY(lc_comm_broadcast(c, x, N, LC_U8, 0, &all));
    for (int i = 0; i < PIECES; i++)
        LC_TRY(lc_comm_rank(c) ? lc_comm_recv(c, x, PIECE, LC_U8, 0, &r[i])
                               : lc_comm_send(c, x, PIECE, LC_U8, 1, &r[i]));
    for (int i = 0; i < PIECES; i++) LC_TRY(lc_comm_wait(r[i]));
    return lc_comm_wait(all);
}

TEST(a_rank_that_is_busy_for_long_is_not_lost)
{
    world *w = world_new(2);
    world_run_processes(w, open_impatient, be_busy_for_long, NULL);
    for (int i = 0; i < 2; i++)
        if (w->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    world_free(w);
}

/* ---- a rank that computes has sent its data ---- */

static lc_status give_and_compute(lc_comm *c, void *ctx)
{
    enum { N = 3 << 20 };
    static float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)lc_comm_rank(c);
    LC_TRY(lc_comm_barrier(c, NULL));
    LC_TRY(lc_comm_broadcast(c, x, N, LC_F32, 0, NULL));
    RANK_CHECK(x[N - 1] == 0);
    if (lc_comm_rank(c) == 1) atomic_store((atomic_int *)ctx, 1);
    RANK_CHECK(await(ctx, 1)); /* makes no calls */
    return lc_comm_barrier(c, NULL);
}

TEST(finished_calls_arrive_without_further_calls)
{
    CHECK_RANKS("tcp", 2, give_and_compute, events_new());
}

/* ---- bytes sent from their place in memory ---- */

enum { MOST = 5 << 20 };

static unsigned char byte_of(int from, int message, int64_t i)
{
    return (unsigned char)(i * 31 + i / 257 + 7 * from + 13 * message);
}

static bool is_from(const unsigned char *got, int from, int message, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (got[i] != byte_of(from, message, i)) return false;
    return true;
}

/* Odd numbers of bytes, few and many in turn, to ranks that are slow to receive them, so sockets take odd parts. */
static lc_status give_odd_numbers(lc_comm *c, void *ctx)
{
    static const int64_t sizes[] = {MOST - 3, 1, 40001, 32768, 65, 1000003, 32767, 2500001, 0, 99999};
    enum { MESSAGES = sizeof sizes / sizeof *sizes };
    lc_request *sends[MESSAGES];
    int n = lc_comm_size(c), me = lc_comm_rank(c), to = (me + 1) % n, from = (me + n - 1) % n;
    unsigned char *out = malloc(MESSAGES * (size_t)MOST), *got = malloc((size_t)n * MOST);
    lc_status s = LC_OK;
    bool whole = true;
    (void)ctx;
    for (int k = 0; k < MESSAGES; k++)
        for (int64_t i = 0; i < sizes[k]; i++) out[k * (int64_t)MOST + i] = byte_of(me, k, i);
    for (int k = 0; k < MESSAGES && s >= 0; k++)
        s = lc_comm_send(c, out + k * (int64_t)MOST, sizes[k], LC_U8, to, &sends[k]);
    for (int k = 0; k < MESSAGES && s >= 0; k++) {
        usleep(20000 * (unsigned)(me + 1));
        s = lc_comm_recv(c, got, sizes[k], LC_U8, from, NULL);
        whole = whole && is_from(got, from, k, sizes[k]);
    }
    for (int k = 0; k < MESSAGES && s >= 0; k++) s = lc_comm_wait(sends[k]);
    for (int k = 0; k < MESSAGES && s >= 0; k++) {
        if (k % n == me) usleep(20000);
        s = lc_comm_all_gather(c, out + k * (int64_t)MOST, got, sizes[k], LC_U8, NULL);
        for (int i = 0; i < n; i++) whole = whole && is_from(got + i * sizes[k], i, k, sizes[k]);
    }
    free(out), free(got);
    LC_TRY(s);
    RANK_CHECK(whole);
    return LC_OK;
}

TEST(odd_numbers_of_bytes_arrive_whole)
{
    CHECK_RANKS("tcp", 3, give_odd_numbers, NULL);
    CHECK_RANKS("shm+tcp/2", 4, give_odd_numbers, NULL);
}

/* ---- calls make progress while their rank computes ---- */

enum { CALLS = 24, LENGTH = 1 << 18 };

/* More than sockets hold, and neither rank makes a call until the data must have arrived. */
static lc_status compute_meanwhile(lc_comm *c, void *ctx)
{
    static float x[CALLS][LENGTH], got[LENGTH];
    lc_request *calls[CALLS], *out, *in;
    int me = lc_comm_rank(c), other = 1 - me, open = CALLS;
    (void)ctx;
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < CALLS; k++) {
            for (int i = 0; i < LENGTH; i++) x[k][i] = (float)(me + k);
            LC_TRY(lc_comm_all_reduce(c, x[k], x[k], LENGTH, LC_F32, LC_COMM_SUM, &calls[k]));
            if (k % 2) LC_TRY(lc_comm_progress(c));
        }
        double end = lc__seconds() + patience(5);
        for (bool done = false; open > 0 && lc__seconds() < end; usleep(500000)) {
            /* the progress within these few calls is not enough */
            for (; open > 0; open--) {
                LC_TRY(lc_comm_poll(calls[CALLS - open], &done));
                if (!done) break;
            }
        }
        RANK_CHECK(open == 0);
        open = CALLS;
        for (int k = 0; k < CALLS; k++) RANK_CHECK(x[k][0] == (float)(1 + 2 * k) && x[k][LENGTH - 1] == x[k][0]);
        /* and calls started next to them, in another order */
        LC_TRY(lc_comm_all_reduce(c, x[0], x[0], LENGTH, LC_F32, LC_COMM_MAX, &calls[0]));
        LC_TRY(lc_comm_progress(c));
        LC_TRY(lc_comm_recv(c, got, LENGTH, LC_F32, other, &in));
        LC_TRY(lc_comm_send(c, x[1], LENGTH, LC_F32, other, &out));
        LC_TRY(lc_comm_wait(in));
        RANK_CHECK(got[LENGTH - 1] == 3);
        LC_TRY(lc_comm_wait(out));
        LC_TRY(lc_comm_wait(calls[0]));
    }
    lc_comm_stats stats;
    lc_comm_get_stats(c, &stats);
    RANK_CHECK(stats.sent >= (int64_t)(3 * (CALLS + 2)) * LENGTH * 4);
    return LC_OK;
}

TEST(calls_go_on_while_their_rank_computes)
{
    CHECK_RANKS("tcp", 2, compute_meanwhile, NULL);
}

static lc_status lose_one_meanwhile(lc_comm *c, void *ctx)
{
    static float x[CALLS * LENGTH];
    lc_request *r;
    LC_TRY(lc_comm_barrier(c, NULL));
    if (lc_comm_rank(c) == 1) {
        RANK_CHECK(await(ctx, 1)); /* the other rank has passed the barrier */
        usleep(300000);
        kill(getpid(), SIGKILL);
    }
    atomic_store((atomic_int *)ctx, 1);
    LC_TRY(lc_comm_all_reduce(c, x, x, CALLS * LENGTH, LC_F32, LC_COMM_SUM, &r));
    lc_status s = lc_comm_progress(c);
    usleep(600000);
    if (s >= 0) s = lc_comm_wait(r);
    RANK_CHECK(s == LC_ERR_PEER);
    RANK_CHECK(strstr(lc_error_message(), "rank 1 is lost"));
    RANK_CHECK(lc_comm_barrier(c, NULL) == LC_ERR_PEER); /* and the error is permanent */
    return LC_OK;
}

TEST(a_rank_lost_meanwhile_is_reported_by_the_wait)
{
    world *w = world_run("tcp", 2, lose_one_meanwhile, events_new());
    if (w->ranks[0].status < 0) TEST_FAIL("rank 0: %s", w->ranks[0].message);
    world_free(w);
}

/* ---- strangers ---- */

/* A thread that connects to every rank while the ranks connect to each other: it sends too little, noise, or a proof
 * with one mistake. It never gets an answer. */
enum { WHO = 8, ANSWER = WHO + LC__NONCE + LC__PROOF };
typedef enum trick {
    NOTHING,
    NOISE,
    PART,
    WRONG_KEY,
    TOKEN_ALONE, /* what the meeting sent, without the secret */
    OLD_NUMBER,  /* a proof that was right for another connection: a replay */
    OTHER_ROLE,  /* the listener's own proof: a reflection */
    OTHER_LISTENER,
    LOWER_RANK,
    NO_RANK,
    NO_STREAM,
    TRICKS
} trick;

typedef struct meddling {
    world_meeting m;
    bool done, started;
    pthread_t thread;
    int rank, answers;
    lc__tcp_card cards[8];
} meddling;

#define SECRET "a secret of the run that nobody knows"

static bool receive(int fd, uint8_t *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t k = poll(&p, 1, 8000) == 1 ? recv(fd, data + at, n - at, 0) : 0;
        if (k <= 0) return false;
        at += (size_t)k;
    }
    return true;
}

static void call(meddling *m, int to, trick t)
{
    const lc__tcp_card *card = &m->cards[to];
    uint8_t answer[ANSWER] = {0}, key[LC__PROOF], got[LC__PROOF];
    lc__proof_ask ask = {.role = t == OTHER_ROLE ? LC__PROOF_LISTENER : LC__PROOF_CALLER};
    int fd = -1;
    if (lc__socket_connect(card->address, card->port, lc__seconds() + 5, &fd) < 0) return;
    if (t != NOTHING && receive(fd, ask.asked, LC__NONCE)) {
        if (t == OLD_NUMBER) ask.asked[3] ^= 4;
        lc__put_u32(answer, t == NO_RANK ? 1000u : t == LOWER_RANK ? 0u : (uint32_t)m->m.w->size - 1);
        lc__put_u32(answer + 4, t == NO_STREAM ? 3 : UINT32_C(0));
        memcpy(ask.about, answer, WHO);
        lc__put_u32(ask.about + WHO, t == OTHER_LISTENER ? (uint32_t)to + 1 : (uint32_t)to);
        if (lc__tcp_key(t == TOKEN_ALONE ? "" : SECRET, m->cards[0].token, key) < 0) abort();
        key[0] ^= t == WRONG_KEY;
        if (lc__proof_make(key, sizeof key, &ask, answer + WHO + LC__NONCE) < 0) abort();
        if (t == NOISE) memset(answer, 'x', sizeof answer);
        (void)lc__socket_send(fd, answer, t == PART ? 50 : sizeof answer);
        m->answers += receive(fd, got, sizeof got);
    }
    close(fd);
}

static void *call_all(void *arg)
{
    meddling *m = arg;
    for (int t = 0; t < TRICKS; t++)
        for (int to = 0; to < m->m.w->size - 1; to++) call(m, to, (trick)t);
    return NULL;
}

static lc_status meddle(void *ctx, const void *mine, void *all, size_t bytes)
{
    meddling *m = ctx;
    LC_TRY(world_all_gather(&m->m, mine, all, bytes));
    if (m->done || bytes != sizeof(lc__tcp_card)) return LC_OK;
    m->done = true;
    memcpy(m->cards, all, bytes * (size_t)m->m.w->size);
    m->started = pthread_create(&m->thread, NULL, call_all, m) == 0;
    if (m->rank == m->m.w->size - 1) usleep(300000); /* the last rank comes late, so that strangers are there first */
    return LC_OK;
}

static lc_status open_among_strangers(int rank, int size, const lc__meeting *meeting, lc_comm **out)
{
    meddling m = {.m = *(world_meeting *)meeting->ctx, .rank = rank};
    lc__meeting mine = {LC_MEETING_INIT, .all_gather = meddle, .ctx = &m};
    lc__tcp_place here;
    LC_TRY(lc__tcp_place_set(&here, "127.0.0.1", SECRET, 0));
    lc_status s = lc__comm_tcp(&here, rank, size, &mine, out);
    if (m.started) pthread_join(m.thread, NULL);
    return s >= 0 && m.answers ? lc_fail(LC_ERR_INTERNAL, "%d strangers were answered", m.answers) : s;
}

static lc_status work(lc_comm *c, void *ctx)
{
    (void)ctx;
    int64_t x = lc_comm_rank(c) + 1;
    int32_t y = lc_comm_rank(c);
    LC_TRY(lc_comm_all_reduce(c, &x, &x, 1, LC_I64, LC_COMM_SUM, NULL));
    RANK_CHECK(x == 6);
    if (y == 0) LC_TRY(lc_comm_send(c, &y, 1, LC_I32, 2, NULL));
    if (y == 2) LC_TRY(lc_comm_recv(c, &y, 1, LC_I32, 0, NULL));
    RANK_CHECK(y < 2);
    return LC_OK;
}

TEST(strangers_are_turned_away)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    world *w = world_new(3);
    world_run_processes(w, open_among_strangers, work, NULL);
    for (int i = 0; i < 3; i++)
        if (w->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    world_free(w);
}

/* ---- ranks that do not come ---- */

/* A run that ends soon after the ranks have exchanged their addresses. */
typedef struct ending {
    world_meeting m;
    double met;
    int silent; /* a port that rank 0 is said to listen on */
} ending;

static lc_status meet_once(void *ctx, const void *mine, void *all, size_t bytes)
{
    ending *e = ctx;
    if (e->met > 0) return lc_fail(LC_ERR_PEER, "the run has ended");
    LC_TRY(world_all_gather(&e->m, mine, all, bytes));
    if (e->silent) ((lc__tcp_card *)all)[0].port = e->silent;
    e->met = lc__seconds();
    return LC_OK;
}

static lc_status check_run(void *ctx)
{
    const ending *e = ctx;
    return lc__seconds() - e->met > 0.3 ? lc_fail(LC_ERR_PEER, "the run has ended") : LC_OK;
}

/* Connections to this port get no answer, because its queue is full. */
static int silent_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, 0) != 0) abort();
    (void)getsockname(fd, (struct sockaddr *)&a, &n);
    for (int i = 0; i < 4; i++) {
        int caller = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(caller, (struct sockaddr *)&a, n);
    }
    return ntohs(a.sin_port);
}

static lc_status open_in_vain(int rank, int size, const lc__meeting *meeting, lc_comm **out)
{
    ending e = {.m = *(world_meeting *)meeting->ctx, .silent = rank == 1 ? silent_port() : 0};
    const lc__meeting mine = {LC_MEETING_INIT, .all_gather = meet_once, .ctx = &e, .check = check_run};
    lc_status s = lc_comm_tcp("127.0.0.1", rank, size, &mine, out);
    RANK_CHECK(s == LC_ERR_PEER && !strcmp(lc_error_message(), "the run has ended"));
    RANK_CHECK(lc__seconds() - e.met < patience(2));
    return lc_fail(s, "as it should be");
}

TEST(the_end_of_the_run_is_heard_while_connections_are_made)
{
    world *w = world_new(2);
    world_run_processes(w, open_in_vain, work, NULL);
    for (int i = 0; i < 2; i++) CHECK_STR(w->ranks[i].message, "as it should be");
    world_free(w);
}

static void *abort_soon(void *comm)
{
    usleep(300000);
    lc_comm_abort(comm, "rank 2 has seen enough");
    return NULL;
}

/* In a rank that sets it, connecting to another one takes a while. */
static atomic_bool is_slow;

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t n)
{
    if (atomic_exchange(&is_slow, false)) usleep(600000);
    return (int)syscall(SYS_connect, fd, address.__sockaddr__, n);
}

/* The others wait for rank 2 to connect. */
static lc_status split_in_vain(lc_comm *c, void *ctx)
{
    lc_comm *group;
    pthread_t thread;
    (void)ctx;
    LC_TRY(lc_comm_barrier(c, NULL));
    if (lc_comm_rank(c) == 2) {
        atomic_store(&is_slow, true);
        RANK_CHECK(pthread_create(&thread, NULL, abort_soon, c) == 0);
    }
    double start = lc__seconds();
    lc_status s = lc_comm_split(c, 0, lc_comm_rank(c), &group);
    if (lc_comm_rank(c) == 2) pthread_join(thread, NULL);
    RANK_CHECK(s == LC_ERR_PEER && strstr(lc_error_message(), "rank 2 has seen enough"));
    RANK_CHECK(lc__seconds() - start < patience(3));
    return LC_OK;
}

TEST(an_abort_is_heard_while_a_group_is_connected)
{
    CHECK_RANKS("tcp", 3, split_in_vain, NULL);
    CHECK_RANKS("shm+tcp/1", 3, split_in_vain, NULL);
}

/* ---- listeners that cannot be opened ---- */

static lc_status open_at_nowhere(int rank, int size, const lc__meeting *meeting, lc_comm **out)
{
    lc_status s = lc_comm_tcp(rank == 1 ? "192.0.2.77" : "127.0.0.1", rank, size, meeting, out);
    RANK_CHECK(s < 0 && !*out);
    RANK_CHECK(strstr(lc_error_message(), "rank 1: cannot listen on 192.0.2.77"));
    return lc_fail(s, "as it should be");
}

TEST(a_rank_that_cannot_listen_is_named_everywhere)
{
    world *w = world_new(3);
    world_run_processes(w, open_at_nowhere, work, NULL);
    for (int i = 0; i < 3; i++) CHECK_STR(w->ranks[i].message, "as it should be");
    CHECK_EQ(w->ranks[0].status, LC_ERR_PEER);
    CHECK_EQ(w->ranks[1].status, LC_ERR_CONFIG);
    world_free(w);
}

TEST_MAIN
