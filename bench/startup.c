/* SPDX-License-Identifier: Apache-2.0 */
/* From exec to the end of the first step: this program starts itself, and the child measures from the time that its
 * parent read just before exec. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 11

/* Runs `work` in a separate process; *value: the value of its line. */
static lc_status run_child(const bench *b, const char *work, double *value)
{
    char line[2048], since[64], threads[32];
    int pipes[2], status = 0;
    if (pipe(pipes) != 0) return lc_fail(LC_ERR_IO, "no pipe");
    snprintf(threads, sizeof threads, "%lld", (long long)b->threads);
    pid_t child = fork();
    if (child < 0) return lc_fail(LC_ERR_IO, "no process could be started");
    if (child == 0) {
        dup2(pipes[1], 1);
        close(pipes[0]);
        close(pipes[1]);
        if (!freopen("/dev/null", "w", stderr)) _exit(126);
        snprintf(since, sizeof since, "%.9f", bench_now());
        execl(b->program, b->program, work, "--since", since, "--threads", threads, "--data", b->data, (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    FILE *f = fdopen(pipes[0], "r");
    const char *found = NULL;
    while (f && !found && fgets(line, sizeof line, f)) found = strstr(line, "\"value\": ");
    if (found) *value = strtod(found + strlen("\"value\": "), NULL);
    if (f) fclose(f);
    if (waitpid(child, &status, 0) < 0 || status != 0 || !found)
        return lc_fail(LC_ERR_INTERNAL, "lightc_bench %s --data %s failed; run it to see why", work, b->data);
    return LC_OK;
}

lc_status bench_startup(const bench *b)
{
    static const struct {
        const char *work, *metric;
    } kinds[] = {{"first_step", "first_step"}, {"first_step_idx", "mnist_mlp_first_step"}};
    for (int k = 0; k < 2; k++) {
        double times[ROUNDS], spread[ROUNDS], warm;
        LC_TRY(run_child(b, kinds[k].work, &warm));
        for (int r = 0; r < ROUNDS; r++) LC_TRY(run_child(b, kinds[k].work, &times[r]));
        memcpy(spread, times, sizeof spread);
        BENCH_EMIT(b, kinds[k].metric, bench_median(times, ROUNDS), "ms", {"spread", .list = spread, .n = ROUNDS});
    }
    return LC_OK;
}
