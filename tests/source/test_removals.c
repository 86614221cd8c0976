/* SPDX-License-Identifier: Apache-2.0 */
/* The sources delete in one place, src/base/remove.c (docs/checkpoints.md, "What lightc deletes"): the table lists
 * other calls that remove, rename over, truncate or rewrite existing files, with the reason why they may. */
#include "sources.h"

/* Words of C; `call`: followed by "(". */
static const struct {
    const char *word;
    bool call;
} deletes[] = {
    {"unlink", true},    {"unlinkat", true},   {"rmdir", true},          {"remove", true},
    {"rename", true},    {"renameat", true},   {"renameat2", true},      {"truncate", true},
    {"ftruncate", true}, {"nftw", true},       {"shm_unlink", true},     {"system", true},
    {"O_TRUNC", false},  {"freopen", true},    {"SYS_renameat2", false}, {"exchange", true},
    {"creat", true},     {"tmpfile", true},    {"mkstemp", true},        {"mkostemp", true},
    {"mq_unlink", true}, {"sem_unlink", true}, {"truncate64", true},     {"copy_file_range", true},
};

static const struct {
    const char *file, *word;
    int times;
    const char *why;
} allowed[] = {
    {"base/io.c", "rename", 1, "the system's side of the table"},
    {"base/io.c", "unlinkat", 1, "the system's side of the table, called by remove.c"},
    {"base/io.c", "SYS_renameat2", 2, "the system's side of the table: exchanging names loses no file"},
    {"base/memory_file.c", "ftruncate", 1, "the size of a file without a name"},
    {"core/checkpoint/place.c", "rename", 4, "of directories, which can only replace an empty one"},
    {"core/checkpoint/write_job.c", "exchange", 1, "of names; no file is lost"},
    {"core/checkpoint/place.c", "exchange", 2, "of names; no file is lost"},
    {"core/checkpoint/joint.c", "rename", 1, "a rank's own note in the directory of a save"},
    {"core/checkpoint/leftovers.c", "renameat", 1, "a checkpoint gets its name back, if that is free"},
    {"core/checkpoint/leftovers.c", "SYS_renameat2", 2, "the same, checked by the kernel"},
    {"launch/supervisor/kept_output.c", "mkostemp", 1, "a new file"},
    {"launch/supervisor/kept_output.c", "O_TRUNC", 1, "a file that the launcher was asked to write"},
    {"engine/plan/dump.c", "O_TRUNC", 1, "a dump of the plan, at the path that was given"},
    {"core/hooks/profiling.c", "O_TRUNC", 1, "the profiler's report, at the path that was given"},
    {"launch/supervisor/failure.c", "O_TRUNC", 1, "failure.log of the launcher's own folder"},
    {"loggers/csv.c", "ftruncate", 2, "half a row, in a file with this logger's header"},
    {"loggers/spool.c", "ftruncate", 2, "the logger's own spool, under its lock"},
    {"loggers/stream.c", "ftruncate", 2, "half a line that begins like this logger's, or was written by this process"},
    {"tools/bench_ranks.c", "system", 1, "mpirun"},
    {"loggers/tensorboard.c", "ftruncate", 1, "a record that this process has written in part"},
};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

static int found[ALLOWED], files, wrong;

static void note(const char *file, const char *word, int line)
{
    for (int i = 0; i < ALLOWED; i++)
        if (!strcmp(allowed[i].file, file) && !strcmp(allowed[i].word, word)) {
            found[i]++;
            return;
        }
    wrong++;
    printf("  src/%s:%d: %s; use lc__remove (base/remove.h), or add a reason to tests/source/test_removals.c\n", file,
           line, word);
}

static void look_at_text(const char *file, char *text)
{
    int line = 1;
    blank_out(text);
    for (char *p = text; *p; p++) {
        line += *p == '\n';
        if (!in_name(*p) || (p > text && in_name(p[-1]))) continue;
        size_t n = 0;
        while (in_name(p[n])) n++;
        char *after = p + n;
        while (*after == ' ') after++;
        for (size_t i = 0; i < sizeof deletes / sizeof *deletes; i++)
            if (strlen(deletes[i].word) == n && !strncmp(p, deletes[i].word, n) && (!deletes[i].call || *after == '('))
                note(file, deletes[i].word, line);
    }
}

/* fopen(..., "w") empties an existing file: each one was named by a user, or is created with "x". */
static void look_for_fopen(const char *file, const char *text)
{
    static const char *const named[] = {
        "tools/bench_comm.c", /* --json FILE */
    };
    for (const char *p = text; (p = strstr(p, "fopen(")); p += 6) {
        const char *mode = strchr(p, ';'), *end = mode;
        bool writes = false;
        for (const char *q = p; q < end; q++)
            writes |= !strncmp(q, "\"w", 2) && !memchr(q, 'x', strcspn(q + 1, "\"") + 1);
        bool known = !writes;
        for (size_t i = 0; i < sizeof named / sizeof *named; i++) known |= !strcmp(named[i], file);
        if (known) continue;
        wrong++;
        printf("  src/%s: %.*s\n", file, (int)(end - p), p);
    }
}

static void look_at_file(const char *name, char *text)
{
    const char *file = name + strlen("src/");
    files++;
    look_for_fopen(file, text);
    if (strcmp(file, "base/remove.c") != 0) look_at_text(file, text);
}

TEST(one_place_deletes)
{
    each_source("src", c_files, look_at_file);
    CHECK(files > 200);
    for (int i = 0; i < ALLOWED; i++)
        if (found[i] != allowed[i].times) {
            wrong++;
            printf("  src/%s: %d of %s, the table says %d (%s)\n", allowed[i].file, found[i], allowed[i].word,
                   allowed[i].times, allowed[i].why);
        }
    CHECK_EQ(wrong, 0);
}

/* Removals are found, but not in comments and texts. */
TEST(a_removal_is_seen)
{
    char text[] =
        "/* unlink(a) */ x = \"rmdir(\\\"b\\\")\"; if (a) unlink (path); my_unlink(b); unlink_it(c); // remove(d)\n"
        "io->rename(io, a, b); f(remove, O_TRUNC);\n";
    int before = wrong;
    look_at_text("x.c", text);
    int seen = wrong - before;
    wrong = before;
    CHECK_EQ(seen, 3);
}

TEST_MAIN
