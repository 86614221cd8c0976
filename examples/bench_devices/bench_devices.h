/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of bench_devices.c.
 *
 * measure.c   one measurement, in a separate process
 * table.c     the results as tables and sentences
 * plot.c      the results as a plot */
#ifndef BENCH_DEVICES_H
#define BENCH_DEVICES_H

#include <lightc/lightc.h>

enum { SAMPLES = 1024, MOST_REPEATS = 32, MOST_SIZES = 16, MOST_SETUPS = 16 };
enum { TRAINING, INFERENCE, KINDS };

/* Where the time of a batch goes. Computing is forward, backward and update: on one device they run as one step, in
 * which no hook can read the clock. */
enum { DATA, RECORD, COMPUTE, WAIT, PLACES };

typedef struct arguments {
    const char *batch_sizes, *svg, *measure;
    int64_t most, threads_each, repeats, batch_size;
    double seconds;
} arguments;

typedef struct setup {
    const char *strategy;
    int devices;
} setup;

/* Summary of all measurements of a setup with a batch size. */
typedef struct result {
    int64_t n;
    double speed[MOST_REPEATS];            /* samples per second */
    double mean, deviation, place[PLACES]; /* of the speeds; seconds per batch */
} result;

typedef struct results {
    setup setups[MOST_SETUPS]; /* the first is one device */
    int64_t sizes[MOST_SIZES]; /* ascending */
    int n_setups, n_sizes;
    result of[KINDS][MOST_SETUPS][MOST_SIZES];
} results;

/* Prints "speed X" and, for each place, "place P SECONDS". */
lc_status measure(lc_trainer_options *opt, const arguments *a, int kind) LC_MUST_USE;

void print_tables(const results *all, int kind);

lc_status draw_plot(const results *all, const char *path) LC_MUST_USE;

#endif
