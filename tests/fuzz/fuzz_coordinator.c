/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's end of the control channel: callers that know the secret, and others that do not, connect as ranks
 * and as launchers, and send messages of every kind, sealed after they have joined. The input is a list of steps of
 * STEP bytes: a caller connects, sends, sends something that is changed in transit, or hangs up; time passes. The
 * rounds of the coordinator's thread are made here, one after each step, so nothing waits.
 *
 * Whatever is sent, all text that may be shown is printable, and no caller that has not proven to know the secret can
 * end the run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/coordinator/coordinator_internal.h"
#include "comm/net/socket.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

#define SECRET "a secret that the run has"
enum { SIZE = 3, CALLERS = 6, UNPROVEN = 4, STEP = 8, STEPS = 64 };

typedef enum what { COME, SEND, CHANGED, BYTES, HANG_UP, PASS_TIME, REPORT, WHATS } what;

typedef struct step {
    uint8_t what, who, kind, number[4], text;
} step;
_Static_assert(sizeof(step) == STEP, "a step is read as it is");

typedef struct caller {
    lc__wire wire; /* fd -1: not connected */
    lc__proof_ask ask;
} caller;

static caller callers[CALLERS];
static struct sockaddr_un place;
static socklen_t place_bytes;
static double passed;    /* seconds, in addition to those of the clock */
static bool may_be_over; /* a caller that knows the secret has joined, or time has passed, or a process has ended */

/* ---- checks ---- */

static void check_printable(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\n' && *text != '\t') || *text == 127) abort();
}

static void check(lc__coordinator *c)
{
    lc__str calls = {0};
    if (c->n_unproven > c->most_unproven || c->n_launchers > c->size) abort();
    if (c->ending && (!c->message[0] || !may_be_over)) abort();
    check_printable(c->message);
    check_printable(c->refused);
    for (int i = 0; i < c->size; i++) {
        const lc__member *m = &c->members[i];
        check_printable(m->host), check_printable(m->cause), check_printable(m->ended);
        check_printable(m->where), check_printable(m->calls);
    }
    lc__calls_list(c, &calls);
    if (calls.s) check_printable(calls.s);
    lc__str_free(&calls);
}

/* Reads what the coordinator sends to a caller. */
static void hear(caller *b)
{
    lc__frame f;
    char text[LC__END_TEXT];
    bool open = b->wire.fd >= 0 && lc__wire_fill(&b->wire);
    while (b->wire.fd >= 0 && lc__wire_next(&b->wire, &f) > 0) {
        snprintf(text, sizeof text, "%.*s", (int)f.n, (const char *)f.data);
        if (f.kind == LC__FRAME_END || f.kind == LC__FRAME_REFUSED || f.kind == LC__FRAME_WAITING)
            check_printable(text);
        if (f.kind == LC__FRAME_WELCOME && !b->wire.takes &&
            lc__wire_seal(&b->wire, SECRET, strlen(SECRET), &b->ask, true) < 0)
            abort();
    }
    if (!open) lc__wire_release(&b->wire);
}

/* ---- a round of coordinator.c ---- */

static bool has_come(const lc__wire *w)
{
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    return w->fd >= 0 && poll(&p, 1, 0) > 0;
}

static void round_of(lc__coordinator *c)
{
    double now = lc__seconds() + passed;
    int unproven = c->n_unproven;
    for (int i = 0; i < c->size; i++)
        if (has_come(&c->members[i].wire)) lc__member_serve(c, &c->members[i], now);
    for (int i = 0; i < c->n_launchers; i++)
        if (has_come(&c->launchers[i].wire)) lc__launcher_serve(c, &c->launchers[i], now);
    lc__launchers_tidy(c);
    for (int i = 0; i < unproven; i++)
        if (has_come(&c->unproven[i].wire)) lc__admit_serve(c, &c->unproven[i], now);
    lc__admit_forget(c, now);
    lc__admit_accept(c, now);
    (void)lc__verdict_decide(c, now);
    for (int i = 0; i < c->size; i++) {
        lc__member *m = &c->members[i];
        if (m->wire.fd >= 0 && !lc__wire_flush(&m->wire)) lc__member_lost(m, now);
    }
    check(c);
    for (int i = 0; i < CALLERS; i++) hear(&callers[i]);
}

static lc__coordinator *coordinator_new(void)
{
    lc__coordinator *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->size = SIZE, c->most_unproven = UNPROVEN, c->wake = c->silent = -1;
    c->times = lc__control_default_times(NULL);
    c->members = calloc(SIZE, sizeof *c->members);
    c->launchers = calloc(SIZE, sizeof *c->launchers);
    c->unproven = calloc(UNPROVEN, sizeof *c->unproven);
    snprintf(c->secret, sizeof c->secret, SECRET);
    if (!c->members || !c->launchers || !c->unproven || pthread_mutex_init(&c->lock, NULL) != 0) abort();
    for (int i = 0; i < SIZE; i++) c->members[i].wire.fd = -1, c->members[i].step = -1;
    /* An unnamed address, which the kernel chooses. */
    c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    place = (struct sockaddr_un){.sun_family = AF_UNIX}, place_bytes = sizeof place;
    if (c->listener < 0 || bind(c->listener, (struct sockaddr *)&place, sizeof place.sun_family) < 0 ||
        listen(c->listener, 64) < 0 || getsockname(c->listener, (struct sockaddr *)&place, &place_bytes) < 0)
        abort();
    lc__admit_gather(c, lc__seconds());
    return c;
}

static void coordinator_free(lc__coordinator *c)
{
    for (int i = 0; i < SIZE; i++) lc__wire_release(&c->members[i].wire), free(c->members[i].gift);
    for (int i = 0; i < c->n_unproven; i++) lc__wire_release(&c->unproven[i].wire);
    for (int i = 0; i < c->n_launchers; i++) lc__wire_release(&c->launchers[i].wire);
    close(c->listener);
    pthread_mutex_destroy(&c->lock);
    lc__str_free(&c->calls);
    free(c->members), free(c->launchers), free(c->unproven), free(c);
}

/* ---- actions of callers ---- */

static uint64_t number_of(uint8_t n)
{
    static const uint64_t numbers[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 63, UINT32_MAX, INT32_MAX, (uint64_t)1e16,
                                       1000,       SIZE};
    return n < 248 ? n % 8 : numbers[n - 248];
}

/* Malicious text of so many bytes. */
static size_t text_of(uint8_t t, char *text, size_t room)
{
    static const size_t lengths[] = {0, 1, 5, 40, 95, 300, 1200, LC__MEETING_BYTES};
    static const char *const words[] = {
        "a", "1.0\nall_reduce of 4 f32, sum\n> 3", "\033[31m\r\n\n\n", "\xff\xc3\n", "> \x80", "%s%n", "\n", ""};
    size_t n = lengths[t % 8] < room ? lengths[t % 8] : room, word = strlen(words[t / 8 % 8]) + 1;
    for (size_t i = 0; i < n; i++) text[i] = words[t / 8 % 8][i % word]; /* including its NUL */
    return n;
}

static void send_bytes(caller *b, const void *data, size_t n)
{
    if (b->wire.fd >= 0) (void)lc__socket_send(b->wire.fd, data, n);
}

/* Bit 0 of `number[3]`: another secret; bit 1: another version; bit 2: something is changed after it was proven. */
static void come(lc__coordinator *c, caller *b, const step *s)
{
    uint8_t hello[LC__HELLO_BYTES] = {0};
    lc__frame f;
    uint8_t odd = s->number[3];
    bool launches = s->kind % 2;
    const char *secret = odd % 2 ? "a secret of another run" : SECRET;
    lc__wire_release(&b->wire);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) abort();
    lc__wire_init(&b->wire, fd, 1 << 20);
    if (connect(fd, (struct sockaddr *)&place, place_bytes) < 0) return;
    lc__admit_accept(c, lc__seconds() + passed);
    if (!lc__wire_fill(&b->wire) || lc__wire_next(&b->wire, &f) <= 0 || f.n != LC__CHALLENGE_BYTES) return;
    lc__put_u32(hello, LC__CONTROL_VERSION + odd / 2 % 2);
    lc__put_u32(hello + 4, (uint32_t)number_of(s->number[0]));
    lc__put_u32(hello + 8, s->kind / 2 % 4 ? SIZE : (uint32_t)number_of(s->kind));
    lc__put_u32(hello + 12, (uint32_t)number_of(s->number[1]));
    lc__put_u64(hello + 16, number_of(s->number[1]));
    lc__put_u64(hello + 24, number_of(s->number[2]));
    (void)text_of(s->text, (char *)hello + LC__HELLO_TEXT, LC__HOST_TEXT);
    memset(hello + LC__HELLO_HEAD, s->who, LC__NONCE);
    const lc__proof_ask its = lc__control_ask(launches ? LC__PROOF_WATCHER : LC__PROOF_RANK, f.data + 8, hello);
    b->ask = lc__control_ask(LC__PROOF_COORDINATOR, f.data + 8, hello);
    if (lc__proof_make(secret, strlen(secret), &its, hello + LC__HELLO_HEAD + LC__NONCE) < 0) abort();
    if (odd / 4 % 2) hello[odd % sizeof hello] ^= 1;
    if (!(odd % 2) && !(odd / 4 % 2)) may_be_over = true;
    if (lc__wire_put(&b->wire, launches ? LC__FRAME_WATCH : LC__FRAME_HELLO, NULL, 0, hello, sizeof hello))
        (void)lc__wire_flush(&b->wire);
}

static void send_message(caller *b, const step *s, bool changed)
{
    static char text[LC__MEETING_BYTES];
    uint8_t head[LC__CALLS_HEAD];
    lc__wire *w = &b->wire;
    size_t n = text_of(s->text, text, sizeof text), before = w->out.n - w->out.at;
    /* u32, u32 and u64 fields */
    lc__put_u64(head, number_of(s->number[0]));
    lc__put_u64(head + 8, number_of(s->number[1]));
    lc__put_u64(head + 16, number_of(s->number[2]));
    lc__put_u64(head + 24, number_of(s->number[3]));
    static const size_t heads[LC__FRAME_KINDS] = {
        [LC__FRAME_BEAT] = 20, [LC__FRAME_GATHER] = 8,   [LC__FRAME_FAIL] = 8,  [LC__FRAME_BYE] = 4,
        [LC__FRAME_ENDED] = 4, [LC__FRAME_REACHED] = 20, [LC__FRAME_TERMS] = 4, [LC__FRAME_CALLS] = LC__CALLS_HEAD};
    size_t head_bytes = heads[s->kind % LC__FRAME_KINDS];
    if (s->kind / LC__FRAME_KINDS % 8 == 7) head_bytes = head_bytes / 2; /* too few */
    if (w->fd < 0 || !lc__wire_put(w, (lc__frame_kind)(s->kind % LC__FRAME_KINDS), head, head_bytes, text, n)) return;
    size_t at = w->out.at + before;
    if (changed) w->out.data[at + ((size_t)s->who * 31 + s->number[3]) % (w->out.n - at)] ^= 1 << s->number[2] % 8;
    (void)lc__wire_flush(w);
}

static void take_step(lc__coordinator *c, const step *s)
{
    static const double times[] = {0.01, 0.2, 0.5, 2, 5.1, 11, 70, 400};
    caller *b = &callers[s->who % CALLERS];
    switch (s->what % WHATS) {
    case COME:
        come(c, b, s);
        break;
    case SEND:
    case CHANGED:
        send_message(b, s, s->what % WHATS == CHANGED);
        break;
    case BYTES:
        send_bytes(b, s, sizeof *s);
        break;
    case HANG_UP:
        lc__wire_release(&b->wire);
        break;
    case PASS_TIME:
        passed += times[s->number[0] % 8];
        may_be_over |= passed > c->times.start;
        break;
    default:
        lc__member_ended(&c->members[s->who % SIZE], s->number[0] % 2 ? "killed by signal 9" : NULL,
                         lc__seconds() + passed);
        may_be_over = true;
    }
}

/* ---- the input ---- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    unsigned int random = seed;
    if (size + STEP > room || rand_r(&random) % 2) return LLVMFuzzerMutate(data, size, room);
    size -= size % STEP;
    for (int i = 0; i < STEP; i++) data[size++] = (uint8_t)(rand_r(&random) >> 8);
    data[size - STEP + 1] %= CALLERS;
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    step s;
    passed = 0;
    may_be_over = false;
    lc__coordinator *c = coordinator_new();
    for (int i = 0; i < CALLERS; i++) callers[i].wire = (lc__wire){.fd = -1};
    for (int i = 0; i < STEPS && size >= STEP; i++, data += STEP, size -= STEP) {
        memcpy(&s, data, STEP);
        take_step(c, &s);
        round_of(c);
    }
    lc__verdict_settle(c);
    check(c);
    for (int i = 0; i < CALLERS; i++) lc__wire_release(&callers[i].wire);
    coordinator_free(c);
    return 0;
}
