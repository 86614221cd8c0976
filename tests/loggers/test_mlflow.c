/* SPDX-License-Identifier: Apache-2.0 */
/* The MLflow logger: lines that become requests; a server that is away, refuses, hangs or comes back (this test's own,
 * over real sockets); and MLflow itself, if a Python has it. */
#define _GNU_SOURCE
#include "test.h"
#include "free_port.h"
#include "log_everything.h"
#include "peer_python.h"
#include "scratch.h"
#include "base/http.h"
#include "loggers/mlflow_api.h"
#include "loggers/writer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

__attribute__((constructor)) static void set_environment(void)
{
    setenv("no_proxy", "127.0.0.1", 1);
    unsetenv("MLFLOW_TRACKING_URI");
    unsetenv("MLFLOW_EXPERIMENT_NAME");
}

/* ---- MLflow's answers, as far as this client asks ---- */

typedef struct fake {
    pthread_mutex_t lock;
    char asked[1 << 16]; /* "METHOD path body|" */
    size_t n;
    bool has_experiment, has_run;
    const char *refuse;      /* paths that contain this get `code` */
    const char *refuse_body; /* ... if the body contains this too */
    int code;
    const char *says; /* instead of every answer */
} fake;

static int fake_answer(fake *f, const char *method, const char *path, const char *body, size_t n, char *out,
                       size_t size)
{
    int code = 200;
    pthread_mutex_lock(&f->lock);
    int wrote =
        snprintf(f->asked + f->n, sizeof f->asked - f->n, "%s %s %.*s|", method, path, (int)n, body ? body : "");
    f->n += (size_t)wrote;
    if (f->n >= sizeof f->asked) f->n = 0;
    snprintf(out, size, "{}");
    if (f->refuse && strstr(path, f->refuse) &&
        (!f->refuse_body || (body && memmem(body, n, f->refuse_body, strlen(f->refuse_body))))) {
        code = f->code;
        snprintf(out, size, "{\"error_code\":\"X\",\"message\":\"not so\"}");
    } else if (strstr(path, "experiments/get-by-name")) {
        if (f->has_experiment)
            snprintf(out, size, "{\"experiment\":{\"experiment_id\":\"7\",\"name\":\"lightning_logs\"}}");
        else
            code = 404;
    } else if (strstr(path, "experiments/create")) {
        f->has_experiment = true;
        snprintf(out, size, "{\"experiment_id\":\"7\"}");
    } else if (strstr(path, "runs/search") && f->has_run) {
        snprintf(out, size,
                 "{\"runs\":[{\"info\":{\"run_id\":\"r1\",\"artifact_uri\":\"mlflow-artifacts:/7/r1/artifacts\"}}]}");
    } else if (strstr(path, "runs/create")) {
        f->has_run = true;
        snprintf(
            out, size,
            "{\"run\":{\"info\":{\"run_id\":\"r1\",\"artifact_uri\":\"mlflow-artifacts://host:80/7/r1/artifacts\"}}}");
    }
    pthread_mutex_unlock(&f->lock);
    return code;
}

static lc_status fake_call(void *ctx, const char *method, const char *path, const char *body, size_t n,
                           const char *body_file, int *code, lc__str *answer)
{
    char text[512];
    fake *f = ctx;
    if (f->code < 0 && f->refuse && strstr(path, f->refuse)) return lc_fail(LC_ERR_IO, "no connection");
    *code = fake_answer(f, method, path, body_file ? body_file : body, body_file ? strlen(body_file) : n, text,
                        sizeof text);
    lc__str_clear(answer);
    lc__str_add(answer, "%s", f->says ? f->says : text);
    return LC_OK;
}

/* ---- lines become requests ---- */

#define START "{\"type\":\"start\",\"time\":1.5,\"run_id\":\"run-1\",\"version\":3,\"run_dir\":\"/d\"}\n"

static fake made(void)
{
    return (fake){.lock = PTHREAD_MUTEX_INITIALIZER};
}

static lc__mlflow client_of(fake *f)
{
    return (lc__mlflow){.call = fake_call, .ctx = f, .experiment = "a b", .log_model = true};
}

static void send_ok(lc__mlflow *m, const char *lines)
{
    size_t done;
    CHECK_OK(lc__mlflow_send(m, lines, strlen(lines), &done));
    CHECK_EQ(done, strlen(lines));
}

TEST(a_run_is_made_once)
{
    fake f = made();
    lc__mlflow m = client_of(&f);
    send_ok(&m, START);
    CHECK_STR(
        f.asked,
        "GET /api/2.0/mlflow/experiments/get-by-name?experiment_name=a%20b |"
        "POST /api/2.0/mlflow/experiments/create {\"name\":\"a b\"}|"
        "POST /api/2.0/mlflow/runs/search "
        "{\"max_results\":1,\"experiment_ids\":[\"7\"],\"filter\":\"tags.`lightc.run_id` "
        "= 'run-1'\"}|"
        "POST /api/2.0/mlflow/runs/create {\"experiment_id\":\"7\",\"run_name\":\"version_3\",\"start_time\":1500,"
        "\"tags\":[{\"key\":\"lightc.run_id\",\"value\":\"run-1\"},{\"key\":\"lightc.run_dir\",\"value\":\"/d\"}]}|");
    CHECK_STR(m.artifacts, "7/r1/artifacts");
    f.n = 0;
    send_ok(&m, START); /* the same again, as after a crash: it is found */
    CHECK_CONTAINS(f.asked, "runs/update {\"run_id\":\"r1\",\"status\":\"RUNNING\"}|");
    CHECK(!strstr(f.asked, "create"));
    lc__mlflow_release(&m);
}

TEST(rows_are_batched_in_order)
{
    fake f = made();
    lc__mlflow m = client_of(&f);
    send_ok(&m, START);
    f.n = 0;
    send_ok(&m, "{\"type\":\"row\",\"time\":2.25,\"step\":4,\"epoch\":1,\"values\":{\"a\":0.5,\"b, c\":\"nan\"}}\n"
                "{\"type\":\"row\",\"time\":3,\"step\":5,\"values\":{\"a\":\"-inf\",\"epoch\":2}}\n"
                "{\"type\":\"message\",\"time\":3,\"level\":\"info\",\"text\":\"x\"}\n"
                "{\"type\":\"row\",\"time\":3,\"step\":6,\"values\":{\"a\":1e-05}}\n"
                "{\"type\":\"finish\",\"time\":4,\"status\":\"failed\"}\n"
                "{\"type\":\"something new\",\"time\":4}\n");
    CHECK_STR(f.asked, "POST /api/2.0/mlflow/runs/log-batch {\"run_id\":\"r1\",\"metrics\":["
                       "{\"key\":\"a\",\"value\":0.5,\"timestamp\":2250,\"step\":4},"
                       "{\"key\":\"b_ c\",\"value\":\"NaN\",\"timestamp\":2250,\"step\":4},"
                       "{\"key\":\"epoch\",\"value\":1.0,\"timestamp\":2250,\"step\":4},"
                       "{\"key\":\"a\",\"value\":\"-Infinity\",\"timestamp\":3000,\"step\":5},"
                       "{\"key\":\"epoch\",\"value\":2.0,\"timestamp\":3000,\"step\":5}]}|"
                       "POST /api/2.0/mlflow/runs/log-batch {\"run_id\":\"r1\",\"metrics\":["
                       "{\"key\":\"a\",\"value\":1e-05,\"timestamp\":3000,\"step\":6}]}|"
                       "POST /api/2.0/mlflow/runs/update {\"run_id\":\"r1\",\"status\":\"FAILED\",\"end_time\":4000}|");
    CHECK(m.finished);
    lc__mlflow_release(&m);
}

TEST(delivered_lines_are_counted)
{
    fake f = made();
    lc__mlflow m = client_of(&f);
    static char lines[1 << 18];
    size_t n = (size_t)snprintf(lines, sizeof lines, "%s", START), done, head = n;
    for (int i = 0; i < 2000; i++)
        n += (size_t)snprintf(lines + n, sizeof lines - n,
                              "{\"type\":\"row\",\"time\":1,\"step\":%d,\"values\":{\"a\":1}}\n", i);
    f.refuse = "log-batch", f.code = 503;
    CHECK_STATUS(lc__mlflow_send(&m, lines, n, &done), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "answered /api/2.0/mlflow/runs/log-batch with status 503: not so");
    CHECK_EQ(done, head);
    /* From then on, when the server is back: every row once. */
    f.refuse = NULL, f.n = 0;
    size_t more;
    CHECK_OK(lc__mlflow_send(&m, lines + done, n - done, &more));
    CHECK_EQ(done + more, n);
    CHECK_EQ(m.refused, 0);
    /* No connection while the run is looked up: nothing is done. */
    f.refuse = "get-by-name", f.code = -1;
    CHECK_STATUS(lc__mlflow_send(&m, lines, n, &done), LC_ERR_IO);
    CHECK_EQ(done, 0);
    lc__mlflow_release(&m);
}

TEST(refused_values_are_left_out)
{
    fake f = made();
    lc__mlflow m = client_of(&f);
    send_ok(&m, START);
    f.n = 0, f.refuse = "log-batch", f.refuse_body = "\"lr\"", f.code = 400;
    send_ok(&m, "{\"type\":\"hparams\",\"time\":1,\"values\":{\"a\":true,\"lr\":0.001,\"c\":null,\"d\":\"\\u00e9\","
                "\"e\":7,\"f\":\"inf\"}}\n");
    CHECK_EQ(m.refused, 1); /* only lr; all others got through */
    CHECK_CONTAINS(m.refusal, "with status 400: not so");
    CHECK_CONTAINS(f.asked, "\"params\":[{\"key\":\"a\",\"value\":\"True\"}]}|");
    CHECK_CONTAINS(f.asked, "\"params\":[{\"key\":\"c\",\"value\":\"None\"}]}|");
    CHECK_CONTAINS(
        f.asked,
        "{\"key\":\"d\",\"value\":\"\xc3\xa9\"},{\"key\":\"e\",\"value\":\"7\"},{\"key\":\"f\",\"value\":\"inf\"}]}|");
    /* Values are cut at 250 characters, not bytes. */
    static char line[4096], want[2048];
    size_t n = (size_t)snprintf(line, sizeof line, "{\"type\":\"hparams\",\"time\":1,\"values\":{\"x\":\""), k = 0;
    for (int i = 0; i < 400; i++) n += (size_t)snprintf(line + n, sizeof line - n, "\xe2\x82\xac");
    snprintf(line + n, sizeof line - n, "\"}}\n");
    for (int i = 0; i < 250; i++) k += (size_t)snprintf(want + k, sizeof want - k, "\xe2\x82\xac");
    snprintf(want + k, sizeof want - k, "\"}]}|");
    f.n = 0;
    send_ok(&m, line);
    CHECK_CONTAINS(f.asked, want);
    /* Invalid lines do not stop the others. */
    m.refused = 0, f.n = 0;
    send_ok(&m, "{\"type\":\"row\"\n[]\n{}\nnonsense\n{\"type\":\"text\",\"step\":2,\"name\":\"../"
                "a\",\"text\":\"hi\",\"time\":0}\n");
    CHECK_EQ(m.refused, 2);
    CHECK_STR(f.asked, "PUT /api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/texts/_./a/2.txt hi|");
    lc__mlflow_release(&m);
}

/* cJSON reads the answers: bad ones cost neither the process nor the run's lines. */
TEST(invalid_answers)
{
    enum { LONG = 200000 };
    static char deep[LONG + 1], twice[LONG + 1];
    size_t n = 0, done;
    memset(deep, '[', LONG);
    n += (size_t)snprintf(twice, sizeof twice, "{\"experiment\":{");
    for (int i = 0; i < 9000; i++) n += (size_t)snprintf(twice + n, sizeof twice - n, "\"a\":%d,", i);
    snprintf(twice + n, sizeof twice - n, "\"experiment_id\":\"7\"}}");
    const struct {
        const char *says, *message;
    } answers[] = {
        {"<html>", "this is not an MLflow server: its answer is not JSON"},
        {"", "this is not an MLflow server: its answer is not JSON"},
        {deep, "this is not an MLflow server: its answer is not JSON"},
        {"{\"experiment\":{\"experiment_id\":\"\xff\"}}", "this is not an MLflow server: its answer is not JSON"},
        {"{\"experiment\":{\"experiment_id\":1e999999}}", "cannot get or create experiment"},
        {"{\"experiment\":[[[]]]}", "cannot get or create experiment"},
        {"[]", "cannot get or create experiment"},
        {"null", "cannot get or create experiment"},
        {twice, "cannot create a run"}, /* an experiment, and no run */
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        fake f = made();
        lc__mlflow m = client_of(&f);
        f.has_experiment = true, f.says = answers[i].says;
        CHECK_STATUS(lc__mlflow_send(&m, START, strlen(START), &done), LC_ERR_IO);
        CHECK_EQ(done, 0);
        CHECK_CONTAINS(lc_error_message(), answers[i].message);
        lc__mlflow_release(&m);
    }
}

TEST(numbers_arrive_unchanged)
{
    fake f = made();
    lc__mlflow m = client_of(&f);
    send_ok(&m, START);
    f.n = 0;
    send_ok(&m, "{\"type\":\"row\",\"time\":1,\"step\":9007199254740993,\"values\":{\"x\":0.1,\"y\":1e-300}}\n");
    CHECK_CONTAINS(f.asked, "{\"key\":\"x\",\"value\":0.1,\"timestamp\":1000,\"step\":9007199254740993},"
                            "{\"key\":\"y\",\"value\":1e-300,");
    lc__mlflow_release(&m);
}

TEST(files_of_checkpoints)
{
    char path[400], line[600];
    const char *dir = fresh_dir("ckpt");
    fake f = made();
    lc__mlflow m = client_of(&f);
    send_ok(&m, START);
    f.n = 0;
    snprintf(path, sizeof path, "%s/state.json", dir);
    CHECK_OK(lc__create_file(&lc__io_system, path, "{}", 2));
    snprintf(line, sizeof line, "{\"type\":\"checkpoint\",\"time\":1,\"step\":2,\"path\":\"%s\"}\n", dir);
    send_ok(&m, line);
    CHECK_CONTAINS(f.asked, "runs/set-tag {\"run_id\":\"r1\",\"key\":\"lightc.checkpoint\",\"value\":\"/");
    CHECK_CONTAINS(f.asked, "/checkpoints/ckpt/state.json /");
    send_ok(&m, "{\"type\":\"checkpoint\",\"time\":1,\"step\":2,\"path\":\"/nonexistent\"}\n"); /* removed meanwhile */
    lc__mlflow_release(&m);
}

/* ---- over sockets ---- */

typedef struct server {
    fake f;
    int fd, port;
    pthread_t thread;
    atomic_bool stop, hang;
} server;

/* One connection after another, with one request on each. */
static void *serve(void *arg)
{
    server *s = arg;
    while (!atomic_load(&s->stop)) {
        static char text[1 << 18];
        size_t n = 0, length = 0;
        char method[16], path[1024], answer[512], head[256];
        int c = accept(s->fd, NULL, NULL);
        if (c < 0) continue;
        struct timeval limit = {2, 0};
        setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        while (atomic_load(&s->hang) && !atomic_load(&s->stop)) pause_ms(5);
        char *body = NULL;
        while (n < sizeof text - 1) {
            ssize_t got = recv(c, text + n, sizeof text - 1 - n, 0);
            if (got <= 0) break;
            n += (size_t)got;
            text[n] = 0;
            if (!body && (body = strstr(text, "\r\n\r\n"))) {
                char *at = strcasestr(text, "Content-Length:");
                body += 4;
                length = at && at < body ? strtoul(at + 15, NULL, 10) : 0;
            }
            if (body && (size_t)(text + n - body) >= length) break;
        }
        if (body && sscanf(text, "%15s %1023s", method, path) == 2) {
            int code = fake_answer(&s->f, method, path, body, length, answer, sizeof answer);
            int h = snprintf(
                head, sizeof head,
                "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                code, strlen(answer));
            if (send(c, head, (size_t)h, MSG_NOSIGNAL) > 0) send(c, answer, strlen(answer), MSG_NOSIGNAL);
        }
        close(c);
    }
    return NULL;
}

static void server_start(server *s, int port)
{
    int yes = 1;
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *s = (server){.f = made(), .port = port};
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct timeval limit = {0, 50000};
    setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    CHECK(!bind(s->fd, (struct sockaddr *)&a, sizeof a) && !listen(s->fd, 16));
    CHECK(!pthread_create(&s->thread, NULL, serve, s));
}

/* Whether it was asked for something; callable while it runs. */
static bool was_asked(server *s, const char *what)
{
    pthread_mutex_lock(&s->f.lock);
    bool was = strstr(s->f.asked, what) != NULL;
    pthread_mutex_unlock(&s->f.lock);
    return was;
}

static void server_stop(server *s)
{
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    close(s->fd);
}

/* Called before forking: a child that skips would continue with the other tests. */
static void need_http(void)
{
    lc__http *http;
    if (lc__http_new(&http) < 0) SKIP("there is no libcurl");
    lc__http_free(http);
}

static lc_logger start(const char *dir, const char *run_id, int port)
{
    static char run_dir[400];
    char name[64];
    lc_logger l;
    snprintf(name, sizeof name, "mlflow:http://127.0.0.1:%d/", port);
    snprintf(run_dir, sizeof run_dir, "%s/lightning_logs/version_3", dir);
    lc_run_info run = {.root_dir = dir, .name = "lightning_logs", .run_dir = run_dir, .version = 3, .run_id = run_id};
    CHECK_OK(lc_logger_new(name, &l));
    CHECK_OK(l.ops->start(l.self, &run));
    return l;
}

static lc_status row(lc_logger l, int64_t step)
{
    lc_metric_value v = {"x", (double)step};
    return l.ops->log_row(l.self, &(lc_log_row){&v, 1, step, 0, EVERYTHING_NS + step * 1000000});
}

static int spools(const char *dir)
{
    char path[400];
    int n = 0;
    snprintf(path, sizeof path, "%s/mlflow-spool", dir);
    DIR *d = opendir(path);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) n += *e->d_name != '.';
    closedir(d);
    return n;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++) n++;
    return n;
}

TEST(addresses)
{
    lc_logger l;
    CHECK_STATUS(lc_logger_new("mlflow", &l), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "--logger mlflow:ADDRESS, or MLFLOW_TRACKING_URI");
    CHECK_STATUS(lc_logger_new("mlflow:sqlite:///x.db", &l), LC_ERR_CONFIG);
}

TEST(a_run_over_http)
{
    need_http();
    const char *dir = fresh_dir("http");
    server s;
    server_start(&s, free_port());
    lc_logger l = start(dir, "run-1", s.port);
    log_everything(l);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    server_stop(&s);
    CHECK_EQ(spools(dir), 0);
    CHECK_EQ(count(s.f.asked, "runs/create"), 1);
    CHECK_EQ(count(s.f.asked, "\"key\":\"train_loss\""), 3);
    CHECK_CONTAINS(s.f.asked, "PUT /api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/images/picture/8.png \x89PNG");
    CHECK_CONTAINS(s.f.asked, "\"status\":\"FINISHED\"");
}

/* The server is away at first, and comes back: during the run; never; for the next run. */
TEST(a_server_that_is_away)
{
    need_http();
    const char *dir = fresh_dir("away");
    int port = free_port(), warnings = 0, tries = 0;
    lc_logger l = start(dir, "run-1", port);
    for (int i = 0; i < 50; i++) {
        warnings += row(l, i) < 0;
        pause_ms(2);
    }
    lc_status status = l.ops->flush(l.self); /* the row is safe on disk */
    CHECK_OK(status);
    do {
        warnings += row(l, 50) < 0; /* a failure that another thread has noticed */
        pause_ms(5);
    } while (!warnings && ++tries < 4000);
    if (warnings) CHECK_CONTAINS(lc_error_message(), "values are kept in");
    CHECK_EQ(warnings, 1);
    server s;
    server_start(&s, port);
    for (int i = 0; i < 400 && !was_asked(&s, "\"step\":50}"); i++) {
        CHECK_OK(row(l, 51 + i));
        pause_ms(50);
    }
    server_stop(&s);
    CHECK_CONTAINS(s.f.asked, "\"step\":50}");
    s.f.n = 0, *s.f.asked = 0;
    CHECK_OK(row(l, 1000));
    CHECK_STATUS(l.ops->finish(l.self, "success"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "are kept in");
    l.ops->free(l.self);
    CHECK_EQ(spools(dir), 1);
    /* Another run, for another server: it is not touched. Then one for this server. */
    server t;
    server_start(&t, free_port());
    l = start(dir, "run-2", t.port);
    CHECK_OK(row(l, 1));
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    server_stop(&t);
    CHECK_EQ(spools(dir), 1);
    CHECK(!strstr(t.f.asked, "\"step\":1000}"));
    server_start(&s, port);
    l = start(dir, "run-3", port);
    CHECK_OK(row(l, 2000));
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    server_stop(&s);
    CHECK_EQ(spools(dir), 0);
    CHECK_EQ(count(s.f.asked, "\"step\":1000}"), 2); /* x, epoch */
    CHECK_EQ(count(s.f.asked, "\"step\":2000}"), 2);
    CHECK(!strstr(s.f.asked, "KILLED"));
}

TEST(a_run_that_was_killed_is_sent_by_the_next)
{
    need_http();
    const char *dir = fresh_dir("killed");
    int port = free_port(), how;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        lc_logger l = start(dir, "run-1", port);
        for (int i = 0; i < 100; i++)
            if (row(l, i) < 0) continue; /* the server is away, which is reported once */
        if (l.ops->flush(l.self) < 0) _exit(1);
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how));
    CHECK_EQ(spools(dir), 1);
    char path[400]; /* a file that is not a spool is neither sent nor removed, with a complete line or without */
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/mlflow-spool/notes%d.jsonl", dir, i);
        CHECK_OK(lc__create_file(&lc__io_system, path, "precious\n", i ? 9 : 8));
    }
    server s;
    server_start(&s, port);
    lc_logger l = start(dir, "run-2", port);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    server_stop(&s);
    CHECK_EQ(spools(dir), 2);
    for (int i = 0; i < 2; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/mlflow-spool/notes%d.jsonl", dir, i);
        CHECK(stat(path, &st) == 0 && st.st_size == (i ? 9 : 8));
    }
    CHECK_CONTAINS(s.f.asked, "\"step\":99}");
    CHECK_CONTAINS(s.f.asked, "\"status\":\"KILLED\"");
}

/* Although the run's only warning was that the server was away. */
TEST(a_late_refusal_is_reported_at_the_end)
{
    need_http();
    const char *dir = fresh_dir("later");
    int port = free_port(), warnings = 0;
    lc_logger l = start(dir, "run-1", port);
    for (int i = 0; i < 4000 && !warnings; i++) {
        warnings += row(l, i) < 0;
        pause_ms(5);
    }
    CHECK_EQ(warnings, 1);
    CHECK_CONTAINS(lc_error_message(), "values are kept in");
    server s;
    server_start(&s, port);
    s.f.refuse = "log-batch", s.f.code = 400;
    CHECK_STATUS(l.ops->finish(l.self, "success"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "refused and dropped");
    CHECK_CONTAINS(lc_error_message(), "not so");
    l.ops->free(l.self);
    server_stop(&s);
    CHECK_EQ(spools(dir), 0);
}

/* A server that accepts connections but does not answer: rows cost what they always cost. */
TEST(a_server_that_hangs_blocks_nothing)
{
    need_http();
    const char *dir = fresh_dir("hangs");
    server s;
    server_start(&s, free_port());
    atomic_store(&s.hang, true);
    lc_logger l = start(dir, "run-1", s.port);
    double slowest = 0, begin = seconds();
    for (int i = 0; i < 400; i++) {
        double a = seconds();
        CHECK_OK(row(l, i));
        double took = seconds() - a;
        if (took > slowest) slowest = took;
        pause_ms(2);
    }
    printf("  slowest row of 400 in %.1f s: %.0f us\n", seconds() - begin, slowest * 1e6);
    CHECK(slowest < patience(0.5)); /* far less than the server's ten seconds; a busy machine is slower */
    atomic_store(&s.hang, false);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    server_stop(&s);
    CHECK_CONTAINS(s.f.asked, "\"step\":399}");
}

TEST(refusals_of_a_server_are_reported)
{
    need_http();
    const char *dir = fresh_dir("refuses");
    server s;
    server_start(&s, free_port());
    s.f.refuse = "log-batch", s.f.code = 400;
    lc_logger l = start(dir, "run-1", s.port);
    CHECK_OK(row(l, 1));
    CHECK_STATUS(l.ops->finish(l.self, "success"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "not so; that request was dropped");
    l.ops->free(l.self);
    server_stop(&s);
    CHECK_EQ(spools(dir), 0);
}

/* ---- MLflow itself ---- */

extern char **environ;

TEST(mlflow_has_it)
{
    need_http();
    const char *python = peer_python("mlflow, fastapi, PIL");
    if (!python) SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with mlflow and pillow");
    char dir[300], store[400], artifacts[400], number[16], command[2048], url[64], file[500];
    snprintf(dir, sizeof dir, "%s", fresh_dir("real"));
    int port = free_port(), how;
    /* A run that is killed before the server exists. */
    setenv("MLFLOW_EXPERIMENT_NAME",
           "a study, \xc3\xbc"
           "ber all",
           1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        lc_logger l = start(dir, "run-2", port);
        for (int i = 0; i < 100; i++)
            if (row(l, i) < 0) continue;
        if (l.ops->flush(l.self) < 0) _exit(1);
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &how, 0) == child && WIFSIGNALED(how));
    snprintf(store, sizeof store, "sqlite:///%s/mlflow.db", dir);
    snprintf(artifacts, sizeof artifacts, "%s/artifacts", dir);
    snprintf(number, sizeof number, "%d", port);
    setenv("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false", 1);
    setenv("MLFLOW_DISABLE_TELEMETRY", "true", 1);
    const char *argv[] = {python,
                          "-m",
                          "mlflow",
                          "server",
                          "--host",
                          "127.0.0.1",
                          "--port",
                          number,
                          "--workers",
                          "1",
                          "--backend-store-uri",
                          store,
                          "--artifacts-destination",
                          artifacts,
                          NULL};
    /* In a process group, which is killed together with the workers that it starts. */
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawn_file_actions_init(&actions);
    snprintf(file, sizeof file, "%s/server.log", dir);
    posix_spawn_file_actions_addopen(&actions, 1, file, O_WRONLY | O_CREAT, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t server_pid;
    CHECK(!posix_spawn(&server_pid, python, &actions, &attributes, (char *const *)(uintptr_t)argv, environ));
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    lc__http *http;
    lc__str answer = {0};
    int code = 0;
    CHECK_OK(lc__http_new(&http));
    snprintf(url, sizeof url, "http://127.0.0.1:%d/health", port);
    lc__http_request health = {.method = "GET", .url = url, .timeout_s = 5};
    double until = seconds() + 300;
    while (seconds() < until && (lc__http_call(http, &health, &code, &answer) < 0 || code != 200)) pause_ms(200);
    lc__http_free(http);
    lc__str_free(&answer);
    int failed = 1;
    if (code == 200) {
        char ckpt[400];
        snprintf(ckpt, sizeof ckpt, "%s/epoch=0-step=1.ckpt", dir);
        CHECK(!mkdir(ckpt, 0777));
        snprintf(file, sizeof file, "%s/state.json", ckpt);
        CHECK_OK(lc__create_file(&lc__io_system, file, "{}", 2));
        lc_logger l;
        snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
        CHECK_OK(lc_mlflow_logger_new(&l, .tracking_uri = url, .log_model = true));
        lc_run_info run = {.root_dir = dir, .name = "lightning_logs", .run_dir = dir, .version = 3, .run_id = "run-1"};
        CHECK_OK(l.ops->start(l.self, &run));
        log_everything(l);
        CHECK_OK(l.ops->log_checkpoint(l.self, ckpt, 1, 0, false));
        lc_status ended = l.ops->finish(l.self, "success");
        if (ended < 0) printf("  %s\n", lc_error_message());
        l.ops->free(l.self);
        snprintf(command, sizeof command,
                 "'%s' '%s/tests/peers/read_mlflow.py' %s >'%s/said' 2>&1 || { cat '%s/said'; false; }", python,
                 test_source_dir(), url, dir, dir);
        failed = system(command) || ended < 0 || spools(dir);
    }
    kill(-server_pid, SIGTERM);
    waitpid(server_pid, &how, 0);
    unsetenv("MLFLOW_EXPERIMENT_NAME");
    if (code != 200) SKIP("the MLflow server did not start within five minutes");
    CHECK(!failed);
}

TEST_MAIN
