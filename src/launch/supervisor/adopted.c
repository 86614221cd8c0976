/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that a supervisor has adopted: mpirun, or a rank, has started them and left them on this machine. */
#include "launch/supervisor/supervisor_internal.h"

#include "comm/world/prints.h"
#include "comm/net/socket.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Whether a process was started with the secret of this run. */
static bool is_of_run(const supervisor *s, int pid)
{
    char path[64], want[80];
    lc__str text = {0};
    size_t n;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    snprintf(want, sizeof want, "LIGHTC_SECRET=%s", s->key);
    FILE *f = fopen(path, "re");
    for (char block[4096]; f && (n = fread(block, 1, sizeof block, f)) > 0;) lc__str_add_bytes(&text, block, n);
    if (f) fclose(f);
    bool is = text.n && memmem(text.s, text.n, want, strlen(want));
    lc__str_free(&text);
    return is;
}

/* Lists at most `most` children of this process: those it started, and those it adopted. */
static int list_children(int *pids, int most)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    while (f && n < most && fscanf(f, "%d", &pids[n]) == 1) n++;
    if (f) fclose(f);
    return n;
}

enum { CHILDREN = 1024 };

/* Whether the process was seen before: the environment of an exiting process, which may take a while, cannot be
 * read. */
static bool is_known(const int *known, int n, int pid)
{
    while (n > 0 && known[n - 1] != pid) n--;
    return n > 0;
}

void lc__end_orphans(const supervisor *s)
{
    int pids[CHILDREN], ended[CHILDREN], n = 0, left = 1;
    if (!(s->killed || s->signal || WIFSIGNALED(s->children[0].status))) return;
    for (double until = lc__seconds() + 1; left && lc__seconds() < until;) {
        left = 0;
        for (int i = list_children(pids, CHILDREN) - 1; i >= 0; i--) {
            if (waitpid(pids[i], NULL, WNOHANG) == pids[i]) continue;
            bool known = is_known(ended, n, pids[i]);
            if (!known && !is_of_run(s, pids[i])) continue;
            if (!known && n < CHILDREN) ended[n++] = pids[i];
            left++;
            kill(pids[i], SIGKILL);
        }
        if (left) nanosleep(&(struct timespec){.tv_nsec = LC__LOOK_MS * 1000000}, NULL);
    }
}

static bool is_forwarder(int pid)
{
    char path[64], name[32];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *f = fopen(path, "re");
    bool is = f && fscanf(f, "%31s", name) == 1 && !strcmp(name, LC__FORWARDER);
    if (f) fclose(f);
    return is;
}

void lc__end_forwarders(const supervisor *s)
{
    int pids[CHILDREN], left = 1;
    for (double until = lc__seconds() + s->times.grace; left;) {
        bool late = lc__seconds() > until;
        left = 0;
        for (int i = list_children(pids, CHILDREN) - 1; i >= 0; i--) {
            if (!is_forwarder(pids[i]) || waitpid(pids[i], NULL, WNOHANG) == pids[i]) continue;
            left++;
            if (late) kill(pids[i], SIGKILL);
        }
        if (left) nanosleep(&(struct timespec){.tv_nsec = LC__LOOK_MS * 1000000}, NULL);
    }
}
