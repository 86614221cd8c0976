/* SPDX-License-Identifier: Apache-2.0 */
/* The run on an MLflow server: found by its tag lightc.run_id or created, with its experiment; its status. */
#include "loggers/mlflow_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The experiment's id; *id NULL: there is none. */
static lc_status find_experiment(lc__mlflow *m, char **id)
{
    lc__str path = {0};
    lc__mlflow_answer answer;
    *id = NULL;
    lc__str_add(&path, LC__MLFLOW_API "experiments/get-by-name?experiment_name=");
    lc__mlflow_percent(&path, m->experiment, "-_.~");
    lc_status status = lc__mlflow_request(m, "GET", &path, NULL, 0, NULL, &answer);
    lc__str_free(&path);
    if (status < 0 || answer == LC__MLFLOW_REFUSED) return status;
    return lc__mlflow_answered(m, "experiment", NULL, "experiment_id", id);
}

static lc_status get_experiment(lc__mlflow *m, char **id)
{
    lc__mlflow_answer answer;
    LC_TRY(find_experiment(m, id));
    if (*id && **id) return LC_OK;
    free(*id);
    *id = NULL;
    lc__mlflow_body body = lc__mlflow_empty();
    lc__mlflow_add_text(&body, body.root, "name", m->experiment);
    LC_TRY(lc__mlflow_post(m, LC__MLFLOW_API "experiments/create", &body, &answer));
    if (answer == LC__MLFLOW_ACCEPTED)
        LC_TRY(lc__mlflow_answered(m, NULL, NULL, "experiment_id", id));
    else
        LC_TRY(find_experiment(m, id)); /* another run has just created it */
    if (*id && **id) return LC_OK;
    free(*id);
    *id = NULL;
    return lc_fail(LC_ERR_IO, "cannot get or create experiment \"%s\": %s", m->experiment,
                   *m->refusal ? m->refusal : "this is not an MLflow server");
}

static void add_tag(lc__mlflow_body *body, cJSON *tags, const char *key, const char *value)
{
    cJSON *tag = lc__mlflow_append(body, tags);
    lc__mlflow_add_text(body, tag, "key", key);
    lc__mlflow_add_text(body, tag, "value", value);
}

/* The artifact_uri of a server that takes files is "mlflow-artifacts:/1/<run>/artifacts", with a host or without. */
static lc_status take_run(lc__mlflow *m, const char *a)
{
    char *id, *uri;
    static const char scheme[] = "mlflow-artifacts:";
    LC_TRY(lc__mlflow_answered(m, a, "info", "run_id", &id));
    lc_status status = lc__mlflow_answered(m, a, "info", "artifact_uri", &uri);
    if (status < 0 || !*id) {
        free(id);
        free(uri);
        return status;
    }
    m->run = id;
    if (!strncmp(uri, scheme, sizeof scheme - 1)) {
        const char *path = uri + sizeof scheme - 1;
        if (!strncmp(path, "//", 2)) path = strchr(path + 2, '/');
        while (path && *path == '/') path++;
        if (path && *path) status = lc__copy_text(path, &m->artifacts);
    }
    free(uri);
    return status;
}

int64_t lc__mlflow_time(const lc_state *line)
{
    double time = 0;
    if (lc_state_get_double(line, "time", &time) < 0 || !(time >= 0 && time < 1e14)) return 0;
    return llround(time * 1000);
}

static lc_status find_run(lc__mlflow *m, const char *experiment, const char *run_id)
{
    lc__mlflow_answer answer;
    if (!*run_id || strchr(run_id, '\'')) return LC_OK;
    lc__str filter = {0};
    lc__mlflow_body body = lc__mlflow_empty();
    lc__mlflow_add_int(&body, body.root, "max_results", 1);
    cJSON *id = cJSON_CreateString(experiment), *ids = lc__mlflow_add_list(&body, body.root, "experiment_ids");
    if (!id || !cJSON_AddItemToArray(ids, id)) {
        cJSON_Delete(id);
        body.failed = true;
    }
    lc__str_add(&filter, "tags.`lightc.run_id` = '%s'", run_id);
    body.failed |= filter.failed;
    lc__mlflow_add_text(&body, body.root, "filter", filter.failed ? "" : filter.s);
    lc__str_free(&filter);
    LC_TRY(lc__mlflow_post(m, LC__MLFLOW_API "runs/search", &body, &answer));
    return answer == LC__MLFLOW_ACCEPTED ? take_run(m, "runs") : LC_OK;
}

static lc_status make_run(lc__mlflow *m, const char *experiment, const lc_state *line, const char *run_id)
{
    lc__mlflow_answer answer;
    int64_t version = 0;
    const char *run_dir = "";
    char name[64];
    if (lc_state_get_int(line, "version", &version) < 0) version = 0;
    if (lc_state_get_text(line, "run_dir", &run_dir) < 0) run_dir = "";
    snprintf(name, sizeof name, "version_%" PRId64, version);
    lc__mlflow_body body = lc__mlflow_empty();
    lc__mlflow_add_text(&body, body.root, "experiment_id", experiment);
    lc__mlflow_add_text(&body, body.root, "run_name", m->run_name ? m->run_name : name);
    lc__mlflow_add_int(&body, body.root, "start_time", lc__mlflow_time(line));
    cJSON *tags = lc__mlflow_add_list(&body, body.root, "tags");
    add_tag(&body, tags, "lightc.run_id", run_id);
    add_tag(&body, tags, "lightc.run_dir", run_dir);
    LC_TRY(lc__mlflow_post(m, LC__MLFLOW_API "runs/create", &body, &answer));
    if (answer == LC__MLFLOW_ACCEPTED) LC_TRY(take_run(m, "run"));
    return m->run ? LC_OK : lc_fail(LC_ERR_IO, "cannot create a run: %s", m->refusal);
}

lc_status lc__mlflow_start(lc__mlflow *m, const lc_state *line)
{
    const char *run_id = "";
    char *experiment;
    if (lc_state_get_text(line, "run_id", &run_id) < 0) run_id = "";
    lc__mlflow_forget(m);
    LC_TRY(get_experiment(m, &experiment));
    lc_status status = find_run(m, experiment, run_id);
    if (status >= 0 && !m->run)
        status = make_run(m, experiment, line, run_id);
    else if (status >= 0)
        status = lc__mlflow_set_status(m, "RUNNING", 0);
    free(experiment);
    return status;
}

lc_status lc__mlflow_set_status(lc__mlflow *m, const char *status, int64_t end_ms)
{
    if (!m->run) return LC_OK;
    lc__mlflow_body body = lc__mlflow_begin(m);
    lc__mlflow_add_text(&body, body.root, "status", status);
    if (end_ms) lc__mlflow_add_int(&body, body.root, "end_time", end_ms);
    return lc__mlflow_post_or_leave(m, LC__MLFLOW_API "runs/update", &body);
}

lc_status lc__mlflow_status_line(lc__mlflow *m, const lc_state *line, bool ended)
{
    const char *how = "";
    if (lc_state_get_text(line, "status", &how) < 0) return LC_OK;
    const char *status = !strcmp(how, "success")       ? "FINISHED"
                         : !strcmp(how, "failed")      ? "FAILED"
                         : !strcmp(how, "interrupted") ? "KILLED"
                                                       : "RUNNING";
    m->finished |= ended;
    return lc__mlflow_set_status(m, status, strcmp(status, "RUNNING") != 0 ? lc__mlflow_time(line) : 0);
}

void lc__mlflow_forget(lc__mlflow *m)
{
    free(m->run);
    free(m->artifacts);
    m->run = m->artifacts = NULL;
    m->finished = false;
}
