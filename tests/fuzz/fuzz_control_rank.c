/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's end of the control channel, with a coordinator that may send anything: before it has proven that it knows
 * the secret, and afterwards, sealed. The first byte of the input says what the rank waits for and whether the
 * coordinator proves itself; the rest lists its messages, STEP bytes each. The parts of the rank's thread are called
 * here, one after the other, so nothing waits.
 *
 * Whatever arrives, all text that may be shown is printable, an end has a reason, and no peer that has not proven to
 * know the secret can end the run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/control/rank_thread.c" /* whose functions are static */

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

#define SECRET "a secret that the run has"
enum { SIZE = 3, STEP = 8, STEPS = 48, NUMBERS = 4 };

typedef enum what { SAY, SAY_CHANGED, SAY_BYTES, PASS_TIME, MEET, REPORT, HANG_UP, WHATS } what;

typedef struct step {
    uint8_t what, kind, number[NUMBERS], text, at;
} step;
_Static_assert(sizeof(step) == STEP, "a step is read as it is");

static double passed; /* seconds, in addition to those of the clock */

static void check_printable(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\n' && *text != '\t') || *text == 127) abort();
}

static void check(const lc__control *c)
{
    if (c->ended && (!c->welcome || !c->message[0])) abort();
    check_printable(c->message), check_printable(c->refused), check_printable(c->waiting);
    check_printable(c->doubt), check_printable(c->coordinator);
}

/* ---- the rank ---- */

static void rank_init(lc__control *c, int fd, lc_comm *comm)
{
    *c = (lc__control){.wake = -1, .step = -1, .watched = {comm}, .parent = getppid()};
    c->options = (lc__control_args){.rank = 1, .size = SIZE, .secret = SECRET, .identity = 7};
    c->options.times = lc__control_default_times(NULL);
    snprintf(c->coordinator, sizeof c->coordinator, "the coordinator of the run");
    lc__wire_init(&c->wire, fd, LC__UNPROVEN_BYTES);
    if (pthread_mutex_init(&c->lock, NULL) != 0 || pthread_cond_init(&c->changed, NULL) != 0) abort();
    c->heard = c->beat = lc__seconds();
}

/* One round of lc__control_serve. */
static void round_of(lc__control *c)
{
    struct pollfd p = {.fd = c->wire.fd, .events = POLLIN};
    lc__control_beat(c, lc__seconds() + passed);
    flush(c);
    if (c->wire.fd >= 0 && poll(&p, 1, 0) > 0) listen_to(c);
    flush(c);
    judge(c, lc__seconds() + passed);
    check(c);
}

static void meet(lc__control *c, uint8_t much)
{
    static const size_t bytes[] = {0, 1, 12, LC__MEETING_BYTES};
    free(c->gifts);
    c->gift_bytes = bytes[much % 4];
    c->gifts = malloc(c->gift_bytes * SIZE + 1);
    if (!c->gifts) abort();
    c->met = false;
    c->meeting++;
}

/* ---- the coordinator ---- */

static uint64_t number_of(uint8_t n)
{
    static const uint64_t numbers[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 63, UINT32_MAX, INT32_MAX, 1000};
    return n < 250 ? n % 8 : numbers[n - 250];
}

static size_t text_of(uint8_t t, const lc__control *c, char *text, size_t room)
{
    static const size_t lengths[] = {0, 1, 5, 40, 300, 1200, LC__MEETING_BYTES};
    static const char *const words[] = {"a", "ranks 2\nof 3", "\033[31m\r\n\n\n", "\xff\xc3\n", "\x80", "%s%n", "\n",
                                        ""};
    size_t n = t % 8 < 7 ? lengths[t % 8] : c->gift_bytes * SIZE, word = strlen(words[t / 8 % 8]) + 1;
    if (n > room) n = room;
    for (size_t i = 0; i < n; i++) text[i] = words[t / 8 % 8][i % word]; /* including its NUL */
    return n;
}

static void say(lc__wire *w, const lc__control *c, const step *s, bool changed)
{
    static char text[SIZE * LC__MEETING_BYTES];
    static const size_t heads[LC__FRAME_KINDS] = {[LC__FRAME_READY] = 4,
                                                  [LC__FRAME_GATHERED] = 8,
                                                  [LC__FRAME_CHALLENGE] = LC__CHALLENGE_BYTES,
                                                  [LC__FRAME_WELCOME] = LC__PROOF};
    uint8_t head[LC__PROOF] = {0};
    size_t n = text_of(s->text, c, text, sizeof text), before = w->out.n - w->out.at;
    lc__frame_kind kind = (lc__frame_kind)(s->kind % LC__FRAME_KINDS);
    lc__put_u64(head, s->number[0] == 1 ? c->meeting : number_of(s->number[0]));
    if (kind == LC__FRAME_CHALLENGE) lc__put_u32(head, LC__CONTROL_VERSION), lc__put_u32(head + 4, s->number[1] / 128);
    if (w->fd < 0 || !lc__wire_put(w, kind, head, heads[kind] / (1 + (s->at == 255)), text, n)) return;
    size_t at = w->out.at + before;
    if (changed) w->out.data[at + ((size_t)s->at * 31 + s->number[3]) % (w->out.n - at)] ^= 1 << s->number[2] % 8;
    (void)lc__wire_flush(w);
}

/* Like a coordinator that knows the secret. */
static void prove(lc__wire *w, lc__control *c)
{
    uint8_t challenge[LC__CHALLENGE_BYTES] = {0}, mine[LC__PROOF];
    lc__frame f;
    lc__put_u32(challenge, LC__CONTROL_VERSION);
    lc__put_u32(challenge + 4, lc__proof_reveals());
    if (!lc__wire_put(w, LC__FRAME_CHALLENGE, NULL, 0, challenge, sizeof challenge) || !lc__wire_flush(w)) abort();
    round_of(c);
    if (!lc__wire_fill(w) || lc__wire_next(w, &f) <= 0 || f.kind != LC__FRAME_HELLO || f.n != LC__HELLO_BYTES) abort();
    const lc__proof_ask ours = lc__control_ask(LC__PROOF_COORDINATOR, challenge + 8, f.data);
    if (lc__proof_make(SECRET, strlen(SECRET), &ours, mine) < 0 ||
        !lc__wire_put(w, LC__FRAME_WELCOME, NULL, 0, mine, sizeof mine) || !lc__wire_flush(w) ||
        lc__wire_seal(w, SECRET, strlen(SECRET), &ours, false) < 0)
        abort();
    round_of(c);
    if (!c->welcome) abort();
}

/* Reads the rank's messages, so that there is room for more. */
static void hear(lc__wire *w)
{
    lc__frame f;
    bool open = w->fd >= 0 && lc__wire_fill(w);
    while (w->fd >= 0 && lc__wire_next(w, &f) > 0) continue;
    if (!open) lc__wire_release(w);
}

static void take_step(lc__wire *w, lc__control *c, const step *s)
{
    static const double times[] = {0.01, 0.2, 0.6, 2, 5, 11, 70, 400};
    switch (s->what % WHATS) {
    case SAY:
    case SAY_CHANGED:
        say(w, c, s, s->what % WHATS == SAY_CHANGED);
        break;
    case SAY_BYTES:
        if (w->fd >= 0) (void)lc__socket_send(w->fd, s, sizeof *s);
        break;
    case PASS_TIME:
        passed += times[s->number[0] % 8];
        break;
    case MEET:
        meet(c, s->number[0]);
        break;
    case REPORT:
        c->reports++, c->step = (int64_t)number_of(s->number[1]);
        break;
    default:
        lc__wire_release(w);
    }
}

/* ---- the input ---- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    unsigned int random = seed;
    if (!size || size + STEP > room || rand_r(&random) % 2) return LLVMFuzzerMutate(data, size, room);
    size -= (size - 1) % STEP;
    for (int i = 0; i < STEP; i++) data[size++] = (uint8_t)(rand_r(&random) >> 8);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    lc_comm *comm;
    static lc__control c;
    lc__wire w;
    if (!size) return 0;
    passed = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0 || lc_comm_self(&comm) < 0 ||
        lc_comm_barrier(comm, NULL) < 0)
        abort();
    rank_init(&c, fds[0], comm);
    lc__wire_init(&w, fds[1], 1 << 20);
    if (data[0] % 4) prove(&w, &c);
    meet(&c, data[0] / 4);
    data++, size--;
    for (int i = 0; i < STEPS && size >= STEP; i++, data += STEP, size -= STEP) {
        step s;
        memcpy(&s, data, STEP);
        take_step(&w, &c, &s);
        round_of(&c);
        hear(&w);
    }
    lc__wire_release(&w);
    round_of(&c); /* the connection is gone */
    lc__wire_release(&c.wire);
    pthread_mutex_destroy(&c.lock);
    pthread_cond_destroy(&c.changed);
    free(c.gifts);
    lc_comm_free(comm);
    return 0;
}
