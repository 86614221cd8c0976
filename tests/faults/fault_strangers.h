/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at a run's ports: a process that finds the ports on which the processes of a run listen, from their start
 * to their end, and connects with silence, garbage, control bytes, something like a greeting of this protocol, or
 * another secret. */
#ifndef LC_TESTS_FAULT_STRANGERS_H
#define LC_TESTS_FAULT_STRANGERS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/control/control.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELD = 64, PORTS = 32, SOCKETS = 256 };

typedef struct strangers {
    pid_t pid;
    struct {
        int port[PORTS], times[PORTS]; /* how often strangers connected */
        int secrets;                   /* connections with another secret */
    } * came;                          /* shared with the strangers' process */
} strangers;

/* Whether `text` is in the environment of the process. */
static inline bool strangers_know(int pid, const char *text)
{
    static char environment[32768];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(environment, 1, sizeof environment, f) : 0;
    if (f) fclose(f);
    return n && memmem(environment, n, text, strlen(text));
}

static inline bool strangers_program(int pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *f = fopen(path, "r");
    if (f && !fgets(name, sizeof name, f)) name[0] = 0;
    if (f) fclose(f);
    return !strncmp(name, "fault_program", 13);
}

/* Inodes of the process's sockets. */
static inline int strangers_sockets(int pid, unsigned long *inodes, int n)
{
    char path[400], link[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && n < SOCKETS && (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t k = readlink(path, link, sizeof link - 1);
        if (k <= 0) continue;
        link[k] = 0;
        n += sscanf(link, "socket:[%lu]", &inodes[n]) == 1;
    }
    if (d) closedir(d);
    return n;
}

/* The ports on which processes with this TMPDIR listen. */
static inline int strangers_find(const char *mark, int ports[PORTS])
{
    unsigned long inodes[SOCKETS], inode;
    unsigned port, state;
    int n = 0, found = 0;
    char line[512];
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        int pid = atoi(e->d_name);
        if (pid > 1 && strangers_program(pid) && strangers_know(pid, mark)) n = strangers_sockets(pid, inodes, n);
    }
    if (d) closedir(d);
    FILE *f = n ? fopen("/proc/net/tcp", "r") : NULL;
    while (f && found < PORTS && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*d: %*x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu", &port, &state, &inode) != 3)
            continue;
        for (int i = 0; i < n && state == 10; i++) /* state 10: it listens */
            if (inodes[i] == inode) {
                ports[found++] = (int)port;
                break;
            }
    }
    if (f) fclose(f);
    return found;
}

static inline int strangers_visit(int port, int way)
{
    static const char control[] = "\033[2J\033]0;owned\a\r\nerror: rank 0 (host nowhere), step 1: killed by signal 9\n";
    uint8_t noise[4096];
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        if (fd >= 0) close(fd);
        return -1;
    }
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)rand();
    if (way == 1) (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (way == 2) (void)!send(fd, control, sizeof control - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (way == 3) { /* a short message of kind 1, like a greeting */
        memset(noise, 0, 16), noise[0] = 200, noise[4] = 1;
        (void)!send(fd, noise, 208, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return fd; /* stays open; way 0 sends nothing */
}

static inline void strangers_note(strangers *s, int port)
{
    int i = 0;
    while (i < PORTS - 1 && s->came->port[i] && s->came->port[i] != port) i++;
    s->came->port[i] = port;
    s->came->times[i]++;
}

static inline void strangers_come(strangers *s, const char *mark, bool kills)
{
    int held[HELD], ports[PORTS], at = 0;
    for (int i = 0; i < HELD; i++) held[i] = -1;
    for (unsigned turn = 0;; turn++) {
        int n = strangers_find(mark, ports);
        for (int i = 0; i < n; i++) {
            if (turn % 8 == 4) {
                lc__control *c;
                const lc__control_args o = {.rank = 1,
                                            .size = 2,
                                            .address = "127.0.0.1",
                                            .port = ports[i],
                                            .secret = "nobody's secret, but long enough",
                                            .times = {.start = 1, .silence = 1}};
                if (lc__control_open(&o, &c) < 0)
                    s->came->secrets++;
                else
                    lc__control_close(c);
            }
            int fd = strangers_visit(ports[i], (int)(turn % 4));
            if (fd < 0) continue;
            strangers_note(s, ports[i]);
            if (held[at] >= 0) close(held[at]);
            held[at] = fd;
            at = (at + 1) % HELD;
        }
        for (DIR *d = kills && turn == 20 ? opendir("/proc") : NULL; d; closedir(d), d = NULL)
            for (struct dirent *e; (e = readdir(d));)
                if (atoi(e->d_name) > 1 && strangers_program(atoi(e->d_name)) && strangers_know(atoi(e->d_name), mark))
                    kill(atoi(e->d_name), SIGKILL);
        usleep(n ? 8000 : 2000);
    }
}

/* `mark`: "TMPDIR=..." of the run; `kills`: the strangers end the run, to show that the checks can fail. */
static inline void strangers_start(strangers *s, const char *mark, bool kills)
{
    s->came = mmap(NULL, sizeof *s->came, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->came == MAP_FAILED) abort();
    s->pid = fork();
    if (s->pid) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    strangers_come(s, mark, kills);
    _exit(0);
}

static inline void strangers_end(strangers *s)
{
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

#endif
