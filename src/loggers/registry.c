/* SPDX-License-Identifier: Apache-2.0 */
/* The loggers by name. To add one: its file in this folder and a line in the table. */
#include <lightc/logger.h>
#include "base/handle.h"

#include <stdio.h>
#include <string.h>

static lc_status mlflow(const char *uri, lc_logger *out)
{
    return lc_mlflow_logger_new(&(lc_mlflow_options){.tracking_uri = uri}, out);
}

/* One of the two makes it; make_with takes what follows the colon in "name:argument", or NULL. */
static const struct {
    const char *name;
    lc_status (*make)(lc_logger *out);
    lc_status (*make_with)(const char *argument, lc_logger *out);
} loggers[] = {
    {"csv", lc_csv_logger_new, NULL},
    {"sqlite", lc_sqlite_logger_new, NULL},
    {"tensorboard", lc_tensorboard_logger_new, NULL},
    {"mlflow", NULL, mlflow},
    {"stream", NULL, lc_stream_logger_new},
};

lc_status lc_logger_new(const char *name, lc_logger *out)
{
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    char known[256] = "";
    size_t length = strcspn(name, ":");
    const char *argument = name[length] ? name + length + 1 : NULL;
    for (size_t i = 0; i < sizeof loggers / sizeof *loggers; i++) {
        if (strlen(loggers[i].name) == length && !strncmp(loggers[i].name, name, length)) {
            if (loggers[i].make_with) return loggers[i].make_with(argument, out);
            if (argument) return lc_fail(LC_ERR_CONFIG, "the logger %s takes nothing behind a colon", loggers[i].name);
            return loggers[i].make(out);
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", loggers[i].name);
    }
    return lc_fail(LC_ERR_CONFIG, "there is no logger \"%s\"; known are: %s", name, known);
}
