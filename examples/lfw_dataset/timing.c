/* SPDX-License-Identifier: Apache-2.0 */
/* How long it takes to read all batches. */
#include "lfw_dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PASSES = 5, MOST = 16 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of a pass. */
static lc_status read_all(lc_dataloader *loader, int64_t epoch, double *seconds)
{
    lc_batch *batch;
    double start = now();
    LC_TRY(lc_dataloader_begin(loader, epoch, 0));
    do LC_TRY(lc_dataloader_next(loader, &batch));
    while (batch);
    *seconds = now() - start;
    return LC_OK;
}

/* *workers: their number, also of LC_WORKERS_AUTO. */
static lc_status measure(const arguments *a, lc_dataset *pictures, int *workers, double *mean, double *deviation)
{
    lc_dataloader *loader;
    lc_loader_times times;
    double seconds[PASSES], sum = 0, squares = 0;
    LC_TRY(lc_dataloader_new(&loader, .dataset = pictures, .batch_size = a->batch_size, .shuffle = true,
                             .num_workers = *workers));
    for (int i = 0; i < PASSES; i++) {
        LC_TRY(read_all(loader, i, &seconds[i]));
        sum += seconds[i];
    }
    lc_dataloader_times(loader, &times);
    *workers = times.workers;
    lc_dataloader_free(loader);
    *mean = sum / PASSES;
    for (int i = 0; i < PASSES; i++) squares += (seconds[i] - *mean) * (seconds[i] - *mean);
    *deviation = sqrt(squares / (PASSES - 1));
    printf("%d worker%s: %.4f s a pass, deviation %.4f s, %.0f pictures a second\n", *workers, *workers == 1 ? "" : "s",
           *mean, *deviation, (double)lc_dataset_length(pictures) / *mean);
    fflush(stdout);
    return LC_OK;
}

/* "1,2,4", "auto" */
static lc_status parse_workers(const char *text, int workers[MOST], int *n)
{
    const char *given = text;
    for (*n = 0; *n < MOST; text++) {
        const bool automatic = strncmp(text, "auto", 4) == 0;
        char *end = (char *)text + 4;
        long v = automatic ? LC_WORKERS_AUTO : strtol(text, &end, 10);
        if (end == text || (v < 0 && !automatic) || v > 256 || (*end && *end != ',')) break;
        workers[(*n)++] = (int)v;
        if (!*end) return LC_OK;
        text = end;
    }
    return lc_fail(LC_ERR_ARGUMENT,
                   "num_workers is \"%s\"; it must be numbers from 0 to 256, or auto, at most %d of them, as in 1,2,4",
                   given, MOST);
}

lc_status get_timing(const arguments *a, lc_dataset *pictures)
{
    int workers[MOST], n;
    double x[MOST], mean[MOST], deviation[MOST];
    LC_TRY(parse_workers(a->num_workers, workers, &n));
    for (int i = 0; i < n; i++) {
        LC_TRY(measure(a, pictures, &workers[i], &mean[i], &deviation[i]));
        x[i] = workers[i];
    }
    if (n < 2) return LC_OK;
    lc_plot *plot;
    lc_plot_series s = {.n = n, .x = x, .y = mean, .error = deviation};
    LC_TRY(lc_plot_lines(1, &s, &plot, .title = "Time of a pass: mean and deviation of five", .x_label = "workers",
                         .y_label = "seconds", .from_zero = true));
    lc_status status = show(plot, "timing.png");
    lc_plot_free(plot);
    return status;
}
