/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to an MLflow server: their content, and the meaning of answers. A request refused for its content (400, 404,
 * 409, 413, 422) would be refused again. Anything else (no answer, 401, 403, 429, 5xx) is an error that may pass. */
#include "loggers/mlflow_request.h"

#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Parses the last answer; NULL: it is not JSON. */
static cJSON *parse_answer(const lc__mlflow *m)
{
    const lc__str *a = &m->answer;
    return a->s && !lc__utf8_first_bad(a->s, a->n) ? cJSON_ParseWithLength(a->s, a->n) : NULL;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text ? text : "";
}

static lc_status judge(lc__mlflow *m, const char *path, int code, lc__mlflow_answer *out)
{
    *out = LC__MLFLOW_ACCEPTED;
    if (code >= 200 && code < 300) return LC_OK;
    *out = LC__MLFLOW_REFUSED;
    cJSON *answer = parse_answer(m);
    char message[400];
    snprintf(message, sizeof message, "the MLflow server answered %s with status %d: %.300s", path, code,
             text_of(answer, "message"));
    cJSON_Delete(answer);
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
    if (path->failed) return lc_fail(LC_ERR_MEMORY, "out of memory: a request");
    LC_TRY(m->call(m->ctx, method, path->s, body, n, file, &code, &m->answer));
    return judge(m, path->s, code, out);
}

lc_status lc__mlflow_post(lc__mlflow *m, const char *path, lc__mlflow_body *body, lc__mlflow_answer *out)
{
    int code = 0;
    char *text = body->failed ? NULL : cJSON_PrintUnformatted(body->root);
    cJSON_Delete(body->root);
    *body = (lc__mlflow_body){0};
    if (!text) return lc_fail(LC_ERR_MEMORY, "out of memory: a request");
    lc_status status = m->call(m->ctx, "POST", path, text, strlen(text), NULL, &code, &m->answer);
    cJSON_free(text);
    return status < 0 ? status : judge(m, path, code, out);
}

lc_status lc__mlflow_post_or_leave(lc__mlflow *m, const char *path, lc__mlflow_body *body)
{
    lc__mlflow_answer answer;
    LC_TRY(lc__mlflow_post(m, path, body, &answer));
    m->refused += answer == LC__MLFLOW_REFUSED;
    return LC_OK;
}

lc__mlflow_body lc__mlflow_empty(void)
{
    lc__mlflow_body b = {.root = cJSON_CreateObject()};
    b.failed = !b.root;
    return b;
}

lc__mlflow_body lc__mlflow_begin(const lc__mlflow *m)
{
    lc__mlflow_body b = lc__mlflow_empty();
    if (m->run) lc__mlflow_add_text(&b, b.root, "run_id", m->run);
    return b;
}

void lc__mlflow_add_text(lc__mlflow_body *b, cJSON *object, const char *key, const char *text)
{
    b->failed |= !cJSON_AddStringToObject(object, key, text);
}

void lc__mlflow_add_number(lc__mlflow_body *b, cJSON *object, const char *key, const char *number)
{
    b->failed |= !cJSON_AddRawToObject(object, key, number);
}

void lc__mlflow_add_int(lc__mlflow_body *b, cJSON *object, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    lc__mlflow_add_number(b, object, key, text);
}

cJSON *lc__mlflow_add_list(lc__mlflow_body *b, cJSON *object, const char *key)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    b->failed |= !list;
    return list;
}

cJSON *lc__mlflow_append(lc__mlflow_body *b, cJSON *list)
{
    cJSON *object = list ? cJSON_CreateObject() : NULL;
    b->failed |= !object || !cJSON_AddItemToArray(list, object);
    return object;
}

void lc__mlflow_add_key(lc__mlflow_body *b, cJSON *object, const char *name)
{
    char copy[LC__MLFLOW_MOST_KEY + 1];
    snprintf(copy, sizeof copy, "%s", name);
    for (char *p = copy; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("_-. /:", *p)))
            *p = '_';
    lc__mlflow_add_text(b, object, "key", copy);
}

lc_status lc__mlflow_answered(lc__mlflow *m, const char *a, const char *b, const char *key, char **out)
{
    *out = NULL;
    cJSON *root = parse_answer(m);
    const cJSON *at = root;
    if (!root) return lc_fail(LC_ERR_IO, "this is not an MLflow server: its answer is not JSON");
    if (a) at = cJSON_GetObjectItemCaseSensitive(at, a);
    if (cJSON_IsArray(at)) at = cJSON_GetArrayItem(at, 0);
    if (b) at = cJSON_GetObjectItemCaseSensitive(at, b);
    lc_status status = lc__copy_text(text_of(at, key), out);
    cJSON_Delete(root);
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
