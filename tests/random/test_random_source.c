/* SPDX-License-Identifier: Apache-2.0 */
/* A random program that fails is printed as a C program (random_program_source.h), which must compute the same: some
 * are compiled, and their output must equal the numbers that the random program noted. */
#include "random_program_draw.h"
#include "random_program_source.h"
#include "scratch.h"

enum { PROGRAMS = ROUNDS(100, 10), WITH_DRAWS = PROGRAMS / 10, LINE = 1 << 18 };

static program programs[PROGRAMS];
static record noted;

static FILE *run_command(const char *format, const char *path, const char *arguments)
{
    static char command[8192];
    snprintf(command, sizeof command, format, path, path, arguments);
    FILE *f = popen(command, "r");
    CHECK(f);
    return f;
}

/* Whether random numbers are drawn, which depend on the line of the call. */
static bool draws(const program *p)
{
    for (int k = 0; k < p->n; k++)
        if (is_draw(p->code[k].op)) return true;
    return false;
}

/* Programs that run, in one file; few with random numbers. names: of the others. */
static void print_all(const char *path, char *names, size_t size)
{
    char name[64];
    FILE *f = fopen(path, "w");
    CHECK(f);
    print_source_start(f);
    size_t used = 0;
    for (uint64_t k = 0, key = 1000; k < PROGRAMS; key++) {
        draw_program(key, &programs[k]);
        if (draws(&programs[k]) != (k < WITH_DRAWS)) continue;
        run_program(&programs[k], &(run_mode){0}, &noted);
        if (noted.error[0]) continue;
        snprintf(name, sizeof name, "program_%llu_", (unsigned long long)k);
        print_source(f, &programs[k], name);
        if (k >= WITH_DRAWS) used += (size_t)snprintf(names + used, size - used, " %s", name);
        CHECK(used < size);
        k++;
    }
    fprintf(f, "\nTEST_MAIN\n");
    CHECK(fclose(f) == 0);
}

/* The next line of `f` must be the noted number. */
static void check_line(FILE *f, const record *r, const note *o, int k)
{
    static char got[LINE], want[LINE];
    int n = snprintf(want, sizeof want, "%s :", o->name);
    for (int64_t i = 0; i < o->n; i++)
        n += snprintf(want + n, sizeof want - (size_t)n, " %.17g", r->numbers[o->at + i]);
    if (!fgets(got, sizeof got, f)) TEST_FAIL("program %d shows nothing for %s", k, o->name);
    got[strcspn(got, "\n")] = 0;
    if (strcmp(got, want)) TEST_FAIL("program %d shows %.200s, not %.200s", k, got, want);
}

TEST(printed_programs_compute_the_same)
{
    static char names[4096];
    char path[300];
    int judged = 0;
    if (!getenv("LIGHTC_TEST_BIN") || !getenv("LIGHTC_TEST_SOURCE"))
        SKIP("LIGHTC_TEST_BIN or LIGHTC_TEST_SOURCE is not set");
    if (pclose(run_command("command -v cc >/dev/null", "", "")) != 0) SKIP("there is no C compiler");
    snprintf(path, sizeof path, "%s/printed", scratch_root);
    print_all(strcat(path, ".c"), names, sizeof names);
    path[strlen(path) - 2] = 0;
    CHECK_EQ(pclose(run_command("cc -std=gnu11 -O0 -Wall -Wextra -Werror -c '%s.c' -o '%s.o' "
                                "-I\"$LIGHTC_TEST_SOURCE/tests/support\" -I\"$LIGHTC_TEST_SOURCE/src\" "
                                "-I\"$LIGHTC_TEST_SOURCE/include\"",
                                path, "")),
             0);
#ifdef INSTRUMENTED
    (void)check_line, (void)judged;
    SKIP("the program compiles; without a sanitizer it cannot load a library that has one");
#else
    CHECK_EQ(pclose(run_command("cc '%s.o' -o '%s' -L\"$LIGHTC_TEST_BIN/../lib\" "
                                "-Wl,-rpath,\"$LIGHTC_TEST_BIN/../lib\" -llightc -lm",
                                path, "")),
             0);
    FILE *f = run_command("'%.0s%s' %s", path, names);
    for (int k = WITH_DRAWS; k < PROGRAMS; k++) {
        run_program(&programs[k], &(run_mode){0}, &noted);
        for (int j = 0; j < noted.n; j++) check_line(f, &noted, &noted.notes[j], k), judged++;
    }
    while (fgets(names, sizeof names, f)) continue; /* "65 passed" */
    CHECK_EQ(pclose(f), 0);
    CHECK(judged > 10 * PROGRAMS);
#endif
}

TEST_MAIN
