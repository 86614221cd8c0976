/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc bench comm`: how long collectives take on this machine, over each backend. bench_points.c measures, and
 * bench_ranks.c starts the ranks. */
#include "bench_comm.h"
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST (1LL << 40) /* bytes */

static const lc_option table[] = {
    LC_FIELD(bench, backends, "self, threads, shm, tcp, shm+tcp, mpi"),
    LC_FIELD(bench, collectives, "all, or names separated by commas"),
    LC_FIELD(bench, ranks, "numbers separated by commas"),
    LC_FIELD(bench, max_bytes, "size of the largest calls"),
    LC_FIELD(bench, seconds, "duration of a batch of calls; each point takes seven"),
    LC_FIELD(bench, json, "file for the results"),
    LC_FIELD(bench, rows, "print machine-readable lines"),
};

/* Whether all of "a,b,c" are in `names`. */
static lc_status check_list(const char *option, const char *list, const char *const *names, int n)
{
    while (strcmp(list, "all") != 0) {
        int length = (int)strcspn(list, ","), i = 0;
        while (i < n && (strlen(names[i]) != (size_t)length || strncmp(list, names[i], (size_t)length) != 0)) i++;
        if (i == n) {
            char known[256] = "all";
            for (i = 0; i < n; i++) {
                size_t at = strlen(known);
                snprintf(known + at, sizeof known - at, ", %s", names[i]);
            }
            return lc_fail(LC_ERR_ARGUMENT, "%s: unknown \"%.*s\"; available: %s", option, length, list, known);
        }
        if (!list[length]) break;
        list += length + 1;
    }
    return LC_OK;
}

/* ---- results ---- */

static bool same_line(const row *a, const row *b)
{
    return a->ranks == b->ranks && !strcmp(a->backend, b->backend) && !strcmp(a->collective, b->collective);
}

static void show_fits(const bench *o, FILE *json)
{
    if (!json)
        printf("\n%-8s %5s  %-22s %12s %14s %10s %8s\n", "backend", "ranks", "collective", "alpha us", "beta ns/KiB",
               "GB/s", "off by");
    for (int i = 0, k; i < o->n; i = k) {
        const row *r = &o->found[i];
        for (k = i; k < o->n && same_line(r, &o->found[k]); k++) continue;
        bench_line f = bench_fit(o->found, i, k);
        if (json)
            fprintf(json,
                    "%s\n  {\"backend\": \"%s\", \"ranks\": %d, \"collective\": \"%s\", \"alpha_s\": %.6g, "
                    "\"beta_s_per_byte\": %.6g, \"off\": %.4g}",
                    i ? "," : "", r->backend, r->ranks, r->collective, f.alpha, f.beta, f.off);
        else
            printf("%-8s %5d  %-22s %12.2f %14.2f %10.2f %7.1fx\n", r->backend, r->ranks, r->collective, f.alpha * 1e6,
                   f.beta * 1024e9, f.beta > 0 ? 1e-9 / f.beta : 0, f.off);
    }
}

/* Whether line `r` measures the all-reduce that ddp uses for gradients. */
static bool is_of_ddp(const bench *o, const row *r)
{
    if (r->ranks == 1) return false;
    if (!strcmp(r->collective, OWN_MEMORY)) return true;
    bool own = false;
    for (int i = 0; i < o->n; i++) {
        const row *other = &o->found[i];
        own |=
            other->ranks == r->ranks && !strcmp(other->backend, r->backend) && !strcmp(other->collective, OWN_MEMORY);
    }
    return !own && !strcmp(r->collective, lc_collective_name(LC_COMM_ALL_REDUCE));
}

/* The smallest bucket, so that little is left when the backward pass ends, whose time is at most a tenth latency. */
static void suggest(const bench *o)
{
    bool any = false;
    for (int i = 0, k; i < o->n; i = k) {
        const row *r = &o->found[i];
        for (k = i; k < o->n && same_line(r, &o->found[k]); k++) continue;
        if (!is_of_ddp(o, r)) continue;
        bench_line f = bench_fit(o->found, i, k);
        double mb = 0.25;
        while (mb < 32 && f.alpha > 0.1 * (f.alpha + f.beta * mb * (1 << 20))) mb *= 2;
        printf("%s%d ranks over %s: --bucket_cap_mb %g\n", any ? "" : "\n", r->ranks, r->backend, mb);
        any = true;
    }
}

/* ---- files ---- */

static lc_status write_json(const bench *o)
{
    double load[3] = {0};
    FILE *f = fopen(o->json, "w");
    if (!f) return lc_fail(LC_ERR_IO, "cannot write %s", o->json);
    if (getloadavg(load, 3) < 1) load[0] = -1;
    fprintf(f, "{\"lightc\": \"%s\", \"cores\": %ld, \"load\": [%.2f, %.2f, %.2f],\n \"points\": [", lc_version(),
            sysconf(_SC_NPROCESSORS_ONLN), load[0], load[1], load[2]);
    for (int i = 0; i < o->n; i++) {
        const row *r = &o->found[i];
        fprintf(f,
                "%s\n  {\"backend\": \"%s\", \"ranks\": %d, \"collective\": \"%s\", \"bytes\": %lld, \"median_s\": "
                "%.6g, \"min_s\": %.6g, \"max_s\": %.6g}",
                i ? "," : "", r->backend, r->ranks, r->collective, (long long)r->bytes, r->median, r->least, r->most);
    }
    fprintf(f, "],\n \"lines\": [");
    show_fits(o, f);
    fprintf(f, "]}\n");
    return fclose(f) ? lc_fail(LC_ERR_IO, "cannot write %s", o->json) : LC_OK;
}

/* ---- the command ---- */

static lc_status run_backend(bench *o, const char *name, int size)
{
    if (!strcmp(name, "threads")) return bench_threads(o, size);
    if (!strcmp(name, "mpi")) return bench_mpirun(o, size);
    return bench_processes(o, size, name);
}

static const char *const names[] = {"threads", "shm", "tcp", "shm+tcp", "mpi", "self"};

/* Fails early, before the measurements. */
static lc_status check_json(const char *path)
{
    FILE *f = path ? fopen(path, "a") : NULL;
    if (path && !f) return lc_fail(LC_ERR_IO, "json: cannot write %s: %s", path, strerror(errno));
    if (f) fclose(f);
    return LC_OK;
}

static lc_status check(const bench *o)
{
    const char *collectives[LC_COMM_SEND];
    for (int op = LC_COMM_BARRIER; op <= LC_COMM_SEND; op++)
        collectives[op - 1] = lc_collective_name((lc_collective)op);
    LC_TRY(check_list("backends", o->backends, names, sizeof names / sizeof *names));
    LC_TRY(check_list("collectives", o->collectives, collectives, LC_COMM_SEND));
    if (o->max_bytes < 4 || o->max_bytes > LARGEST || o->seconds <= 0)
        return lc_fail(LC_ERR_ARGUMENT, "max_bytes must be 4 to %lld and seconds positive", LARGEST);
    for (const char *at = o->ranks; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (atoi(at) < 2 || atoi(at) > MOST_RANKS)
            return lc_fail(LC_ERR_ARGUMENT, "ranks is %.20s; it must be 2 to %d", at, MOST_RANKS);
    return check_json(o->json);
}

static lc_status run_all(bench *o, bool chosen)
{
    if (bench_listed(o->backends, "self")) {
        lc_comm *c = NULL;
        LC_TRY(lc_comm_self(&c));
        lc_status s = bench_all_points(c, o, -1);
        lc_comm_free(c);
        LC_TRY(s);
    }
    for (size_t b = 0; b + 1 < sizeof names / sizeof *names; b++)
        for (const char *at = o->ranks; at && bench_listed(o->backends, names[b]);
             at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
            int size = atoi(at);
            lc_status s = run_backend(o, names[b], size);
            if (s >= 0) continue;
            if (chosen) return lc_fail_context(s, "%s", names[b]);
            fprintf(stderr, "%s was not measured: %s\n", names[b], lc_error_message());
            break;
        }
    return LC_OK;
}

static int bench_comm(int argc, char **argv)
{
    bench o = {.collectives = "all", .max_bytes = 16 << 20, .seconds = 0.02};
    char ranks[64] = "2";
    double load[3];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (int n = 4; n <= lc_processors() && n <= 16; n *= 2)
        snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), ",%d", n);
    o.ranks = ranks;
    const lc_option_set sets[] = {{"the measurement", table, sizeof table / sizeof *table, &o}};
    void *texts = NULL;
    argv[0] = (char *)(uintptr_t) "lightc bench comm"; /* shown by --help */
    LC_MAIN_TRY(lc_options_parse(sets, 1, NULL, argc, argv, &texts));
    bool chosen = o.backends != NULL;
    if (!chosen) o.backends = "all";
    LC_MAIN_TRY(check(&o));
    o.found = calloc(MOST_ROWS, sizeof *o.found);
    if (!o.found) LC_MAIN_TRY(lc_fail(LC_ERR_MEMORY, "out of memory: results"));
    lc_comm *here = NULL;
    if (bench_is_rank()) LC_MAIN_TRY(bench_open(&here));
    bool first = !here || lc_comm_rank(here) == 0;
    if (!o.rows && first) {
        if (getloadavg(load, 3) == 3) printf("%ld cores, load %.2f %.2f %.2f\n", cores, load[0], load[1], load[2]);
        printf("%-8s %5s  %-22s %10s %12s %12s %12s %10s\n", "backend", "ranks", "collective", "bytes", "us (median)",
               "least", "most", "GB/s");
        fflush(stdout);
    }
    LC_MAIN_TRY(here ? bench_all_points(here, &o, bench_node()) : run_all(&o, chosen));
    lc_comm_free(here);
    if (!o.rows && first) show_fits(&o, NULL);
    if (!o.rows && first) suggest(&o);
    if (o.json && first) LC_MAIN_TRY(write_json(&o));
    free(o.found);
    lc_options_free(texts);
    return 0;
}

int tool_bench(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "comm")) return bench_comm(argc - 1, argv + 1);
    bool asked = argc > 1 && is_help(argv[1]);
    fprintf(asked ? stdout : stderr, "usage: lightc bench comm [--backends LIST] [--ranks LIST] [--collectives LIST]\n"
                                     "       [--max_bytes N] [--seconds S] [--json FILE]\n");
    return asked ? 0 : 2;
}
