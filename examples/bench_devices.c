/* SPDX-License-Identifier: Apache-2.0 */
/* Does a second device pay? Measures the same training and inference, for several batch sizes, on one device and on
 * more, with data_parallel (one process) and ddp (a process per device), and reports where the time went.
 *
 *   bench_devices                                  1 and 2 devices; writes bench_devices.svg
 *   bench_devices --most 6 --threads_each 2        1, 2, 4 and 6 devices of 2 threads each: needs 12 cores
 *
 * A device is `threads_each` threads of the CPU, so that N devices have N times as many as one. The batch is always
 * that of all devices together: results equal those of one device, and only the time differs. Every measurement is a
 * separate run of this program with --measure. Measurements alternate in rounds, so that other load on the machine
 * affects all of them, and deviations are between rounds. After Ctrl-C the tables show the measurements so far.
 *
 * The other parts are in the folder bench_devices. */
#define _GNU_SOURCE
#include "bench_devices/bench_devices.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const lc_option options[] = {
    LC_OPTION(arguments, batch_sizes, LC_OPTION_TEXT, 0, 0,
              "samples in a batch of all devices together, separated by commas"),
    LC_OPTION(arguments, most, LC_OPTION_INT, 1, 64, "devices; 1, 2, 4, ... up to this, and this, are measured"),
    LC_OPTION(arguments, threads_each, LC_OPTION_INT, 1, 256, "threads of a device"),
    LC_OPTION(arguments, repeats, LC_OPTION_INT, 2, MOST_REPEATS, "measurements of each number"),
    LC_OPTION(arguments, seconds, LC_OPTION_FLOAT, 0.001, 1000,
              "least duration of a measurement of training; one of inference is a pass over the data"),
    LC_OPTION(arguments, svg, LC_OPTION_TEXT, 0, 0, "file of the plot"),
    LC_OPTION(arguments, measure, LC_OPTION_TEXT, 0, 0, "train or infer: one measurement, printed as numbers"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, SAMPLES, "with measure: samples in a batch of one rank"),
};
enum { OPTIONS = sizeof options / sizeof *options };

static const char *const kind_names[KINDS] = {"train", "infer"};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    interrupted = signal;
}

/* ---- what to measure ---- */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static lc_status find_sizes(const arguments *a, results *all)
{
    int n = 0;
    for (const char *at = a->batch_sizes; *at;) {
        char *end;
        long long size = strtoll(at, &end, 10);
        bool ends = *end == 0 || (*end == ',' && end[1]);
        if (end == at || !ends || size < 1 || size > SAMPLES || all->n_sizes == MOST_SIZES) {
            all->n_sizes = 0;
            break;
        }
        all->sizes[all->n_sizes++] = size;
        at = *end ? end + 1 : end;
    }
    if (all->n_sizes == 0)
        return lc_fail(LC_ERR_CONFIG, "batch_sizes=%.100s: 1 to %d numbers from 1 to %d, with commas", a->batch_sizes,
                       (int)MOST_SIZES, (int)SAMPLES);
    qsort(all->sizes, (size_t)all->n_sizes, sizeof *all->sizes, ascending);
    for (int j = 0; j < all->n_sizes; j++)
        if (j == 0 || all->sizes[j] != all->sizes[j - 1]) all->sizes[n++] = all->sizes[j];
    all->n_sizes = n;
    return LC_OK;
}

/* 2, 4, 8, ..., and finally `most`. */
static int next_number(int n, int most)
{
    return n < most && 2 * n > most ? most : 2 * n;
}

static void find_setups(const arguments *a, results *all)
{
    all->setups[all->n_setups++] = (setup){"single_device", 1};
    for (int n = 2; n <= a->most && all->n_setups + 2 <= MOST_SETUPS; n = next_number(n, (int)a->most)) {
        all->setups[all->n_setups++] = (setup){"data_parallel", n};
        all->setups[all->n_setups++] = (setup){"ddp", n};
    }
}

/* Warns of conditions that make the numbers less meaningful. */
static void warn(const arguments *a)
{
    double load = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (a->most * a->threads_each > cores)
        fprintf(stderr, "note: %lld devices of %lld threads are more than the %ld cores of this machine\n",
                (long long)a->most, (long long)a->threads_each, cores);
    if (getloadavg(&load, 1) == 1 && load > 0.5)
        fprintf(stderr, "note: the load of this machine is %.1f: other programs reduce the gain of more devices\n",
                load);
}

/* ---- measuring ---- */

/* Runs this program again, with its standard output in a pipe. The child has its own process group, so that Ctrl-C
 * reaches only this process, which ends the child silently. */
static pid_t start_child(char *const argv[], int *out)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || dup2(ends[1], 1) < 0) _exit(1);
        execv("/proc/self/exe", argv);
        _exit(1);
    }
    close(ends[1]);
    *out = ends[0];
    if (child < 0) close(ends[0]);
    return child;
}

static void read_numbers(FILE *f, result *r, bool *there)
{
    char line[256];
    double value;
    int place;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "speed %lf", &value) == 1) r->speed[r->n] = value, *there = true;
        if (sscanf(line, "place %d %lf", &place, &value) == 2 && place >= 0 && place < PLACES)
            r->place[place] += (value - r->place[place]) / (double)(r->n + 1); /* running mean */
    }
}

static lc_status measure_once(const arguments *a, const setup *s, int kind, int64_t size, result *r)
{
    char numbers[4][24];
    bool ddp = !strcmp(s->strategy, "ddp"), there = false;
    result next = *r;
    int out, status = 0;
    snprintf(numbers[0], sizeof numbers[0], "%d", s->devices);
    snprintf(numbers[1], sizeof numbers[1], "%lld", (long long)a->threads_each * (ddp ? 1 : s->devices));
    snprintf(numbers[2], sizeof numbers[2], "%lld", (long long)(ddp ? size / s->devices : size));
    snprintf(numbers[3], sizeof numbers[3], "%g", a->seconds);
    const char *argv[] = {"bench_devices", "--measure", kind_names[kind], "--strategy", s->strategy,
                          "--devices",     numbers[0],  "--threads",      numbers[1],   "--batch_size",
                          numbers[2],      "--seconds", numbers[3],       NULL};
    pid_t child = start_child((char *const *)argv, &out);
    FILE *f = child < 0 ? NULL : fdopen(out, "r");
    if (!f) return lc_fail(LC_ERR_IO, "a measurement could not be started: %s", strerror(errno));
    read_numbers(f, &next, &there);
    if (interrupted) kill(-child, SIGKILL);
    fclose(f);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        if (interrupted) kill(-child, SIGKILL);
    if (interrupted) return LC_OK;
    if (status != 0 || !there)
        return lc_fail(
            LC_ERR_USER,
            "this failed: bench_devices --measure %s --strategy %s --devices %s --threads %s --batch_size %s",
            kind_names[kind], s->strategy, numbers[0], numbers[1], numbers[2]);
    next.n++;
    *r = next;
    return LC_OK;
}

static void summarize(result *r)
{
    for (int64_t i = 0; i < r->n; i++) r->mean += r->speed[i] / (double)r->n;
    for (int64_t i = 0; i < r->n; i++)
        r->deviation += (r->speed[i] - r->mean) * (r->speed[i] - r->mean) / (double)(r->n > 1 ? r->n - 1 : 1);
    r->deviation = sqrt(r->deviation);
}

static lc_status measure_round(const arguments *a, results *all)
{
    for (int k = 0; k < KINDS; k++)
        for (int j = 0; j < all->n_sizes; j++)
            for (int i = 0; i < all->n_setups && !interrupted; i++)
                if (all->sizes[j] % all->setups[i].devices == 0)
                    LC_TRY(measure_once(a, &all->setups[i], k, all->sizes[j], &all->of[k][i][j]));
    return LC_OK;
}

static lc_status measure_all(const arguments *a, results *all)
{
    for (int64_t round = 0; round < a->repeats && !interrupted; round++) {
        fprintf(stderr, "round %lld of %lld\n", (long long)round + 1, (long long)a->repeats);
        LC_TRY(measure_round(a, all));
    }
    if (interrupted) fprintf(stderr, "interrupted: the tables show the measurements so far\n");
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < all->n_setups; i++)
            for (int j = 0; j < all->n_sizes; j++) summarize(&all->of[k][i][j]);
    return LC_OK;
}

static lc_status compare(const arguments *a)
{
    static results all;
    struct sigaction action = {.sa_handler = interrupt}; /* without SA_RESTART: interrupts reading */
    LC_TRY(find_sizes(a, &all));
    find_setups(a, &all);
    FILE *f = fopen(a->svg, "a"); /* fail early, before the measurements */
    if (!f)
        return lc_fail(LC_ERR_IO, "the plot %s cannot be written: %s; say where with --svg", a->svg, strerror(errno));
    fclose(f);
    warn(a);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    LC_TRY(measure_all(a, &all));
    for (int k = 0; k < KINDS; k++) print_tables(&all, k);
    LC_TRY(draw_plot(&all, a->svg));
    printf("\nplot: %s\n", a->svg);
    return LC_OK;
}

static lc_status measure_here(lc_trainer_options *opt, const arguments *a)
{
    for (int k = 0; k < KINDS; k++)
        if (!strcmp(a->measure, kind_names[k])) return measure(opt, a, k);
    return lc_fail(LC_ERR_CONFIG, "measure=%.60s: it must be train or infer", a->measure);
}

int main(int argc, char **argv)
{
    arguments a = {.batch_sizes = "16,64,256,1024",
                   .most = 2,
                   .threads_each = 1,
                   .repeats = 5,
                   .seconds = 0.3,
                   .svg = "bench_devices.svg"};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    const lc_strategy_ops *here;
    LC_MAIN_TRY(lc_trainer_options_parse_used(&opt, "strategy threads", options, OPTIONS, &a, argc, argv));
    LC_MAIN_TRY(lc_strategy_find(NULL, &here));
    if (a.measure) {
        if (a.batch_size == 0) a.batch_size = 64;
        LC_MAIN_TRY(measure_here(&opt, &a));
    } else if (opt.devices || opt.strategy || here->launches) { /* launches: this is one of several ranks */
        LC_MAIN_TRY(lc_fail(LC_ERR_CONFIG,
                            "bench_devices starts its own processes: run it alone, with --most in place of "
                            "--devices, and without --strategy"));
    } else if (opt.threads || a.batch_size) {
        LC_MAIN_TRY(lc_fail(LC_ERR_CONFIG,
                            "threads and batch_size only apply to --measure; use --threads_each and --batch_sizes"));
    } else {
        LC_MAIN_TRY(compare(&a));
    }
    lc_trainer_options_release(&opt);
    LC_MAIN_TRY(lc_stdout_flush());
    return interrupted ? 128 + interrupted : 0;
}
