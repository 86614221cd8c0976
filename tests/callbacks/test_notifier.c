/* SPDX-License-Identifier: Apache-2.0 */
/* Notices to a command and to a web address: their content, and what happens to those that cannot be delivered. */
#define _GNU_SOURCE /* strcasestr */
#include "core/logging/logging.h"
#include "callback_run.h"
#include "core/hooks/trainer_internal.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

static void count_text(void *context, lc_trainer *t, lc_level level, const char *text)
{
    (void)t, (void)level;
    if (strstr(text, "Notifier")) ++*(int *)context;
}

/* Notifies a command of a fit of two epochs; returns what the command wrote, and the number of warnings. */
static char *notify(run *r, const char *format, int timeout_s, int *warnings)
{
    lc_callback cb[2];
    char path[300], command[900];
    size_t n;
    run_init(r);
    snprintf(path, sizeof path, "%s/text", r->dir);
    snprintf(command, sizeof command, format, path, path);
    CHECK_OK(lc_notifier(&cb[0], .command = command,
                         .events = LC_NOTIFY_RUN_START | LC_NOTIFY_RUN_END | LC_NOTIFY_EPOCH_END | LC_NOTIFY_RUN_FAILED,
                         .timeout_s = timeout_s));
    CHECK_OK(lc_lambda_callback(&cb[1], .context = warnings, .on_message = count_text));
    *warnings = 0;
    r->m.die_after = strstr(format, "fails") ? 3 : -1;
    lc_status s = run_fit(r, cb, 2);
    CHECK_EQ(s, r->m.die_after < 0 ? LC_OK : LC_ERR_USER);
    return slurp(path, &n);
}

TEST(a_command_gets_the_notice)
{
    run r;
    int warnings;
    char *text = notify(&r, "(echo $LIGHTC_EVENT; cat; echo) >>%s", 10, &warnings);
    char *start = strstr(text, "run_start\n{"), *first = start ? strstr(start, "epoch_end\n{") : NULL;
    char *second = first ? strstr(first + 1, "epoch_end\n{") : NULL,
         *end = second ? strstr(second, "run_end\n{") : NULL;
    CHECK(start && first && second && end);
    lc_state *state;
    const lc_state *metrics;
    int64_t epoch, step;
    double loss;
    CHECK_OK(lc_state_parse(strchr(second, '{'), (size_t)(end - strchr(second, '{')), &state));
    CHECK_OK(lc_state_get_int(state, "epoch", &epoch));
    CHECK_OK(lc_state_get_int(state, "global_step", &step));
    CHECK_OK(lc_state_get_object(state, "metrics", &metrics));
    CHECK_OK(lc_state_get_double(metrics, "val_loss", &loss));
    CHECK_EQ(epoch, 1);
    CHECK_EQ(step, 12);
    CHECK_EQ(warnings, 0);
    lc_state_free(state);
    free(text);
    run_release(&r);
}

TEST(a_failure_is_notified)
{
    run r;
    int warnings;
    char *text = notify(&r, "(echo $LIGHTC_EVENT; cat; echo) >>%s # fails", 10, &warnings);
    CHECK_CONTAINS(text, "run_failed");
    CHECK_CONTAINS(text, "as if the machine had died");
    CHECK(!strstr(text, "run_end"));
    free(text);
    run_release(&r);
}

/* A command that fails, or does not end, causes one warning; the run does not wait for it. */
TEST(a_command_that_fails_causes_one_warning)
{
    run r;
    int warnings;
    free(notify(&r, "exit 3; cat >%s", 10, &warnings));
    CHECK_EQ(warnings, 1);
    run_release(&r);
    free(notify(&r, "sleep 1000 >%s", 1, &warnings));
    CHECK_EQ(warnings, 1);
    run_release(&r);
    lc_callback cb;
    CHECK_STATUS(lc_notifier_new(NULL, &cb), LC_ERR_CONFIG);
}

/* A text that fills a pipe: the command gets all of it, and one that does not read is killed after its timeout. */
static lc_status log_much(void *context, lc_trainer *t)
{
    char name[600];
    (void)context;
    for (int i = 0; i < 190; i++) {
        snprintf(name, sizeof name, "%0500d", i);
        CHECK(lc__map_slot(&t->logging->metrics[LC_CALLBACK_METRICS], name) >= 0);
    }
    return LC_OK;
}

TEST(a_long_text_is_delivered)
{
    static const char *const commands[] = {"sleep 0.2; cat >%s", "sleep 1000 >%s"};
    for (int k = 0; k < 2; k++) {
        run r;
        lc_callback cb[3];
        char path[300], command[900];
        int warnings = 0;
        size_t n;
        run_init(&r);
        snprintf(path, sizeof path, "%s/text", r.dir);
        snprintf(command, sizeof command, commands[k], path);
        CHECK_OK(lc_notifier(&cb[0], .command = command, .events = LC_NOTIFY_RUN_END, .timeout_s = k ? 1 : 30));
        CHECK_OK(lc_lambda_callback(&cb[1], .context = &warnings, .on_message = count_text));
        CHECK_OK(lc_lambda_callback(&cb[2], .on_fit_end = log_much));
        CHECK_OK(run_fit(&r, cb, 3));
        CHECK_EQ(warnings, k);
        char *text = slurp(path, &n);
        lc_state *state;
        const lc_state *metrics;
        if (k) {
            CHECK_EQ(n, 0);
        } else {
            CHECK(n > 65536);
            CHECK_OK(lc_state_parse(text, n, &state));
            CHECK_OK(lc_state_get_object(state, "metrics", &metrics));
            CHECK(lc_state_length(metrics) >= 190);
            lc_state_free(state);
        }
        free(text);
        run_release(&r);
    }
}

/* A server for `n` requests that answers `code`; `text` gets what was posted. */
typedef struct server {
    int fd, port, n;
    const char *code;
    char text[65536];
    pthread_t thread;
} server;

static void *serve(void *self)
{
    server *s = self;
    size_t at = 0;
    for (int i = 0; i < s->n; i++) {
        int c = accept(s->fd, NULL, NULL);
        char request[16384] = "", answer[128];
        size_t n = 0, body = 0;
        const char *head = NULL;
        while (n < sizeof request - 1 && (!head || n < (size_t)(head - request) + body)) {
            ssize_t got = read(c, request + n, sizeof request - 1 - n);
            if (got <= 0) break;
            n += (size_t)got;
            const char *length = strcasestr(request, "content-length:");
            if (!head && (head = strstr(request, "\r\n\r\n")))
                head += 4, body = length ? strtoul(length + 15, NULL, 10) : 0;
        }
        at += (size_t)snprintf(s->text + at, sizeof s->text - at, "%s\n", request);
        int length =
            snprintf(answer, sizeof answer, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", s->code);
        if (write(c, answer, (size_t)length) != length) s->n = 0;
        close(c);
    }
    return NULL;
}

static void server_start(server *s, const char *code, int n)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    memset(s, 0, sizeof *s);
    s->code = code;
    s->n = n;
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s->fd >= 0 && bind(s->fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(s->fd, 8) == 0);
    CHECK(getsockname(s->fd, (struct sockaddr *)&a, &size) == 0);
    s->port = ntohs(a.sin_port);
    CHECK(pthread_create(&s->thread, NULL, serve, s) == 0);
}

TEST(a_web_address_gets_the_notice)
{
    static server s;
    for (int bad = 0; bad < 2; bad++) {
        run r;
        lc_callback cb[2];
        char url[100];
        int warnings = 0;
        server_start(&s, bad ? "500 No" : "200 OK", 2);
        snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", s.port);
        lc_status made = lc_notifier(&cb[0], .url = url);
        if (made == LC_ERR_UNSUPPORTED) SKIP("there is no libcurl");
        CHECK_OK(made);
        CHECK_OK(lc_lambda_callback(&cb[1], .context = &warnings, .on_message = count_text));
        run_init(&r);
        CHECK_OK(run_fit(&r, cb, 2));
        run_release(&r);
        CHECK(pthread_join(s.thread, NULL) == 0);
        close(s.fd);
        CHECK_CONTAINS(s.text, "POST /hook HTTP/1.1");
        CHECK_CONTAINS(s.text, "\"event\": \"run_start\"");
        CHECK_CONTAINS(s.text, "\"event\": \"run_end\"");
        CHECK_EQ(warnings, bad);
    }
}

TEST_MAIN
