/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "place.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The first line of a file; "" if there is none. */
static const char *line_of(char *text, size_t size, const char *format, ...)
{
    char path[512];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    FILE *f = fopen(path, "re");
    text[0] = 0;
    if (f && !fgets(text, (int)size, f)) text[0] = 0;
    if (f) fclose(f);
    text[strcspn(text, "\n")] = 0;
    return text;
}

/* ---- processors ---- */

static bool has_bit(const uint64_t *bits, int i)
{
    return bits[i / 64] >> i % 64 & 1;
}

/* Reads "0-3,8" into bits; returns how many there are. */
static int read_list(const char *text, uint64_t *bits, int most)
{
    int n = 0;
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text) break;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long i = first; i <= last && i < most; i++) bits[i / 64] |= UINT64_C(1) << i % 64, n++;
    }
    return n;
}

static void write_list(const uint64_t *bits, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < PLACE_CPUS && n < size; i++) {
        int last = i;
        if (!has_bit(bits, i)) continue;
        while (last + 1 < PLACE_CPUS && has_bit(bits, last + 1)) last++;
        int k = snprintf(text + n, size - n, last > i ? "%s%d-%d" : "%s%d", n ? "," : "", i, last);
        n += k > 0 ? (size_t)k : 0;
        i = last;
    }
}

static void find_processors(place *p)
{
    char text[4096];
    cpu_set_t set;
    uint64_t packages[4] = {0};
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int i = 0; i < CPU_SETSIZE && i < PLACE_CPUS; i++)
            if (CPU_ISSET(i, &set)) p->cpus[i / 64] |= UINT64_C(1) << i % 64, p->n_cpus++;
    write_list(p->cpus, p->cpu_list, sizeof p->cpu_list);
    p->all_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int node = 0; node < 64; node++) {
        uint64_t cpus[PLACE_CPUS / 64] = {0};
        if (!*line_of(text, sizeof text, "/sys/devices/system/node/node%d/cpulist", node)) continue;
        read_list(text, cpus, PLACE_CPUS);
        p->all_nodes++;
        for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++)
            if (cpus[i] & p->cpus[i]) p->nodes |= UINT64_C(1) << node;
    }
    for (int i = 0; i < PLACE_CPUS; i++) {
        if (!*line_of(text, sizeof text, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i)) continue;
        int package = atoi(text) & 255;
        if (!has_bit(packages, package)) p->sockets++;
        packages[package / 64] |= UINT64_C(1) << package % 64;
    }
    p->granted = lc_processors();
    const char *threads = getenv("OMP_NUM_THREADS");
    p->threads = threads && atoi(threads) > 0 ? atoi(threads) : p->granted;
    if (getloadavg(&p->load, 1) != 1) p->load = -1;
}

/* ---- networks ---- */

static void find_networks(place *p)
{
    struct ifaddrs *all = NULL;
    char text[64], address[INET6_ADDRSTRLEN];
    size_t n = 0;
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        bool v4 = i->ifa_addr && i->ifa_addr->sa_family == AF_INET;
        if (!v4 || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
        struct sockaddr_in in;
        memcpy(&in, i->ifa_addr, sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, address, sizeof address);
        p->has_network = 1;
        int speed = atoi(line_of(text, sizeof text, "/sys/class/net/%s/speed", i->ifa_name));
        int k = snprintf(p->networks + n, sizeof p->networks - n, "%s%s %s", n ? ", " : "", i->ifa_name, address);
        if (k > 0 && (n += (size_t)k) >= sizeof p->networks) break;
        k = speed > 0 ? snprintf(p->networks + n, sizeof p->networks - n, " %d Mbit/s", speed) : 0;
        if (k > 0 && (n += (size_t)k) >= sizeof p->networks) break;
    }
    freeifaddrs(all);
    DIR *d = opendir("/sys/class/infiniband");
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) p->has_fabric |= e->d_name[0] != '.';
    if (d) closedir(d);
    char ports[64];
    if (sscanf(line_of(ports, sizeof ports, "/proc/sys/net/ipv4/ip_local_port_range"), "%d %d", &p->ports[0],
               &p->ports[1]) != 2)
        p->ports[0] = p->ports[1] = 0;
}

/* ---- a rank ---- */

static void find_place(place *out, int node)
{
    char boot[64], processes[64] = "";
    struct rlimit limit;
    *out = (place){.memlock = -1};
    snprintf(out->version, sizeof out->version, "%s", lc_version());
    gethostname(out->host, sizeof out->host - 1);
    line_of(boot, sizeof boot, "/proc/sys/kernel/random/boot_id");
    if (readlink("/proc/self/ns/pid", processes, sizeof processes - 1) < 0) processes[0] = 0;
    snprintf(out->id, sizeof out->id, "%s %s %.100s %d", boot, processes, out->host, node);
    find_processors(out);
    find_networks(out);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        out->memlock = (int64_t)limit.rlim_cur;
}

/* Text from another rank is not trusted: makes it printable. */
static void clean(char *text, size_t size)
{
    char raw[sizeof((place *)0)->networks];
    text[size - 1] = 0;
    memcpy(raw, text, size);
    lc_printable(raw, false, text, size);
}

lc_status place_gather(lc_comm *c, int node, place *all)
{
    place *mine = calloc(1, sizeof *mine);
    if (!mine) return lc_fail(LC_ERR_MEMORY, "out of memory: what this rank reports to the others");
    find_place(mine, node);
    lc_status s = lc_comm_all_gather(c, mine, all, sizeof *mine, LC_U8, NULL);
    free(mine);
    for (int i = 0; i < lc_comm_size(c) && s >= 0; i++) {
        clean(all[i].version, sizeof all[i].version), clean(all[i].host, sizeof all[i].host);
        clean(all[i].cpu_list, sizeof all[i].cpu_list), clean(all[i].networks, sizeof all[i].networks);
        all[i].id[sizeof all[i].id - 1] = 0;
    }
    return s;
}

int place_host(const place *all, int rank)
{
    int first = 0;
    while (strcmp(all[first].id, all[rank].id) != 0) first++;
    return first;
}

/* ---- links ---- */

int place_links(const place *all, int n, rank_link *out)
{
    int found = 0;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n && found < MOST_LINKS; b++) {
            rank_link l = {.a = a, .b = b};
            int here = place_host(all, a), there = place_host(all, b), k = 0;
            bool apart = all[a].nodes && all[b].nodes && !(all[a].nodes & all[b].nodes);
            l.across = here != there;
            if (l.across)
                snprintf(l.what, sizeof l.what, "hosts of ranks %d and %d", here, there);
            else
                snprintf(l.what, sizeof l.what, "one host%s", apart ? ", two NUMA nodes" : "");
            while (k < found && strcmp(out[k].what, l.what) != 0) k++;
            if (k == found) out[found++] = l;
        }
    return found;
}
