/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a program's own loop logs. Loggers start with the first row. */
#include "core/logging/logging.h"
#include "core/fabric/fabric_internal.h"

#include <stdlib.h>

static lc_status start_loggers(lc_fabric *f)
{
    lc_run_info run = {.root_dir = f->root_dir, .name = LC__RUN_NAME};
    lc__first_error e = {0};
    char *id;
    LC_TRY(lc__new_run_id(&id));
    lc__first_error_note(&e, lc__take_version(f->root_dir, run.name, &run.version, &f->run_dir));
    run.run_dir = f->run_dir;
    run.run_id = id;
    for (int i = 0; f->run_dir && i < f->n_loggers; i++) {
        unsigned before = lc__error_count();
        lc__first_error_note(&e, lc__said(f->loggers[i].ops->start(f->loggers[i].self, &run), before));
    }
    free(id);
    return lc__first_error_status(&e);
}

lc_status lc_fabric_log_dict(lc_fabric *f, const lc_metric_value *values, int n, int64_t step)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC_TRY(lc__row_check(values, n));
    lc_log_row row = {.step = step < 0 ? f->steps : step, .epoch = -1, .time_ns = lc__realtime_ns()};
    lc__first_error e = {0};
    if (!f->n_loggers || !n || lc_fabric_global_rank(f) != 0) return LC_OK;
    lc_metric_value *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return lc_fail(LC_ERR_MEMORY, "out of memory: a row of %d values", n);
    for (int i = 0; i < n; i++) row.n = lc__row_insert(sorted, row.n, values[i].name, values[i].value);
    row.values = sorted;
    if (!f->run_dir) lc__first_error_note(&e, start_loggers(f));
    for (int i = 0; f->run_dir && i < f->n_loggers; i++) {
        unsigned before = lc__error_count();
        lc__first_error_note(&e, lc__said(f->loggers[i].ops->log_row(f->loggers[i].self, &row), before));
    }
    free(sorted);
    return lc__first_error_status(&e);
}

lc_status lc_fabric_log(lc_fabric *f, const char *name, double value, int64_t step)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    return lc_fabric_log_dict(f, &(lc_metric_value){name, value}, 1, step);
}

const char *lc_fabric_run_dir(const lc_fabric *f)
{
    LC__IS(f, FABRIC, "");
    return f->run_dir ? f->run_dir : "";
}
