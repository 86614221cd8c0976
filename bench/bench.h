/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the works of lightc_bench: options, clocks, the line that is printed, counting allocations.
 *
 * To add a work: a function in a file here, its prototype below, and its line in `works` (lightc_bench.c). */
#ifndef LC_BENCH_H
#define LC_BENCH_H

#include <lightc/lightc.h>

typedef struct bench {
    /* options */
    const char *work;
    const char *data;             /* folder of the IDX files */
    const char *keep;             /* existing folder for the files of images, which stay; NULL: they are removed */
    const char *precision;        /* of trainings: a name of lc_precision_find */
    const char *matmul_precision; /* of trainings: float32_matmul_precision; NULL: highest */
    int64_t threads;              /* 0: one per core */
    int64_t steps;                /* 0: the work's default */
    int64_t epochs;
    int64_t batch; /* 0: the work's default */
    int64_t workers;
    int64_t devices;      /* ranks of the works with a loader */
    const char *strategy; /* of these ranks; NULL: the trainer's choice */
    bool tune;
    bool unscaled;       /* with 16-mixed: without its scale of the loss, whose cost this shows */
    bool stepped;        /* only steps with batches in memory, no loader */
    bool loaded;         /* only epochs with the loader */
    double since;        /* when exec was called, on the clock of bench_now; 0: unknown */
    const char *program; /* path of this program */
    void *storage;       /* of the options' texts */
} bench;

/* ---- the works ---- */
lc_status bench_noop(const bench *b);
lc_status bench_everything(const bench *b);
lc_status bench_mlp(const bench *b);
lc_status bench_fashion(const bench *b);
lc_status bench_resnet18(const bench *b);
lc_status bench_gpt(const bench *b);
lc_status bench_ckpt(const bench *b);
lc_status bench_images(const bench *b);
lc_status bench_record(const bench *b);
lc_status bench_machine(const bench *b);
lc_status bench_startup(const bench *b);
lc_status bench_exposed(const bench *b);
lc_status bench_share(const bench *b);
lc_status bench_link(const bench *b);
lc_status bench_first_step(const bench *b);     /* child of startup: data in memory */
lc_status bench_first_step_idx(const bench *b); /* child of startup: trainer and IDX files */

/* Trains `model` for several epochs with loader, validation, logger and checkpoints, on b->devices ranks (train.c). */
lc_status bench_epochs(const bench *b, const char *model, int64_t batch);
/* Steps with batches in memory, no trainer (steps.c). */
lc_status bench_steps(const bench *b, const char *model);

/* A batch of random samples for one of the models. Initialize with zeros; free it also after a failure. */
typedef struct bench_batch {
    lc_tensor *x, *y;
    void *xs;
    int64_t *ys;
} bench_batch;
lc_status bench_batch_new(const char *name, int64_t samples, bench_batch *b);
void bench_batch_free(bench_batch *b);

/* ---- measuring ---- */
double bench_now(void);                /* seconds, CLOCK_MONOTONIC */
double bench_since_exec(void);         /* seconds since this process was started (resolution 10 ms) */
double bench_median(double *v, int n); /* sorts v */
int bench_threads(const bench *b);

/* Counts allocations of this thread between start and stop, except those inside oneDNN. -1: not possible in this build
 * (sanitizers). */
void bench_count_start(void);
long bench_count_stop(void);

/* ---- the line ---- */
/* Further members of the line: {"name", number} or {"name", 0, "text"} or {"name", 0, NULL, list, n}. */
typedef struct bench_field {
    const char *name;
    double number;
    const char *text;
    const double *list;
    int n;
} bench_field;

void bench_emit(const bench *b, const char *metric, double value, const char *unit, int n, const bench_field *more);
#define BENCH_EMIT(b, metric, value, unit, ...)                                                                        \
    bench_emit((b), (metric), (value), (unit), (int)(sizeof((bench_field[]){__VA_ARGS__}) / sizeof(bench_field)),      \
               (bench_field[]){__VA_ARGS__})

/* ---- a folder that is removed at the end ---- */
lc_status bench_folder(char *path, size_t size);
void bench_folder_remove(const char *path);

#endif
