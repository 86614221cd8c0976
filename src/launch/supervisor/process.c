/* SPDX-License-Identifier: Apache-2.0 */
/* One process: its environment, and how it is started. */
#include "launch/supervisor/supervisor.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Whether `add` has a line with the name of "NAME=value". */
static bool replaced(const lc__str *add, const char *variable)
{
    const char *equals = strchr(variable, '=');
    size_t n = equals ? (size_t)(equals - variable) + 1 : 0;
    if (!n || !add->s) return false;
    for (const char *line = add->s, *end; line; line = end ? end + 1 : NULL) {
        if (!strncmp(line, variable, n)) return true;
        end = strchr(line, '\n');
    }
    return false;
}

lc_status lc__environment_make(const lc__str *add, lc__environment *out)
{
    size_t n = 1;
    *out = (lc__environment){0};
    for (char **e = environ; e && *e; e++) n++;
    for (const char *c = add->s; c && *c; c++) n += *c == '\n';
    out->list = calloc(n, sizeof *out->list);
    if (add->n) lc__str_add_bytes(&out->text, add->s, add->n);
    if (!out->list || out->text.failed || add->failed) {
        lc__environment_release(out);
        return lc_fail(LC_ERR_MEMORY, "out of memory: the environment of a rank");
    }
    n = 0;
    for (char **e = environ; e && *e; e++)
        if (!replaced(add, *e)) out->list[n++] = *e;
    for (char *line = out->text.s, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        out->list[n++] = line;
    }
    return LC_OK;
}

void lc__environment_release(lc__environment *e)
{
    free(e->list);
    lc__str_free(&e->text);
    e->list = NULL;
}

/* The path of a program in the current directory, if its name has no slash; otherwise "". */
static void name_here(const char *file, char *here, size_t size)
{
    int n = strchr(file, '/') ? 0 : snprintf(here, size, "./%s", file);
    if (n <= 0 || (size_t)n >= size) *here = 0;
}

lc_status lc__exec_fail(int error, const char *file)
{
    struct stat s;
    char here[4200];
    if (!strchr(file, '/') && error == ENOENT)
        return lc_fail(LC_ERR_NOT_FOUND, "cannot start \"%s\": it is in neither PATH nor this directory", file);
    name_here(file, here, sizeof here);
    bool there = stat(*here ? here : file, &s) == 0;
    if (there && S_ISDIR(s.st_mode))
        return lc_fail(LC_ERR_IO, "cannot start \"%s\": it is a directory, not a program", file);
    if (there && error == EACCES)
        return lc_fail(LC_ERR_IO, "cannot start \"%s\": it is not executable; use chmod +x, or start its interpreter",
                       file);
    if (there && error == ENOENT)
        return lc_fail(LC_ERR_NOT_FOUND,
                       "cannot start \"%s\": the interpreter named in its first line (#!) does not exist", file);
    return lc__io_fail(error, "start", file);
}

int lc__exec_status(int error)
{
    return error == ENOENT ? 127 : 126;
}

int lc__exec(char *const *argv)
{
    char here[4200];
    name_here(argv[0], here, sizeof here);
    execvp(argv[0], argv);
    if (errno == ENOENT && *here) execv(here, argv);
    return errno;
}

/* Runs in the child, where only functions that are safe in a signal handler may be called, as the parent's other
 * threads are missing. */
_Noreturn static void child(const lc__process *p, const char *here, pid_t parent, int report)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    int nowhere = p->no_input || isatty(0) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    setpgid(0, 0);
    sigaction(SIGTTOU, &ignore, NULL); /* its own group is in the background, but it must be able to print */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); /* the parent ended before prctl */
    int errors = p->error_output >= 0 ? p->error_output : p->output;
    bool ok = (nowhere < 0 || dup2(nowhere, 0) >= 0) && (p->output < 0 || dup2(p->output, 1) >= 0) &&
              (errors < 0 || dup2(errors, 2) >= 0);
    if (p->cores) sched_setaffinity(0, sizeof *p->cores, p->cores); /* optional */
    for (int s = 1; p->unblock && s < 32; s++)
        if (sigismember(p->unblock, s) == 1) sigaction(s, &standard, NULL);
    if (p->unblock) sigprocmask(SIG_UNBLOCK, p->unblock, NULL);
    if (ok) execvpe(p->file, p->argv, p->environment);
    if (ok && errno == ENOENT && *here) execve(here, p->argv, p->environment);
    int error = errno;
    while (write(report, &error, sizeof error) < 0 && errno == EINTR) continue;
    _exit(127);
}

lc_status lc__process_start(const lc__process *p, pid_t *pid, int *exec_error)
{
    char here[4200];
    int report[2], error = 0; /* exec closes it; otherwise it carries the errno */
    pid_t parent = getpid();
    name_here(p->file, here, sizeof here);
    *exec_error = 0;
    *pid = 0;
    if (pipe2(report, O_CLOEXEC) != 0) return lc__io_fail(errno, "make a pipe for", p->file);
    pid_t started = fork();
    if (started == 0) child(p, here, parent, report[1]);
    if (started < 0) error = errno;
    close(report[1]);
    ssize_t n = 0;
    while (started > 0 && (n = read(report[0], &error, sizeof error)) < 0 && errno == EINTR) continue;
    close(report[0]);
    if (!error) {
        *pid = started;
        return LC_OK;
    }
    if (started < 0) return lc__io_fail(error, "start", p->file);
    while (waitpid(started, NULL, 0) < 0 && errno == EINTR) continue;
    *exec_error = error;
    return lc__exec_fail(error, p->file);
}

void lc__process_status(int status, char *text, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(text, size, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "exited with status %d", WEXITSTATUS(status));
}
