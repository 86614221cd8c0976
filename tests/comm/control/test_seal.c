/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed messages, and the control channel, which consists of them: an attacker between two ends who changes, drops,
 * repeats or forges a message ends the run with an error. */
#define _GNU_SOURCE
#include "control_run.h"

#include "comm/control/control_internal.h"
#include "comm/net/seal.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

/* ---- sealing ---- */

static void pair(lc__seal **closes, lc__seal **opens, bool encrypts)
{
    uint8_t key[LC__SEAL_KEY] = {0};
    CHECK_OK(lc__seal_new(key, false, encrypts, closes));
    CHECK_OK(lc__seal_new(key, true, encrypts, opens));
}

TEST(seals_are_aes_256_gcm)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    /* case 14 of McGrew and Viega */
    static const uint8_t want[] = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5,
                                   0xd3, 0xba, 0xf3, 0x9d, 0x18, 0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99,
                                   0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
    uint8_t data[16] = {0}, tag[LC__SEAL_TAG];
    lc__seal *closes, *opens;
    pair(&closes, &opens, true);
    CHECK(lc__seal_close(closes, NULL, 0, data, sizeof data, tag));
    CHECK(!memcmp(data, want, 16) && !memcmp(tag, want + 16, 16));
    CHECK(lc__seal_open(opens, NULL, 0, data, sizeof data, tag));
    for (size_t i = 0; i < sizeof data; i++) CHECK(!data[i]);
    lc__seal_free(closes), lc__seal_free(opens);
}

TEST(every_byte_of_a_message_counts)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    for (int encrypts = 0; encrypts < 2; encrypts++)
        for (size_t bit = 0; bit <= 8 * (12 + 40 + LC__SEAL_TAG); bit++) {
            uint8_t all[12 + 40 + LC__SEAL_TAG];
            lc__seal *closes, *opens;
            for (size_t i = 0; i < sizeof all; i++) all[i] = (uint8_t)i;
            pair(&closes, &opens, encrypts);
            CHECK(lc__seal_close(closes, all, 12, all + 12, 40, all + 52));
            CHECK((all[12] == 12 && all[51] == 51) == !encrypts);
            bool changed = bit < 8 * sizeof all;
            if (changed) all[bit / 8] ^= (uint8_t)(1 << bit % 8);
            CHECK(lc__seal_open(opens, all, 12, all + 12, 40, all + 52) == !changed);
            if (!changed) CHECK(all[12] == 12 && all[51] == 51);
            lc__seal_free(closes), lc__seal_free(opens);
        }
}

TEST(messages_have_an_order)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    static const int orders[][3] = {{0, 1, 2}, {0, 0, -1}, {1, -1}, {0, 2, -1}}; /* -1: the previous one is refused */
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        uint8_t data[3][8], tags[3][LC__SEAL_TAG], one[8];
        lc__seal *closes, *opens;
        pair(&closes, &opens, true);
        for (int i = 0; i < 3; i++) {
            memset(data[i], 'a' + i, 8);
            CHECK(lc__seal_close(closes, "head", 4, data[i], 8, tags[i]));
        }
        for (int i = 0; i < 3 && orders[k][i] >= 0; i++) {
            int m = orders[k][i];
            memcpy(one, data[m], 8);
            bool refused = i < 2 && orders[k][i + 1] < 0;
            CHECK(lc__seal_open(opens, "head", 4, one, 8, tags[m]) == !refused);
        }
        lc__seal_free(closes), lc__seal_free(opens);
    }
}

TEST(the_cost_of_a_message)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    enum { TIMES = 20000 };
    static uint8_t data[64 << 10];
    static const size_t sizes[] = {64, 1024, 16 << 10, 64 << 10};
    for (int encrypts = 0; encrypts < 2; encrypts++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            uint8_t tag[LC__SEAL_TAG];
            lc__seal *closes, *opens;
            int times = sizes[k] > 4096 ? TIMES / 10 : TIMES;
            pair(&closes, &opens, encrypts);
            double begun = lc__seconds();
            for (int i = 0; i < times; i++) {
                CHECK(lc__seal_close(closes, "head", 4, data, sizes[k], tag));
                CHECK(lc__seal_open(opens, "head", 4, data, sizes[k], tag));
            }
            double each = (lc__seconds() - begun) / times;
            printf("%s of %zu bytes, sealed and opened: %.2f us (%.2f GB/s each)\n", encrypts ? "encryption" : "a tag",
                   sizes[k], each * 1e6, 2e-9 * (double)sizes[k] / each);
            CHECK(each < patience(0.01));
            lc__seal_free(closes), lc__seal_free(opens);
        }
    double begun = lc__seconds();
    for (int i = 0; i < 100; i++) {
        lc__seal *closes, *opens;
        pair(&closes, &opens, true);
        lc__seal_free(closes), lc__seal_free(opens);
    }
    printf("the seals of one end of a connection: %.1f us\n", (lc__seconds() - begun) / 100 * 1e6);
}

/* ---- between a rank and the coordinator ---- */

typedef enum trick { NONE, FLIP, FLIP_HEAD, REPEAT, DROP, SWAP, FORGE, BACK, TRICKS } trick;

/* Relays message by message, and plays its trick on one of the sealed ones. */
typedef struct between {
    int listener, port, to, fds[2]; /* the rank's, the coordinator's */
    bool down;                      /* the trick is played on what the coordinator sends */
    trick trick;
    lc__bytes in[2];
    int seen[2]; /* sealed messages */
    uint8_t held[4096], last[4096];
    size_t n_held, n_last; /* of the other direction */
    bool done;
    atomic_int stop;
    pthread_t thread;
} between;

static void pass(between *b, int to, const uint8_t *data, size_t n)
{
    (void)!send(b->fds[to], data, n, MSG_NOSIGNAL);
}

static void handle(between *b, int from, uint8_t *data, size_t n)
{
    const lc__frame_kind kind = (lc__frame_kind)lc__get_u32(data + 4);
    bool sealed = kind != LC__FRAME_CHALLENGE && kind != LC__FRAME_HELLO && kind != LC__FRAME_WELCOME;
    bool its = from == (b->down ? 1 : 0) && sealed && ++b->seen[from] >= 3 && !b->done;
    int to = 1 - from;
    if (b->n_held && from == (b->down ? 1 : 0)) { /* the previous message is sent after this one */
        pass(b, to, data, n), pass(b, to, b->held, b->n_held);
        b->n_held = 0;
        return;
    }
    if (!its && sealed && from != (b->down ? 1 : 0) && n <= sizeof b->last) {
        memcpy(b->last, data, n);
        b->n_last = n;
    }
    if (!its || b->trick == NONE || n > sizeof b->held || (b->trick == BACK && !b->n_last)) {
        pass(b, to, data, n);
        return;
    }
    b->done = true;
    if (b->trick == FLIP) data[n - 1 - n % 7] ^= 16;
    if (b->trick == FLIP_HEAD) data[4] ^= 1; /* another kind of message */
    if (b->trick == SWAP) memcpy(b->held, data, b->n_held = n);
    if (b->trick == FORGE) { /* as if nothing were sealed */
        lc__wire w = {.fd = -1};
        CHECK(lc__wire_put(&w, b->down ? LC__FRAME_END : LC__FRAME_FAIL, "\0\0\0\0\xff\xff\xff\xffit is over", 18, NULL,
                           0));
        pass(b, to, w.out.data, w.out.n);
        lc__wire_release(&w);
    }
    if (b->trick == BACK) pass(b, to, b->last, b->n_last);
    if (b->trick != DROP && b->trick != SWAP) pass(b, to, data, n);
    if (b->trick == REPEAT) pass(b, to, data, n);
}

static bool take(between *b, int from)
{
    lc__bytes *in = &b->in[from];
    lc__frame f;
    if (in->cap - in->n < 4096) in->data = realloc(in->data, in->cap += 65536);
    ssize_t k = recv(b->fds[from], in->data + in->n, in->cap - in->n, 0);
    if (k <= 0) return k < 0;
    in->n += (size_t)k;
    while ((k = (ssize_t)lc__frame_parse(in->data + in->at, in->n - in->at, 1 << 20, &f)) > 0) {
        handle(b, from, in->data + in->at, (size_t)k);
        in->at += (size_t)k;
    }
    memmove(in->data, in->data + in->at, in->n - in->at);
    in->n -= in->at, in->at = 0;
    return true;
}

static void *go_between(void *arg)
{
    between *b = arg;
    b->fds[0] = b->fds[1] = -1;
    while (b->fds[0] < 0 && !atomic_load(&b->stop)) b->fds[0] = lc__socket_accept(b->listener, NULL), nap(0.001);
    bool open = b->fds[0] >= 0 && lc__socket_connect("127.0.0.1", b->to, lc__seconds() + 5, &b->fds[1]) >= 0;
    while (open && !atomic_load(&b->stop)) {
        struct pollfd p[] = {{.fd = b->fds[0], .events = POLLIN}, {.fd = b->fds[1], .events = POLLIN}};
        if (poll(p, 2, 20) <= 0) continue;
        for (int i = 0; i < 2 && open; i++)
            if (p[i].revents) open = take(b, i);
    }
    for (int i = 0; i < 2; i++) {
        if (b->fds[i] >= 0) close(b->fds[i]);
        free(b->in[i].data);
    }
    close(b->listener);
    return NULL;
}

typedef struct one_rank {
    int rank, port;
    lc__control *control;
    char message[LC__END_TEXT];
    pthread_t thread;
} one_rank;

static void *be_one(void *arg)
{
    one_rank *r = arg;
    char all[2 * 100], mine[100] = "";
    const lc__control_args o = {.rank = r->rank,
                                .size = 2,
                                .address = "127.0.0.1",
                                .port = r->port,
                                .secret = SECRET,
                                .times = {.heartbeat = 0.02}};
    lc_status s = lc__control_open(&o, &r->control);
    for (int i = 0; i < 40 && s >= 0; i++) {
        lc__control_progress(r->control, i, "on its way");
        s = lc__control_all_gather(r->control, mine, all, sizeof mine);
        nap(0.01);
    }
    if (s < 0) snprintf(r->message, sizeof r->message, "%s", lc_error_message());
    lc__control_close(r->control);
    return NULL;
}

TEST(tricks_between_a_rank_and_the_coordinator_are_noticed)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    for (int down = 0; down < 2; down++)
        for (int t = 0; t < TRICKS; t++) {
            between *b = calloc(1, sizeof *b);
            lc__coordinator *c = NULL;
            char message[LC__END_TEXT];
            CHECK(b);
            b->down = down, b->trick = (trick)t;
            CHECK_OK(lc__coordinator_start(NULL, &b->to, 2, SECRET, &(lc__control_times){.heartbeat = 0.02}, &c));
            CHECK_OK(lc__socket_listen(NULL, &b->port, &b->listener));
            CHECK(pthread_create(&b->thread, NULL, go_between, b) == 0);
            one_rank ranks[2] = {{.rank = 0, .port = b->to}, {.rank = 1, .port = b->port}};
            double begun = lc__seconds();
            for (int i = 0; i < 2; i++) CHECK(pthread_create(&ranks[i].thread, NULL, be_one, &ranks[i]) == 0);
            for (int i = 0; i < 2; i++) pthread_join(ranks[i].thread, NULL);
            lc__coordinator_message(c, message, sizeof message);
            atomic_store(&b->stop, 1);
            pthread_join(b->thread, NULL);
            lc__coordinator_stop(c);
            if (t == NONE) {
                CHECK_STR(message, "");
                CHECK_STR(ranks[0].message, "");
                CHECK_STR(ranks[1].message, "");
            } else {
                CHECK(b->done && lc__seconds() - begun < patience(5));
                const char *got = down ? ranks[1].message : message; /* of the receiver */
                if (!strstr(got, LC__TAMPERED)) TEST_FAIL("trick %d, down %d: \"%s\"", t, down, got);
                CHECK_CONTAINS(got, down ? "coordinates the run" : "rank 1 ");
                CHECK(ranks[0].message[0]); /* the run has ended */
                if (!down) CHECK_CONTAINS(ranks[0].message, LC__TAMPERED);
            }
            free(b);
        }
}

/* Nothing that a rank and the coordinator send each other can be read in transit. */
TEST(messages_cannot_be_read)
{
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    lc__wire w = {.fd = -1};
    lc__proof_ask ask = {.role = LC__PROOF_RANK};
    CHECK_OK(lc__wire_seal(&w, SECRET, strlen(SECRET), &ask, true));
    CHECK(lc__wire_put(&w, LC__FRAME_FAIL, "\0\0\0\0\xff\xff\xff\xff", 8, "the disk is full", 16));
    CHECK(!memmem(w.out.data, w.out.n, "disk", 4));
    lc__wire_release(&w);
}

TEST_MAIN
