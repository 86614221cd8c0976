/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a stream (stream_format.h) as requests of MLflow's REST interface. */
#ifndef LC_LOGGERS_MLFLOW_API_H
#define LC_LOGGERS_MLFLOW_API_H

#include "base/str.h"

#include <cjson/cJSON.h>

/* One request: `path` begins with "/api/"; the body is `body`, or the file `body_file`. LC_OK if there was an
 * answer. */
typedef lc_status lc__mlflow_call(void *ctx, const char *method, const char *path, const char *body, size_t n,
                                  const char *body_file, int *code, lc__str *answer);

/* A body under construction. If memory runs out, sending it is an error. */
typedef struct lc__mlflow_body {
    cJSON *root;
    bool failed;
} lc__mlflow_body;

typedef struct lc__mlflow {
    lc__mlflow_call *call;
    void *ctx;
    const char *experiment, *run_name; /* run_name NULL: "version_N" */
    bool log_model;
    /* The run that the lines are about. */
    char *run, *artifacts; /* its id on the server; the location of its files, NULL: the server accepts none */
    bool finished;         /* the line `finish` was among them */
    /* Requests that were refused for good, and dropped. */
    int64_t refused;
    char refusal[512];
    lc__mlflow_body batch; /* metrics of several rows that go out together */
    cJSON *metrics;        /* the list in it */
    int n_metrics;
    lc__str answer;
} lc__mlflow;

/* Sends whole lines in order. *done: bytes of the lines that are done (delivered, or refused and counted). An error
 * means that the server is not available now; the rest must be sent later. */
lc_status lc__mlflow_send(lc__mlflow *m, const char *lines, size_t n, size_t *done) LC_MUST_USE;
/* "RUNNING", "FINISHED", "FAILED", "KILLED"; end_ms 0: it has not ended. */
lc_status lc__mlflow_set_status(lc__mlflow *m, const char *status, int64_t end_ms) LC_MUST_USE;
/* Forgets the run; the lines of another one may follow. */
void lc__mlflow_forget(lc__mlflow *m);
void lc__mlflow_release(lc__mlflow *m);

#endif
