/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of a run: one JSON object per line (docs/loggers.md has the format). The stream logger writes it, and the
 * spools of loggers that send over a network hold it. */
#ifndef LC_LOGGERS_STREAM_FORMAT_H
#define LC_LOGGERS_STREAM_FORMAT_H

#include "base/json.h"
#include "loggers/hparams.h"
#include "loggers/writer.h"

/* Each appends one line. */
lc_status lc__stream_add_start(lc__text *out, const lc_run_info *run, int64_t time_ns) LC_MUST_USE;
lc_status lc__stream_add(lc__text *out, lc__log_record *record) LC_MUST_USE;
/* Hyperparameters merged from several records. */
lc_status lc__stream_add_hparams(lc__text *out, const lc__hparams *hparams, int64_t time_ns) LC_MUST_USE;

#endif
