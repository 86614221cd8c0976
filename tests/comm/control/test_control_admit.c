/* SPDX-License-Identifier: Apache-2.0 */
/* The entrance to the control channel: both ends refuse a peer that does not know the secret, whatever it sends,
 * repeats, reflects, or sends slowly; and messages of ranks are understood, or refused. */
#define _GNU_SOURCE
#include "control_run.h"
#include "rank_ended.h"

#include "comm/control/control_internal.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static lc_status visited(run *r, lc__control *c, int rank)
{
    char all[RANKS], mine = (char)('a' + rank);
    await(&r->go, 1);
    return lc__control_all_gather(c, &mine, all, 1);
}

/* ---- proofs ---- */

TEST(proofs_are_hmac_sha_256)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    /* HMAC-SHA-256 with the key 0b (20 times) of 01, 32 bytes of 2, 32 bytes of 3, 96 bytes of 4 */
    static const uint8_t want[] = {0x28, 0x52, 0xa3, 0x38, 0x6f, 0x53, 0x53, 0xbd, 0x0d, 0x33, 0xdd,
                                   0x2a, 0xbb, 0x2d, 0x6e, 0x88, 0x7c, 0x64, 0x62, 0x47, 0xfc, 0x09,
                                   0x12, 0xa1, 0xf0, 0x49, 0x7a, 0x4c, 0xf0, 0x86, 0x4b, 0x29};
    uint8_t key[20], proof[LC__PROOF], zeros[32] = {0};
    lc__proof_ask ask = {.role = LC__PROOF_RANK};
    memset(key, 0x0b, sizeof key);
    memset(ask.asked, 2, sizeof ask.asked), memset(ask.answered, 3, sizeof ask.answered);
    memset(ask.about, 4, sizeof ask.about);
    CHECK_OK(lc__proof_make(key, sizeof key, &ask, proof));
    CHECK(!memcmp(proof, want, sizeof want) && !memcmp(proof + 32, zeros, 32));
    CHECK(lc__proof_is(key, sizeof key, &ask, proof));
    for (size_t bit = 0; bit < 8 * sizeof proof; bit++) {
        proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(!lc__proof_is(key, sizeof key, &ask, proof));
        proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    /* each part of the proof counts */
    lc__proof_ask others[] = {ask, ask, ask, ask};
    others[0].role = LC__PROOF_COORDINATOR, others[1].asked[31] ^= 1;
    others[2].answered[0] ^= 128, others[3].about[95] ^= 1;
    for (size_t i = 0; i < 4; i++) CHECK(!lc__proof_is(key, sizeof key, &others[i], proof));
    CHECK(!lc__proof_is(key, sizeof key - 1, &ask, proof));
}

/* ---- at the coordinator ---- */

static uint64_t random_number(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* A message as bytes. */
static size_t message_of(lc__frame_kind kind, const void *data, size_t n, uint8_t *out)
{
    lc__wire w = {.fd = -1};
    lc__wire_put(&w, kind, NULL, 0, data, n);
    size_t k = w.out.n;
    memcpy(out, w.out.data, k);
    lc__wire_release(&w);
    return k;
}

static int visit(const run *r)
{
    int fd = -1;
    CHECK_OK(lc__socket_connect("127.0.0.1", atomic_load((atomic_int *)&r->port), lc__seconds() + 5, &fd));
    return fd;
}

/* What arrives until the other end closes the connection, or `most` bytes; -1: it is still open after that time. */
static ssize_t listen_to(int fd, double time, uint8_t *data, size_t most)
{
    size_t n = 0;
    double until = lc__seconds() + time;
    while (n < most) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = until - lc__seconds();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) != 1) return -1;
        ssize_t k = recv(fd, data + n, most - n, 0);
        if (k <= 0) return (ssize_t)n;
        n += (size_t)k;
    }
    return (ssize_t)n;
}

/* A relay on the channel that records everything that passes on one connection. */
typedef struct tap {
    int listener, port, to;
    uint8_t up[4096], down[4096]; /* from the rank; from the coordinator */
    atomic_int n_up, n_down, stop;
    pthread_t thread;
} tap;

static bool pass(int from, int to, uint8_t *kept, atomic_int *n)
{
    uint8_t block[4096];
    ssize_t k = recv(from, block, sizeof block, 0);
    if (k <= 0) return false;
    int at = atomic_load(n), room = 4096 - at, some = k < room ? (int)k : room;
    memcpy(kept + at, block, (size_t)some);
    atomic_store(n, at + some);
    return send(to, block, (size_t)k, MSG_NOSIGNAL) == k;
}

static void *tapping(void *arg)
{
    tap *t = arg;
    int a = -1, b = -1;
    while (a < 0 && !atomic_load(&t->stop)) a = lc__socket_accept(t->listener, NULL), nap(0.001);
    if (a >= 0 && lc__socket_connect("127.0.0.1", t->to, lc__seconds() + 5, &b) >= 0)
        while (!atomic_load(&t->stop)) {
            struct pollfd p[] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
            if (poll(p, 2, 20) <= 0) continue;
            if (p[0].revents && !pass(a, b, t->up, &t->n_up)) break;
            if (p[1].revents && !pass(b, a, t->down, &t->n_down)) break;
        }
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    return NULL;
}

static void tap_start(tap *t, int to)
{
    t->to = to;
    CHECK_OK(lc__socket_listen(NULL, &t->port, &t->listener));
    CHECK(pthread_create(&t->thread, NULL, tapping, t) == 0);
}

static void tap_stop(tap *t)
{
    atomic_store(&t->stop, 1);
    pthread_join(t->thread, NULL);
    close(t->listener);
}

/* An eavesdropper on the network learns nothing useful: neither the secret nor a greeting that works twice. */
TEST(repeated_messages_are_of_no_use)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    static tap t;
    run *r = run_new(2, visited, (lc__control_times){.heartbeat = 0.1});
    run_fork(r, 0);
    lc__coordinator *c = run_coordinate(r);
    tap_start(&t, atomic_load(&r->port));
    lc__control *right = NULL;
    lc__control_args o = {.rank = 1, .size = 2, .address = "127.0.0.1", .port = t.port, .secret = SECRET};
    char all[2];
    CHECK_OK(lc__control_open(&o, &right));
    /* the same bytes again */
    int fd = visit(r);
    uint8_t answer[2048];
    CHECK(t.n_up >= LC__FRAME_HEAD + LC__HELLO_BYTES);
    CHECK_EQ(send(fd, t.up, LC__FRAME_HEAD + LC__HELLO_BYTES, MSG_NOSIGNAL), LC__FRAME_HEAD + LC__HELLO_BYTES);
    ssize_t n = listen_to(fd, 5, answer, sizeof answer);
    CHECK(n > 0 && memmem(answer, (size_t)n, "it has the secret of another run", 32));
    close(fd);
    /* and the ranks were not disturbed */
    atomic_store(&r->go, 1);
    CHECK_OK(lc__control_all_gather(right, "b", all, 1));
    CHECK(!memcmp(all, "ab", 2));
    lc__control_close(right);
    run_reap(r, 0);
    tap_stop(&t);
    CHECK(t.n_up > LC__HELLO_BYTES && t.n_down > LC__CHALLENGE_BYTES);
    CHECK(!memmem(t.up, (size_t)t.n_up, SECRET, 8) && !memmem(t.down, (size_t)t.n_down, SECRET, 8));
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(another_secret_is_turned_away)
{
    run *r = run_new(2, visited, (lc__control_times){.start = 20});
    r->secrets[1] = "0123456789abcdef0123456789abcdeF";
    lc__coordinator *c = run_start(r);
    run_reap(r, 1);
    CHECK_EQ(r->ranks[1].status, LC_ERR_CONFIG);
    CHECK_CONTAINS(r->ranks[1].message, "refused rank 1: it has the secret of another run");
    /* and does no harm: the right one can join */
    lc__control *right = NULL;
    char all[8];
    lc__control_args o = {
        .rank = 1, .size = 2, .address = "127.0.0.1", .port = atomic_load(&r->port), .secret = SECRET};
    lc__control_args twice = o, other = o;
    CHECK_OK(lc__control_open(&o, &right));
    CHECK_STATUS(lc__control_open(&twice, &(lc__control *){NULL}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "rank 1 has already joined (host ");
    other.size = 3;
    CHECK_STATUS(lc__control_open(&other, &(lc__control *){NULL}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "the run has 2 ranks, but this is rank 1 of 3");
    report_rank_ended(&other, "killed");
    other = o, other.secret = r->secrets[1];
    report_rank_ended(&other, "killed");
    atomic_store(&r->go, 1);
    CHECK_OK(lc__control_all_gather(right, "b", all, 1));
    CHECK(!memcmp(all, "ab", 2));
    lc__control_close(right);
    run_signal(r, 0, SIGKILL);
    run_reap(r, 0);
    lc__coordinator_stop(c);
    run_free(r);
}

/* One byte at a time, forever: a new byte does not extend the time. */
TEST(a_peer_that_takes_too_long_is_turned_away)
{
    run *r = run_new(2, visited, (lc__control_times){.heartbeat = 0.1});
    lc__coordinator *c = run_start(r);
    uint8_t bytes[LC__FRAME_HEAD + LC__HELLO_BYTES], answer[256];
    uint8_t hello[LC__HELLO_BYTES] = {0};
    message_of(LC__FRAME_HELLO, hello, sizeof hello, bytes);
    CHECK(await(&r->here, 2));
    int slow = visit(r), silent = visit(r), half = visit(r);
    double begun = lc__seconds();
    CHECK(send(half, bytes, sizeof bytes / 2, MSG_NOSIGNAL) > 0);
    size_t at = 0;
    while (at < sizeof bytes && lc__seconds() - begun < 20) {
        if (send(slow, bytes + at++, 1, MSG_NOSIGNAL) != 1) break;
        nap(0.2);
    }
    CHECK(at < sizeof bytes && lc__seconds() - begun < 5 + patience(2));
    int all[] = {slow, silent, half};
    for (int i = 0; i < 3; i++) {
        ssize_t n = listen_to(all[i], patience(3), answer, sizeof answer);
        CHECK(n >= 0 && n <= LC__FRAME_HEAD + LC__CHALLENGE_BYTES);
        close(all[i]);
    }
    atomic_store(&r->go, 1);
    for (int i = 0; i < 2; i++) run_reap(r, i);
    for (int i = 0; i < 2; i++)
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    lc__coordinator_stop(c);
    run_free(r);
}

/* A member is known to have joined by its process: without one, another rank could take its place. */
TEST(a_rank_without_a_process_is_turned_away)
{
    run *r = run_new(2, visited, (lc__control_times){0});
    lc__coordinator *c = run_coordinate(r);
    uint8_t challenge[LC__FRAME_HEAD + LC__CHALLENGE_BYTES], hello[LC__HELLO_BYTES] = {0};
    uint8_t bytes[LC__FRAME_HEAD + LC__HELLO_BYTES], answer[256];
    for (uint64_t process = 0; process < 2; process++) {
        int fd = visit(r);
        CHECK_EQ(listen_to(fd, patience(5), challenge, sizeof challenge), sizeof challenge);
        lc__put_u32(hello, LC__CONTROL_VERSION);
        lc__put_u32(hello + 4, 1), lc__put_u32(hello + 8, 2), lc__put_u32(hello + 12, 1);
        lc__put_u64(hello + 16, process), lc__put_u64(hello + 24, 7);
        const lc__proof_ask ask = lc__control_ask(LC__PROOF_RANK, challenge + LC__FRAME_HEAD + 8, hello);
        CHECK_OK(lc__proof_make(SECRET, strlen(SECRET), &ask, hello + LC__HELLO_HEAD + LC__NONCE));
        size_t n = message_of(LC__FRAME_HELLO, hello, sizeof hello, bytes);
        CHECK_EQ(send(fd, bytes, n, MSG_NOSIGNAL), n);
        ssize_t said = listen_to(fd, patience(5), answer, process ? LC__FRAME_HEAD + LC__PROOF : sizeof answer);
        CHECK_EQ(said, process ? LC__FRAME_HEAD + LC__PROOF : 0); /* a welcome, or nothing */
        close(fd);
    }
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(garbage_does_no_harm)
{
    run *r = run_new(2, visited, (lc__control_times){0});
    lc__coordinator *c = run_start(r);
    uint64_t seed = 88172645463325252u;
    CHECK(await(&r->here, 2));
    for (int k = 0; k < 120; k++) {
        int fd = -1;
        uint8_t bytes[4096];
        size_t n = 1 + random_number(&seed) % sizeof bytes;
        for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)random_number(&seed);
        if (k % 4 == 1) n = message_of(LC__FRAME_HELLO, bytes, n % 200, bytes);         /* a stranger */
        if (k % 4 == 2) n = message_of(LC__FRAME_FAIL, "I give up", 9, bytes);          /* without a hello */
        if (k % 4 == 3) lc__put_u32(bytes + 8, 0xffffffff), n = LC__FRAME_HEAD, k += 0; /* no magic, huge */
        if (k % 8 == 7) {
            message_of(LC__FRAME_HELLO, "", 0, bytes);
            lc__put_u32(bytes + 8, 0x7fffffff); /* announces 2 GiB */
            n = LC__FRAME_HEAD;
        }
        CHECK_OK(lc__socket_connect("127.0.0.1", atomic_load(&r->port), lc__seconds() + 5, &fd));
        CHECK(send(fd, bytes, n, MSG_NOSIGNAL) > 0);
        char answer[16];
        /* it is rejected, with at most a challenge and a reason (or, if it was the beginning of a message, waited
         * for) */
        ssize_t got = 1, all = 0;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while (n >= LC__FRAME_HEAD && k % 4 && got > 0) {
            if (poll(&p, 1, (int)patience(3000)) != 1) TEST_FAIL("visitor %d with %zu bytes is kept waiting", k, n);
            got = recv(fd, answer, sizeof answer, 0);
            if (got > 0) all += got;
        }
        CHECK(all < LC__FRAME_HEAD + LC__CHALLENGE_BYTES + 100); /* the challenge, and why */
        close(fd);
    }
    atomic_store(&r->go, 1);
    for (int i = 0; i < 2; i++) run_reap(r, i);
    for (int i = 0; i < 2; i++)
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    lc__coordinator_stop(c);
    run_free(r);
}

/* The secret does not leave the host: without OpenSSL no listener accepts other hosts. */
TEST(without_proofs_ranks_meet_on_one_host)
{
    lc__coordinator *c = NULL;
    int port = 0;
    lc_status s = lc__coordinator_start("*", &port, 2, SECRET, NULL, &c);
    lc__coordinator_stop(c);
    if (!lc__proof_reveals()) {
        CHECK_EQ(s, LC_OK);
        return;
    }
    CHECK_EQ(s, LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "OpenSSL");
}

/* ---- identities of processes ---- */

/* The identity that this process has if no launcher started it. */
static uint64_t identity_here(void)
{
    uint8_t bytes[LC__CHALLENGE_BYTES] = {0}, hello[LC__HELLO_BYTES];
    char doubt[LC__DOUBT_TEXT] = "";
    lc__put_u32(bytes, LC__CONTROL_VERSION);
    lc__put_u32(bytes + 4, lc__proof_reveals());
    const lc__frame challenge = {LC__FRAME_CHALLENGE, bytes, sizeof bytes};
    const lc__control_args o = {.rank = 0, .size = 2, .secret = SECRET};
    if (!lc__control_answer(&o, LC__PROOF_RANK, 1, &challenge, hello, doubt)) TEST_FAIL("%s", doubt);
    return lc__get_u64(hello + 24);
}

static uint64_t identity_of_a_child(void)
{
    uint64_t identity = 0;
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        identity = identity_here();
        _exit(write(ends[1], &identity, sizeof identity) == sizeof identity && identity_here() == identity ? 0 : 1);
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], &identity, sizeof identity), sizeof identity);
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return identity;
}

/* It stays the same whatever memory, time, threads and name the process has later. */
TEST(a_process_has_one_identity)
{
    enum { MUCH = 64 << 20 };
    char name[16];
    uint64_t own = identity_here(), children[8];
    CHECK(own != 0);
    char *memory = malloc(MUCH);
    CHECK(memory);
    memset(memory, 1, MUCH);
    CHECK_EQ(identity_here(), own);
    free(memory);
    for (clock_t until = clock() + CLOCKS_PER_SEC / 20; clock() < until;) continue; /* a few clock ticks */
    CHECK_EQ(identity_here(), own);
    CHECK(prctl(PR_GET_NAME, name) == 0 && prctl(PR_SET_NAME, "a) 1 (b) 2") == 0);
    CHECK_EQ(identity_here(), own);
    CHECK(prctl(PR_SET_NAME, name) == 0);
    /* and no other process has it, even one that begins in the same tick */
    for (int i = 0; i < 8; i++) {
        children[i] = identity_of_a_child();
        CHECK(children[i] != 0 && children[i] != own);
        for (int k = 0; k < i; k++) CHECK(children[i] != children[k]);
    }
    CHECK_EQ(identity_here(), own);
}

/* ---- at a rank ---- */

typedef enum trick {
    SILENT,
    OTHER_VERSION,
    NOISE,
    HUGE_MESSAGE,
    UNASKED_WELCOME,
    UNASKED_END,
    REFLECTION,
    NO_PROOF,
    TRICKS
} trick;

typedef struct impostor {
    int listener, port;
    trick trick;
    size_t hello; /* bytes of the hello that it received */
} impostor;

/* Listens in the coordinator's place, without knowing the secret. */
static void *pretend(void *arg)
{
    impostor *i = arg;
    uint8_t bytes[1024], data[LC__CHALLENGE_BYTES] = {0}, got[1024];
    int fd = -1;
    for (int k = 0; k < 5000 && fd < 0; k++) fd = lc__socket_accept(i->listener, NULL), nap(0.001);
    if (fd < 0) return NULL;
    lc__put_u32(data, i->trick == OTHER_VERSION ? 77 : LC__CONTROL_VERSION);
    size_t n = message_of(LC__FRAME_CHALLENGE, data, sizeof data, bytes);
    if (i->trick == NOISE) memset(bytes, 'x', n);
    if (i->trick == HUGE_MESSAGE) lc__put_u32(bytes + 8, 60000);
    if (i->trick == UNASKED_WELCOME) n = message_of(LC__FRAME_WELCOME, got, LC__PROOF, bytes);
    if (i->trick == UNASKED_END) n = message_of(LC__FRAME_END, "it is over", 10, bytes);
    if (i->trick != SILENT) (void)!send(fd, bytes, n, MSG_NOSIGNAL);
    if (i->trick >= REFLECTION) {
        ssize_t k = listen_to(fd, 5, got, LC__FRAME_HEAD + LC__HELLO_BYTES);
        i->hello = k > 0 ? (size_t)k : 0;
        uint8_t *proof = got + LC__FRAME_HEAD + LC__HELLO_HEAD + LC__NONCE;
        if (i->trick == NO_PROOF) memset(proof, 0, LC__PROOF);
        n = message_of(LC__FRAME_WELCOME, proof, LC__PROOF, bytes);
        (void)!send(fd, bytes, n, MSG_NOSIGNAL);
    }
    (void)listen_to(fd, 10, got, sizeof got); /* until the rank closes the connection */
    close(fd);
    return NULL;
}

TEST(a_rank_believes_no_impostor)
{
    static const char *const said[TRICKS] = {"accepted the connection but did not answer",
                                             "a different version",
                                             "an invalid message",
                                             "an invalid message",
                                             "does not know the secret of the run",
                                             "an invalid message",
                                             "does not know the secret of the run",
                                             "does not know the secret of the run"};
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    for (int t = 0; t < TRICKS; t++) {
        impostor i = {.trick = (trick)t};
        pthread_t thread;
        lc__control *c = NULL;
        CHECK_OK(lc__socket_listen(NULL, &i.port, &i.listener));
        CHECK(pthread_create(&thread, NULL, pretend, &i) == 0);
        lc__control_args o = {.rank = 1,
                              .size = 2,
                              .address = "127.0.0.1",
                              .port = i.port,
                              .secret = SECRET,
                              .times = {.start = t ? 20 : 1}};
        double begun = lc__seconds();
        lc_status s = lc__control_open(&o, &c);
        char why[1024];
        snprintf(why, sizeof why, "%s", lc_error_message());
        pthread_join(thread, NULL);
        close(i.listener);
        if (s >= 0 || !strstr(why, said[t])) TEST_FAIL("trick %d: %d, %s", t, (int)s, why);
        CHECK(t == SILENT || lc__seconds() - begun < patience(3));
        CHECK_EQ(i.hello, t >= REFLECTION ? LC__FRAME_HEAD + LC__HELLO_BYTES : 0);
    }
}

/* ---- messages ---- */

/* A message is parsed as it was sent, as incomplete, or as refused; never more bytes are read than there are. */
TEST(any_bytes_are_parsed_safely)
{
    uint64_t seed = 1234567;
    int messages = 0, refused = 0, short_ones = 0;
    for (int k = 0; k < 200000; k++) {
        uint8_t data[64], bytes[128];
        size_t n = random_number(&seed) % sizeof data;
        for (size_t i = 0; i < n; i++) data[i] = (uint8_t)random_number(&seed);
        size_t all = message_of((lc__frame_kind)(1 + random_number(&seed) % (LC__FRAME_KINDS - 1)), data, n, bytes);
        bool intact = random_number(&seed) % 2;
        if (!intact) bytes[random_number(&seed) % all] ^= (uint8_t)(1 + random_number(&seed) % 255);
        size_t given = random_number(&seed) % 3 ? all : random_number(&seed) % (all + 1);
        uint8_t *copy = malloc(given + 1); /* exactly as large as the data, for sanitizers */
        uint8_t *exact = copy + 1;
        memcpy(exact, bytes, given);
        lc__frame f = {0};
        int64_t got = lc__frame_parse(exact, given, sizeof data, &f);
        messages += got > 0, refused += got < 0, short_ones += got == 0;
        CHECK(got <= (int64_t)given);
        if (got > 0) {
            CHECK(f.data == exact + LC__FRAME_HEAD && f.n == (size_t)got - LC__FRAME_HEAD);
            char text[40];
            lc__frame_text(f.data, f.n, text, sizeof text);
            CHECK(strlen(text) < sizeof text);
        }
        if (intact && given == all) CHECK(got == (int64_t)all && (!n || !memcmp(f.data, data, n)));
        if (intact && given < all) CHECK(got == 0);
        free(copy);
    }
    CHECK(messages > 1000 && refused > 1000 && short_ones > 1000);
    /* one byte more than allowed: refused as soon as it is announced, and when all of it is there */
    uint8_t data[65] = {0}, bytes[LC__FRAME_HEAD + 65];
    lc__frame f;
    size_t all = message_of(LC__FRAME_FAIL, data, sizeof data, bytes);
    CHECK_EQ(lc__frame_parse(bytes, LC__FRAME_HEAD, 64, &f), -1);
    CHECK_EQ(lc__frame_parse(bytes, all, 64, &f), -1);
    CHECK_EQ(lc__frame_parse(bytes, all, 65, &f), all);
}

TEST_MAIN
