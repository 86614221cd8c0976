/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several hosts: mpirun starts them, and the supervisor of this machine supervises mpirun. */
#include "launch/launch.h"
#include "base/grow.h"
#include "base/io.h"

#include "comm/net/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FILE ((size_t)1 << 26) /* bytes of a file of hosts */

/* ---- hosts ---- */

lc_status lc__hosts_add(lc__hosts *h, const char *name, size_t n)
{
    LC_TRY(lc__grow_one(&h->names, h->n, "names of hosts"));
    if (!(h->names[h->n] = strndup(name, n))) return lc_fail(LC_ERR_MEMORY, "out of memory: names of hosts");
    h->n++;
    return LC_OK;
}

void lc__hosts_release(lc__hosts *h)
{
    for (int i = 0; i < h->n; i++) free(h->names[i]);
    free(h->names);
    *h = (lc__hosts){0};
}

static bool is_there(const lc__hosts *h, const char *name)
{
    for (int i = 0; i < h->n; i++)
        if (!strcmp(h->names[i], name)) return true;
    return false;
}

lc_status lc__hosts_of_file(const char *path, int n, lc__hosts *out)
{
    char *text;
    size_t bytes;
    lc_status s = lc__io_read_file(&lc__io_system, path, MOST_FILE, &text, &bytes);
    if (s < 0) return lc_fail_context(s, "nodes_file");
    for (char *line = text, *next; s >= 0 && out->n < n && *line; line = next) {
        next = strchrnul(line, '\n');
        if (*next) *next++ = 0;
        line[strcspn(line, " \t\r:#")] = 0;
        if (*line && !is_there(out, line)) s = lc__hosts_add(out, line, strlen(line));
    }
    free(text);
    if (s < 0 || out->n == n) return s;
    return lc_fail(LC_ERR_CONFIG, "%s names %d %s, but num_nodes is %d", path, out->n, out->n == 1 ? "host" : "hosts",
                   n);
}

/* ---- mpirun ---- */

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[4200];
    for (const char *dir = path, *end; dir; dir = *end ? end + 1 : NULL) {
        end = strchrnul(dir, ':');
        int n = snprintf(file, sizeof file, "%.*s/%s", (int)(end - dir), dir, program);
        if (n > 0 && (size_t)n < sizeof file && access(file, X_OK) == 0) return true;
    }
    return false;
}

/* Finds the address of this machine from which it reaches the hosts, so that they can reach it; another address is
 * preferred to loopback. mpirun's own connections come back in the same way. Hosts that only ssh knows by that name are
 * fine, as long as one host is known here. */
static lc_status find_address(const lc__hosts *hosts, char *address, size_t size, lc__str *unknown)
{
    char route[64];
    *address = 0;
    for (int i = 0; i < hosts->n; i++) {
        lc__socket_route(hosts->names[i], route, sizeof route);
        if (!*route) lc__str_add(unknown, "%s%s", unknown->n ? ", " : "", hosts->names[i]);
        if (*route && (!*address || lc__socket_is_loopback(address))) snprintf(address, size, "%s", route);
    }
    if (*address) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "no host of %s%s is reachable from here: %s", hosts->names[0],
                   hosts->n > 1 ? ", ..." : "", lc_error_message());
}

lc_status lc__launch_mpirun(const lc__run_plan *plan, const lc__hosts *hosts, int *exit_status)
{
    char address[256];
    lc__str unknown = {0};
    lc__run_plan with_hosts = *plan;
    if (!in_path("mpirun"))
        return lc_fail(
            LC_ERR_UNSUPPORTED,
            "ranks on other hosts are started by mpirun, which is not in PATH; install Open MPI, or start the "
            "program by hand on each host with --num_nodes N --node_rank I and MASTER_ADDR and MASTER_PORT");
    lc_status status = find_address(hosts, address, sizeof address, &unknown);
    with_hosts.hosts = hosts;
    with_hosts.address = address;
    with_hosts.unknown = unknown.failed ? NULL : unknown.s;
    if (status >= 0) status = lc__supervise(&with_hosts, exit_status);
    lc__str_free(&unknown);
    return status;
}
