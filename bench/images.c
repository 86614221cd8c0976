/* SPDX-License-Identifier: Apache-2.0 */
/* Only the loader: pictures from folders of JPEG files, and tokens from a mapped file. Each measurement runs in a
 * process of its own, so that its memory can be told from that of the others, and alternates with its floor: libjpeg on
 * one thread with the files in memory, or memcpy. */
#include "pictures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 3
#define BATCH  64

typedef struct kind {
    const char *name, *folder;
    int width, height, n;
    int crop, padding; /* padding < 0: random_resized_crop */
    bool fast_scale;
} kind;

static const kind kinds[] = {
    {"lfw", "lfw", 250, 250, 1024, 224, 0, false},
    {"imagenet", "imagenet", 500, 375, 512, 224, -1, false},
    {"imagenet_fast_scale", "imagenet", 500, 375, 512, 224, -1, true},
    {"cifar", "cifar", 32, 32, 8192, 32, 4, false},
};
#define N_KINDS ((int)(sizeof kinds / sizeof kinds[0]))

/* ---- memory ---- */

/* A line of /proc/self/status, in MB. */
static double memory_mb(const char *name)
{
    char line[256];
    double found = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) found = strtod(line + strlen(name) + 1, NULL) / 1024;
    if (f) fclose(f);
    return found;
}

/* VmHWM starts again from here. */
static void forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

/* ---- pictures ---- */

static lc_status open_pictures(const kind *k, const char *folder, lc_dataset **out)
{
    const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    lc_transform steps[3], all;
    if (k->padding < 0)
        LC_TRY(lc_transform_random_resized_crop(k->crop, k->crop, &steps[0]));
    else
        LC_TRY(lc_transform_random_crop(k->crop, k->crop, &steps[0], .padding = LC_DIMS(k->padding)));
    LC_TRY(lc_transform_horizontal_flip(0.5, &steps[1]));
    LC_TRY(lc_transform_normalize(3, mean, std, &steps[2]));
    LC_TRY(lc_transform_compose(3, steps, &all));
    return lc_image_folder_new(folder, out, .transform = &all, .fast_scale = k->fast_scale);
}

/* Seconds per sample of an epoch, or of its first `most` batches. */
static lc_status read_epoch(lc_dataloader *loader, int64_t epoch, int64_t most, double *seconds)
{
    lc_batch *batch;
    int64_t samples = 0;
    double start = bench_now();
    LC_TRY(lc_dataloader_begin(loader, epoch, 0));
    for (int64_t i = 0; most == 0 || i < most; i++) {
        LC_TRY(lc_dataloader_next(loader, &batch));
        if (!batch) break;
        samples += lc_tensor_dim(batch->x, 0);
    }
    *seconds = (bench_now() - start) / (double)samples;
    return LC_OK;
}

static lc_status measure_pictures(const bench *b, const kind *k, const char *folder, int workers)
{
    const int n = b->steps && b->steps * BATCH < k->n ? (int)b->steps * BATCH : k->n;
    double own[ROUNDS], floor[ROUNDS], bytes = 0;
    char metric[64];
    lc_dataset *data;
    lc_dataloader *loader;
    bench_bytes *files = calloc((size_t)n, sizeof *files);
    uint8_t *pixels = malloc(bench_picture_room(k->width, k->height));
    if (!files || !pixels) return lc_fail(LC_ERR_MEMORY, "out of memory");
    LC_TRY(bench_pictures_read(folder, n, files));
    for (int i = 0; i < n; i++) bytes += (double)files[i].n / n;
    bench_pictures_decode(n, files, pixels);
    forget_peak();
    double before = memory_mb("VmRSS");
    LC_TRY(open_pictures(k, folder, &data));
    LC_TRY(lc_dataloader_new(&loader, .dataset = data, .batch_size = BATCH, .shuffle = true, .num_workers = workers));
    LC_TRY(read_epoch(loader, 0, b->steps, &own[0])); /* warms up */
    for (int r = 0; r < ROUNDS; r++) {
        double start = bench_now();
        bench_pictures_decode(n, files, pixels);
        floor[r] = (bench_now() - start) / n;
        LC_TRY(read_epoch(loader, r + 1, b->steps, &own[r]));
    }
    double peak = memory_mb("VmHWM") - before, batch = BATCH * (12.0 * k->crop * k->crop + 8) / (1 << 20);
    double t = bench_median(own, ROUNDS), f = bench_median(floor, ROUNDS);
    snprintf(metric, sizeof metric, "%s_%dw", k->name, workers);
    BENCH_EMIT(b, metric, 1e6 * t, "us", {"pictures_s", 1 / t}, {"libjpeg_pictures_s", 1 / f},
               {"per_core_over_libjpeg", f / t / (workers > 1 ? workers : 1)}, {"workers", workers},
               {"loader_mb", peak}, {"batch_mb", batch}, {"file_kb", bytes / 1024});
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
    return LC_OK; /* the process ends now, and with it the memory of the files */
}

/* ---- tokens ---- */

enum { WINDOW = 1024, TOKENS = 16 << 20, BATCHES = 512, COPIED = 2 * BATCH * WINDOW * 8 };

static lc_status write_tokens(const char *path)
{
    FILE *f = fopen(path, "wbx"); /* not again */
    if (!f) return access(path, R_OK) == 0 ? LC_OK : lc_fail(LC_ERR_IO, "cannot write %s", path);
    uint32_t z = 1;
    for (int i = 0; i < TOKENS; i++) {
        z = z * 1664525 + 1013904223;
        uint16_t token = (uint16_t)((z >> 16) % 50257);
        fwrite(&token, sizeof token, 1, f);
    }
    return fclose(f) == 0 ? LC_OK : lc_fail(LC_ERR_IO, "cannot write %s", path);
}

/* Seconds to copy what a batch has from an array of its type: windows from random places and the targets after them, to
 * where the batch before was, since a loader without workers has memory for one. */
static double copy_batches(const int64_t *from, int64_t *batch, int batches)
{
    uint64_t z = 1;
    double start = bench_now();
    for (int i = 0; i < batches; i++)
        for (int64_t at = 0; at < BATCH * WINDOW; at += WINDOW) {
            z = z * 6364136223846793005u + 1442695040888963407u;
            const int64_t *window = from + (z >> 33) % (TOKENS - WINDOW);
            memcpy(batch + at, window, WINDOW * sizeof *batch);
            memcpy(batch + BATCH * WINDOW + at, window + 1, WINDOW * sizeof *batch);
        }
    __asm__ volatile("" ::"r"(batch) : "memory");
    return (bench_now() - start) / batches;
}

static lc_status measure_tokens(const bench *b, const char *path)
{
    const int64_t batches = b->steps ? b->steps : BATCHES;
    const size_t room = TOKENS * sizeof(int64_t);
    double own[ROUNDS], floor[ROUNDS];
    lc_array_file *f;
    lc_dataset *data;
    lc_dataloader *loader;
    int64_t *from = malloc(room), *batch = malloc(COPIED);
    if (!from || !batch) return lc_fail(LC_ERR_MEMORY, "out of memory");
    memset(from, 1, room);
    memset(batch, 1, COPIED);
    LC_TRY(lc_array_file_open(path, &f));
    LC_TRY(lc_file_windows_new(f, &data, .window = WINDOW, .random = BATCH * batches));
    LC_TRY(lc_dataloader_new(&loader, .dataset = data, .batch_size = BATCH));
    LC_TRY(read_epoch(loader, 0, 0, &own[0])); /* warms up */
    for (int r = 0; r < ROUNDS; r++) {
        floor[r] = copy_batches(from, batch, (int)batches);
        LC_TRY(read_epoch(loader, r + 1, 0, &own[r]));
    }
    double t = BATCH * bench_median(own, ROUNDS), copy = bench_median(floor, ROUNDS);
    BENCH_EMIT(b, "tokens_0w", 1e6 * t, "us", {"tokens_s", BATCH * WINDOW / t}, {"memcpy_us", 1e6 * copy},
               {"over_memcpy", t / copy}, {"gb_s", 1e-9 * COPIED / t});
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
    lc_array_file_close(f);
    free(from);
    free(batch);
    return LC_OK;
}

/* ---- all ---- */

/* In a process of its own. `k` NULL: tokens. */
static lc_status measure(const bench *b, const kind *k, const char *path, int workers)
{
    int status = 0;
    pid_t child = fork();
    if (child < 0) return lc_fail(LC_ERR_IO, "no process could be started");
    if (child == 0) {
        lc_status s = k ? measure_pictures(b, k, path, workers) : measure_tokens(b, path);
        if (s != LC_OK) fprintf(stderr, "error: %s\n", lc_error_message());
        _exit(s != LC_OK);
    }
    if (waitpid(child, &status, 0) < 0 || status != 0)
        return lc_fail(LC_ERR_INTERNAL, "a process that measures %s failed", k ? k->name : "tokens");
    return LC_OK;
}

static lc_status measure_all(const bench *b, const char *folder)
{
    char path[4200];
    for (int i = 0; i < N_KINDS; i++) {
        const kind *k = &kinds[i];
        snprintf(path, sizeof path, "%s/%s", folder, k->folder);
        LC_TRY(bench_pictures_write(path, k->width, k->height, k->n));
        for (int workers = 0; workers <= 2; workers++) LC_TRY(measure(b, k, path, workers));
    }
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    LC_TRY(write_tokens(path));
    return measure(b, NULL, path, 0);
}

lc_status bench_images(const bench *b)
{
    char folder[4096];
    if (b->keep) return measure_all(b, b->keep);
    LC_TRY(bench_folder(folder, sizeof folder));
    lc_status s = measure_all(b, folder);
    bench_folder_remove(folder);
    return s;
}
