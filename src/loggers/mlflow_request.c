/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to an MLflow server: what is in them, and what an answer means. A request that the server refuses for what
 * it says (400, 404, 409, 413, 422) would be refused again. Everything else (no answer, 401, 403, 429, 5xx) is a matter
 * of time, and an error. */
#include "loggers/mlflow_request.h"

#include <stdio.h>
#include <string.h>

static lc_status judge(lc__mlflow *m, const char *path, int code, lc__mlflow_answer *out)
{
    const char *why = "";
    lc_state *s = NULL;
    *out = LC__MLFLOW_ACCEPTED;
    if (code >= 200 && code < 300) return LC_OK;
    *out = LC__MLFLOW_REFUSED;
    if (m->answer.s && lc_state_parse(m->answer.s, m->answer.n, &s) >= 0 && lc_state_get_text(s, "message", &why) < 0) {
    } /* then it gave no reason */
    char message[400];
    snprintf(message, sizeof message, "the MLflow server answered %s with %d: %.300s", path, code, why);
    lc_state_free(s);
    if (code == 400 || code == 404 || code == 409 || code == 413 || code == 422) {
        snprintf(m->refusal, sizeof m->refusal, "%s", message);
        return LC_OK;
    }
    return lc_fail(LC_ERR_IO, "%s", message);
}

lc_status lc__mlflow_request(lc__mlflow *m, const char *method, const lc__str *path, const char *body, size_t n,
                             const char *file, lc__mlflow_answer *out)
{
    int code = 0;
    if (path->failed) return lc_fail(LC_ERR_MEMORY, "no memory for a request");
    LC_TRY(m->call(m->ctx, method, path->s, body, n, file, &code, &m->answer));
    return judge(m, path->s, code, out);
}

lc_status lc__mlflow_post(lc__mlflow *m, const char *path, lc__mlflow_answer *out)
{
    int code = 0;
    LC_TRY(m->call(m->ctx, "POST", path, m->body.data, m->body.length, NULL, &code, &m->answer));
    return judge(m, path, code, out);
}

lc_status lc__mlflow_post_or_leave(lc__mlflow *m, const char *path)
{
    lc__mlflow_answer answer;
    LC_TRY(lc__mlflow_post(m, path, &answer));
    m->refused += answer == LC__MLFLOW_REFUSED;
    return LC_OK;
}

lc_status lc__mlflow_begin(lc__mlflow *m)
{
    m->body.length = 0;
    if (!m->run) return lc__text_puts(&m->body, "{");
    LC_TRY(lc__text_puts(&m->body, "{\"run_id\":"));
    return lc__text_quoted(&m->body, m->run);
}

lc_status lc__mlflow_add(lc__mlflow *m, const char *text)
{
    return lc__text_puts(&m->body, text);
}

lc_status lc__mlflow_quote(lc__mlflow *m, const char *text)
{
    return lc__text_quoted(&m->body, text);
}

lc_status lc__mlflow_name(lc__text *t, const char *name)
{
    char copy[LC__MLFLOW_MOST_KEY + 1];
    snprintf(copy, sizeof copy, "%s", name);
    for (char *p = copy; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("_-. /:", *p)))
            *p = '_';
    return lc__text_quoted(t, copy);
}

lc_status lc__mlflow_answered(lc__mlflow *m, const char *a, const char *b, const char *key, char **out)
{
    lc_state *s = NULL;
    const lc_state *at;
    const char *text = "";
    *out = NULL;
    if (!m->answer.s || lc_state_parse(m->answer.s, m->answer.n, &s) < 0)
        return lc_fail(LC_ERR_IO, "this is no MLflow server: its answer is not JSON");
    at = s;
    if (a) at = lc_state_find(at, a);
    if (at && lc_state_kind_of(at) == LC_STATE_ARRAY) at = lc_state_at(at, 0);
    if (at && b) at = lc_state_find(at, b);
    if (at && lc_state_get_text(at, key, &text) < 0) text = "";
    lc_status status = lc__copy_text(text, out);
    lc_state_free(s);
    return status;
}

void lc__mlflow_percent(lc__str *t, const char *text, const char *safe)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr(safe, *p))
            lc__str_add_bytes(t, (const char *)p, 1);
        else
            lc__str_add(t, "%%%02X", *p);
}
