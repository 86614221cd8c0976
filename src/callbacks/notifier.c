/* SPDX-License-Identifier: Apache-2.0 */
/* Notifier: sends the events of a run to a command or a web address, as JSON.
 *
 * A thread delivers; the training thread only queues the texts. A failed delivery is not repeated; the first failure is
 * reported. At its end a run waits for the last deliveries, each of which has a time limit. */
#include "core/logging/logging.h"
#include "callbacks/callbacks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "base/http.h"
#include "base/spawn.h"

enum { QUEUE = 32 };

typedef struct notice {
    const char *event; /* static */
    char *json;
} notice;

typedef struct notifier {
    lc_notifier_args a;
    char *command, *url;
    lc__http *http;
    pthread_t thread;
    bool running;
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    notice queue[QUEUE];
    int first, n;
    bool closing;
    char failure[512]; /* "": none to report */
    /* Used by the training thread. */
    bool warned, failed;
} notifier;

extern char **environ;

/* ---- delivery ---- */

/* The environment with LIGHTC_EVENT=event in front; freed with free(). */
static char **environment(char *event_entry)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **e = calloc(n + 2, sizeof *e);
    if (!e) return NULL;
    e[0] = event_entry;
    size_t k = 1;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "LIGHTC_EVENT=", 13) != 0) e[k++] = environ[i];
    return e;
}

/* Writes some of the text. When all of it is written, or the command stops reading, closes *in and sets it to -1. */
static void write_some(int *in, const char **at)
{
    ssize_t n = **at ? write(*in, *at, strlen(*at)) : 0;
    if (n > 0) *at += n;
    if (**at && (n >= 0 || errno == EAGAIN || errno == EINTR)) return;
    close(*in);
    *in = -1;
}

/* Writes the text to the command and waits for its exit, both within the time limit. */
static lc_status write_and_wait(pid_t pid, int in, const notice *m, int timeout_s)
{
    int64_t until = lc__now_ns() + (int64_t)timeout_s * 1000000000;
    const char *at = m->json;
    int how = 0;
    pid_t got = 0;
    bool killed = false;
    while (got != pid) {
        if (in >= 0) write_some(&in, &at);
        got = waitpid(pid, &how, WNOHANG);
        if (got < 0 && errno != EINTR) break;
        if (got != pid && !killed && lc__now_ns() > until) killed = kill(-pid, SIGKILL) == 0;
        if (got != pid) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    int why = errno;
    if (in >= 0) close(in);
    if (got != pid) return lc_fail(LC_ERR_IO, "cannot wait for the command: %s", strerror(why));
    if (killed)
        return lc_fail(LC_ERR_IO, "the command for %s did not exit within %d s and was killed", m->event, timeout_s);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return LC_OK;
    return WIFEXITED(how) ? lc_fail(LC_ERR_IO, "the command for %s exited with status %d", m->event, WEXITSTATUS(how))
                          : lc_fail(LC_ERR_IO, "the command for %s was killed by signal %d", m->event, WTERMSIG(how));
}

static lc_status run_command(const notifier *s, const notice *m)
{
    char entry[64];
    pid_t pid;
    int in;
    snprintf(entry, sizeof entry, "LIGHTC_EVENT=%s", m->event);
    char **env = environment(entry);
    if (!env) return lc_fail(LC_ERR_MEMORY, "out of memory: Notifier");
    lc_status status = lc__spawn_shell(s->command, env, true, &pid, &in);
    free(env);
    return status < 0 ? status : write_and_wait(pid, in, m, s->a.timeout_s);
}

static lc_status post(const notifier *s, const notice *m)
{
    lc__str answer = {0};
    int code = 0;
    lc__http_request r = {.method = "POST",
                          .url = s->url,
                          .content_type = "application/json",
                          .body = m->json,
                          .body_bytes = strlen(m->json),
                          .timeout_s = s->a.timeout_s};
    lc_status status = lc__http_call(s->http, &r, &code, &answer);
    lc__str_free(&answer);
    if (status >= 0 && code >= 400) status = lc_fail(LC_ERR_IO, "%s answered %d", s->url, code);
    return status;
}

static void *deliver(void *self)
{
    notifier *s = self;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->n && !s->closing) pthread_cond_wait(&s->changed, &s->lock);
        if (!s->n) break;
        notice m = s->queue[s->first];
        s->first = (s->first + 1) % QUEUE;
        s->n--;
        pthread_mutex_unlock(&s->lock);
        char why[sizeof s->failure] = "";
        if (s->command && run_command(s, &m) < 0) snprintf(why, sizeof why, "%s", lc_error_message());
        if (s->url && post(s, &m) < 0 && !*why) snprintf(why, sizeof why, "%s", lc_error_message());
        free(m.json);
        pthread_mutex_lock(&s->lock);
        if (*why && !*s->failure) memcpy(s->failure, why, sizeof why);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the training thread ---- */

static void report_failure(notifier *s, lc_trainer *t)
{
    char why[sizeof s->failure];
    if (s->warned) return;
    pthread_mutex_lock(&s->lock);
    memcpy(why, s->failure, sizeof why);
    pthread_mutex_unlock(&s->lock);
    if (!*why) return;
    s->warned = true;
    lc_trainer_message(t, LC_WARNING, "Notifier: %s (reported once)", why);
}

static lc_status describe(lc_trainer *t, const char *event, const char *message, char **out)
{
    lc_state *root, *o;
    size_t n;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    LC_TRY(lc_state_new(&root));
    lc_status s = lc_state_set_text(root, "event", event);
    if (s >= 0) s = lc_state_set_text(root, "stage", lc_stage_name(t->stage));
    if (s >= 0) s = lc_state_set_text(root, "model", t->mo.name);
    if (s >= 0) s = lc_state_set_text(root, "run_dir", lc_trainer_run_dir(t));
    if (s >= 0) s = lc_state_set_text(root, "host", host);
    if (s >= 0) s = lc_state_set_int(root, "pid", getpid());
    if (s >= 0) s = lc_state_set_int(root, "epoch", t->current_epoch);
    if (s >= 0) s = lc_state_set_int(root, "global_step", t->global_step);
    if (s >= 0) s = lc_state_set_double(root, "seconds", lc_trainer_elapsed(t));
    if (s >= 0 && message) s = lc_state_set_text(root, "message", message);
    if (s >= 0) s = lc_state_set_object(root, "metrics", &o);
    const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
    for (int i = 0; i < m->n && i < 200 && s >= 0; i++) s = lc_state_set_double(o, m->v[i].name, m->v[i].value);
    if (s >= 0) s = lc_state_print(root, out, &n);
    lc_state_free(root);
    return s;
}

static lc_status send(notifier *s, lc_trainer *t, unsigned which, const char *event, const char *message)
{
    char *json = NULL;
    report_failure(s, t);
    if (!(s->a.events & which) || !s->running) return LC_OK;
    LC_TRY(describe(t, event, message, &json));
    pthread_mutex_lock(&s->lock);
    bool room = s->n < QUEUE;
    if (room) s->queue[(s->first + s->n++) % QUEUE] = (notice){event, json};
    if (!room && !*s->failure)
        snprintf(s->failure, sizeof s->failure, "notifications come faster than they can be delivered; %s was dropped",
                 event);
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (!room) free(json);
    return LC_OK;
}

static lc_status start_thread(notifier *s)
{
    if (s->running) return LC_OK;
    s->closing = false;
    LC_TRY(lc__thread_start(&s->thread, deliver, s, "Notifier"));
    s->running = true;
    return LC_OK;
}

static void stop_thread(notifier *s)
{
    if (!s->running) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->running = false;
}

static lc_status no_setup(void *self, lc_trainer *t, lc_stage stage)
{
    notifier *s = self;
    (void)stage;
    s->failed = false;
    LC_TRY(start_thread(s));
    return send(s, t, LC_NOTIFY_RUN_START, "run_start", NULL);
}

static lc_status no_epoch_start(void *self, lc_trainer *t)
{
    return send(self, t, LC_NOTIFY_EPOCH_START, "epoch_start", NULL);
}

static lc_status no_epoch_end(void *self, lc_trainer *t)
{
    return send(self, t, LC_NOTIFY_EPOCH_END, "epoch_end", NULL);
}

static lc_status no_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    (void)status;
    ((notifier *)self)->failed = true;
    return send(self, t, LC_NOTIFY_RUN_FAILED, "run_failed", message);
}

static lc_status no_teardown(void *self, lc_trainer *t, lc_stage stage)
{
    notifier *s = self;
    (void)stage;
    lc_status status = s->failed ? LC_OK : send(s, t, LC_NOTIFY_RUN_END, "run_end", NULL);
    stop_thread(s);
    report_failure(s, t);
    return status;
}

static void no_release(void *self)
{
    notifier *s = self;
    stop_thread(s);
    lc__http_free(s->http);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->command);
    free(s->url);
}

static const lc_callback_ops notifier_ops = {
    LC_CALLBACK_OPS_INIT("Notifier"),
    .ranks = LC_RANK_ZERO,
    .setup = no_setup,
    .on_train_epoch_start = no_epoch_start,
    .on_train_epoch_end = no_epoch_end,
    .on_exception = no_exception,
    .teardown = no_teardown,
    .free = lc__owned_free,
};

lc_status lc_notifier_new(const lc_notifier_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_notifier, given);
    lc_status status = LC_OK;
    if (!args->command && !args->url) return lc_fail(LC_ERR_CONFIG, "Notifier needs a command or a url");
    if (args->timeout_s <= 0)
        return lc_fail(LC_ERR_CONFIG, "Notifier: timeout_s is %d; it must be positive", args->timeout_s);
    notifier *s = lc__owned_new(sizeof *s, no_release);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: Notifier");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->a = *args;
    if (!lc__dup(args->command, &s->command) || !lc__dup(args->url, &s->url))
        status = lc_fail(LC_ERR_MEMORY, "out of memory: Notifier");
    if (status >= 0 && s->url) status = lc__http_new(&s->http);
    if (status < 0) {
        lc__owned_free(s);
        return status;
    }
    *out = (lc_callback){&notifier_ops, s};
    return LC_OK;
}
