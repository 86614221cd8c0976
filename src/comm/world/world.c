/* SPDX-License-Identifier: Apache-2.0 */
/* The world of this process: joining it, leaving it, and how the process ends.
 *
 * A process is one rank, whatever trainers it makes, so there is one world: the only state here that belongs to the
 * process and to no object, protected by a mutex. */
#include "comm/world/world.h"
#include "base/handle.h"
#include "comm/comm_internal.h"
#include "comm/control/times.h"
#include "comm/world/connect.h"
#include "comm/world/prints.h"
#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    int references;
    lc__world world;
    lc__world *given; /* lc__world_given */
    char backend[16];
    lc__security security;
    lc__control_times times; /* of lc_comm_world */
    int devices;             /* likewise: see lc__world_set_options */
    int64_t num_nodes;
    bool leaves_at_exit, trained;
    pid_t process; /* the process, and its thread, that has joined */
    pthread_t thread;
} this_process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the end of this process without lc_comm_free ---- */

/* A process that exits with a status other than 0 has failed, like one that is killed: its parent reports it, or its
 * closed connection does. One that exits with 0 leaves, however it was started, before MPI is finalized, which waits
 * for all ranks. Another thread cannot know whether the one that has joined is in a call. (A forked child has copies of
 * all this.) */
static void leave_at_exit(int status, void *unused)
{
    static const char why[] = "exited with status 0 without calling lc_comm_free";
    lc__world *w = &this_process.world;
    (void)unused;
    if (status || this_process.process != getpid() || pthread_mutex_trylock(&this_process.lock) != 0) return;
    if (this_process.references && pthread_equal(this_process.thread, pthread_self())) {
        this_process.references = 0;
        lc__world_disconnect(w);
    } else if (this_process.references && w->control) {
        lc__control_fail(w->control, why);
        lc_comm_abort(w->comm, why);
    }
    pthread_mutex_unlock(&this_process.lock);
}

static lc_status join_thread(void)
{
    this_process.process = getpid();
    this_process.thread = pthread_self();
    if (!this_process.leaves_at_exit && on_exit(leave_at_exit, NULL) != 0)
        return lc_fail(LC_ERR_MEMORY, "out of memory: an exit handler");
    this_process.leaves_at_exit = true;
    return LC_OK;
}

/* ---- joining ---- */

/* Reports to the others that this rank fails with the current message, `why`. */
static void give_up(const lc__world *w, lc_status status, const char *why)
{
    if (status == LC_ERR_PEER)
        (void)!lc__world_pass_on(w, status);
    else if (w->control)
        lc__control_fail_and_wait(w->control, why);
}

static lc_status join_first(lc__world *w, const lc__world_args *o, const char *backend)
{
    int threads = w->threads; /* of an earlier join: this process is bound already */
    LC_TRY(lc__world_find(w));
    w->threads = threads;
    if (w->size == 1) return lc_comm_self(&w->comm);
    lc_status s = lc__world_connect(w, o, backend);
    if (s >= 0) s = join_thread(); /* after MPI's own, which is then called later */
    if (s >= 0) return LC_OK;
    char why[1024];
    lc__copy_message(why, sizeof why);
    give_up(w, s, why);
    lc__copy_message(why, sizeof why);
    lc__world_disconnect(w);
    return lc_fail(s, "%s", why);
}

/* Called by lc_comm_free instead of freeing the communicator of the world, which has several users. */
static void leave(void)
{
    lc__world_leave(&this_process.world);
}

lc_status lc__world_join(const lc__world_args *options, lc__world **out)
{
    const lc__world_args standard = {0}, *o = options ? options : &standard;
    const char *wanted = getenv("LIGHTC_COMM"), *standard_backend = wanted && *wanted ? wanted : "auto";
    const char *backend = o->backend && *o->backend ? o->backend : standard_backend;
    static const char *const backends[] = {"auto", "shm", "tcp", "mpi", "shm+tcp", "shm+mpi", NULL};
    lc_status s = LC_OK;
    lc__security security;
    *out = NULL;
    LC_TRY(lc__world_security(o, &security));
    if (!lc__is_one_of(backend, backends))
        return lc_fail(LC_ERR_CONFIG,
                       "unknown communication backend \"%s\"; available: auto, shm, tcp, mpi, shm+tcp and shm+mpi",
                       backend);
    pthread_mutex_lock(&this_process.lock);
    lc__prints_forward();
    if (!this_process.references) {
        s = join_first(&this_process.world, o, backend);
        if (s >= 0) snprintf(this_process.backend, sizeof this_process.backend, "%s", backend);
        this_process.security = security;
    } else if (o->security && *o->security && security != this_process.security && this_process.world.size > 1) {
        s = lc_fail(LC_ERR_CONFIG, "this process already communicates with comm_security %s and cannot use %s as well",
                    lc__security_name(this_process.security), lc__security_name(security));
    } else if (strcmp(backend, "auto") != 0 && strcmp(backend, this_process.backend) != 0 &&
               strcmp(backend, lc_comm_name(this_process.world.comm)) != 0 && this_process.world.size > 1) {
        s = lc_fail(LC_ERR_CONFIG, "this process already communicates over %s and cannot use %s as well",
                    lc_comm_name(this_process.world.comm), backend);
    }
    if (s >= 0) {
        if (!this_process.references++) lc__comm_on_free(this_process.world.comm, leave);
        *out = &this_process.world;
    }
    pthread_mutex_unlock(&this_process.lock);
    return s;
}

void lc__world_add_given(lc__world *w)
{
    pthread_mutex_lock(&this_process.lock);
    w->next = this_process.given;
    this_process.given = w;
    pthread_mutex_unlock(&this_process.lock);
}

static void remove_given(lc__world *w)
{
    pthread_mutex_lock(&this_process.lock);
    lc__world **at = &this_process.given;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    pthread_mutex_unlock(&this_process.lock);
}

void lc__world_leave(lc__world *w)
{
    if (!w) return;
    if (w->given) {
        remove_given(w);
        lc__world_close_given(w);
        return;
    }
    pthread_mutex_lock(&this_process.lock);
    if (--this_process.references == 0) lc__world_disconnect(w);
    pthread_mutex_unlock(&this_process.lock);
}

int lc__world_threads(void)
{
    pthread_mutex_lock(&this_process.lock);
    int threads = this_process.world.threads;
    pthread_mutex_unlock(&this_process.lock);
    return threads;
}

lc_status lc__world_explain(const lc__world *w, lc_status status)
{
    return status == LC_ERR_PEER && w->control ? lc__control_explain(w->control, LC__SECONDS(LC__EXPLAINED_MS), status)
                                               : status;
}

lc_status lc__world_pass_on(const lc__world *w, lc_status status)
{
    return status == LC_ERR_PEER && w->control ? lc__control_pass_on(w->control, LC__SECONDS(LC__EXPLAINED_MS), status)
                                               : status;
}

/* ---- the end of this process ---- */

static lc__control_args options_of(const lc__world *w)
{
    return (lc__control_args){.rank = w->rank,
                              .size = w->size,
                              .address = w->address,
                              .port = w->port,
                              .secret = w->secret,
                              .identity = w->identity,
                              .supervisor_reports = w->supervisor_reports};
}

/* Before ranks have met, and after this one has left, only a launcher's coordinator is there to listen. */
static void report_unmet(const char *why)
{
    lc__world w;
    if (lc__world_find(&w) < 0 || w.size == 1 || !w.hosted) return;
    const lc__control_args o = options_of(&w);
    lc__control_last_words(&o, why);
}

/* Exiting without this would end the coordinator before all ranks are notified. */
static void stop_coordinator(lc__world *w)
{
    lc__coordinator_stop(w->coordinator);
    w->coordinator = NULL;
}

void lc__world_last_words(lc_status status)
{
    lc__world *w = &this_process.world;
    char why[1024];
    lc__copy_message(why, sizeof why);
    pthread_mutex_lock(&this_process.lock);
    if (this_process.references)
        give_up(w, status, why);
    else if (!this_process.given)
        report_unmet(why);
    stop_coordinator(w);
    for (lc__world *g = this_process.given; g; g = g->next) {
        give_up(g, status, why);
        stop_coordinator(g);
    }
    pthread_mutex_unlock(&this_process.lock);
    if (!lc_error_is_reported()) (void)!lc_fail(status, "%s", why);
}

void lc__world_trained(bool yes)
{
    lc__world *w = &this_process.world, here;
    unsigned terms = yes ? LC__TRAINED : 0;
    pthread_mutex_lock(&this_process.lock);
    bool news = yes != this_process.trained;
    this_process.trained = yes;
    if (news && this_process.references && w->control) lc__control_terms(w->control, terms);
    pthread_mutex_unlock(&this_process.lock);
    /* A single rank has no control channel, but may have a launcher that would restart it. */
    if (!news || lc__world_find(&here) < 0 || here.size > 1 || !here.hosted) return;
    const lc__control_args o = options_of(&here);
    lc__control_last_terms(&o, terms);
}

void lc__world_stopped(int signal)
{
    lc__world *w = &this_process.world;
    pthread_mutex_lock(&this_process.lock);
    if (this_process.references && w->control) lc__control_stopped(w->control, signal);
    stop_coordinator(w);
    for (lc__world *g = this_process.given; g; g = g->next) {
        if (g->control) lc__control_stopped(g->control, signal);
        stop_coordinator(g);
    }
    pthread_mutex_unlock(&this_process.lock);
}

/* ---- the number of ranks ---- */

/* If the program started the ranks itself, their number follows from the same options, unless some have been lost
 * since; if two host names mean one host, these numbers differ. */
static bool started_as_asked(const lc__world *w, int devices, int64_t num_nodes)
{
    bool lost = lc__world_batches(w->size) != w->size;
    return lost || num_nodes * (devices ? devices : 1) == w->size;
}

/* Another number of ranks than requested would train on other batches. */
lc_status lc__world_check_number(const lc__world *w, int devices, int64_t num_nodes)
{
    bool by_lightc = w->hosted || !strcmp(w->launcher, "lightc");
    if (by_lightc ? started_as_asked(w, devices, num_nodes) : w->size == 1) return LC_OK;
    if (devices && devices != w->local_size)
        return lc_fail(LC_ERR_CONFIG,
                       "devices=%d, but %s started %d on node %d (%d ranks on %d nodes in total); drop --devices, or "
                       "start that many",
                       devices, w->launcher, w->local_size, w->node_rank, w->size, w->num_nodes);
    if (num_nodes > 1 && num_nodes != w->num_nodes)
        return lc_fail(
            LC_ERR_CONFIG,
            "num_nodes=%lld, but the %d ranks that %s started are on %d; drop --num_nodes, or start them on that many",
            (long long)num_nodes, w->size, w->launcher, w->num_nodes);
    return LC_OK;
}

lc_status lc__world_refuse(lc__world *w, lc_status status)
{
    char why[1024];
    lc__copy_message(why, sizeof why);
    if (w->control) lc__control_fail_and_wait(w->control, why);
    bool reported = lc_error_is_reported();
    lc__world_leave(w);
    status = lc_fail(status, "%s", why);
    if (reported) lc__note_reported();
    return status;
}

/* ---- for programs without a trainer ---- */

void lc__world_set_options(const lc__control_times *times, int devices, int64_t num_nodes)
{
    pthread_mutex_lock(&this_process.lock);
    this_process.times = *times;
    this_process.devices = devices;
    this_process.num_nodes = num_nodes;
    pthread_mutex_unlock(&this_process.lock);
}

lc_status lc_comm_world(lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc__world *w;
    *out = NULL;
    pthread_mutex_lock(&this_process.lock);
    lc__world_args o = {.times = this_process.times, .say = lc__say};
    int devices = this_process.devices;
    int64_t num_nodes = this_process.num_nodes;
    pthread_mutex_unlock(&this_process.lock);
    LC_TRY(lc__world_join(&o, &w));
    lc_status s = num_nodes ? lc__world_check_number(w, devices, num_nodes) : LC_OK;
    if (s < 0) return lc__world_refuse(w, s);
    *out = w->comm;
    return LC_OK;
}
