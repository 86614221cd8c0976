/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard's events as bytes, as PyTorch's SummaryWriter writes them for the same calls. */
#ifndef LC_LOGGERS_TENSORBOARD_EVENTS_H
#define LC_LOGGERS_TENSORBOARD_EVENTS_H

#include "base/str.h"
#include "loggers/hparams.h"

/* Each appends whole records of an event file. Lack of memory shows in out->failed. */
void lc__tb_add_version(lc__str *out, int64_t time_ns); /* the first record of every file */
void lc__tb_add_row(lc__str *out, lc__log_record *row);
void lc__tb_add_histogram(lc__str *out, const lc_log_histogram *histogram);
lc_status lc__tb_add_image(lc__str *out, const lc_log_image *image) LC_MUST_USE;
void lc__tb_add_text(lc__str *out, const lc__log_record *text);
/* `experiment`, `session_start_info` and the placeholder `hp_metric`, at step 0. */
void lc__tb_add_hparams(lc__str *out, const lc__hparams *hparams, const char *run_id, int64_t time_ns);
void lc__tb_add_session_end(lc__str *out, bool success, int64_t time_ns);

#endif
