/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that start ranks, as child processes of a test: their output, the reports of their ranks, and what they
 * leave behind. */
#ifndef LC_TESTS_LAUNCHED_H
#define LC_TESTS_LAUNCHED_H

#include "file_text.h"
#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/* A command that is running, with its output in DIR/out and DIR/err, and DIR/tmp for its temporary files. */
typedef struct run {
    char dir[300], out[4096], err[32768];
    pid_t pid;
    int status;
    double begun, took;
} run;

/* In the existing directory. */
__attribute__((unused)) static void again(run *r, const char *format, ...) LC_PRINTF(2, 3);
static void again(run *r, const char *format, ...)
{
    char copy[9000], path[400];
    char *argv[64];
    int n = 0;
    snprintf(path, sizeof path, "%s/tmp", r->dir);
    mkdir(path, 0777);
    va_list args;
    va_start(args, format);
    vsnprintf(copy, sizeof copy, format, args);
    va_end(args);
    for (char *w = strtok(copy, " "); w && n < 60; w = strtok(NULL, " ")) argv[n++] = w;
    argv[n++] = (char *)"--dir", argv[n++] = r->dir;
    argv[n++] = (char *)"--default_root_dir", argv[n++] = r->dir;
    argv[n] = NULL;
    r->begun = seconds();
    fflush(stdout);
    r->pid = fork();
    CHECK(r->pid >= 0);
    if (r->pid == 0) {
        setenv("TMPDIR", path, 1);
        snprintf(path, sizeof path, "%s/out", r->dir);
        int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        snprintf(path, sizeof path, "%s/err", r->dir);
        int err = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(out, 1);
        dup2(err, 2);
        if (chdir(r->dir) == 0) execv(argv[0], argv);
        _exit(126);
    }
}

#define start(r, ...) (snprintf((r)->dir, sizeof(r)->dir, "%s", fresh_dir("run")), again(r, __VA_ARGS__))

/* On a busy machine ranks are late, and a message says for which ranks the others wait: no test is about these
 * lines. */
__attribute__((unused)) static void drop_lines_of_waiting(const run *r)
{
    static const char of[] = "waiting for rank";
    char path[400], *text = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "%s/err", r->dir);
    FILE *f = fopen(path, "r");
    CHECK(f && text);
    size_t n = fread(text, 1, (1 << 20) - 1, f), before = n;
    CHECK(fclose(f) == 0);
    for (size_t at = 0; at < n;) {
        char *end = memchr(text + at, '\n', n - at);
        size_t next = end ? (size_t)(end - text) + 1 : n;
        bool of_waiting = n - at >= sizeof of && !memcmp(text + at, of, sizeof of - 1);
        if (of_waiting) memmove(text + at, text + next, n - next);
        n -= of_waiting ? next - at : 0;
        at = of_waiting ? at : next;
    }
    if (n < before) {
        CHECK((f = fopen(path, "w")));
        CHECK(fwrite(text, 1, n, f) == n && fclose(f) == 0);
    }
    free(text);
}

__attribute__((unused)) static int finish(run *r)
{
    CHECK(waitpid(r->pid, &r->status, 0) == r->pid);
    r->took = seconds() - r->begun;
    drop_lines_of_waiting(r);
    file_text(r->dir, "out", r->out, sizeof r->out);
    file_text(r->dir, "err", r->err, sizeof r->err);
    return WIFEXITED(r->status) ? WEXITSTATUS(r->status) : 128 + WTERMSIG(r->status);
}

#define launch(r, ...) (start(r, __VA_ARGS__), finish(r))

/* The report of a rank; waits until it is there. */
static const char *report(const run *r, int rank)
{
    static char text[2048];
    char name[32];
    snprintf(name, sizeof name, rank < 0 ? "rank--" : "rank-%d", rank);
    for (double until = seconds() + patience(20); seconds() < until; pause_ms(10)) {
        file_text(r->dir, name, text, sizeof text);
        if (*text) return text;
    }
    TEST_FAIL("rank %d has never reported", rank);
}

__attribute__((unused)) static pid_t pid_of(const run *r, int rank)
{
    int pid = 0;
    CHECK(sscanf(report(r, rank), "pid=%d", &pid) == 1 && pid > 1);
    return pid;
}

__attribute__((unused)) static void wait_for(const run *r, const char *file, const char *part)
{
    char text[4096];
    for (double until = seconds() + patience(20); seconds() < until; pause_ms(10)) {
        file_text(r->dir, file, text, sizeof text);
        if (strstr(text, part)) return;
    }
    TEST_FAIL("\"%s\" is not in %s", part, file);
}

/* Stops a thread of another process, and no other, as if it were late; false: processes cannot be traced. */
__attribute__((unused)) static bool hold_thread(pid_t thread)
{
    int status;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0) return false;
    CHECK(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0);
    CHECK(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
    return true;
}

/* The first thread of the command. */
__attribute__((unused)) static bool hold(const run *r)
{
    return hold_thread(r->pid);
}

/* The nth thread that a process has started. */
__attribute__((unused)) static pid_t thread_of(pid_t pid, int n)
{
    char path[64];
    pid_t found = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        pid_t id = (pid_t)atoi(e->d_name);
        if (id && id != pid && --n == 0) found = id; /* in the order of their starts */
    }
    closedir(d);
    CHECK(found);
    return found;
}

__attribute__((unused)) static void detach(const run *r)
{
    CHECK(ptrace(PTRACE_DETACH, r->pid, NULL, NULL) == 0);
}

/* Gone, or dead and waiting to be reaped by its parent. */
static bool is_gone(pid_t pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return true;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(f);
    return state == 'Z' || state == 'X';
}

/* As in the output of ps: 'T' is stopped. */
__attribute__((unused)) static char state_of(pid_t pid)
{
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = '?';
    if (f) fclose(f);
    return state;
}

__attribute__((unused)) static bool all_gone(const run *r, int ranks, int within_ms)
{
    for (int ms = 0; ms <= within_ms; ms += 10) {
        int left = 0;
        for (int i = 0; i < ranks; i++) left += !is_gone(pid_of(r, i));
        if (!left) return true;
        pause_ms(10);
    }
    return false;
}

__attribute__((unused)) static void check_clean(const run *r, int ranks)
{
    char path[400], names[512] = "";
    CHECK(all_gone(r, ranks, 0));
    snprintf(path, sizeof path, "%s/tmp", r->dir);
    DIR *d = opendir(path);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') snprintf(names, sizeof names, "%s", e->d_name);
    closedir(d);
    CHECK_STR(names, "");
}

/* A process that it has started; 0: none. */
__attribute__((unused)) static pid_t child_named(pid_t parent, const char *wanted)
{
    char path[64], name[32];
    int pid = 0, found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *f = fopen(path, "r");
    while (f && !found && fscanf(f, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        FILE *of = fopen(path, "r");
        if (of && fscanf(of, "%31s", name) == 1 && !strcmp(name, wanted)) found = pid;
        if (of) fclose(of);
    }
    if (f) fclose(f);
    return found;
}

static char lightc[PATH_MAX + 32], program[PATH_MAX + 32]; /* LAUNCHED names the program; the test defines it */

__attribute__((constructor)) static void find_programs(void)
{
    char dir[PATH_MAX];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    if (!realpath(bin ? bin : "build/bin", dir)) abort(); /* before tests change the directory */
    snprintf(lightc, sizeof lightc, "%s/lightc", dir);
    snprintf(program, sizeof program, "%s/" LAUNCHED, dir);
    /* Ignore the environment of the test as far as possible. */
    unsetenv("OMP_NUM_THREADS");
}

/* The path of another program of the tests, until the next call. */
__attribute__((unused)) static const char *next_to(const char *name)
{
    static char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(program, '/') - program), program, name);
    return path;
}

#endif
