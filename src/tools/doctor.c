/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc doctor` shows this machine (machine.c). `lightc doctor comm` shows how the ranks of a run reach each other,
 * and what slows them down. As a rank of `lightc launch` it checks all ranks; otherwise this host. To add a check: a
 * function in `checks`. */
#include "bench.h"
#include "place.h"
#include "tools.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct doctor {
    double seconds;
} doctor;

static const lc_option table[] = {
    LC_FIELD(doctor, seconds, "duration of a batch of calls; each link takes about a hundred; 0: do not measure links"),
};

enum { MOST_PROBLEMS = 32 };

typedef struct diagnosis {
    const place *all;
    int n, hosts; /* hosts: of all ranks */
    const char *over;
    int problems;
    char reported[MOST_PROBLEMS][512]; /* the first problems */
} diagnosis;

/* Reports a problem once: hosts simulated on one machine have the same problems. */
__attribute__((format(printf, 2, 3))) static void complain(diagnosis *p, const char *format, ...)
{
    char raw[sizeof *p->reported], text[sizeof *p->reported];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    lc_printable(raw, false, text, sizeof text);
    for (int i = 0; i < p->problems && i < MOST_PROBLEMS; i++)
        if (!strcmp(p->reported[i], text)) return;
    printf("%s  - %s\n", p->problems ? "" : "\nto check\n", text);
    if (p->problems < MOST_PROBLEMS) memcpy(p->reported[p->problems], text, sizeof text);
    p->problems++;
}

/* "shm+tcp": one backend within hosts, another between them. */
static bool is_mixed(const char *over)
{
    return !strncmp(over, "shm+", 4);
}

static bool leads(const diagnosis *p, int rank)
{
    return place_host(p->all, rank) == rank;
}

static int ranks_of_host(const diagnosis *p, int host)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) n += place_host(p->all, i) == host;
    return n;
}

/* ---- what is there ---- */

static void show_hosts(const diagnosis *p)
{
    char nodes[128], over[64] = "";
    if (p->n > 1) snprintf(over, sizeof over, ", over %s", p->over);
    printf("%d rank%s on %d host%s%s\n", p->n, p->n > 1 ? "s" : "", p->hosts, p->hosts > 1 ? "s" : "", over);
    for (int h = 0; h < p->n; h++) {
        const place *a = &p->all[h];
        if (!leads(p, h)) continue;
        printf("\n%s: %d processors", SHOWN(a->host), a->all_cpus);
        if (a->sockets) printf(", %d socket%s", a->sockets, a->sockets > 1 ? "s" : "");
        if (a->all_nodes) printf(", %d NUMA node%s", a->all_nodes, a->all_nodes > 1 ? "s" : "");
        printf(", load %.2f, lightc %s\n", a->load, SHOWN(a->version));
        printf("  network: %s%s\n", *a->networks ? SHOWN(a->networks) : "only loopback", a->has_fabric ? ", RDMA" : "");
        for (int i = 0; i < p->n; i++) {
            const place *r = &p->all[i];
            size_t k = 0;
            if (place_host(p->all, i) != h) continue;
            nodes[0] = 0;
            for (int node = 0; node < 64 && k < sizeof nodes - 8; node++)
                if (r->nodes >> node & 1)
                    k += (size_t)snprintf(nodes + k, sizeof nodes - k, "%s%d", k ? "," : ", NUMA node ", node);
            printf("  rank %d: processors %s%s, %d thread%s\n", i, SHOWN(r->cpu_list), nodes, r->threads,
                   r->threads > 1 ? "s" : "");
        }
    }
}

/* The number of ranks per host, if it is the same on all hosts and the ranks of each are consecutive; else 0. */
static int ranks_per_host(const diagnosis *p)
{
    int each = ranks_of_host(p, 0);
    for (int i = 0; i < p->n; i++)
        if (place_host(p->all, i) != i / each * each || ranks_of_host(p, place_host(p->all, i)) != each) return 0;
    return each;
}

static bool power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static void show_ways(const diagnosis *p)
{
    int each = ranks_per_host(p);
    const int32_t *ports = p->all[0].ports;
    if (p->n == 1) return;
    printf("\nways\n");
    if (p->hosts > 1 && strstr(p->over, "tcp") && ports[1])
        printf("  connections use ports %d to %d, which a firewall between the hosts must allow\n", ports[0], ports[1]);
    if (!is_mixed(p->over)) {
        printf("  all calls, between all ranks: %s\n", p->over);
        return;
    }
    printf("  within a host: shared memory; between hosts: %s\n", strchr(p->over, '+') + 1);
    printf("  all_gather, broadcast: %s\n",
           each > 1 ? "each byte goes to another host once" : "each byte goes to another host once for each rank");
    printf("  all_reduce, reduce_scatter: %s\n",
           each > 1 && power_of_two(each) ? "each byte goes to another host once (f16 and bf16: once for each rank)"
                                          : "each byte goes to another host once for each rank");
}

/* ---- problems ---- */

static void check_versions(diagnosis *p)
{
    for (int i = 1; i < p->n; i++)
        if (strcmp(p->all[i].version, p->all[0].version) != 0) {
            complain(p, "rank 0 (%s) has lightc %s but rank %d (%s) has %s: install the same version on all hosts",
                     p->all[0].host, p->all[0].version, i, p->all[i].host, p->all[i].version);
            return;
        }
}

/* Compares the threads of a host's ranks with the processors that they may use together. */
static void check_processors(diagnosis *p)
{
    for (int h = 0; h < p->n; h++) {
        uint64_t together[PLACE_CPUS / 64] = {0};
        int threads = 0, n = 0, ranks = ranks_of_host(p, h), quota = INT_MAX;
        if (!leads(p, h)) continue;
        for (int i = 0; i < p->n; i++) {
            const place *r = &p->all[i];
            if (place_host(p->all, i) != h) continue;
            threads += r->threads;
            if (r->granted < r->n_cpus && r->granted < quota) quota = r->granted; /* of the container */
            for (int k = 0; k < PLACE_CPUS / 64; k++) together[k] |= r->cpus[k];
        }
        for (int k = 0; k < PLACE_CPUS / 64; k++) n += __builtin_popcountll(together[k]);
        int may = quota < n ? quota : n;
        const char *why = quota < n ? " (the container's quota)" : "";
        if (ranks > may)
            complain(p, "%s: %d ranks share %d processors%s: they take turns, so every call waits; start fewer ranks",
                     p->all[h].host, ranks, may, why);
        else if (threads > may)
            complain(p,
                     "%s: %d ranks want %d threads but have %d processors%s: let lightc start them (--devices, lightc "
                     "launch), since it divides the processors, or set OMP_NUM_THREADS=%d",
                     p->all[h].host, ranks, threads, may, why, may / ranks);
        if (p->all[h].load > n)
            complain(p, "%s: the load is %.2f on %d processors: other programs slow down the ranks", p->all[h].host,
                     p->all[h].load, n);
    }
}

static void check_nodes(diagnosis *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->n > 1 && __builtin_popcountll(p->all[i].nodes) > 1 &&
            ranks_of_host(p, place_host(p->all, i)) >= p->all[i].all_nodes)
            complain(p, "rank %d runs on %d NUMA nodes: bind it to one (numactl, mpirun --bind-to numa)", i,
                     __builtin_popcountll(p->all[i].nodes));
}

static void check_networks(diagnosis *p)
{
    for (int h = 0; h < p->n; h++) {
        const place *a = &p->all[h];
        if (!leads(p, h)) continue;
        if (!a->has_network)
            complain(p, "%s has no network except loopback: ranks on other hosts cannot reach it", a->host);
        if (a->has_fabric && a->memlock >= 0 && a->memlock < 64 << 20)
            complain(p, "%s: RDMA needs locked memory, but a process may lock only %lld bytes: use ulimit -l unlimited",
                     a->host, (long long)a->memlock);
        if (p->hosts > 1 && a->has_fabric && strstr(p->over, "tcp"))
            complain(p,
                     "%s has RDMA, but the ranks use TCP: start them with mpirun, and install the plug-in "
                     "liblightc_mpi on all hosts",
                     a->host);
    }
}

static void check_order(diagnosis *p)
{
    int each = ranks_per_host(p);
    if (p->hosts == 1 || !is_mixed(p->over)) return;
    if (!each)
        complain(
            p,
            "hosts have different numbers of ranks, or the ranks of a host are not consecutive: each byte goes to "
            "another host once for each rank; give each host the same number, in the order of hosts (mpirun: --map-by "
            "slot)");
    else if (!power_of_two(each))
        complain(p, "%d ranks per host is not a power of two: sums go to another host once for each rank; use %d or %d",
                 each, 1 << (31 - __builtin_clz((unsigned)each)), 2 << (31 - __builtin_clz((unsigned)each)));
}

static void (*const checks[])(diagnosis *p) = {check_networks, check_versions, check_processors, check_nodes,
                                               check_order};

/* ---- the command ---- */

static void show_line(const char *what, const char *over, const bench_line *l)
{
    printf("  %-28s %-8s %10.2f %12.2f %8.2f\n", what, over, l->alpha * 1e6, l->beta * 1024e9,
           l->beta > 0 ? 1e-9 / l->beta : 0);
    fflush(stdout);
}

static lc_status measure(lc_comm *c, const place *all, const doctor *o)
{
    rank_link links[MOST_LINKS];
    bench_line line = {0};
    int n = place_links(all, lc_comm_size(c), links);
    bool speaks = lc_comm_rank(c) == 0, mixed = is_mixed(lc_comm_name(c));
    if (o->seconds <= 0) return LC_OK;
    if (speaks) printf("\n%-30s %-8s %10s %12s %8s\n", "links", "over", "alpha us", "beta ns/KiB", "GB/s");
    for (int i = 0; i < n; i++) {
        const char *over = !mixed ? lc_comm_name(c) : links[i].across ? strchr(lc_comm_name(c), '+') + 1 : "shm";
        LC_TRY(bench_link(c, links[i].a, links[i].b, o->seconds, &line));
        if (speaks) show_line(links[i].what, over, &line);
    }
    static const char *const backends[] = {"shm", "tcp"};
    for (int i = 0; n == 0 && i < 2; i++) {
        LC_TRY(bench_pair(backends[i], o->seconds, &line));
        show_line("two processes on this host", backends[i], &line);
    }
    return LC_OK;
}

static lc_status examine(lc_comm *c, const doctor *o)
{
    const char *node = getenv("LIGHTC_NODE_RANK");
    place *all = calloc((size_t)lc_comm_size(c), sizeof *all);
    lc_status s = all ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: places of %d ranks", lc_comm_size(c));
    if (s >= 0) s = place_gather(c, node ? atoi(node) : -1, all);
    diagnosis p = {.all = all, .n = lc_comm_size(c), .over = lc_comm_name(c)};
    bool speaks = lc_comm_rank(c) == 0 && s >= 0;
    for (int i = 0; i < p.n && s >= 0; i++) p.hosts += leads(&p, i);
    if (speaks) show_hosts(&p), show_ways(&p);
    if (s >= 0) s = measure(c, all, o);
    for (size_t i = 0; i < sizeof checks / sizeof *checks && speaks && s >= 0; i++) checks[i](&p);
    if (speaks && s >= 0 && !p.problems) printf("\nno problems found\n");
    if (speaks && s >= 0 && p.n == 1)
        printf("to check the ranks of a run: lightc launch -H HOST:N,... lightc doctor comm\n");
    free(all);
    return s;
}

int tool_doctor(int argc, char **argv)
{
    doctor o = {.seconds = 0.005};
    lc_comm *c = NULL;
    void *texts = NULL;
    if (argc < 2) {
        LC_MAIN_TRY(machine_show());
        return 0;
    }
    if (strcmp(argv[1], "comm") != 0) {
        bool asked = is_help(argv[1]);
        fprintf(asked ? stdout : stderr, "usage: lightc doctor\n"
                                         "       lightc doctor comm [--seconds S]\n"
                                         "       lightc launch -H HOST:N,... lightc doctor comm [--seconds S]\n");
        return asked ? 0 : 2;
    }
    const lc_option_set sets[] = {{"the measurement", table, sizeof table / sizeof *table, &o}};
    argv[1] = (char *)(uintptr_t) "lightc doctor comm"; /* shown by --help */
    LC_MAIN_TRY(lc_options_parse(sets, 1, NULL, argc - 1, argv + 1, &texts));
    LC_MAIN_TRY(lc_comm_world(&c));
    LC_MAIN_TRY(examine(c, &o));
    lc_comm_free(c);
    lc_options_free(texts);
    return 0;
}
