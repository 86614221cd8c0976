/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates two machines: a network namespace and a host name for each, joined by a pair of virtual interfaces. It
 * needs root, or user namespaces; if the kernel does not allow something, the test is skipped for that reason. Nothing
 * persists: it all disappears with the two processes that hold the namespaces, which end together with this one. */
#ifndef LC_TESTS_MACHINES_H
#define LC_TESTS_MACHINES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "open_mpi.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- this process ---- */

static inline bool machines_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return ok;
}

/* From now on this process has its own mounts, and an empty /dev/shm. False: the kernel does not allow that. Call it
 * before there are threads. */
static inline bool machines_own_mounts(void)
{
    char map[64];
    unsigned user = geteuid(), group = getegid();
    if (user != 0) {
        if (unshare(CLONE_NEWUSER) != 0) return false;
        snprintf(map, sizeof map, "0 %u 1", user);
        if (!machines_write("/proc/self/uid_map", map)) return false;
        snprintf(map, sizeof map, "0 %u 1", group);
        if (!machines_write("/proc/self/setgroups", "deny") || !machines_write("/proc/self/gid_map", map)) return false;
    }
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0;
}

/* ---- the two ---- */

typedef struct machines {
    pid_t holder[2];
} machines;

static const char *const machines_address[2] = {"10.77.0.1", "10.77.0.2"};

/* In a child: joins machine i. */
static inline bool machines_enter(const machines *m, int i)
{
    static const char *const kinds[] = {"net", "uts"};
    for (int k = 0; k < 2; k++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)m->holder[i], kinds[k]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        bool in = fd >= 0 && setns(fd, 0) == 0;
        if (fd >= 0) close(fd);
        if (!in) return false;
    }
    return true;
}

/* Runs a shell command on machine i; returns its status. */
static inline int machines_do(const machines *m, int i, const char *command)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (!machines_enter(m, i)) _exit(125);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(126);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Kills what still runs on machine i, such as a daemon that has lost its master. */
static inline void machines_clear(const machines *m, int i)
{
    char path[64], here[64] = "", its[64];
    struct dirent *e;
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)m->holder[i]);
    bool known = readlink(path, here, sizeof here - 1) > 0;
    DIR *d = known ? opendir("/proc") : NULL;
    while (d && (e = readdir(d)) != NULL) {
        int pid = atoi(e->d_name);
        memset(its, 0, sizeof its);
        snprintf(path, sizeof path, "/proc/%d/ns/net", pid);
        if (pid > 1 && pid != m->holder[i] && readlink(path, its, sizeof its - 1) > 0 && !strcmp(its, here))
            kill(pid, SIGKILL);
    }
    if (d) closedir(d);
}

static inline void machines_end(machines *m)
{
    for (int i = 0; i < 2; i++) {
        if (m->holder[i] <= 0) continue;
        machines_clear(m, i);
        kill(m->holder[i], SIGKILL);
        waitpid(m->holder[i], NULL, 0);
        m->holder[i] = 0;
    }
}

static inline bool machines_hold(machines *m, int i)
{
    int ready[2];
    char ok = 0, name[16];
    if (pipe2(ready, O_CLOEXEC) != 0) return false;
    m->holder[i] = fork();
    if (m->holder[i] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(name, sizeof name, "machine%d", i);
        ok = unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0;
        (void)!write(ready[1], &ok, 1);
        for (;;) pause();
    }
    close(ready[1]);
    if (m->holder[i] < 0 || read(ready[0], &ok, 1) != 1) ok = 0;
    close(ready[0]);
    return ok;
}

/* Returns NULL, or the reason why there are none. The machines are machine0 and machine1, their interfaces eth0. */
static inline const char *machines_make(machines *m)
{
    char command[256];
    *m = (machines){0};
    const char *why = system("command -v ip >/dev/null") != 0 ? "there is no program ip (iproute2)" : NULL;
    if (!why && (!machines_hold(m, 0) || !machines_hold(m, 1))) why = "the kernel makes no network namespaces here";
    if (!why) {
        snprintf(command, sizeof command, "ip link add eth0 type veth peer name eth0 netns %d 2>/dev/null",
                 (int)m->holder[1]);
        if (machines_do(m, 0, command) != 0) why = "the kernel makes no pairs of virtual interfaces here";
    }
    for (int i = 0; i < 2 && !why; i++) {
        snprintf(command, sizeof command, "ip addr add %s/24 dev eth0 && ip link set eth0 up && ip link set lo up",
                 machines_address[i]);
        if (machines_do(m, i, command) != 0) why = "virtual interfaces cannot be set up here";
    }
    if (why) machines_end(m);
    return why;
}

/* ---- mpirun between them ---- */

static inline bool machines_have_mpirun(void)
{
    return has_mpirun() && system("command -v nsenter >/dev/null") == 0;
}

/* A program at `path` that mpirun is to call instead of ssh. */
static inline bool machines_write_agent(const machines *m, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f,
            "#!/bin/sh\n"
            "case $1 in %s) pid=%d;; *) pid=%d;; esac\n"
            "shift\n"
            "exec nsenter --net=/proc/$pid/ns/net --uts=/proc/$pid/ns/uts sh -c \"$*\"\n",
            machines_address[0], (int)m->holder[0], (int)m->holder[1]);
    return fclose(f) == 0 && chmod(path, 0755) == 0;
}

#endif
