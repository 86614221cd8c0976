/* SPDX-License-Identifier: Apache-2.0 */
/* A Python process with PyTorch that answers many questions: a script in tests/torch/ reads a question from its
 * standard input and answers with one line. */
#ifndef LC_TESTS_TORCH_JUDGE_H
#define LC_TESTS_TORCH_JUDGE_H

#include "peer_python.h"

#include <sys/wait.h>

typedef struct torch_judge {
    FILE *to, *from;
    pid_t pid;
} torch_judge;

/* False: no Python on this machine has PyTorch. */
static inline bool judge_start(torch_judge *j, const char *script)
{
    int to[2], from[2];
    char path[1024];
    const char *python = peer_python("torch");
    if (!python) return false;
    snprintf(path, sizeof path, "%s/tests/torch/%s", test_source_dir(), script);
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    signal(SIGPIPE, SIG_IGN); /* if the judge has ended, no answer comes */
    fflush(NULL);
    j->pid = fork();
    CHECK(j->pid >= 0);
    if (j->pid == 0) {
        dup2(to[0], 0), dup2(from[1], 1);
        close(to[0]), close(to[1]), close(from[0]), close(from[1]);
        execl(python, python, path, (char *)NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    j->to = fdopen(to[1], "w"), j->from = fdopen(from[0], "r");
    CHECK(j->to && j->from);
    return true;
}

/* Returns the answer to the question written to j->to. */
static inline void judge_answer(torch_judge *j, char *line, size_t size)
{
    fflush(j->to);
    if (!fgets(line, (int)size, j->from)) TEST_FAIL("the judge has ended");
    line[strcspn(line, "\n")] = 0;
}

static inline void judge_end(torch_judge *j)
{
    fclose(j->to), fclose(j->from);
    waitpid(j->pid, NULL, 0);
}

#endif
