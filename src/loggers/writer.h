/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a logger: calls on the training thread copy their arguments into a buffer and return; the thread hands
 * the records to the logger's sink in batches.
 *
 * The buffers are allocated at the start and only grow when the sink falls far behind, up to a limit beyond which
 * records are dropped and counted. Only lc__log_flush and lc__log_finish wait for the disk. */
#ifndef LC_LOGGERS_WRITER_H
#define LC_LOGGERS_WRITER_H

#include <lightc/logger.h>

typedef struct lc__log_writer lc__log_writer;

typedef enum lc__log_kind {
    LC__LOG_ROW,
    LC__LOG_CHECKPOINT, /* text: its path */
    LC__LOG_EVENT,      /* text: "status", "finish" or a level's name; text2: what happened */
    LC__LOG_HPARAMS,
    LC__LOG_HISTOGRAM,
    LC__LOG_IMAGE,
    LC__LOG_TEXT,    /* text: its name, text2: what it says */
    LC__LOG_REMOVED, /* text: the path of a checkpoint */
} lc__log_kind;

typedef struct lc__log_record {
    lc__log_kind kind;
    int64_t step, epoch, time_ns;
    bool has_score;
    double score;
    const char *text, *text2;
    int n;          /* values of a row, or hyperparameters */
    const char *at; /* their encoding; read with lc__log_value, lc__log_hparam */
    lc_log_histogram histogram;
    lc_log_image image;
} lc__log_record;

/* A sequence of records. */
typedef struct lc__log_batch {
    const char *data;
    size_t bytes;
    int64_t n;
} lc__log_batch;

/* Reads the record at *cursor (0 at the start), and advances the cursor; false at the end. */
bool lc__log_next(const lc__log_batch *batch, size_t *cursor, lc__log_record *record);
/* The next value of a row; call it record.n times. `name` lives as long as the batch. */
double lc__log_value(lc__log_record *record, const char **name);
/* The same for hyperparameters. */
lc_hparam lc__log_hparam(lc__log_record *record);

/* Writes a batch, on the writer's thread, completely or not at all. LC_SKIP: not possible now, retry soon. An error is
 * reported to the training thread once, and the same batch is retried later. */
typedef lc_status lc__log_sink(void *self, const lc__log_batch *batch);

/* Starts the thread. Records reach the sink after at most interval_ms. */
lc_status lc__log_writer_new(const char *name, lc__log_sink *sink, void *self, int interval_ms, lc__log_writer **out);

#define LC__LOG_PATIENCE_MS 30000
/* How long a sink that returns LC_SKIP is retried before that is an error; default LC__LOG_PATIENCE_MS. */
void lc__log_set_patience(lc__log_writer *w, int64_t ms);

/* These never wait. They return a failure of an earlier write once, and LC_OK otherwise. */
lc_status lc__log_row(lc__log_writer *w, const lc_log_row *row);
lc_status lc__log_event(lc__log_writer *w, const char *event, const char *text);

/* For the sink: the batch is safe, but something is wrong that the user should know. Reports this thread's error
 * message to the training thread once, like a failure of writing. */
void lc__log_warn(lc__log_writer *w, lc_status status);

/* Waits until everything is written, or the attempt failed. */
lc_status lc__log_flush(lc__log_writer *w);
/* Writes what is left, ends the thread, frees everything. The error says what was lost. NULL is fine. */
lc_status lc__log_finish(lc__log_writer *w);

/* Slots of an lc_logger_ops for a logger whose struct begins with its `lc__log_writer *` (NULL: not started, or
 * finished; the slots then do nothing). */
lc_status lc__slot_row(void *self, const lc_log_row *row);
lc_status lc__slot_hparams(void *self, const lc_hparam *params, int n);
lc_status lc__slot_histogram(void *self, const lc_log_histogram *histogram);
lc_status lc__slot_image(void *self, const lc_log_image *image);
lc_status lc__slot_text(void *self, const lc_log_text *text);
lc_status lc__slot_checkpoint(void *self, const char *path, int64_t step, double score, bool has_score);
lc_status lc__slot_removed(void *self, const char *path);
lc_status lc__slot_message(void *self, lc_level level, const char *text);
lc_status lc__slot_status(void *self, const char *status);
lc_status lc__slot_flush(void *self);

#endif
