/* SPDX-License-Identifier: Apache-2.0 */
/* Output of ranks that mpirun has started for lightc: rank 0's is shown as it is, the others' is kept. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "prints_program"
#include "launched.h"
#include "machines.h"
#include "open_mpi.h"

#include <sys/stat.h>

enum { LINES = 200000 };

static machines two;
static const char *why_not = "";

__attribute__((constructor)) static void make(void)
{
    why_not = machines_own_mounts() ? machines_make(&two) : "the kernel allows no namespaces of its own here";
    /* Otherwise AddressSanitizer would report MPI's own leaks as a rank's failure. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
}

__attribute__((destructor)) static void end(void)
{
    machines_end(&two);
}

/* mpirun that ends its ranks at the end of a run must not be asked to end by itself meanwhile: it would crash, and with
 * it would go what ranks have printed. On a busy machine that takes seconds.
 *
 * The beginning of the command: this host by its own name, through `lightc launch` or through the program itself with a
 * file of hosts (which it takes for two). */
static const char *by(bool file)
{
    static char command[2 * PATH_MAX + 400];
    double grace = patience(2);
    char host[256] = "", path[PATH_MAX];
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/hosts", scratch_root);
    FILE *f = fopen(path, "w");
    CHECK(f);
    fprintf(f, "localhost\n%s\n", host);
    CHECK(fclose(f) == 0);
    if (file)
        snprintf(command, sizeof command,
                 "%s --num_nodes 2 --nodes_file %s --devices 2 --strategy ddp --grace_period %g", program, path, grace);
    else
        snprintf(command, sizeof command, "%s launch --grace_period %g -H %s:3 %s", lightc, grace, host, program);
    return command;
}

#define SPOKEN "rank 0 speaks\n\nand ends without a newline"
static const char complained[] = "rank 0 complains\r10 %\r100 %\x1e\x1e"
                                 "0123\0\xff\x1e\n";

/* The standard error of the run, which contains a zero byte. Before ranks start, mpirun may warn that it has lost a
 * race with its own agent of another machine ("plm:rsh: Warning: setpgid(...) failed"), which is passed over. */
static FILE *open_errors(const run *r)
{
    char path[400], line[400];
    snprintf(path, sizeof path, "%s/err", r->dir);
    FILE *f = fopen(path, "r");
    CHECK(f);
    long at = 0;
    while (fgets(line, sizeof line, f) && strstr(line, "plm:rsh: Warning: setpgid(")) at = ftell(f);
    CHECK(fseek(f, at, SEEK_SET) == 0);
    return f;
}

static void check_complained(const run *r)
{
    char text[sizeof complained] = "";
    FILE *f = open_errors(r);
    (void)!fread(text, 1, sizeof text - 1, f);
    fclose(f);
    if (memcmp(text, complained, sizeof text - 1) != 0) TEST_FAIL("the errors begin with: %s", text);
}

/* The errors printed after rank 0's. */
static const char *rest_of_errors(const run *r)
{
    static char text[32768];
    FILE *f = open_errors(r);
    CHECK(fseek(f, sizeof complained - 1, SEEK_CUR) == 0);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static void check_spoken(const run *r)
{
    if (strcmp(r->out, SPOKEN) != 0) TEST_FAIL("the output is \"%s\", and the errors: %s", r->out, r->err);
}

TEST(only_rank_0_prints)
{
    run r;
    if (!has_mpirun()) SKIP("no Open MPI");
    for (int file = 0; file < 2; file++) {
        if (!file) setenv("PRINT_EARLY", "1", 1); /* `lightc launch` keeps the output from the first byte on */
        CHECK_EQ(launch(&r, "%s", by(file)), 0);
        unsetenv("PRINT_EARLY");
        CHECK_STR(r.out, file ? SPOKEN : "early\n" SPOKEN);
        check_complained(&r);
        CHECK_STR(rest_of_errors(&r), "");
        for (int i = 0; i < 3; i++) (void)report(&r, i);
        check_clean(&r, 3);
    }
}

TEST(the_output_of_a_rank_that_failed)
{
    static const struct {
        const char *act, *last_words, *how;
    } ways[] = {{"abort", "Assertion `", ": killed by signal 6 (Aborted)\n"},
                {"kill", "", ": killed by signal 9 (Killed)\n"},
                {"exit", "", ": exited with status 3\n"},
                {"fail", "", ""}};
    run r;
    if (!has_mpirun()) SKIP("no Open MPI");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int meet = 0; meet < 2; meet++) {
            CHECK(launch(&r, "%s --act %s --meet %d", by(i % 2), ways[i].act, meet) != 0);
            check_spoken(&r);
            check_complained(&r);
            const char *rest = rest_of_errors(&r);
            CHECK_CONTAINS(rest, "---- the output of rank 1\nrank 1 speaks\n\nand ends without a newline"
                                 "rank 1 complains\n");
            CHECK_CONTAINS(rest, ways[i].last_words);
            CHECK_CONTAINS(rest, "\n----\n");
            CHECK_CONTAINS(rest, meet || !strcmp(ways[i].act, "fail") ? "error: rank 1 (host " : "error: rank 1 of ");
            CHECK_CONTAINS(rest, ways[i].how); /* as mpirun reports it */
            CHECK(!strstr(rest, "rank 2 speaks"));
            check_clean(&r, 3);
        }
}

TEST(only_the_last_of_many_lines_are_shown)
{
    run r;
    char text[4096];
    if (!has_mpirun()) SKIP("no Open MPI");
    CHECK_EQ(launch(&r, "%s --act many", by(false)), 3);
    CHECK_CONTAINS(rest_of_errors(&r), "---- the last 20 lines of rank 1 (all of it is in ");
    CHECK_CONTAINS(rest_of_errors(&r), "/rank-1.log)\n42\n43\n");
    CHECK_CONTAINS(rest_of_errors(&r), "\n60\nthe last line of rank 1\n----\n");
    file_text(r.dir, "rank-1.log", text, sizeof text);
    CHECK_CONTAINS(text, "rank 1 speaks\n\nand ends without a newlinerank 1 complains\n1\n2\n3\n");
}

/* All lines, and nothing else after the first ones. */
static void check_lines(const run *r, const char *name, int rank)
{
    char path[400], line[200], want[200];
    int n = 0;
    bool last = false;
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    FILE *f = fopen(path, "r");
    CHECK(f);
    for (int i = 0; i < 2 + (rank > 0); i++) CHECK(fgets(line, sizeof line, f)); /* its first lines */
    if (rank == 0) CHECK(fscanf(f, "and ends without a newline") == 0);
    while (fgets(line, sizeof line, f) && !last) {
        snprintf(want, sizeof want, "%d\n", ++n);
        if (n > LINES) snprintf(want, sizeof want, "the last line of rank %d\n", rank);
        if (strcmp(line, want) != 0) TEST_FAIL("line %d of rank %d is %s", n, rank, line);
        last = n > LINES;
    }
    CHECK(last && feof(f));
    fclose(f);
}

/* Short lines, some of which mpirun's own --tag-output loses. */
TEST(very_many_lines_of_two_ranks_at_once)
{
    run r;
    if (!has_mpirun()) SKIP("no Open MPI");
    CHECK_EQ(launch(&r, "%s --act flood --lines %d", by(false), LINES), 3);
    check_lines(&r, "out", 0);
    check_lines(&r, "rank-1.log", 1);
}

TEST(each_life_prints)
{
    run r;
    if (!has_mpirun()) SKIP("no Open MPI");
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    CHECK_EQ(launch(&r, "%s launch -H %s:3 --max_restarts 1 %s --act once", lightc, host, program), 0);
    CHECK_STR(r.out, SPOKEN SPOKEN);
    CHECK_CONTAINS(rest_of_errors(&r), "---- the output of rank 1\nrank 1 speaks\n");
    CHECK_CONTAINS(rest_of_errors(&r), "with 2 of 3 ranks (1 of 1)\nrank 0 complains");
    CHECK(!strstr(rest_of_errors(&r), "rank 2 speaks"));
}

/* A process that a rank has left behind has its output, and is killed with everything else that mpirun leaves. */
TEST(mpirun_is_killed)
{
    for (int late = 0; late < 2; late++) { /* the supervisor: the ranks notice it first */
        run r;
        int left = 0;
        char text[64];
        if (!has_mpirun()) SKIP("no Open MPI");
        start(&r, "%s --act leave", by(false));
        wait_for(&r, "left", "pid=");
        pid_t mpirun = child_named(r.pid, "mpirun");
        bool held = late && hold(&r);
        CHECK(mpirun > 1 && !kill(mpirun, SIGKILL));
        if (held) CHECK(all_gone(&r, 3, (int)patience(20000)));
        if (held) detach(&r);
        CHECK(finish(&r) != 0);
        CHECK(r.took < patience(20));
        check_spoken(&r);
        check_complained(&r);
        CHECK_CONTAINS(rest_of_errors(&r), "error: mpirun was killed by signal 9 (");
        file_text(r.dir, "left", text, sizeof text);
        CHECK(sscanf(text, "pid=%d", &left) == 1 && left > 1);
        CHECK(is_gone(left) && all_gone(&r, 3, 0));
    }
}

/* Ranks 1 and 2 are on the second machine. */
TEST(ranks_of_another_machine)
{
    run r;
    if (why_not) SKIP(why_not);
    char agent[400];
    if (!machines_have_mpirun()) SKIP("no Open MPI, or no nsenter");
    snprintf(agent, sizeof agent, "%s/agent", scratch_root);
    CHECK(machines_write_agent(&two, agent));
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    int holder = (int)two.holder[0], status;
    status = launch(&r,
                    "/usr/bin/env nsenter --net=/proc/%d/ns/net --uts=/proc/%d/ns/uts %s launch --grace_period %g "
                    "-H %s:1,%s:2 %s --act abort --on 2",
                    holder, holder, lightc, patience(2), machines_address[0], machines_address[1], program);
    unsetenv("OMPI_MCA_plm_rsh_agent");
    CHECK(status != 0);
    check_spoken(&r);
    check_complained(&r);
    CHECK_CONTAINS(rest_of_errors(&r), "---- the output of rank 2\nrank 2 speaks\n");
    CHECK_CONTAINS(rest_of_errors(&r), "Assertion `");
    CHECK_CONTAINS(rest_of_errors(&r), "error: rank 2 (host machine1)");
    CHECK(!strstr(rest_of_errors(&r), "rank 1 speaks"));
}

TEST_MAIN
