/* SPDX-License-Identifier: Apache-2.0 */
/* The frames in which mpirun passes on a rank's output, in pieces of any size and between any other bytes. */
#include "test.h"

#include "comm/world/prints.h"
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define MARK "0123456789abcdef"

enum { RANKS = 3, ROOM = 8192 };

/* Output by rank; output outside any frame belongs to rank 0. */
typedef struct heard {
    char bytes[RANKS][ROOM];
    size_t n[RANKS];
} heard;

static void hear(void *ctx, int rank, const char *bytes, size_t n)
{
    heard *h = ctx;
    CHECK(n > 0 && rank >= 0 && rank < RANKS && h->n[rank] + n <= ROOM);
    memcpy(h->bytes[rank] + h->n[rank], bytes, n);
    h->n[rank] += n;
}

static void hear_other(void *ctx, const char *bytes, size_t n)
{
    hear(ctx, 0, bytes, n);
}

static void begin(lc__prints *f, heard *h)
{
    *h = (heard){0};
    *f = (lc__prints){.mark = MARK, .other = hear_other, .of_rank = hear, .ctx = h};
}

typedef struct stream {
    char bytes[ROOM];
    size_t n;
} stream;

static void add(stream *s, const char *bytes, size_t n)
{
    CHECK(s->n + n <= sizeof s->bytes);
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
}

static void add_frame(stream *s, int rank, const char *bytes, size_t n)
{
    char frame[LC__PRINT_SIZE];
    lc__print_make(frame, MARK, rank, bytes, n);
    add(s, frame, sizeof frame);
}

#define ADD(s, text)             add(s, text, sizeof(text) - 1)
#define ADD_FRAME(s, rank, text) add_frame(s, rank, text, sizeof(text) - 1)
#define CHECK_HEARD(h, rank, text)                                                                                     \
    CHECK((h)->n[rank] == sizeof(text) - 1 && !memcmp((h)->bytes[rank], text, sizeof(text) - 1))

/* Between other bytes, some of which look like the beginning of a frame, even through the whole length of a mark. */
static void make_stream(stream *s)
{
    *s = (stream){0};
    ADD(s, "\r10 %");
    ADD_FRAME(s, 1, "a line of 1\nand ha");
    ADD_FRAME(s, 2, "of 2: \0\x1e" MARK "\n");
    ADD(s, "\r20 %\x1e"
           "0123\x1e\x1e");
    ADD_FRAME(s, 1, "lf of one\n");
    ADD(s, "\x1e"
           "0123456789abcdeF");
    ADD_FRAME(s, 1, "");
    ADD(s, "[1,1]<stderr>:\n\x1e");
}

static void check_stream(const heard *h)
{
    CHECK_HEARD(h, 0,
                "\r10 %\r20 %\x1e"
                "0123\x1e\x1e\x1e"
                "0123456789abcdeF[1,1]<stderr>:\n\x1e");
    CHECK_HEARD(h, 1, "a line of 1\nand half of one\n");
    CHECK_HEARD(h, 2, "of 2: \0\x1e" MARK "\n");
}

TEST(a_stream_in_two_pieces)
{
    static stream s;
    static heard h;
    lc__prints f;
    make_stream(&s);
    for (size_t at = 0; at <= s.n; at++) {
        begin(&f, &h);
        lc__prints_take(&f, s.bytes, at);
        lc__prints_take(&f, s.bytes + at, s.n - at);
        lc__prints_end(&f);
        check_stream(&h);
    }
}

TEST(a_stream_in_small_pieces)
{
    static stream s;
    static heard h;
    lc__prints f;
    make_stream(&s);
    for (size_t size = 1; size < 600; size++) {
        begin(&f, &h);
        for (size_t at = 0; at < s.n; at += size) lc__prints_take(&f, s.bytes + at, s.n - at < size ? s.n - at : size);
        lc__prints_end(&f);
        check_stream(&h);
    }
}

/* A progress bar is shown without waiting for the end of its line. */
TEST(bytes_outside_a_frame_come_at_once)
{
    static heard h;
    lc__prints f;
    begin(&f, &h);
    lc__prints_take(&f, "\r10 %", 5);
    CHECK_HEARD(&h, 0, "\r10 %");
    lc__prints_take(&f,
                    "\x1e"
                    "01",
                    3);
    CHECK_HEARD(&h, 0, "\r10 %"); /* it may be a frame */
    lc__prints_take(&f, "3", 1);
    CHECK_HEARD(&h, 0,
                "\r10 %\x1e"
                "013");
}

/* As when mpirun is killed. */
TEST(a_stream_that_ends_within_a_frame)
{
    static const char text[] = "the last words";
    static heard h;
    char frame[LC__PRINT_SIZE];
    lc__prints f;
    lc__print_make(frame, MARK, 1, text, sizeof text - 1);
    for (size_t n = 0; n <= sizeof frame; n++) {
        size_t want = n < LC__PRINT_HEAD ? 0 : n - LC__PRINT_HEAD;
        if (want > sizeof text - 1) want = sizeof text - 1;
        begin(&f, &h);
        lc__prints_take(&f, frame, n);
        lc__prints_end(&f);
        CHECK_EQ(h.n[1], want);
        CHECK(!memcmp(h.bytes[1], text, want));
        CHECK_EQ(h.n[0], n < LC__PRINT_HEAD ? n : 0);
    }
}

TEST(a_full_frame_and_an_invalid_one)
{
    static heard h;
    char bytes[LC__PRINT_BYTES], frame[LC__PRINT_SIZE];
    lc__prints f;
    memset(bytes, '\x1e', sizeof bytes);
    lc__print_make(frame, MARK, 2, bytes, sizeof bytes);
    begin(&f, &h);
    lc__prints_take(&f, frame, sizeof frame);
    CHECK(h.n[2] == sizeof bytes && !memcmp(h.bytes[2], bytes, sizeof bytes) && !h.n[0]);
    frame[LC__PRINT_HEAD - 1] = '\x7f'; /* more bytes than fit */
    begin(&f, &h);
    lc__prints_take(&f, frame, sizeof frame);
    CHECK(h.n[0] == sizeof frame && !memcmp(h.bytes[0], frame, sizeof frame) && !h.n[2]);
    frame[LC__PRINT_HEAD - 1] = 0;
    frame[LC__PRINT_HEAD - 3] = '\xff'; /* a negative rank */
    begin(&f, &h);
    lc__prints_take(&f, frame, sizeof frame);
    CHECK(h.n[0] == sizeof frame);
}

/* As Open MPI 4.1 and 5 write it. */
TEST(the_rank_that_mpirun_blames)
{
    static const struct {
        const char *lines[2];
        int rank, status;
    } cases[] = {
        {{"mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 6 (Aborted).\n"}, 1, 6},
        {{"prterun noticed that process rank 12 with PID 7 on node a exited on\n", "signal 9 (Killed).\n"}, 12, -1},
        {{"  Process name: [[19638,1],3]\n", "  Exit code:    7\n"}, 3, 7 << 8},
        {{"   Process name: [prterun-vm-123@1,4]\n", "   Exit code:    255\n"}, 4, 255 << 8},
        {{"  Process name: [[19638,1],3]\n", "  Process name: [[19638,1],2]\n"}, 3, -1},
        {{"  Exit code:    7\n", "  Process name: [[19638,1],3]\n"}, 3, -1},
        {{"  Process name: [[19638,1],]\n", "  Exit code:    7\n"}, -1, -1},
        {{"  Process name: x\n"}, -1, -1},
        {{"noticed that process rank\n"}, -1, -1},
        {{"\n", ""}, -1, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lc__blame b = LC__BLAMES_NOBODY;
        for (int k = 0; k < 2 && cases[i].lines[k]; k++) lc__mpirun_blames(cases[i].lines[k], &b);
        CHECK_EQ(b.rank, cases[i].rank);
        CHECK_EQ(b.status, cases[i].status);
    }
}

static void *read_slowly(void *arg)
{
    static char bytes[1 << 20];
    int from = *(int *)arg;
    ssize_t n = 0, all = 0;
    usleep(50000);
    while ((n = read(from, bytes, sizeof bytes)) > 0) all += n;
    return (void *)(intptr_t)all;
}

/* Another process that shares the pipe may have made it non-blocking. */
TEST(a_nonblocking_pipe_loses_nothing)
{
    static char bytes[300000];
    int ends[2];
    pthread_t reader;
    void *all;
    CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    CHECK(pthread_create(&reader, NULL, read_slowly, &ends[0]) == 0);
    CHECK(lc__show(ends[1], bytes, sizeof bytes));
    close(ends[1]);
    CHECK(pthread_join(reader, &all) == 0);
    close(ends[0]);
    CHECK_EQ((intptr_t)all, sizeof bytes);
    CHECK(!lc__show(ends[1], bytes, 1) && errno == EBADF);
}

TEST_MAIN
