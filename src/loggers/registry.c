/* SPDX-License-Identifier: Apache-2.0 */
/* The loggers by name. To add one: its file in this folder and a line in the table. */
#include <lightc/logger.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    lc_status (*make)(lc_logger *out);
} loggers[] = {
    {"csv", lc_csv_logger_new},
    {"sqlite", lc_sqlite_logger_new},
    {"tensorboard", lc_tensorboard_logger_new},
};

lc_status lc_logger_new(const char *name, lc_logger *out)
{
    char known[256] = "";
    for (size_t i = 0; i < sizeof loggers / sizeof *loggers; i++) {
        if (!strcmp(loggers[i].name, name)) return loggers[i].make(out);
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", loggers[i].name);
    }
    return lc_fail(LC_ERR_CONFIG, "there is no logger \"%s\"; known are: %s", name, known);
}
