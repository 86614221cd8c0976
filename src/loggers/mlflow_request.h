/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, for the files of the MLflow logger. */
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
/* Sends `body`, and frees it. */
lc_status lc__mlflow_post(lc__mlflow *m, const char *path, lc__mlflow_body *body, lc__mlflow_answer *out) LC_MUST_USE;
/* The same; a refusal is counted. */
lc_status lc__mlflow_post_or_leave(lc__mlflow *m, const char *path, lc__mlflow_body *body) LC_MUST_USE;

/* New bodies: {} and {"run_id":"..."}. */
lc__mlflow_body lc__mlflow_empty(void);
lc__mlflow_body lc__mlflow_begin(const lc__mlflow *m);
/* Members of an object in the body. NULL: the body has failed. */
void lc__mlflow_add_text(lc__mlflow_body *b, cJSON *object, const char *key, const char *text);
/* A number as printed by lightc: cJSON would make it a double. */
void lc__mlflow_add_number(lc__mlflow_body *b, cJSON *object, const char *key, const char *number);
void lc__mlflow_add_int(lc__mlflow_body *b, cJSON *object, const char *key, int64_t value);
cJSON *lc__mlflow_add_list(lc__mlflow_body *b, cJSON *object, const char *key);
cJSON *lc__mlflow_append(lc__mlflow_body *b, cJSON *list); /* an object */
/* "key": a name that MLflow allows: letters, digits, and "_-. /:"; other characters become "_". */
void lc__mlflow_add_key(lc__mlflow_body *b, cJSON *object, const char *name);
/* A part of a path: everything except letters, digits and `safe` becomes %XX. */
void lc__mlflow_percent(lc__str *t, const char *text, const char *safe);
/* The text `key` in the last answer: in its member a, and in the member b of that (NULL: no such level). "" if there is
 * none; new memory (free). */
lc_status lc__mlflow_answered(lc__mlflow *m, const char *a, const char *b, const char *key, char **out) LC_MUST_USE;

/* ---- mlflow_run.c ---- */
/* The line `start`: finds the run, or creates it. */
lc_status lc__mlflow_start(lc__mlflow *m, const lc_state *line) LC_MUST_USE;
/* The lines `status` and (ended) `finish`. */
lc_status lc__mlflow_status_line(lc__mlflow *m, const lc_state *line, bool ended) LC_MUST_USE;
/* When a line was written, in milliseconds since 1970; 0: unknown. */
int64_t lc__mlflow_time(const lc_state *line);

#endif
