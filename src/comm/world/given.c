/* SPDX-License-Identifier: Apache-2.0 */
/* Watching the ranks of a program that supplies its own communicator: its first rank hosts the coordinator, and sends
 * the others its address and the secret over that communicator. */
#include "comm/comm_internal.h"
#include "comm/control/control_internal.h"
#include "comm/net/socket.h"
#include "comm/world/world.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REACHED 30.0 /* seconds for ranks, which all run already, to reach the coordinator */

/* The message that ranks exchange. */
typedef struct place {
    char host[65], network[64]; /* the host's name, and which of its networks this process sees */
} place;

/* The message of the first rank to the others. */
typedef struct invitation {
    char address[256], secret[65], why_not[512];
    int32_t port;
} invitation;

static bool together(const place *a, const place *b)
{
    return !strcmp(a->host, b->host) && !strcmp(a->network, b->network);
}

static lc_status find_places(lc_comm *comm, place *all)
{
    place mine = {0};
    gethostname(mine.host, sizeof mine.host - 1);
    (void)!readlink("/proc/self/ns/net", mine.network, sizeof mine.network - 1);
    LC_TRY(lc_comm_all_gather(comm, &mine, all, sizeof mine, LC_U8, NULL));
    for (int i = 0; i < lc_comm_size(comm); i++) {
        all[i].host[sizeof all[i].host - 1] = 0;
        all[i].network[sizeof all[i].network - 1] = 0;
    }
    return LC_OK;
}

/* The address from which the first rank reaches another host, else its own name, which others may know. */
static void find_address(const place *all, int n, char *address, size_t size)
{
    char route[64] = "";
    int other = 0;
    while (other < n && together(&all[0], &all[other])) other++;
    snprintf(address, size, "127.0.0.1");
    if (other == n) return;
    lc__socket_route(all[other].host, route, sizeof route);
    snprintf(address, size, "%s", *route && !lc__socket_is_loopback(route) ? route : all[0].host);
}

static lc_status host(lc__world *w, const place *all, const lc__control_times *times, invitation *out)
{
    uint8_t random[LC__NONCE];
    int port = 0;
    find_address(all, w->size, out->address, sizeof out->address);
    LC_TRY(lc__proof_nonce(random));
    for (int i = 0; i < 16; i++) snprintf(out->secret + 2 * i, 3, "%02x", random[i]);
    bool near = lc__socket_is_loopback(out->address);
    LC_TRY(lc__coordinator_start(near ? out->address : "*", &port, w->size, out->secret, times, &w->coordinator));
    lc__coordinator_on_end(w->coordinator, lc__world_show_end, NULL);
    lc__coordinator_on_stall(w->coordinator, lc__show_stall);
    out->port = port;
    return LC_OK;
}

static lc_status come(lc__world *w, const lc__world_args *o, const lc__control_times *times, const invitation *to)
{
    lc__control_args c = {.rank = w->rank,
                          .size = w->size,
                          .address = to->address,
                          .port = to->port,
                          .secret = to->secret,
                          .times = *times,
                          .supervisor_reports = true,
                          .say = o->say,
                          .ctx = o->ctx};
    if (to->why_not[0]) return lc_fail(LC_ERR_PEER, "rank 0: %s", to->why_not);
    if (w->coordinator) c.times.silence = LC__FOREVER;
    return lc__control_open(&c, &w->control);
}

/* The error of the first rank that did not connect becomes that of all ranks. */
static lc_status agree(lc_comm *comm, lc_status mine, char why[512])
{
    int n = lc_comm_size(comm);
    char text[512] = "", *all = malloc((size_t)n * sizeof text);
    lc_status status = all ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: watching %d ranks", n);
    if (mine < 0) snprintf(text, sizeof text, "%s", lc_error_message());
    LC_TRY(status);
    *why = 0;
    status = lc_comm_all_gather(comm, text, all, sizeof text, LC_U8, NULL);
    for (int i = 0; i < n && status >= 0 && !*why; i++) memcpy(why, all + (size_t)i * sizeof text, sizeof text);
    why[sizeof text - 1] = 0;
    free(all);
    return status;
}

static lc_status explain(void *w, lc_status loss)
{
    return lc__world_explain(w, loss);
}

void lc__world_close_given(lc__world *w)
{
    lc__comm_explained_by(w->comm, NULL, NULL);
    if (w->control) lc__control_unwatch(w->control, w->comm);
    if (w->control && lc__noted_signal()) lc__control_stopped(w->control, lc__noted_signal());
    lc__control_close(w->control);
    lc__coordinator_stop(w->coordinator);
    free(w);
}

/* If ranks can reach each other only over the program's own communicator, they continue unwatched. */
static lc_status connect(lc__world *w, const lc__world_args *o, const place *all)
{
    char why[512];
    invitation to = {0};
    lc__control_times times = lc__control_default_times(&o->times);
    if (times.start > REACHED) times.start = REACHED;
    if (w->rank == 0 && host(w, all, &times, &to) < 0)
        snprintf(to.why_not, sizeof to.why_not, "%s", lc_error_message());
    LC_TRY(lc_comm_broadcast(w->comm, &to, sizeof to, LC_U8, 0, NULL));
    LC_TRY(agree(w->comm, come(w, o, &times, &to), why));
    if (!*why) {
        lc__control_watch(w->control, w->comm);
        lc__comm_explained_by(w->comm, explain, w);
        return LC_OK;
    }
    char text[700];
    snprintf(text, sizeof text, "warning: the ranks of this program's communicator are not watched: %s", why);
    if (w->rank == 0 && o->say) o->say(o->ctx, text);
    lc__control_close(w->control);
    lc__coordinator_stop(w->coordinator);
    w->control = NULL;
    w->coordinator = NULL;
    return LC_OK;
}

lc_status lc__world_given(lc_comm *comm, const lc__world_args *o, lc__world **out)
{
    int n = lc_comm_size(comm);
    lc__security security;
    *out = NULL;
    LC_TRY(lc__world_security(o, &security));
    if (security != LC__SECURITY_NONE && n > 1)
        return lc_fail(
            LC_ERR_UNSUPPORTED,
            "comm_security=%s: the program supplies its own communicator (%s), whose connections lightc does not make",
            lc__security_name(security), lc_comm_name(comm));
    if (n == 1 || strcmp(lc_comm_name(comm), "mpi") != 0 || lc__comm_is_explained(comm)) return LC_OK;
    lc__world *w = calloc(1, sizeof *w);
    place *all = calloc((size_t)n, sizeof *all);
    lc_status s = w && all ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: watching %d ranks", n);
    if (s >= 0) s = find_places(comm, all);
    if (s >= 0) {
        *w = (lc__world){.rank = lc_comm_rank(comm), .size = n, .launcher = "none", .comm = comm, .given = true};
        s = connect(w, o, all);
    }
    free(all);
    if (s >= 0) {
        lc__world_add_given(w);
        *out = w;
        return LC_OK;
    }
    char why[1024];
    lc__copy_message(why, sizeof why);
    if (w && w->comm)
        lc__world_close_given(w);
    else
        free(w);
    return lc_fail(s, "%s", why);
}
