/* SPDX-License-Identifier: Apache-2.0 */
/* The sqlite logger, for tests. */
#ifndef LC_LOGGERS_SQLITE_H
#define LC_LOGGERS_SQLITE_H

#include <lightc/logger.h>

/* How long rows, and how the run ended, wait for the lock of the database. Before the logger is started. */
void lc__sqlite_set_patience(const lc_logger *logger, int ms);

#endif
