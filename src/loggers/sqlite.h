/* SPDX-License-Identifier: Apache-2.0 */
/* The sqlite logger, for tests. */
#ifndef LC_LOGGERS_SQLITE_H
#define LC_LOGGERS_SQLITE_H

#include <lightc/logger.h>

/* How long rows, and the final status, wait for the lock of the database. Call it before the logger starts. */
void lc__sqlite_set_patience(const lc_logger *logger, int ms);

#endif
