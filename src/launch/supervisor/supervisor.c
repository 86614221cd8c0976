/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor: starts the ranks of this machine, waits, and ends them together.
 *
 * It must survive a rank that dies, hangs, or floods its output; so it shares nothing with ranks except their exit
 * status, their kept output and the coordinator, which it hosts. It looks at its children fifty times a second: pidfds
 * would wake it sooner, but not on the kernels that many clusters still run. */
#include "launch/supervisor/supervisor_internal.h"

#include "comm/net/socket.h"
#include "base/processors.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- which ranks to start ---- */

/* mpirun is the only child. */
static lc_status places_of_mpirun(supervisor *s)
{
    const lc__run_plan *p = s->plan;
    s->n = 1;
    s->children = calloc(1, sizeof *s->children);
    s->nodes = calloc((size_t)p->num_nodes, sizeof *s->nodes);
    s->lost = calloc((size_t)s->size, sizeof *s->lost);
    s->kept = malloc((size_t)s->size * sizeof *s->kept);
    for (int i = 0; s->kept && i < s->size; i++) s->kept[i] = -1;
    if (!s->children || !s->nodes || !s->lost || !s->kept)
        return lc_fail(LC_ERR_MEMORY, "out of memory: %d ranks", s->size);
    memcpy(s->nodes, p->nodes, (size_t)p->num_nodes * sizeof *s->nodes);
    s->children[0].output = -1;
    return LC_OK;
}

static lc_status places(supervisor *s)
{
    const lc__run_plan *p = s->plan;
    for (int node = 0; node < p->num_nodes; node++) {
        s->size += p->nodes[node];
        if (p->node < 0 || p->node == node) s->n += p->nodes[node];
    }
    s->began = s->size;
    if (p->hosts) return places_of_mpirun(s);
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

/* The variables that pass the times of a plan, if set, on to ranks. */
enum { TIMES = 4 };

static double time_variable(const lc__run_plan *plan, int i, const char **name)
{
    const lc__control_times *t = &plan->times;
    const struct {
        const char *name;
        double value;
    } times[TIMES] = {
        {"LIGHTC_START_TIMEOUT", t->start},
        {"LIGHTC_SILENCE_TIMEOUT", t->silence},
        {"LIGHTC_PROGRESS_TIMEOUT", t->progress},
        {"LIGHTC_GRACE_PERIOD", t->grace},
    };
    *name = times[i].name;
    return times[i].value;
}

/* How ranks reach the coordinator, how long all wait for each other, and how often the run restarts. */
static void add_meeting(const supervisor *s, lc__str *out)
{
    const char *name;
    double value;
    for (int i = 0; i < TIMES; i++)
        if ((value = time_variable(s->plan, i, &name)) != 0) lc__str_add(out, "%s=%.9g\n", name, value);
    if (s->coordinator) lc__str_add(out, "LIGHTC_COORDINATED=1\n");
    lc__str_add(out, "LIGHTC_RESTARTS=%d\n", s->plan->max_restarts);
    lc__str_add(out, "MASTER_ADDR=%s\nMASTER_PORT=%d\nLIGHTC_SECRET=%s\n",
                s->plan->address && !s->everywhere ? s->plan->address : "127.0.0.1", s->port, s->key);
}

/* Also sets variables that are empty now, so that ranks do not inherit those of an outer run. mpirun must pass on
 * Ctrl-Z, and leave the ranks' output as it is. */
static void mpirun_variables(const supervisor *s, lc__str *out)
{
    static const char unchanged[] = "OMPI_MCA_orte_tag_output=0\nOMPI_MCA_orte_timestamp_output=0\n"
                                    "OMPI_MCA_orte_xml_output=0\nOMPI_MCA_iof_base_redirect_app_stderr_to_stdout=0\n";
    add_meeting(s, out);
    lc__str_add(out, "OMPI_MCA_orte_forward_job_control=1\n%sLIGHTC_KEEP=%s\nLIGHTC_RUN=%s\nLIGHTC_RESTARTED=%s\n",
                unchanged, s->run, s->run, s->restarted);
    lc__str_add(out, "LIGHTC_BATCHES=");
    if (s->size < s->began) lc__str_add(out, "%d", s->began);
    lc__str_add(out, "\n");
}

/* The variables of a rank. `threads`: how many its cores can run; 0: there are fewer processors than ranks. */
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
    int given = lc__threads_given();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        lc__str_add(out, "%s=%d\n", numbers[i].name, numbers[i].value);
    add_meeting(s, out);
    lc__str_add(out, "LIGHTC_RUN=%s\n", s->run);
    if (*s->restarted) lc__str_add(out, "LIGHTC_RESTARTED=%s\n", s->restarted);
    if (s->size < s->began) lc__str_add(out, "LIGHTC_BATCHES=%d\n", s->began);
    if (!given) lc__str_add(out, "OMP_NUM_THREADS=%d\n", threads > 0 ? threads : 1);
    /* A waiting thread that spins would keep the processor from the rank it waits for. */
    if ((!threads || given > threads) && !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT"))
        lc__str_add(out, "OMP_WAIT_POLICY=passive\n");
}

static lc_status start(supervisor *s, int i)
{
    child *c = &s->children[i];
    int errors = -1;
    lc_status status = LC_OK;
    c->ended_here = false;
    c->stopped_at = 0;
    lc__environment environment = {0};
    lc__mpirun mpirun = {0};
    lc__str add = {0};
    cpu_set_t cores;
    int threads = lc__cores_share(&s->cores, i, s->n, &cores);
    bool alone = s->n == 1 || threads == 0 || lc__threads_given() > threads; /* else kept off the others' cores */
    if (s->plan->hosts)
        mpirun_variables(s, &add);
    else
        variables(s, &c->place, threads, &add);
    LC_TRY_GOTO(status, done, lc__environment_make(&add, &environment));
    if (s->plan->hosts) {
        LC_TRY_GOTO(status, done, lc__mpirun_make(s->plan, s->nodes, environment.list, &mpirun));
        LC_TRY_GOTO(status, done, lc__gather_start(s->plan->root_dir, s->run, s->kept, s->size, &errors, &s->gather));
    }
    if (c->place.rank > 0 && c->output < 0) LC_TRY_GOTO(status, done, lc__output_open(s->plan->root_dir, &c->output));
    char *const *argv = s->plan->hosts ? (char *const *)(uintptr_t)mpirun.argv : s->plan->argv;
    status = lc__process_start(&(lc__process){.file = s->plan->hosts ? argv[0] : s->plan->file,
                                              .argv = argv,
                                              .environment = environment.list,
                                              .output = c->output,
                                              .error_output = errors,
                                              .no_input = c->place.rank > 0,
                                              .cores = alone ? NULL : &cores,
                                              .unblock = &s->signals.set},
                               &c->pid, &s->exec_error);
    c->group = c->pid;
done:
    if (errors >= 0) close(errors);
    lc__mpirun_release(&mpirun);
    lc__environment_release(&environment);
    lc__str_free(&add);
    return status;
}

/* ---- waiting ---- */

/* A signal that ends, stops or continues a rank goes to its group, as from a terminal: otherwise only a script that
 * started the program would end or stop. SIGUSR1, which kills a script, goes only to the rank. mpirun passes signals on
 * itself. */
static void signal_all(supervisor *s, int sig)
{
    bool ends = sig == SIGINT || sig == SIGTERM || sig == SIGHUP, stops = sig == SIGSTOP || sig == SIGCONT;
    for (int i = 0; i < s->n; i++)
        if (s->children[i].pid) {
            bool group = sig == SIGKILL || ((ends || stops) && !s->plan->hosts);
            s->children[i].ended_here |= sig == SIGKILL;
            kill(group ? -s->children[i].pid : s->children[i].pid, sig);
        }
}

/* A user who interrupts a hanging run wants to know where it hangs; the ranks may have no time left to report it. */
static void note_stuck_calls(supervisor *s)
{
    lc__str_clear(&s->calls);
    if (s->coordinator) lc__coordinator_stuck_calls(s->coordinator, &s->calls);
}

/* Says for which ranks the others wait. The supervisor does it, as rank 0 may be one of those awaited. */
static void say_who_waits(const supervisor *s)
{
    char who[256], refused[256];
    if (s->coordinator && !s->signal && lc__coordinator_waits(s->coordinator, who, refused))
        lc__show_line(2, "waiting for %s at %s:%d%s%s", who, s->plan->address ? s->plan->address : "127.0.0.1", s->port,
                      *refused ? "; " : "", refused);
}

/* A rank that has got signals from others, too, may have read only one of two that came at the same time, and takes the
 * second request for a copy of the first. mpirun counts by itself. */
static void insist(supervisor *s)
{
    if (!(s->insist > 0) || lc__seconds() < s->insist) return;
    s->insist = 0;
    signal_all(s, s->signal);
}

static void take_signals(supervisor *s)
{
    struct signalfd_siginfo info;
    struct pollfd p = {.fd = s->signals.fd, .events = POLLIN}; /* poll ignores a negative descriptor */
    if (poll(&p, 1, LC__LOOK_MS) <= 0) return;
    while (read(s->signals.fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP) { /* Ctrl-Z: ranks are in process groups of their own */
            signal_all(s, s->plan->hosts ? SIGTSTP : SIGSTOP);
            raise(SIGSTOP);
            signal_all(s, SIGCONT);
            continue;
        }
        if (info.ssi_signo == SIGHUP && s->signal) continue; /* kernel and shell both send it; mpirun would not wait */
        if (info.ssi_signo != SIGUSR1) s->signal = (int)info.ssi_signo;
        if (info.ssi_signo != SIGUSR1) note_stuck_calls(s);
        signal_all(s, (int)info.ssi_signo);
        s->requests += info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM;
        if (s->requests == 2 && !s->plan->hosts) s->insist = lc__seconds() + LC__SECONDS(LC__INSIST_MS);
    }
}

/* After a signal to end, every exit is expected, unless something else killed the process. */
static bool is_failure(const supervisor *s, int status)
{
    if (!status) return false;
    return !s->signal || (WIFSIGNALED(status) && WTERMSIG(status) != s->signal);
}

/* Node 0 has the coordinator: other nodes report to it what it cannot see. */
static void report_to_node_0(const supervisor *s, const child *c)
{
    char how[128];
    lc__process_status(c->status, how, sizeof how);
    lc__watch_report(s->watch, c->place.rank, how);
}

static void reap(supervisor *s)
{
    int failed = -1, status;
    char how[128];
    for (int i = 0; i < s->n; i++) {
        child *c = &s->children[i];
        pid_t changed = c->pid ? waitpid(c->pid, &status, WNOHANG | WUNTRACED | WCONTINUED) : 0;
        if (changed <= 0) continue;
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
            c->stopped_at = WIFSTOPPED(status) ? lc__seconds() : 0;
            continue;
        }
        if (is_failure(s, status)) {
            kill(-c->pid, SIGKILL); /* processes that it left */
            /* If several ended at once: one that was killed, rather than those that noticed its loss. */
            if (failed < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(s->children[failed].status))) failed = i;
        }
        c->pid = 0;
        c->status = status;
        lc__process_status(status, how, sizeof how);
        /* Reported also for a rank that exited with 0: if it has not said goodbye, ranks that wait for it would wait
         * forever. */
        if (s->coordinator && !s->plan->hosts && (!s->signal || is_failure(s, status)))
            lc__coordinator_rank_ended(s->coordinator, c->place.rank, status ? how : NULL);
    }
    if (failed < 0 || s->culprit >= 0) return;
    s->culprit = failed;
    s->deadline = lc__seconds() + s->times.grace + LC__SECONDS(LC__NOTIFIED_MS);
    if (!s->coordinator) report_to_node_0(s, &s->children[failed]);
}

static bool any_left(const supervisor *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->children[i].pid) return true;
    return false;
}

/* The run may have ended while all ranks of this machine are alive, for example stopped. A silent rank will not end by
 * itself, however long it is given. */
static void check_for_end(supervisor *s)
{
    int silent;
    if (!s->coordinator || s->run_ended || !lc__coordinator_ended(s->coordinator, &silent)) return;
    child *c = s->plan->hosts ? NULL : lc__child_of_rank(s, silent);
    s->run_ended = true;
    if (c && c->pid) kill(-c->pid, SIGKILL);
    if (s->deadline <= 0) s->deadline = lc__seconds() + s->times.grace + LC__SECONDS(LC__NOTIFIED_MS);
}

/* If a stopped rank should send something, the coordinator notices, perhaps late. A stopped rank that has said goodbye,
 * or a stopped mpirun, would be waited for forever. */
static void check_for_stopped(supervisor *s)
{
    double patience = s->times.silence * (s->plan->hosts ? 2 : 1) +
                      LC__SECONDS(LC__STOPPED_MS); /* stopped ranks come before mpirun */
    for (int i = 0; i < s->n; i++) {
        child *c = &s->children[i];
        bool late = c->pid && c->stopped_at > 0 && lc__seconds() - c->stopped_at > patience;
        bool watched = s->coordinator && !s->plan->hosts && lc__coordinator_watches(s->coordinator, c->place.rank);
        if (!late || watched || s->run_ended || s->culprit >= 0) continue;
        s->culprit = i;
        s->stopped_for = lc__seconds() - c->stopped_at;
        c->ended_here = s->killed = true;
        s->deadline = lc__seconds() + s->times.grace;
        kill(-c->pid, SIGKILL);
    }
}

/* Called when time is up. mpirun may hang after its ranks are gone; asked to end, it first ends its ranks on other
 * machines. */
static void end_those_left(supervisor *s)
{
    if (s->plan->hosts && !s->asked) {
        s->asked = true;
        s->deadline = lc__seconds() + s->times.grace;
        signal_all(s, SIGTERM);
    } else {
        s->killed = true;
        signal_all(s, SIGKILL);
    }
}

/* Waits for the process groups of ranks: processes started by ranks got the signal too, and may take a moment
 * longer. */
static void end_groups(const supervisor *s)
{
    double until = lc__seconds() + s->times.grace;
    bool some = s->signal && !s->plan->hosts, late = false;
    while (some && !late) {
        late = lc__seconds() > until;
        some = false;
        for (int i = 0; i < s->n; i++)
            some |= s->children[i].group > 0 && kill(-s->children[i].group, late ? SIGKILL : 0) == 0;
        if (some) nanosleep(&(struct timespec){.tv_nsec = LC__LOOK_MS * 1000000}, NULL);
    }
}

static void wait_for_all(supervisor *s)
{
    while (any_left(s)) {
        take_signals(s);
        insist(s);
        reap(s);
        say_who_waits(s);
        check_for_end(s);
        check_for_stopped(s);
        if (s->deadline > 0 && lc__seconds() > s->deadline) end_those_left(s);
    }
    end_groups(s);
    if (s->plan->hosts) lc__end_orphans(s);
    if (s->gather) lc__end_forwarders(s);
    s->blame = lc__gather_end(s->gather, s->times.grace);
    s->gather = NULL;
}

/* ---- the end ---- */

static int as_exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Whether all ranks exited normally: one that does so after a signal, as a training does, was not stuck. */
static bool ended_by_themselves(const supervisor *s)
{
    bool all = !s->plan->hosts;
    for (int i = 0; i < s->n; i++) all = all && WIFEXITED(s->children[i].status);
    return all;
}

static lc_status stopped(supervisor *s)
{
    const child *first = lc__child_of_rank(s, 0);
    char why[80];
    snprintf(why, sizeof why, "stopped by signal %d (%s)", s->signal, strsignal(s->signal));
    if (!ended_by_themselves(s)) lc__supervisor_show_calls(s, why);
    lc_status status = lc_fail(LC_ERR_INTERRUPTED, "%s", why);
    lc__note_signal(s->signal);
    /* Rank 0 has reported it, if it exited with the status of lc_exit_status. */
    bool by_itself = first && !s->plan->hosts && WIFEXITED(first->status);
    if (by_itself && WEXITSTATUS(first->status) == 128 + s->signal) lc__note_reported();
    return status;
}

/* The signal after which all ranks exited in order, by their exit status (lc_exit_status), though this process did not
 * get it: it was sent to a rank or to mpirun, to stop the run. 0: none. */
static int signal_of_a_rank(const supervisor *s)
{
    int status = s->children[0].status, signal_number = WIFEXITED(status) ? WEXITSTATUS(status) - 128 : 0;
    if (s->plan->hosts) return lc__coordinator_stopped(s->coordinator);
    bool alike = (signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP);
    for (int i = 1; i < s->n; i++) alike = alike && s->children[i].status == status;
    return alike ? signal_number : 0;
}

/* Identifies the ranks of this launcher, which distinguishes them from those of another. */
static uint64_t identity(const supervisor *s)
{
    return strtoull(s->run, NULL, 16);
}

/* One life of all the ranks. */
static lc_status run_once(supervisor *s, int *exit_status)
{
    const lc__run_plan *p = s->plan;
    lc_status status = LC_OK;
    s->culprit = -1;
    s->run_ended = s->asked = s->killed = s->common = false;
    s->deadline = s->stopped_for = 0;
    s->port = p->port;
    lc__str_clear(&s->calls);
    if (p->node <= 0) {
        status = lc__coordinator_start_as(p->address, p->address != NULL, &s->port, s->size, s->key, &p->times,
                                          &s->everywhere, &s->coordinator);
        if (status < 0) return lc_fail_context(status, "node 0 cannot coordinate the run");
        if (s->everywhere) lc__show_line(2, LC__EVERYWHERE, p->address);
        lc__coordinator_claim(s->coordinator, 0, p->hosts ? s->size : s->n, identity(s));
        lc__coordinator_on_stall(s->coordinator, lc__show_stall);
    }
    for (int i = 0; i < s->n && status >= 0; i++) status = start(s, i);
    if (status < 0) {
        lc__first_error first = {0};
        lc__first_error_note(&first, status);
        if (s->exec_error) *exit_status = lc__exec_status(s->exec_error);
        signal_all(s, SIGKILL);
        wait_for_all(s);
        return lc__first_error_status(&first);
    }
    wait_for_all(s);
    if (!s->signal && (s->signal = signal_of_a_rank(s)) != 0) s->culprit = -1;
    /* If a script runs the rank and continues after it, the exit status is meaningless. */
    bool hidden = s->culprit < 0 && !s->signal && s->coordinator && lc__coordinator_failed(s->coordinator);
    if (hidden) s->culprit = 0;
    int bad = s->culprit >= 0 ? s->children[s->culprit].status : 0;
    for (int i = 0; i < s->n && !bad; i++) bad = s->children[i].status;
    *exit_status = hidden || (p->hosts && s->killed) ? 1 : as_exit_status(bad);
    if (s->culprit >= 0) status = lc__supervisor_failure(s);
    for (int i = 0; i < s->size && p->hosts; i++) s->lost[i] = lc__coordinator_lost(s->coordinator, i);
    s->terms &= ~(unsigned)LC__TRAINED;
    if (s->coordinator) s->terms |= lc__coordinator_terms(s->coordinator);
    if (s->culprit >= 0) return status;
    if (bad && p->hosts) *exit_status = 128 + s->signal; /* mpirun has its own exit status */
    return bad ? stopped(s) : LC_OK;
}

/* Nothing would be left to do: training was complete, and only the last checkpoint was not saved. */
static bool has_trained(const supervisor *s)
{
    return (s->terms & LC__TRAINED) && s->culprit >= 0 && WIFEXITED(s->children[s->culprit].status);
}

/* Waits for node 0 from another node, and says so: its ranks' output is kept, so nobody would see what they wait for.
 * Ctrl-C ends this like any program. */
static lc_status await_node_0(supervisor *s)
{
    char who[32];
    const lc__place *first = &s->children[0].place;
    if (s->plan->node <= 0) return LC_OK;
    snprintf(who, sizeof who, "node %d", s->plan->node);
    return lc__watch_open(&(lc__control_args){.rank = first->rank,
                                              .size = s->size,
                                              .address = s->plan->address,
                                              .port = s->plan->port,
                                              .secret = s->key,
                                              .identity = identity(s),
                                              .times = s->plan->times,
                                              .say = lc__say},
                          who, s->n, &s->watch);
}

/* Occupies closed standard descriptors: a pipe or connection that got their number would receive what this process and
 * its ranks print. Writing to them fails, as before. */
static void take_standard_descriptors(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO) continue;
    if (fd >= 0) close(fd);
}

lc_status lc__supervise(const lc__run_plan *plan, int *exit_status)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP};
    supervisor s = {.plan = plan, .times = plan->times, .signals.fd = -1, .key = plan->secret, .terms = plan->terms};
    lc_status status = LC_OK;
    struct timespec begun;
    int was_reaper = 0;
    struct sigaction heard = {.sa_handler = SIG_DFL}, inherited;
    *exit_status = 1;
    take_standard_descriptors();
    sigaction(SIGCHLD, &heard, &inherited); /* if the parent ignored it, there would be no statuses */
    prctl(PR_GET_CHILD_SUBREAPER, &was_reaper);
    if (!(s.times.grace > 0)) s.times.grace = 2;
    if (!(s.times.silence > 0)) s.times.silence = 10;
    clock_gettime(CLOCK_REALTIME, &begun);
    LC_TRY_GOTO(status, done, lc__secret_make(s.secret)); /* only for the run's name: each life makes another */
    snprintf(s.run, sizeof s.run, "%.16s", s.secret);
    snprintf(s.host, sizeof s.host, "unknown");
    if (gethostname(s.host, sizeof s.host - 1) != 0) s.host[0] = '?';
    LC_TRY_GOTO(status, done, places(&s));
    if (plan->hosts) prctl(PR_SET_CHILD_SUBREAPER, 1); /* for end_orphans */
    LC_TRY_GOTO(status, done, lc__cores_find(&s.cores));
    LC_TRY_GOTO(status, done, await_node_0(&s));
    LC_TRY_GOTO(status, done, lc__signal_fd_open(&s.signals, passed_on, sizeof passed_on / sizeof *passed_on));
    for (int life = 0;; life++) {
        if (!plan->secret) {
            LC_TRY_GOTO(status, done, lc__secret_make(s.secret));
            s.key = s.secret;
        }
        status = run_once(&s, exit_status);
        lc__coordinator_stop(s.coordinator);
        s.coordinator = NULL;
        if (status != LC_ERR_PEER || life >= plan->max_restarts || s.signal || has_trained(&s)) break;
        int before = s.size;
        lc__supervisor_go_on(&s);
        char number[64] = "";
        if (s.size < before) snprintf(number, sizeof number, " with %d of %d ranks", s.size, before);
        lc__show_line(2, "%s; restarting from the last checkpoint%s (%d of %d)", lc_error_message(), number, life + 1,
                      plan->max_restarts);
        snprintf(s.restarted, sizeof s.restarted, "%lld.%09ld", (long long)begun.tv_sec, begun.tv_nsec);
    }
done:
    sigaction(SIGCHLD, &inherited, NULL);
    if (plan->hosts) prctl(PR_SET_CHILD_SUBREAPER, was_reaper);
    lc__signal_fd_close(&s.signals);
    lc__watch_close(s.watch);
    for (int i = 0; s.children && i < s.n; i++)
        if (s.children[i].output >= 0) close(s.children[i].output);
    for (int i = 0; s.kept && i < s.began; i++)
        if (s.kept[i] >= 0) close(s.kept[i]);
    free(s.children), free(s.nodes), free(s.lost), free(s.kept);
    lc__str_free(&s.calls);
    lc__cores_release(&s.cores);
    return status;
}
