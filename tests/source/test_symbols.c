/* SPDX-License-Identifier: Apache-2.0 */
/* The library's symbol tables, read with objdump and nm: no mutable statics except those of `allowed`, and no visible
 * names except lc_*. Another one needs a line there, and a convincing reason. */
#define _GNU_SOURCE
#include "sources.h"

#include <unistd.h>

static const struct {
    const char *name, *section;
} allowed[] = {
    {"lc__builtin",
     ".bss"}, /* the table of builtin.h (src/device/device.c); set when the library is loaded, never again */
    {"lc__current", ".tbss"},  /* the graph that this thread records (src/tensor/host_access.c) */
    {"added_kernels", ".bss"}, /* those of lc_op_add_kernel (src/ops/kernel.c); has a mutex */
    {"chosen", ".tbss"},       /* the device on which this thread makes tensors (src/device/device.c) */
    {"devices", ".bss"},       /* the devices that have been opened (src/device/device.c); has a mutex */
    {"error", ".tbss"},        /* this thread's last failure (src/base/status.c) */
    {"lc__errors", ".tbss"},   /* how many there were: apart from the message, since each hook reads it (same file) */
    {"fits_begun", ".bss"},    /* the number of the current fit, for restarted ranks (src/core/trainer/begin.c) */
    {"hdf5", ".bss"},          /* libhdf5 and the lock around its calls: its state is the process's (src/data/files) */
    {"keeper", ".bss"},        /* watches for signals after an interrupted run (src/core/trainer/signals.c) */
    {"lc__product_ratios", ".bss"}, /* what types cost on this machine (src/core/trainer/precision_time.c); atomic */
    {"lc__spent", ".tbss"},         /* how long this thread has read and decoded samples (src/data/dataset.c) */
    {"of_children", ".bss"},        /* what a child of this process releases (src/base/at_fork.c); has a mutex */
    {"on_the_host", ".bss"},  /* operators named once in a process (src/engine/plan/choose_kernel.c); has a mutex */
    {"pool", ".bss"},         /* the threads of this process that help with loops (src/base/pool.c) */
    {"texts", ".bss"},        /* frees the message of a thread that ends (src/base/status.c); set once */
    {"this_process", ".bss"}, /* which rank this process is (src/comm/world/world.c); has a mutex */
};

static char *library(const char *name, char *path, size_t size)
{
    const char *bin = getenv("LIGHTC_TEST_BIN");
    snprintf(path, size, "%s/../lib/%s", bin ? bin : "build/bin", name);
    return access(path, R_OK) ? NULL : path;
}

static FILE *symbols_of(const char *tool, const char *path)
{
    char command[5000];
    snprintf(command, sizeof command, "%s '%s' 2>/dev/null", tool, path);
    return popen(command, "r");
}

/* A line of `objdump -t`: address, seven columns of flags, section, size, name. */
static bool parse_objdump(const char *line, char flags[8], char *section, char *name)
{
    unsigned long long address, size;
    int at = 0;
    if (sscanf(line, "%llx%n", &address, &at) != 1 || line[at] != ' ' || strlen(line) < (size_t)at + 10) return false;
    memcpy(flags, line + at + 1, 7), flags[7] = 0;
    return sscanf(line + at + 8, "%255s %llx .hidden %255s", section, &size, name) == 3 ||
           sscanf(line + at + 8, "%255s %llx %255s", section, &size, name) == 3;
}

/* Sections that a running program writes to; .data.rel.ro is made read-only once the program is loaded. */
static bool is_writable(const char *section)
{
    if (!strncmp(section, ".data.rel.ro", 12)) return false;
    return !strncmp(section, ".data", 5) || !strncmp(section, ".bss", 4) || !strncmp(section, ".tbss", 5) ||
           !strncmp(section, ".tdata", 6) || !strcmp(section, "*COM*");
}

TEST(no_mutable_statics)
{
#ifdef INSTRUMENTED
    SKIP("a sanitizer adds variables of its own");
#endif
    char path[4200], line[4096], flags[8], section[256], name[256];
    if (!library("liblightc_internal.a", path, sizeof path)) SKIP("the static library is not where it is built");
    if (system("command -v objdump >/dev/null") != 0) SKIP("no objdump");
    FILE *f = symbols_of("objdump -t", path);
    CHECK(f);
    int symbols = 0, found = 0, foreign = 0;
    while (fgets(line, sizeof line, f)) {
        if (!parse_objdump(line, flags, section, name)) continue;
        symbols++;
        if (!is_writable(section) || strchr(flags, 'd') || strchr(flags, 'f')) continue;
        if (!strncmp(name, "__gcov", 6) || !strncmp(name, "__llvm", 6)) continue; /* counters of a coverage build */
        bool ok = false;
        for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
            ok |= !strcmp(name, allowed[i].name) && !strcmp(section, allowed[i].section);
        found += ok;
        foreign += !ok;
        if (!ok) printf("  %s in %s is a mutable static: keep it in an object, or make it const\n", name, section);
    }
    pclose(f);
    CHECK(symbols > 1000); /* the table was read */
    CHECK_EQ(foreign, 0);
    CHECK_EQ(found, sizeof allowed / sizeof *allowed); /* the search finds each of them */
}

/* The library asks the loader for static room for them, which is fast, but of which a program that opens it late has
 * about 1.5 KiB for all libraries together (glibc: rtld.optional_static_tls). */
TEST(any_program_can_open_it)
{
#ifdef INSTRUMENTED
    SKIP("a sanitizer adds variables of its own");
#endif
    char path[4200], line[4096], section[256];
    if (!library("liblightc.so", path, sizeof path)) SKIP("the shared library is not where it is built");
    if (system("command -v objdump >/dev/null") != 0) SKIP("no objdump");
    FILE *f = symbols_of("objdump -h", path);
    CHECK(f);
    unsigned long long size, sum = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%*d %255s %llx", section, &size) == 2)
            if (!strcmp(section, ".tbss") || !strcmp(section, ".tdata")) sum += size;
    pclose(f);
    CHECK(sum > 0);
    CHECK(sum <= 256);
}

TEST(only_lc_names_are_visible)
{
    char path[4200], line[4096];
    if (!library("liblightc.so", path, sizeof path)) SKIP("the shared library is not where it is built");
    if (system("command -v nm >/dev/null") != 0) SKIP("no nm");
    FILE *f = symbols_of("nm -D --defined-only", path);
    CHECK(f);
    int good = 0, bad = 0;
    while (fgets(line, sizeof line, f)) {
        char type, name[256];
        if (sscanf(line, "%*x %c %255s", &type, name) != 2) continue;
        bool ok = !strncmp(name, "lc_", 3) && strncmp(name, "lc__", 4) && strchr("TR", type); /* code and constants */
        good += ok;
        bad += !ok;
        if (!ok) printf("  %s is visible\n", name);
    }
    pclose(f);
    CHECK(good > 300);
    CHECK_EQ(bad, 0);
}

/* Every public function that a header declares is in the shared library. (The functions of comm_mpi.h are in
 * liblightc_mpi.) */
TEST(every_declared_function_is_there)
{
    char path[4200], command[9000], line[512];
    const char *source = source_root();
    if (!library("liblightc.so", path, sizeof path)) SKIP("the shared library is not here");
    if (system("command -v nm >/dev/null") != 0) SKIP("no nm");
    /* Declarations start at the left margin and contain LC_API. */
    snprintf(command, sizeof command,
             "t=$(mktemp); nm -D --defined-only '%s' | awk '{print $3}' | sort -u >$t; "
             "ls '%s'/include/lightc/*.h | grep -v comm_mpi.h | xargs cat | grep -oE '^LC_API [^=;(]*\\(' | grep -oE "
             "'lc_[a-z0-9_]+\\($' | tr -d '(' | "
             "sort -u | comm -23 - $t; rm -f $t",
             path, source);
    FILE *f = popen(command, "r");
    CHECK(f);
    int missing = 0;
    while (fgets(line, sizeof line, f)) {
        missing++;
        printf("  declared, but not in the library: %s", line);
    }
    pclose(f);
    CHECK_EQ(missing, 0);
}

TEST_MAIN
