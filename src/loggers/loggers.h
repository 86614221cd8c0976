/* SPDX-License-Identifier: Apache-2.0 */
/* The constructors of src/loggers, for src/builtin.c; most are public. */
#ifndef LC_LOGGERS_LOGGERS_H
#define LC_LOGGERS_LOGGERS_H

#include <lightc/logger.h>

/* lc_mlflow_logger_new with the defaults; uri: the server's, or NULL. */
lc_status lc__mlflow_logger_at(const char *uri, lc_logger *out) LC_MUST_USE;

#endif
