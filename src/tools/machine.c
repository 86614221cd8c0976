/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc doctor`: what this machine has for training, and which precision is fastest on it. To add a library: a line
 * in `libraries`. */
#define _GNU_SOURCE
#include "tools.h"

#include <dirent.h>
#include <dlfcn.h>
#include <lightc/lightc.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The value of the first line "NAME ... : VALUE" of a file in /proc; "" if there is none. */
static const char *proc(const char *path, const char *name, char *text, size_t size)
{
    char line[512];
    FILE *f = fopen(path, "re");
    text[0] = 0;
    while (f && !*text && fgets(line, sizeof line, f)) {
        char *colon = strncmp(line, name, strlen(name)) ? NULL : strchr(line, ':');
        if (colon) snprintf(text, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f) fclose(f);
    text[strcspn(text, "\n")] = 0;
    return text;
}

/* ---- the processor ---- */

static void show_matrix_units(const char *features)
{
    static const char *const units[] = {"amx_bf16", "amx_fp16"};
    char text[64] = "";
    for (int i = 0; i < 2; i++)
        if (strstr(features, units[i]))
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? ", " : "", units[i]);
    printf("matrix units  %s\n", *text ? text : "none that this process may use");
}

static void show_processor(const lc_device_info *cpu)
{
    char text[256];
    const long there = sysconf(_SC_NPROCESSORS_ONLN);
    const int granted = lc_processors();
    proc("/proc/cpuinfo", "model name", text, sizeof text);
    printf("processor     %.64s\n", *text ? SHOWN(text) : "unknown");
    printf("instructions  %s\n", *cpu->features ? cpu->features : "the base set");
    show_matrix_units(cpu->features);
    printf("processors    %ld", there);
    if (granted < there) printf(", of which affinity and quota let this process keep %d busy", granted);
    printf("\n");
}

/* ---- memory ---- */

/* Bytes a second that an operator over 64 MiB reads and writes, the best of a few; 0: there is too little memory. */
static double bandwidth(void)
{
    enum { FLOATS = 16 << 20, TIMES = 4 };
    const int64_t shape[] = {FLOATS};
    lc_graph *g = NULL;
    lc_tensor *x = NULL;
    double least = 0;
    lc_status s = lc_graph_new(&g, .device = "cpu");
    if (s >= 0) s = lc_tensor_new(LC_F32, 1, shape, &x);
    for (uint64_t i = 0; i < TIMES && s >= 0; i++) {
        struct timespec a, b;
        s = lc_step_begin(g, i, 0);
        if (s < 0) break;
        lc_tensor *y = lc_mul_scalar(x, 1.5);
        if (i == 0) lc_assign(x, y); /* memory never written would all be one page */
        lc_keep(y);
        clock_gettime(CLOCK_MONOTONIC, &a);
        s = lc_step_run(g);
        clock_gettime(CLOCK_MONOTONIC, &b);
        lc_status ended = lc_step_end(g);
        if (s >= 0) s = ended;
        double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        if (i > 1 && (least == 0 || seconds < least)) least = seconds;
    }
    lc_tensor_unref(x);
    lc_graph_free(g);
    return s >= 0 && least > 0 ? 2.0 * FLOATS * sizeof(float) / least : 0;
}

static void show_memory(void)
{
    char all[64], left[64];
    const double gib = 1024 * 1024, speed = bandwidth();
    proc("/proc/meminfo", "MemTotal", all, sizeof all);
    proc("/proc/meminfo", "MemAvailable", left, sizeof left);
    printf("memory        %.1f GiB, %.1f available", atof(all) / gib, atof(left) / gib);
    if (speed > 0) printf("; %.1f GB/s when all threads copy", 1e-9 * speed);
    printf("\n");
}

/* ---- libraries ---- */

static const struct {
    const char *file, *name, *version; /* version: a function without arguments that returns its text; OPTIONAL */
} libraries[] = {
    {"libsqlite3.so", "SQLite", "sqlite3_libversion"},
    {"libjpeg.so", "libjpeg", NULL},
    {"libpng16.so", "libpng", NULL},
    {"libwebp.so", "libwebp", NULL},
    {"libz.so", "zlib", "zlibVersion"},
    {"libcjson.so", "cJSON", "cJSON_Version"},
    {"libgomp.so", "libgomp", NULL},
    {"libmpi.so", "Open MPI", NULL},
};

enum { INDENT = 14 };

typedef struct list {
    char text[512];
} list;

static void add(list *l, const char *item)
{
    const size_t n = strlen(l->text);
    const char *newline = strrchr(l->text, '\n');
    const size_t column = newline ? strlen(newline + 1) : INDENT + n;
    const char *between = !n ? "" : column + strlen(item) > 76 ? ",\n" : ", ";
    snprintf(l->text + n, sizeof l->text - n, "%s%*s%s", between, between[0] && between[1] == '\n' ? INDENT : 0, "",
             item);
}

/* Without a function for it, the version is that of the file: "libjpeg.so.62.3.0". */
static int add_library(struct dl_phdr_info *info, size_t size, void *ctx)
{
    char path[PATH_MAX], item[96];
    const char *base = strrchr(info->dlpi_name, '/');
    (void)size;
    for (size_t i = 0; base && i < sizeof libraries / sizeof *libraries; i++) {
        size_t n = strlen(libraries[i].file);
        if (strncmp(base + 1, libraries[i].file, n) != 0) continue;
        const char *(*version)(void) = NULL;
        if (libraries[i].version) *(void **)&version = dlsym(RTLD_DEFAULT, libraries[i].version);
        const char *file = realpath(info->dlpi_name, path) ? strrchr(path, '/') + 1 : base + 1;
        if (version)
            snprintf(item, sizeof item, "%s %s", libraries[i].name, version());
        else
            snprintf(item, sizeof item, "%s (%s)", libraries[i].name, file);
        add(ctx, SHOWN(item));
    }
    return 0;
}

static void show_libraries(const lc_device_info *cpu)
{
    list l = {0};
    const char *onednn = strstr(cpu->kernels, "oneDNN");
    const char *mpi = getenv("LIGHTC_MPI_PLUGIN");
    (void)!dlopen(mpi && *mpi ? mpi : "liblightc_mpi.so", RTLD_LAZY | RTLD_GLOBAL | RTLD_NODELETE);
    add(&l, onednn ? SHOWN(onednn) : "no oneDNN");
    dl_iterate_phdr(add_library, &l);
    printf("libraries     %s\n", l.text);
}

/* ---- other devices ---- */

/* "liblightc_NAME.so" -> NAME. */
static bool backend_name(const char *file, char name[64])
{
    char rest[8] = "";
    return sscanf(file, "liblightc_%63[a-z0-9_]%7s", name, rest) == 2 && !strcmp(rest, ".so") &&
           strcmp(name, "mpi") != 0;
}

static void show_gpus(bool usable)
{
    char text[128];
    gpus_list("", text, sizeof text);
    printf("GPUs          %s%s\n", *text ? text : "none", *text && !usable ? "; not used: no backend" : "");
}

static void show_devices(void)
{
    const char *folder = getenv("LIGHTC_BACKEND_PATH");
    DIR *d = folder && *folder ? opendir(folder) : NULL;
    int n = 0;
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char name[64];
        lc_device_info info;
        if (!backend_name(e->d_name, name)) continue;
        lc_status s = lc_device_describe(name, &info);
        printf("%s%s: ", n++ ? "              " : "other devices ", name);
        if (s < 0)
            printf("cannot be used: %.200s\n", SHOWN(lc_error_message()));
        else
            printf("%d%s%s\n", info.devices, *info.kernels ? ", " : "", SHOWN(info.kernels));
    }
    if (d) closedir(d);
    if (!n)
        printf("other devices none: %s\n",
               d ? "LIGHTC_BACKEND_PATH has no backend" : "LIGHTC_BACKEND_PATH names no folder of backends");
    show_gpus(n > 0);
}

/* ---- precisions ---- */

static lc_status show_precisions(void)
{
    enum { TYPES = 3, SIZE = 768 };
    static const lc_dtype types[TYPES] = {LC_F32, LC_BF16, LC_F16};
    static const char *const names[TYPES] = {"32-true", "bf16-mixed", "16-mixed"};
    lc_precision_times t[TYPES];
    double all[TYPES];
    int best = 0;
    LC_TRY(lc_precision_measure(types, TYPES, SIZE, 0, t));
    printf("\nprecision     product ms   ratio    chain ms   ratio     both ms   ratio\n");
    for (int i = 0; i < TYPES; i++) {
        all[i] = t[i].product_ms + t[i].chain_ms;
        if (all[i] < all[best]) best = i;
        printf("%-12s  %10.2f  %6.2f  %10.2f  %6.2f  %10.2f  %6.2f\n", names[i], t[i].product_ms,
               t[i].product_ms / t[0].product_ms, t[i].chain_ms, t[i].chain_ms / t[0].chain_ms, all[i],
               all[i] / all[0]);
    }
    printf("fastest here: %s\n", names[best]);
    return LC_OK;
}

lc_status machine_show(void)
{
    lc_device_info cpu;
    LC_TRY(lc_device_describe("cpu", &cpu));
    show_processor(&cpu);
    show_memory();
    show_libraries(&cpu);
    show_devices();
    return show_precisions();
}
