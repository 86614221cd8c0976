/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting the ranks of a run: the control channel, then the places of all ranks, then the fastest communicator that
 * reaches them. */
#define _GNU_SOURCE /* cpu_set_t */
#include "comm/world/connect.h"
#include "comm/comm_internal.h"
#include "comm/world/prints.h"
#include "comm/net/socket.h"
#include "base/cores.h"
#include "base/processors.h"
#include "base/status.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <lightc/graph.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the places of ranks ---- */

/* The first message that ranks exchange. Processes with the same host can share memory. */
typedef struct identity {
    char host[256];
    char address[64];
    char backend[16];
    int32_t security;    /* lc__security */
    int32_t has_threads; /* the number is set (OMP_NUM_THREADS) */
    cpu_set_t cores;     /* the cores that it may use */
    int32_t prefers_mpi; /* started by mpirun, with the plug-in, and a network that MPI uses better than TCP does */
} identity;

static void read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
}

/* Whether there is a network with RDMA (InfiniBand, RoCE, Omni-Path), for which MPI is better. */
static bool has_fabric(void)
{
    DIR *d = opendir("/sys/class/infiniband");
    bool any = false;
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) any = any || e->d_name[0] != '.';
    if (d) closedir(d);
    return any;
}

/* Identifies a host by its boot, its process namespace and its name: containers differ in one of them. And by the node,
 * if the launcher sets it: hosts may be simulated. */
static void find_host(const lc__world *w, char host[256])
{
    char boot[64], processes[64] = "", name[65] = "";
    read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    (void)!readlink("/proc/self/ns/pid", processes, sizeof processes - 1);
    gethostname(name, sizeof name - 1);
    snprintf(host, 256, "%s %s %s %d", boot, processes, name, w->node_rank);
}

static void find_identity(const lc__world *w, const char *backend, identity *out)
{
    *out = (identity){0};
    find_host(w, out->host);
    out->prefers_mpi = !strcmp(w->launcher, "mpirun") && has_fabric() && lc__mpi_is_there();
    out->has_threads = lc__threads_given() > 0;
    if (sched_getaffinity(0, sizeof out->cores, &out->cores) != 0) out->has_threads = true;
    snprintf(out->address, sizeof out->address, "%s", w->local_address);
    snprintf(out->backend, sizeof out->backend, "%s", backend);
}

static bool together(const identity *all, int a, int b)
{
    return !strcmp(all[a].host, all[b].host);
}

/* The first rank on the host of rank `rank`, by which hosts are numbered. */
static int first_of_host(const identity *all, int rank)
{
    int first = 0;
    while (!together(all, first, rank)) first++;
    return first;
}

/* A rank on another host than this one, or -1. */
static int elsewhere(const lc__world *w, const identity *all)
{
    for (int i = 0; i < w->size; i++)
        if (!together(all, i, w->rank)) return i;
    return -1;
}

static bool any_together(const lc__world *w, const identity *all)
{
    for (int i = 0; i < w->size; i++)
        if (first_of_host(all, i) != i) return true;
    return false;
}

static bool all_prefer_mpi(const lc__world *w, const identity *all)
{
    bool prefer = true;
    for (int i = 0; i < w->size; i++) prefer = prefer && all[i].prefers_mpi;
    return prefer;
}

/* Numbers the nodes in the order of their first ranks, if the launcher did not. */
static void place(lc__world *w, const identity *all)
{
    int nodes = 0, node = 0, before = 0, here = 0;
    for (int i = 0; i < w->size; i++) {
        int first = first_of_host(all, i);
        bool mine = together(all, i, w->rank);
        if (first == i && mine) node = nodes;
        nodes += first == i;
        here += mine;
        before += mine && i < w->rank;
    }
    if (w->local_rank < 0) w->local_rank = before;
    if (!w->local_size) w->local_size = here;
    if (w->node_rank < 0) w->node_rank = node;
    if (!w->num_nodes) w->num_nodes = nodes;
}

/* Ranks of a host that are not bound, or are bound to the same cores, would each use all of them; and a quota is for
 * all ranks of a host, also if each has cores of its own. Ranks that lightc itself starts have their share already. */
static void share_cores(lc__world *w, const identity *all)
{
    int n = 0, before = 0, here = 0, before_here = 0;
    for (int i = 0; i < w->size; i++) {
        if (!together(all, i, w->rank)) continue;
        if (all[i].has_threads) return;
        bool same = CPU_EQUAL(&all[i].cores, &all[w->rank].cores), earlier = i < w->rank;
        here++, before_here += earlier;
        n += same, before += same && earlier;
    }
    if (here < 2) return;
    int threads = n > 1 ? lc__cores_take(before, n) : lc_processors();
    w->threads = lc__cores_of_quota(threads ? threads : 1, lc__processors_quota(""), before_here, here);
}

/* A rank on the coordinator's host reaches it by loopback, but has another address for other hosts. */
static void find_address(lc__world *w, const identity *all)
{
    if (!lc__socket_is_loopback(w->local_address)) return;
    for (int i = 0; i < w->size; i++)
        if (!together(all, i, w->rank) && !lc__socket_is_loopback(all[i].address)) {
            char route[sizeof w->local_address];
            lc__socket_route(all[i].address, route, sizeof route);
            if (*route) memcpy(w->local_address, route, sizeof route);
            return;
        }
}

/* On one host ranks meet over loopback; on several, any process with the address and the job's number could join. */
static void warn_of_guests(const lc__world *w, const lc__world_args *o)
{
    if (!w->guessable || w->rank != 0 || w->num_nodes < 2 || !o->say) return;
    o->say(o->ctx, "warning: LIGHTC_SECRET is not set: anyone who can reach these hosts and knows the job's number can "
                   "disturb this run; set it to the same 16 to 64 characters for all ranks");
}

/* ---- connecting ---- */

/* No supervisor is there to print it, and this rank may be killed soon by a launcher that has lost another. */
void lc__world_show_end(void *ctx, const char *message, const char *calls)
{
    lc__str text = {0};
    (void)ctx;
    lc__str_add(&text, "%serror: %s\n", calls, message);
    if (!text.failed) lc__show(2, text.s, text.n);
    lc__str_free(&text);
}

bool lc__is_one_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list;
}

static void warn_of_address(const lc__world *w, const lc__world_args *o)
{
    char text[600];
    snprintf(text, sizeof text, LC__EVERYWHERE, w->address);
    if (o->say) o->say(o->ctx, text);
}

/* The launcher whose end must end its ranks. Ranks that lightc starts on this machine are killed with it, and ranks
 * that are started by hand may outlive their shell. */
static const char *watched_launcher(const lc__world *w)
{
    static const char *const launchers[] = {"mpirun", "slurm", "torchrun", NULL};
    return lc__is_one_of(w->launcher, launchers) ? w->launcher : NULL;
}

static lc_status meet(lc__world *w, const lc__world_args *o)
{
    bool everywhere = false;
    if (w->rank == 0 && !w->hosted) {
        int port = w->port;
        lc_status s = lc__coordinator_start_as(w->address, w->num_nodes != 1, &port, w->size, w->secret, &o->times,
                                               &everywhere, &w->coordinator);
        if (s < 0) return lc_fail_context(s, "rank 0 cannot coordinate the run");
        if (everywhere) warn_of_address(w, o);
    }
    lc__control_args c = {.rank = w->rank,
                          .size = w->size,
                          .address = everywhere ? "127.0.0.1" : w->address, /* routers rarely loop back */
                          .port = w->port,
                          .secret = w->secret,
                          .identity = w->identity,
                          .times = o->times,
                          .launcher = watched_launcher(w),
                          .supervisor_reports = w->supervisor_reports || !w->hosted,
                          .say = o->say,
                          .ctx = o->ctx};
    if (w->coordinator) {
        lc__coordinator_on_end(w->coordinator, lc__world_show_end, NULL);
        lc__coordinator_on_stall(w->coordinator, lc__show_stall);
        c.times.silence = LC__FOREVER; /* it ends with this process, and may take long to print the end */
    }
    LC_TRY(lc__control_open(&c, &w->control));
    lc__control_last_resort(w->control, w->hosted);
    lc__control_local_address(w->control, w->local_address, sizeof w->local_address);
    return LC_OK;
}

static lc_status make_mpi(lc__world *w)
{
    LC_TRY(lc_comm_mpi(&w->comm));
    if (lc_comm_size(w->comm) == 1)
        return lc_fail(LC_ERR_CONFIG,
                       "LIGHTC_COMM asks for MPI, but MPI sees every rank as a run of its own, since %s started them; "
                       "start them with mpirun, or unset LIGHTC_COMM",
                       w->launcher);
    if (lc_comm_rank(w->comm) == w->rank && lc_comm_size(w->comm) == w->size) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "this process is rank %d of %d for MPI, but rank %d of %d for its launcher (%s)",
                   lc_comm_rank(w->comm), lc_comm_size(w->comm), w->rank, w->size, w->launcher);
}

/* Fails if the run has ended, so that no rank waits for others that will not join. */
static lc_status check_run(void *control)
{
    return lc__control_explain(control, 0, LC_OK);
}

lc_status lc__world_security(const lc__world_args *o, lc__security *out)
{
    const char *set = getenv("LIGHTC_COMM_SECURITY");
    return lc__security_find(o->security && *o->security ? o->security : set, out);
}

/* If memory cannot be shared, it fails on all ranks. Shared memory is not sealed: it does not leave the host. */
static lc_status make_comm(lc__world *w, const char *backend, const identity *all, const lc__world_args *o)
{
    static const char *const over_mpi[] = {"mpi", "shm+mpi", NULL}, *const over_memory[] = {"shm", "shm+tcp", "shm+mpi",
                                                                                            "auto", NULL};
    const lc_meeting meeting = {LC_MEETING_INIT, .all_gather = lc__control_all_gather, .ctx = w->control,
                                .check = check_run};
    int other = elsewhere(w, all), host = first_of_host(all, w->rank);
    bool automatic = !strcmp(backend, "auto"), share = lc__is_one_of(backend, over_memory) && any_together(w, all);
    lc__tcp_place here;
    lc_status s;
    LC_TRY(lc__tcp_place_set(&here, w->local_address, w->secret, o->times.silence));
    LC_TRY(lc__world_security(o, &here.security));
    bool seals = here.security != LC__SECURITY_NONE;
    bool mpi = lc__is_one_of(backend, over_mpi) || (automatic && !seals && other >= 0 && all_prefer_mpi(w, all));
    if (mpi && seals)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "comm_security=%s: MPI makes its own connections, which lightc cannot seal; use tcp or shm+tcp",
                       lc__security_name(here.security));
    if (!strcmp(backend, "shm") && other >= 0)
        return lc_fail(LC_ERR_CONFIG,
                       "ranks %d and %d are on different hosts or in different containers and cannot "
                       "share memory; use tcp",
                       w->rank, other);
    if (mpi) {
        LC_TRY(make_mpi(w));
        if (!share) return LC_OK;
        s = lc_comm_shm_over(w->comm, host, &meeting, &w->comm);
        return s == LC_ERR_UNSUPPORTED && automatic ? make_mpi(w) : s;
    }
    if (share) {
        bool mixed = other >= 0 || !strcmp(backend, "shm+tcp");
        s = mixed ? lc__comm_shm_tcp(&here, host, w->rank, w->size, &meeting, &w->comm)
                  : lc_comm_shm(w->rank, w->size, &meeting, &w->comm);
        if (s != LC_ERR_UNSUPPORTED || !automatic) return s;
    }
    return lc__comm_tcp(&here, w->rank, w->size, &meeting, &w->comm);
}

static lc_status explain(void *w, lc_status loss)
{
    return lc__world_explain(w, loss);
}

lc_status lc__world_connect(lc__world *w, const lc__world_args *o, const char *backend)
{
    lc_status status = LC_OK;
    lc__security security;
    LC_TRY(lc__world_security(o, &security));
    identity mine, *all = calloc((size_t)w->size, sizeof *all);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: a run of %d ranks", w->size);
    LC_TRY_GOTO(status, done, meet(w, o));
    find_identity(w, backend, &mine);
    mine.security = (int32_t)security;
    LC_TRY_GOTO(status, done, lc__control_all_gather(w->control, &mine, all, sizeof mine));
    for (int i = 0; i < w->size; i++) { /* terminated, whatever was sent */
        all[i].host[sizeof all[i].host - 1] = 0;
        all[i].address[sizeof all[i].address - 1] = 0;
        all[i].backend[sizeof all[i].backend - 1] = 0;
    }
    for (int i = 0; i < w->size; i++)
        if (strcmp(all[i].backend, backend) != 0) {
            status = lc_fail(LC_ERR_CONFIG, "rank %d wants to communicate over %s, but rank %d over %s", w->rank,
                             backend, i, all[i].backend);
            goto done;
        }
    for (int i = 0; i < w->size; i++)
        if (all[i].security != mine.security) {
            status =
                lc_fail(LC_ERR_CONFIG, "comm_security is %s on rank %d but %s on rank %d; it must be the same on all",
                        lc__security_name(security), w->rank, lc__security_name((lc__security)all[i].security), i);
            goto done;
        }
    place(w, all);
    warn_of_guests(w, o);
    share_cores(w, all);
    find_address(w, all);
    LC_TRY_GOTO(status, done, make_comm(w, backend, all, o));
    lc__control_watch(w->control, w->comm);
    lc__comm_explained_by(w->comm, explain, w);
done:
    free(all);
    return status;
}

static void look(void *comm)
{
    lc__comm_look(comm);
}

/* Leaving MPI takes all ranks, and nobody watches them meanwhile: so each first learns that all have come this far. An
 * error now is too late for any call to return it. */
static void leave_together(lc__world *w)
{
    if (lc__control_ended(w->control, NULL, 0)) return;
    if (lc__control_leave(w->control, look, w->comm) >= 0) return;
    lc__show_line(2, "error: %s", lc_error_message());
    lc_comm_abort(w->comm, lc_error_message());
}

void lc__world_disconnect(lc__world *w)
{
    if (w->comm && w->control && !strcmp(lc_comm_name(w->comm), "mpi")) leave_together(w);
    if (w->comm) lc__comm_on_free(w->comm, NULL);
    if (w->control && w->comm) lc__control_unwatch(w->control, w->comm);
    lc_comm_free(w->comm);
    if (w->control && lc__noted_signal()) lc__control_stopped(w->control, lc__noted_signal());
    lc__control_close(w->control);
    lc__coordinator_stop(w->coordinator);
    w->comm = NULL;
    w->control = NULL;
    w->coordinator = NULL;
}

/* ---- for any communicator ---- */

lc_status lc__comm_node(lc_comm *comm, int *node)
{
    int n = lc_comm_size(comm), rank = lc_comm_rank(comm);
    lc__world here;
    identity mine = {0}, *all = calloc((size_t)n, sizeof *all);
    lc_status status = LC_OK;
    *node = rank;
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: the nodes of %d ranks", n);
    LC_TRY_GOTO(status, done, lc__world_find(&here));
    find_host(&here, mine.host);
    LC_TRY_GOTO(status, done, lc_comm_all_gather(comm, &mine, all, sizeof mine, LC_U8, NULL));
    for (int i = 0; i < n; i++) all[i].host[sizeof all[i].host - 1] = 0;
    *node = first_of_host(all, rank);
done:
    free(all);
    return status;
}
