/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted text moves no cursor and adds no lines when it is shown: neither messages from strangers to the run, nor
 * names in files, options and the environment. */
#define _GNU_SOURCE
#include "control_run.h"
#include "scratch.h"

#include "comm/control/control_internal.h"
#include "base/crc32c.h"
#include "base/printable.h"
#include "base/str.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define EVIL  "a\033[2Jb\r\nerror: c\x7f\xc2\x9b\xff\xe2\x82\xac"
#define SHOWN "a\\x1b[2Jb\\x0d\\x0aerror: c\\x7f\\xc2\\x9b\\xff\xe2\x82\xac"

/* Whether a terminal would show the text and do nothing else. */
static bool is_plain(const char *text, bool lines)
{
    char again[32768];
    lc_printable(text, lines, again, sizeof again);
    return !strcmp(again, text);
}

TEST(control_characters_are_shown_as_numbers)
{
    static const struct {
        const char *from, *shown;
    } rows[] = {
        {"", ""},
        {"plain \\ text", "plain \\ text"},
        {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {EVIL, SHOWN},
        {"\x01\x1f\x7f", "\\x01\\x1f\\x7f"},
        {"\xc2\x80\xc2\x9f\xc2\xa0", "\\xc2\\x80\\xc2\\x9f\xc2\xa0"}, /* C1, and the first character after it */
        {"\xc0\xaf\xe0\x80\xaf", "\\xc0\\xaf\\xe0\\x80\\xaf"},        /* overlong encodings */
        {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"}, /* surrogates; too large */
        {"\xe2\x82", "\\xe2\\x82"},                                              /* cut off */
        {"\xe2\x80\xa8\xe2\x80\xa9", "\\xe2\\x80\\xa8\\xe2\\x80\\xa9"},          /* line separators */
        {"\x9b\x33\x31m", "\\x9b\x33\x31m"},
    };
    char text[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_STR(lc_printable(rows[i].from, false, text, sizeof text), rows[i].shown);
    CHECK_STR(lc_printable("a\n\tb\r", true, text, sizeof text), "a\n\tb\\x0d");
    /* for any bytes and any size the output is whole, fits, and is not changed by a second pass */
    uint64_t state = 12345;
    for (int k = 0; k < 20000; k++) {
        char from[40], out[64];
        for (size_t i = 0; i < sizeof from; i++) from[i] = (char)((state = state * 6364136223846793005u + 1) >> 40);
        from[sizeof from - 1] = 0;
        size_t room = 1 + (size_t)(state >> 33) % sizeof out, n = lc__printable(from, sizeof from, k % 2, out, room);
        CHECK(n < room && strlen(out) == n);
        if (!is_plain(out, k % 2)) TEST_FAIL("\"%s\"", out);
    }
}

TEST(errors_and_lines_are_printable)
{
    char text[4096];
    int ends[2];
    (void)!lc_fail(LC_ERR_IO, "cannot open \"%s\"", EVIL);
    CHECK_STR(lc_error_message(), "cannot open \"" SHOWN "\"");
    (void)!lc_fail_context(LC_ERR_IO, "%s of %s", "\033c", "x");
    CHECK_STR(lc_error_message(), "\\x1bc of x: cannot open \"" SHOWN "\"");
    /* messages that are passed on, and line ends that a program meant, stay */
    (void)!lc_fail(LC_ERR_USER, "one\ntwo %d", 2);
    (void)!lc_fail(LC_ERR_USER, "%s", lc_error_message());
    CHECK_STR(lc_error_message(), "one\ntwo 2");
    /* a character that does not fit is left out */
    char many[2000];
    for (size_t i = 0; i + 3 < sizeof many; i += 3) memcpy(many + i, "\xe2\x82\xac", 4);
    (void)!lc_fail(LC_ERR_USER, "%s", many);
    CHECK(strlen(lc_error_message()) == 1023 / 3 * 3 && is_plain(lc_error_message(), false));
    (void)!lc_fail_context(LC_ERR_USER, "x");
    CHECK(strlen(lc_error_message()) > 1000 && is_plain(lc_error_message(), false));
    CHECK(pipe(ends) == 0);
    lc__show_line(ends[1], "the variable %s", EVIL);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    CHECK_STR(text, "the variable " SHOWN "\n");
}

/* A rank with such a host name and the wrong secret: waiting ranks are notified of it. */
TEST(a_stranger_cannot_write_to_the_terminal)
{
    lc__coordinator *c = NULL;
    int port = 0, fd = -1;
    char who[256], refused[256] = "";
    uint8_t hello[LC__HELLO_BYTES] = {0}, got[LC__FRAME_HEAD + LC__CHALLENGE_BYTES];
    CHECK_OK(lc__coordinator_start(NULL, &port, 2, SECRET, NULL, &c));
    CHECK_OK(lc__socket_connect("127.0.0.1", port, lc__seconds() + 5, &fd));
    size_t n = 0;
    for (int i = 0; i < 500 && n < sizeof got; i++) {
        ssize_t k = recv(fd, got + n, sizeof got - n, 0);
        if (k > 0) n += (size_t)k;
        nap(0.01);
    }
    lc__wire w;
    lc__wire_init(&w, fd, 4096);
    memcpy(hello + LC__HELLO_TEXT, EVIL, sizeof EVIL);
    lc__put_u64(hello + 16, 1); /* a process */
    CHECK(lc__wire_put(&w, LC__FRAME_HELLO, hello, sizeof hello, NULL, 0) && lc__wire_flush(&w));
    for (int i = 0; i < 3000 && !*refused; i++) { /* it comes after five seconds */
        if (!lc__coordinator_waits(c, who, refused)) *refused = 0;
        nap(0.01);
    }
    CHECK_CONTAINS(refused, "(host a\\x1b[2Jb\\x0d\\x0aerror: c\\x7f\\xc2\\x9b\\xff\xe2\x82\xac) was rejected");
    lc__wire_release(&w);
    lc__coordinator_stop(c);
}

/* A program that pretends to be the coordinator. */
static void *refuse(void *arg)
{
    int fd = -1;
    uint8_t data[LC__CHALLENGE_BYTES] = {0}, got[1024];
    for (int i = 0; i < 2000 && fd < 0; i++) fd = lc__socket_accept(*(int *)arg, NULL), nap(0.001);
    lc__wire w;
    lc__wire_init(&w, fd, 4096);
    lc__put_u32(data, LC__CONTROL_VERSION);
    lc__put_u32(data + 4, lc__proof_reveals());
    (void)lc__wire_put(&w, LC__FRAME_CHALLENGE, data, sizeof data, NULL, 0);
    (void)lc__wire_put(&w, LC__FRAME_REFUSED, EVIL, sizeof EVIL - 1, NULL, 0);
    (void)lc__wire_flush(&w);
    for (int i = 0; i < 2000 && recv(fd, got, sizeof got, 0) != 0; i++) nap(0.001);
    lc__wire_release(&w);
    return NULL;
}

TEST(an_impostor_cannot_write_to_the_terminal)
{
    int port = 0, fd = -1;
    pthread_t thread;
    CHECK_OK(lc__socket_listen(NULL, &port, &fd));
    CHECK(pthread_create(&thread, NULL, refuse, &fd) == 0);
    lc__control_args o = {.rank = 1, .size = 2, .address = "127.0.0.1", .port = port, .secret = SECRET};
    CHECK_STATUS(lc__control_open(&o, &(lc__control *){NULL}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "refused rank 1: " SHOWN);
    pthread_join(thread, NULL);
    close(fd);
}

static void write_file(const char *dir, const char *name, const void *data, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* A checkpoint from somebody else. */
static void write_evil(const char *dir, const char *more)
{
    char tensors[300], manifest[1200];
    int n =
        8 + snprintf(tensors + 8, sizeof tensors - 8,
                     "{\"w\\u001b[2J\\n\\u009bx%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", more);
    static const char state[] = "{\"hyper_parameters\": {\"k\\u001b\\n\\u0085\": \"v\\u007f\\u0090\"}}";
    while (n % 8) tensors[n++] = ' ';
    const uint64_t head = (uint64_t)n - 8;
    memcpy(tensors, &head, 8);
    memset(tensors + n, 0, 4), n += 4;
    CHECK(mkdir(dir, 0777) == 0);
    write_file(dir, "model.safetensors", tensors, (size_t)n);
    write_file(dir, "state.json", state, sizeof state - 1);
    int k =
        snprintf(manifest, sizeof manifest,
                 "{\n  \"format\": \"lightc checkpoint\",\n  \"version\": 1,\n  \"lightc\": \"0.1.0\",\n  "
                 "\"saved_ns\": 1763690400000000000,\n  \"files\": [{\"name\": \"model.safetensors\", \"size\": %d, "
                 "\"crc32c\": \"%08x\"}, {\"name\": \"state.json\", \"size\": %d, \"crc32c\": \"%08x\"}],\n",
                 n, (unsigned)lc__crc32c(0, tensors, (size_t)n), (int)sizeof state - 1,
                 (unsigned)lc__crc32c(0, state, sizeof state - 1));
    k += snprintf(manifest + k, sizeof manifest - (size_t)k, "  \"crc32c\": \"%08x\"\n}\n",
                  (unsigned)lc__crc32c(0, manifest, (size_t)k));
    write_file(dir, "manifest.json", manifest, (size_t)k);
}

TEST(a_checkpoint_cannot_write_to_the_terminal)
{
    static const struct {
        const char *command, *says;
    } rows[] = {{"ckpt inspect %s", "w\\x1b[2J\\x0a\\xc2\\x9bx"},
                {"ckpt inspect --json %s", "\"w\\u001b[2J\\n\\u009bx\""},
                {"ckpt diff %s %s", "w\\x1b[2J\\x0a\\xc2\\x9bx"}};
    char path[400], other[400], command[1600], arguments[1200], text[8192];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    if (!bin) SKIP("LIGHTC_TEST_BIN is not set");
    const char *dir = fresh_dir("evil");
    snprintf(path, sizeof path, "%s/one", dir), snprintf(other, sizeof other, "%s/other", dir);
    write_evil(path, ""), write_evil(other, "y");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const char *both[] = {path, other};
        size_t n = 0, at = 0;
        for (const char *c = rows[k].command; *c; c++) {
            if (*c != '%') arguments[n++] = *c;
            if (*c == '%') n += (size_t)snprintf(arguments + n, sizeof arguments - n, "%s", both[at++]), c++;
        }
        arguments[n] = 0;
        snprintf(command, sizeof command, "%s/lightc %s 2>&1", bin, arguments);
        FILE *p = popen(command, "r");
        size_t got = p ? fread(text, 1, sizeof text - 1, p) : 0;
        text[got] = 0;
        if (p) pclose(p);
        CHECK_CONTAINS(text, rows[k].says);
        if (!is_plain(text, true)) TEST_FAIL("%s: %s", rows[k].command, text);
    }
}

TEST(the_environment_cannot_write_to_the_terminal)
{
    setenv("WORLD_SIZE", "2\033[31m", 1);
    setenv("RANK", "0", 1), setenv("MASTER_ADDR", "127.0.0.1", 1);
    lc_comm *c = NULL;
    CHECK(lc_comm_world(&c) < 0);
    CHECK(is_plain(lc_error_message(), false) && strstr(lc_error_message(), "\\x1b[31m"));
    unsetenv("WORLD_SIZE"), unsetenv("RANK"), unsetenv("MASTER_ADDR");
}

TEST_MAIN
