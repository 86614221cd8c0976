/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor: starts the ranks of this machine, waits, and ends them together.
 *
 * What it must survive is a rank that dies, hangs, or floods its output; so it shares nothing with ranks but their exit
 * status, their kept output and the coordinator, which it hosts. It looks at its children fifty times a second: pidfds
 * would wake it sooner, but not on the kernels that many clusters still run. */
#include "launch/launch.h"

#include "core/signal_fd.h"
#include "core/status.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VERDICT 0.6 /* seconds */
enum { LOOK_MS = 20, SHOWN_LINES = 20 };

typedef struct child {
    pid_t pid; /* 0: has ended, or never was */
    int output, status;
    bool ended_here; /* by this process, as it did not end by itself */
    bool lost;
    lc__place place;
} child;

typedef struct supervisor {
    const lc__run_plan *plan;
    lc__control_times times;
    int n, size; /* ranks here, and in all */
    int began;   /* in all, before any was lost */
    child *children;
    lc__cores cores;
    lc__signal_fd signals;
    char host[256], secret[LC__SECRET_SIZE];
    const char *key;    /* the secret of the run */
    char restarted[64]; /* since when a checkpoint is one of this run; "": for the first time */
    lc__coordinator *coordinator;
    lc__str
        calls; /* the last ones of each rank, in words; the coordinator's thread writes them before it says the end */
    int port;
    int signal;      /* SIGINT or SIGTERM, passed on */
    int culprit;     /* index of the child that is to blame; -1: none */
    bool run_ended;  /* by the coordinator */
    bool asked;      /* the starter, to end */
    bool killed;     /* who was left */
    double deadline; /* when those that are left are killed; 0: never */
} supervisor;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say(const char *format, ...) LC_PRINTF(1, 2);
static void say(const char *format, ...)
{
    char text[1200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0) lc__show(2, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* ---- who is to be started ---- */

static lc_status places(supervisor *s)
{
    const lc__run_plan *p = s->plan;
    for (int node = 0; node < p->num_nodes; node++) {
        s->size += p->nodes[node];
        if (p->node < 0 || p->node == node) s->n += p->nodes[node];
    }
    if (p->starter) s->n = 1;
    s->began = s->size;
    if (s->n < 1 || s->n > LC_MAX_LOCAL_RANKS)
        return lc_fail(LC_ERR_CONFIG, "%d ranks on this machine; it must be 1 to %d", s->n, LC_MAX_LOCAL_RANKS);
    s->children = calloc((size_t)s->n, sizeof *s->children);
    if (!s->children) return lc_fail(LC_ERR_MEMORY, "out of memory: %d ranks", s->n);
    int rank = 0, i = 0;
    for (int node = 0; node < p->num_nodes; node++)
        for (int local = 0; local < p->nodes[node]; local++, rank++)
            if ((p->node < 0 || p->node == node) && i < s->n)
                s->children[i++].place = (lc__place){rank, s->size, local, p->nodes[node], node, p->num_nodes};
    for (i = 0; i < s->n; i++) s->children[i].output = -1;
    return LC_OK;
}

/* ---- starting ---- */

double lc__time_variable(const lc__run_plan *plan, int i, const char **name)
{
    const lc__control_times *t = &plan->times;
    const struct {
        const char *name;
        double value;
    } times[LC__TIMES] = {
        {"LIGHTC_START_TIMEOUT", t->start},
        {"LIGHTC_SILENCE_TIMEOUT", t->silence},
        {"LIGHTC_PROGRESS_TIMEOUT", t->progress},
        {"LIGHTC_GRACE_PERIOD", t->grace},
    };
    *name = times[i].name;
    return times[i].value;
}

/* How ranks come to the coordinator, and how long all wait for each other. */
static void add_meeting(const supervisor *s, lc__str *out)
{
    const char *name;
    double value;
    for (int i = 0; i < LC__TIMES; i++)
        if ((value = lc__time_variable(s->plan, i, &name)) > 0) lc__str_add(out, "%s=%.9g\n", name, value);
    if (s->coordinator) lc__str_add(out, "LIGHTC_COORDINATED=1\n");
    lc__str_add(out, "MASTER_ADDR=%s\nMASTER_PORT=%d\nLIGHTC_SECRET=%s\n",
                s->plan->address ? s->plan->address : "127.0.0.1", s->port, s->key);
}

/* The variables of a starter, which passes on those that it is told to, empty or not. */
static void starter_variables(const supervisor *s, lc__str *out)
{
    add_meeting(s, out);
    lc__str_add(out, "LIGHTC_RESTARTED=%s\n", s->restarted);
}

/* The variables of a rank. `threads`: what its cores can run; 0: there are fewer processors than ranks. */
static void variables(const supervisor *s, const lc__place *r, int threads, lc__str *out)
{
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"LIGHTC_RANK", r->rank},
        {"LIGHTC_WORLD_SIZE", r->size},
        {"LIGHTC_LOCAL_RANK", r->local_rank},
        {"LIGHTC_LOCAL_SIZE", r->local_size},
        {"LIGHTC_NODE_RANK", r->node_rank},
        {"LIGHTC_NUM_NODES", r->num_nodes},
    };
    const char *given = getenv("OMP_NUM_THREADS");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        lc__str_add(out, "%s=%d\n", numbers[i].name, numbers[i].value);
    add_meeting(s, out);
    if (*s->restarted) lc__str_add(out, "LIGHTC_RESTARTED=%s\n", s->restarted);
    if (s->size < s->began) lc__str_add(out, "LIGHTC_BATCHES=%d\n", s->began);
    if (!given || !*given) lc__str_add(out, "OMP_NUM_THREADS=%d\n", threads > 0 ? threads : 1);
    /* A waiting thread that spins would keep the processor from the rank it waits for. */
    if ((!threads || (given && atoi(given) > threads)) && !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT"))
        lc__str_add(out, "OMP_WAIT_POLICY=passive\n");
}

static lc_status start(supervisor *s, int i)
{
    child *c = &s->children[i];
    const char *given = getenv("OMP_NUM_THREADS");
    lc_status status = LC_OK;
    c->ended_here = false;
    lc__environment environment = {0};
    lc__str add = {0};
    cpu_set_t cores;
    int threads = lc__cores_share(&s->cores, i, s->n, &cores);
    bool alone = s->n == 1 || threads == 0 || (given && atoi(given) > threads); /* else kept from the others' cores */
    if (s->plan->starter)
        starter_variables(s, &add);
    else
        variables(s, &c->place, threads, &add);
    if (c->place.rank > 0 && c->output < 0) LC_TRY_GOTO(status, done, lc__output_open(s->plan->root_dir, &c->output));
    LC_TRY_GOTO(status, done, lc__environment_make(&add, &environment));
    status = lc__process_start(&(lc__process){.file = s->plan->file,
                                              .argv = s->plan->argv,
                                              .environment = environment.list,
                                              .output = c->output,
                                              .no_input = c->place.rank > 0,
                                              .cores = alone ? NULL : &cores,
                                              .unblock = &s->signals.set},
                               &c->pid);
done:
    lc__environment_release(&environment);
    lc__str_free(&add);
    return status;
}

/* ---- waiting ---- */

static void signal_all(supervisor *s, int sig)
{
    /* The group too: what a rank that is killed has started itself would stay. */
    for (int i = 0; i < s->n; i++)
        if (s->children[i].pid) {
            s->children[i].ended_here |= sig == SIGKILL;
            kill(sig == SIGKILL ? -s->children[i].pid : s->children[i].pid, sig);
        }
}

static void take_signals(supervisor *s)
{
    struct signalfd_siginfo info;
    struct pollfd p = {.fd = s->signals.fd, .events = POLLIN}; /* a negative one is left out */
    if (poll(&p, 1, LOOK_MS) <= 0) return;
    while (read(s->signals.fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP) { /* Ctrl-Z: ranks are in process groups of their own */
            signal_all(s, SIGSTOP);
            raise(SIGSTOP);
            signal_all(s, SIGCONT);
            continue;
        }
        if (info.ssi_signo != SIGUSR1) s->signal = (int)info.ssi_signo;
        signal_all(s, (int)info.ssi_signo);
    }
}

/* After a signal to end, whoever ends does as it was told, unless something else killed it. */
static bool is_failure(const supervisor *s, int status)
{
    if (!status) return false;
    return !s->signal || (WIFSIGNALED(status) && WTERMSIG(status) != s->signal);
}

static void reap(supervisor *s)
{
    int failed = -1, status;
    char how[128];
    for (int i = 0; i < s->n; i++) {
        child *c = &s->children[i];
        if (!c->pid || waitpid(c->pid, &status, WNOHANG) != c->pid) continue;
        if (is_failure(s, status)) {
            kill(-c->pid, SIGKILL); /* what it has left */
            /* Of several at once: one that was killed, rather than those that missed it. */
            if (failed < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(s->children[failed].status))) failed = i;
        }
        c->pid = 0;
        c->status = status;
        lc__process_status(status, how, sizeof how);
        /* Also of one that has ended well: those that wait for it would wait for ever, if it has not said goodbye. */
        if (s->coordinator && !s->plan->starter && (!s->signal || is_failure(s, status)))
            lc__coordinator_rank_ended(s->coordinator, c->place.rank, how);
    }
    if (failed < 0 || s->culprit >= 0) return;
    s->culprit = failed;
    s->deadline = now() + s->times.grace + 0.5;
}

static bool any_left(const supervisor *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->children[i].pid) return true;
    return false;
}

static child *child_of_rank(supervisor *s, int rank)
{
    for (int i = 0; i < s->n; i++)
        if (s->children[i].place.rank == rank) return &s->children[i];
    return NULL;
}

/* The run may have ended with all ranks of this machine alive: stopped, say. One that is silent will not end by itself,
 * however long it is given. */
static void heed_end(supervisor *s)
{
    int silent;
    if (!s->coordinator || s->run_ended || !lc__coordinator_ended(s->coordinator, &silent)) return;
    child *c = s->plan->starter ? NULL : child_of_rank(s, silent);
    s->run_ended = true;
    if (c && c->pid) kill(-c->pid, SIGKILL);
    if (s->deadline <= 0) s->deadline = now() + s->times.grace + 0.5;
}

/* Time is up. A starter may hang behind ranks that are gone; asked to end, it first ends what is left of them on other
 * machines. */
static void end_those_left(supervisor *s)
{
    if (s->plan->starter && !s->asked) {
        s->asked = true;
        s->deadline = now() + s->times.grace;
        signal_all(s, SIGTERM);
    } else {
        s->killed = true;
        signal_all(s, SIGKILL);
    }
}

/* Whether a process was started with the secret of this run. */
static bool is_of_run(const supervisor *s, int pid)
{
    char path[64], want[80];
    lc__str text = {0};
    size_t n;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    snprintf(want, sizeof want, "LIGHTC_SECRET=%s", s->key);
    FILE *f = fopen(path, "re");
    for (char block[4096]; f && (n = fread(block, 1, sizeof block, f)) > 0;) lc__str_add_bytes(&text, block, n);
    if (f) fclose(f);
    bool is = text.n && memmem(text.s, text.n, want, strlen(want));
    lc__str_free(&text);
    return is;
}

/* What a starter that was killed has left on this machine: it is this process's now, and of no more use. */
static void end_orphans(const supervisor *s)
{
    char path[64];
    int pid, left = 1;
    if (!s->plan->starter || !s->killed) return;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (double until = now() + 1; left && now() < until;) {
        FILE *f = fopen(path, "re");
        left = 0;
        while (f && fscanf(f, "%d", &pid) == 1) {
            if (waitpid(pid, NULL, WNOHANG) == pid || !is_of_run(s, pid)) continue;
            left++;
            kill(pid, SIGKILL);
        }
        if (f) fclose(f);
        if (left) nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
}

static void wait_for_all(supervisor *s)
{
    while (any_left(s)) {
        take_signals(s);
        reap(s);
        heed_end(s);
        if (s->deadline > 0 && now() > s->deadline) end_those_left(s);
    }
    end_orphans(s);
}

/* ---- the end ---- */

static void show_output(const supervisor *s, const child *c)
{
    lc__str text = {0};
    bool more;
    char path[4200];
    if (c->output < 0) return;
    lc__output_tail(c->output, SHOWN_LINES, &text, &more);
    if (!text.n) goto done;
    snprintf(path, sizeof path, "%s/rank-%d.log", s->plan->root_dir, c->place.rank);
    if (more && lc__output_save(c->output, path) == LC_OK)
        say("---- the last %d lines of rank %d (all of it is in %s)\n", SHOWN_LINES, c->place.rank, path);
    else
        say("---- the output of rank %d\n", c->place.rank);
    lc__show(2, text.s, text.n);
    say("----\n");
done:
    lc__str_free(&text);
}

static int as_exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void keep_calls(void *s, const char *message, const char *calls)
{
    (void)message; /* it is said when all processes have ended */
    lc__str_add(&((supervisor *)s)->calls, "%s", calls);
}

/* It takes a moment to decide about the rank that was last to end; of one that had said goodbye it has nothing to say.
 */
static void await_verdict(const supervisor *s)
{
    int silent;
    for (double until = now() + VERDICT; now() < until && !lc__coordinator_ended(s->coordinator, &silent);)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
}

/* The coordinator knows more than an exit status says, if the rank had come to it: who was silent, or complained first,
 * and at which step. */
static lc_status tell_failure(supervisor *s)
{
    child *c = &s->children[s->culprit];
    char why[1024] = "", how[128];
    int rank, colon = 0;
    if (s->coordinator) await_verdict(s);
    if (s->coordinator) lc__coordinator_message(s->coordinator, why, sizeof why);
    bool met = strstr(why, " (host ") && sscanf(why, "rank %d", &rank) == 1;
    bool unmet = !*why || (!met && sscanf(why, "rank %d:%n", &rank, &colon) == 1 && colon); /* known here alone */
    if (met && child_of_rank(s, rank)) c = child_of_rank(s, rank);
    s->culprit = (int)(c - s->children);
    /* Several that end alike before they have met have mostly said the same: rank 0 has shown it. */
    const child *first = child_of_rank(s, 0);
    if (unmet && first && first->output < 0 && WIFEXITED(first->status) && first->status == c->status)
        c = child_of_rank(s, 0);
    show_output(s, c);
    if (!unmet && s->calls.n && !s->calls.failed) lc__show(2, s->calls.s, s->calls.n);
    lc__process_status(c->status, how, sizeof how);
    if (!unmet) return lc_fail(LC_ERR_PEER, "%s", why);
    if (s->plan->starter) return lc_fail(LC_ERR_PEER, "%s %s", s->plan->file, how);
    return lc_fail(LC_ERR_PEER, "rank %d of %d (host %s): %s", c->place.rank, c->place.size, s->host, how);
}

/* ---- the next life ---- */

/* Their places, in the order in which they stand; nodes without any are gone. */
static void number_anew(supervisor *s)
{
    int rank = 0, nodes = 0;
    for (int first = 0, end; first < s->n; first = end, nodes++) {
        int node = s->children[first].place.node_rank;
        for (end = first; end < s->n && s->children[end].place.node_rank == node; end++) continue;
        for (int i = first; i < end; i++)
            s->children[i].place = (lc__place){rank++, s->n, i - first, end - first, nodes, 0};
    }
    for (int i = 0; i < s->n; i++) s->children[i].place.num_nodes = nodes;
    s->size = s->n;
}

static void drop(supervisor *s, int i)
{
    if (s->children[i].output >= 0) close(s->children[i].output);
    memmove(&s->children[i], &s->children[i + 1], (size_t)(s->n - i - 1) * sizeof *s->children);
    s->n--;
}

/* Lost are the rank that is to blame, and those that something else has killed, as on a host that is gone. The others
 * go on without them, unless there is nobody else. */
static void go_on_with_those_left(supervisor *s)
{
    int left = 0, keep = 1;
    for (int i = 0; i < s->n; i++) {
        child *c = &s->children[i];
        c->lost = i == s->culprit || (WIFSIGNALED(c->status) && !c->ended_here);
        left += !c->lost;
    }
    if (!left || s->plan->starter || s->plan->own_data) return;
    while (2 * keep <= left) keep *= 2;
    if (!s->plan->power_of_two) keep = left;
    for (int i = s->n - 1; i >= 0; i--)
        if (s->children[i].lost || left > keep) {
            left -= !s->children[i].lost;
            drop(s, i);
        }
    number_anew(s);
    if (s->children[0].output >= 0) close(s->children[0].output); /* it is rank 0 now, and prints */
    s->children[0].output = -1;
}

/* One life of all the ranks. */
static lc_status run_once(supervisor *s, int *exit_status)
{
    const lc__run_plan *p = s->plan;
    lc_status status = LC_OK;
    s->culprit = -1;
    s->run_ended = s->asked = s->killed = false;
    s->deadline = 0;
    s->port = p->port;
    lc__str_clear(&s->calls);
    if (p->node <= 0) {
        status = lc__coordinator_start(p->address, &s->port, s->size, s->key, &p->times, &s->coordinator);
        if (status < 0 && p->port)
            return lc_fail_context(status,
                                   "node 0 cannot coordinate the run (another run may use the port; MASTER_PORT "
                                   "chooses another)");
        LC_TRY(status);
        lc__coordinator_on_end(s->coordinator, keep_calls, s);
    }
    for (int i = 0; i < s->n && status >= 0; i++) status = start(s, i);
    if (status < 0) {
        lc__first_error first = {0};
        lc__first_error_note(&first, status);
        signal_all(s, SIGKILL);
        wait_for_all(s);
        return lc__first_error_status(&first);
    }
    wait_for_all(s);
    int bad = s->culprit >= 0 ? s->children[s->culprit].status : 0;
    for (int i = 0; i < s->n && !bad; i++) bad = s->children[i].status;
    *exit_status = p->starter && s->killed ? 1 : as_exit_status(bad);
    if (s->culprit >= 0) return tell_failure(s);
    if (bad) lc__note_signal(s->signal);
    if (bad) return lc_fail(LC_ERR_INTERRUPTED, "stopped by signal %d (%s)", s->signal, strsignal(s->signal));
    return LC_OK;
}

lc_status lc__supervise(const lc__run_plan *plan, int *exit_status)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGUSR1, SIGTSTP};
    supervisor s = {.plan = plan, .times = plan->times, .signals.fd = -1, .key = plan->secret};
    lc_status status = LC_OK;
    struct timespec begun;
    int was_reaper = 0;
    *exit_status = 1;
    prctl(PR_GET_CHILD_SUBREAPER, &was_reaper);
    if (!(s.times.grace > 0)) s.times.grace = 2;
    clock_gettime(CLOCK_REALTIME, &begun);
    snprintf(s.host, sizeof s.host, "unknown");
    if (gethostname(s.host, sizeof s.host - 1) != 0) s.host[0] = '?';
    LC_TRY_GOTO(status, done, places(&s));
    if (plan->starter) prctl(PR_SET_CHILD_SUBREAPER, 1); /* for end_orphans */
    LC_TRY_GOTO(status, done, lc__cores_find(&s.cores));
    LC_TRY_GOTO(status, done, lc__signal_fd_open(&s.signals, passed_on, sizeof passed_on / sizeof *passed_on));
    for (int life = 0;; life++) {
        if (!plan->secret) {
            LC_TRY_GOTO(status, done, lc__secret_make(s.secret));
            s.key = s.secret;
        }
        status = run_once(&s, exit_status);
        lc__coordinator_stop(s.coordinator);
        s.coordinator = NULL;
        if (status != LC_ERR_PEER || life >= plan->max_restarts || s.signal) break;
        int before = s.n;
        go_on_with_those_left(&s);
        char number[64] = "";
        if (s.n < before) snprintf(number, sizeof number, " with %d of %d ranks", s.n, before);
        say("%s; starting again from the last checkpoint%s (%d of %d)\n", lc_error_message(), number, life + 1,
            plan->max_restarts);
        snprintf(s.restarted, sizeof s.restarted, "%lld.%09ld", (long long)begun.tv_sec, begun.tv_nsec);
    }
done:
    if (plan->starter) prctl(PR_SET_CHILD_SUBREAPER, was_reaper);
    lc__signal_fd_close(&s.signals);
    for (int i = 0; s.children && i < s.n; i++)
        if (s.children[i].output >= 0) close(s.children[i].output);
    free(s.children);
    lc__str_free(&s.calls);
    lc__cores_release(&s.cores);
    return status;
}
