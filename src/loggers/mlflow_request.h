/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of MLflow's logger share: requests. */
#ifndef LC_LOGGERS_MLFLOW_REQUEST_H
#define LC_LOGGERS_MLFLOW_REQUEST_H

#include "loggers/mlflow_api.h"
#include <lightc/state.h>

#define LC__MLFLOW_API      "/api/2.0/mlflow/"
#define LC__MLFLOW_MOST_KEY 250

/* Everything else is an error. */
typedef enum lc__mlflow_answer {
    LC__MLFLOW_ACCEPTED,
    LC__MLFLOW_REFUSED /* m->refusal says why */
} lc__mlflow_answer;

/* One request; `path` begins with "/api/". */
lc_status lc__mlflow_request(lc__mlflow *m, const char *method, const lc__str *path, const char *body, size_t n,
                             const char *file, lc__mlflow_answer *out) LC_MUST_USE;
/* Sends m->body. */
lc_status lc__mlflow_post(lc__mlflow *m, const char *path, lc__mlflow_answer *out) LC_MUST_USE;
/* Sends m->body; if it is refused, that is counted. */
lc_status lc__mlflow_post_or_leave(lc__mlflow *m, const char *path) LC_MUST_USE;

/* The beginning of m->body: {"run_id":"...", or { without a run. The next two append to it. */
lc_status lc__mlflow_begin(lc__mlflow *m) LC_MUST_USE;
lc_status lc__mlflow_add(lc__mlflow *m, const char *text) LC_MUST_USE;
lc_status lc__mlflow_quote(lc__mlflow *m, const char *text) LC_MUST_USE;
/* A name as MLflow allows it: letters, digits, and "_-. /:"; the rest becomes "_". */
lc_status lc__mlflow_name(lc__text *t, const char *name) LC_MUST_USE;
/* A part of a path: all but letters, digits and `safe` as %XX. */
void lc__mlflow_percent(lc__str *t, const char *text, const char *safe);
/* The text `key` in the last answer: in its member a, and in that one's b (NULL: not so deep). "" if there is none;
 * new memory (free). */
lc_status lc__mlflow_answered(lc__mlflow *m, const char *a, const char *b, const char *key, char **out) LC_MUST_USE;

/* ---- mlflow_run.c ---- */
/* The line `start`: its run is looked for, and made if there is none. */
lc_status lc__mlflow_start(lc__mlflow *m, const lc_state *line) LC_MUST_USE;
/* The lines `status` and (ended) `finish`. */
lc_status lc__mlflow_status_line(lc__mlflow *m, const lc_state *line, bool ended) LC_MUST_USE;
/* When a line was written, in milliseconds since 1970; 0: it does not say. */
int64_t lc__mlflow_time(const lc_state *line);

#endif
