/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, the JSON line, the count of allocations, a folder for files. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "bench.h"

#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- clocks ---- */

static double clock_seconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

double bench_since_exec(void)
{
    char text[2048];
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    /* Field 22, in ticks since the machine was started; the name (field 2) may contain anything, and ends with ')'. */
    const char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    if (!p) return NAN;
    return clock_seconds(CLOCK_BOOTTIME) - strtod(p, NULL) / (double)sysconf(_SC_CLK_TCK);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

int bench_threads(const bench *b)
{
    if (b->threads > 0) return (int)b->threads;
    lc_graph *g = NULL;
    int n = lc_graph_new(&g) == LC_OK ? lc_graph_threads(g) : 1;
    lc_graph_free(g);
    return n;
}

/* ---- counting allocations on one thread ---- */

#if defined(BENCH_SANITIZED) || !defined(__GLIBC__)
void bench_count_start(void) {}
long bench_count_stop(void)
{
    return -1;
}
#else
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static _Thread_local long allocations;
static _Thread_local bool counting;

static int is_foreign(struct dl_phdr_info *info, size_t size, void *address)
{
    (void)size;
    if (!strstr(info->dlpi_name, "libdnnl") && !strstr(info->dlpi_name, "libstdc++")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if ((uintptr_t)address >= at && (uintptr_t)address < at + info->dlpi_phdr[i].p_memsz) return 1;
    }
    return 0;
}

static void count(void *caller)
{
    if (!counting) return;
    counting = false;
    allocations += !dl_iterate_phdr(is_foreign, caller);
    counting = true;
}

void *malloc(size_t n)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t s)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, s);
}
void *realloc(void *p, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_memalign(a, n);
}

void bench_count_start(void)
{
    allocations = 0;
    counting = true;
}
long bench_count_stop(void)
{
    counting = false;
    return allocations;
}
#endif

/* ---- the line ---- */

static void put_text(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') putchar('\\');
        if ((unsigned char)*s >= ' ') putchar(*s);
    }
    putchar('"');
}

static void put_number(double v)
{
    if (!isfinite(v))
        printf("null");
    else if (v == floor(v) && fabs(v) < 1e15)
        printf("%.0f", v);
    else
        printf("%.6g", v);
}

void bench_emit(const bench *b, const char *metric, double value, const char *unit, int n, const bench_field *more)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"work\": ");
    put_text(b->work);
    printf(", \"impl\": \"lightc\", \"precision\": \"%s\", \"threads\": %d, \"device\": \"cpu\", \"metric\": ",
           b->precision, bench_threads(b));
    put_text(metric);
    printf(", \"value\": %.4f, \"unit\": ", value);
    put_text(unit);
    printf(", \"lightc\": ");
    put_text(lc_version());
    printf(", \"peak_rss_mb\": %.1f", (double)usage.ru_maxrss / 1024);
    for (int i = 0; i < n; i++) {
        if (!more[i].name) continue;
        printf(", ");
        put_text(more[i].name);
        printf(": ");
        if (more[i].text) {
            put_text(more[i].text);
        } else if (more[i].list) {
            printf("[");
            for (int k = 0; k < more[i].n; k++) {
                printf(k ? ", " : "");
                put_number(more[i].list[k]);
            }
            printf("]");
        } else {
            put_number(more[i].number);
        }
    }
    printf("}\n");
    fflush(stdout);
}

/* ---- a folder ---- */

lc_status bench_folder(char *path, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(path, size, "%s/lightc_bench.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (n < 0 || (size_t)n >= size || !mkdtemp(path)) return lc_fail(LC_ERR_IO, "cannot make a folder %s", path);
    return LC_OK;
}

void bench_folder_remove(const char *path)
{
    char command[4200];
    /* mkdtemp made the name; TMPDIR could hold a quote. */
    if (strchr(path, '\'')) return;
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) fprintf(stderr, "cannot remove %s\n", path);
}
