/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a spool that was tampered with, and answers of a server that is not MLflow: the requests must be valid JSON
 * all the same. */
#include <lightc/state.h>
#include "loggers/mlflow_api.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct answers {
    const char *data; /* one byte for the status, then the body of every answer */
    size_t n;
    int asked;
} answers;

static lc_status call(void *ctx, const char *method, const char *path, const char *body, size_t n,
                      const char *body_file, int *code, lc__str *answer)
{
    static const char *const good = "{\"experiment\":{\"experiment_id\":\"1\"},\"run\":{\"info\":{\"run_id\":\"r\","
                                    "\"artifact_uri\":\"mlflow-artifacts:/1/r\"}}}";
    static const int codes[] = {200, 200, 400, 404, 503};
    answers *a = ctx;
    (void)path;
    lc_state *s;
    if (body_file || a->asked++ > 1000) return lc_fail(LC_ERR_IO, "no more");
    if (!strcmp(method, "POST")) {
        if (lc_state_parse(body, n, &s) < 0) abort();
        lc_state_free(s);
    }
    int kind = a->n ? a->data[0] & 7 : 0;
    *code = codes[kind < 5 ? kind : 0];
    lc__str_clear(answer);
    if (kind == 1)
        lc__str_add_bytes(answer, a->data, a->n);
    else
        lc__str_add(answer, "%s", good);
    return LC_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char start[] = "{\"type\":\"start\",\"time\":1,\"run_id\":\"x\"}\n";
    const uint8_t *cut = memchr(data, 0, size);
    size_t lines = cut ? (size_t)(cut - data) : size, done;
    answers a = {.data = cut ? (const char *)cut + 1 : "", .n = cut ? size - lines - 1 : 0};
    lc__mlflow m = {.call = call, .ctx = &a, .experiment = "e"};
    if (lc__mlflow_send(&m, start, sizeof start - 1, &done) >= 0 && done != sizeof start - 1) abort();
    if (lc__mlflow_send(&m, (const char *)data, lines, &done) >= 0 && done != lines) abort();
    if (done > lines) abort();
    lc__mlflow_release(&m);
    return 0;
}
