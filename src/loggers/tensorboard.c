/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard event files, as Lightning's TensorBoardLogger writes them to the run's directory: one
 * events.out.tfevents.* per process, and hparams.yaml always.
 *
 * Events are only appended, as whole records, so that TensorBoard can read during the run. The writer's thread opens
 * the file with its first batch; like every write, it is retried on failure. */
#define _GNU_SOURCE
#include "base/owned.h"
#include "base/clock.h"
#include "base/handle.h"
#include "base/io.h"
#include "loggers/hparams.h"
#include "loggers/tensorboard_events.h"
#include "loggers/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MS 500

typedef struct tensorboard_logger {
    lc__log_writer *writer; /* first: lc__slot_* */
    /* Used by the writer's thread, once it runs. */
    char *path, *yaml_path, *run_id;
    int fd;
    uint64_t size; /* bytes of complete records in the file */
    lc__hparams hparams;
    bool hparams_logged; /* TensorBoard reads only the first ones in a file */
    bool yaml_written;
    lc__str out;
} tensorboard_logger;

static lc_status open_file(tensorboard_logger *l)
{
    if (l->fd >= 0 && !lc__is_there(l->path, l->fd, l->size)) {
        if (access(l->path, F_OK) == 0)
            return lc_fail(LC_ERR_IO, "cannot write \"%s\": it was replaced or cut during the run; move it away",
                           l->path);
        close(l->fd); /* a new one begins with all that a file needs */
        l->fd = -1;
        l->size = 0;
        l->hparams_logged = false;
    }
    if (l->fd >= 0) return LC_OK;
    return lc__open_to_write(l->path, O_WRONLY | O_CREAT, &l->fd);
}

static lc_status encode(tensorboard_logger *l, lc__log_record *r)
{
    switch (r->kind) {
    case LC__LOG_ROW:
        lc__tb_add_row(&l->out, r);
        break;
    case LC__LOG_HISTOGRAM:
        lc__tb_add_histogram(&l->out, &r->histogram);
        break;
    case LC__LOG_IMAGE:
        return lc__tb_add_image(&l->out, &r->image);
    case LC__LOG_TEXT:
        lc__tb_add_text(&l->out, r);
        break;
    case LC__LOG_EVENT: /* only tensorboard_finish logs one */
        if (l->hparams.n) lc__tb_add_session_end(&l->out, !strcmp(r->text2, "success"), r->time_ns);
        break;
    case LC__LOG_HPARAMS:
    case LC__LOG_CHECKPOINT:
    case LC__LOG_REMOVED:
        break;
    }
    return LC_OK;
}

static lc_status sink(void *self, const lc__log_batch *batch)
{
    tensorboard_logger *l = self;
    lc__log_record r;
    int64_t hparams_ns = 0;
    LC_TRY(open_file(l));
    for (size_t cursor = 0; lc__log_next(batch, &cursor, &r);) {
        if (r.kind != LC__LOG_HPARAMS) continue;
        LC_TRY(lc__hparams_merge(&l->hparams, &r));
        l->yaml_written = false;
        hparams_ns = r.time_ns;
    }
    lc__str_clear(&l->out);
    if (!l->size) lc__tb_add_version(&l->out, lc__realtime_ns());
    if (!hparams_ns && !l->size && l->hparams.n) hparams_ns = lc__realtime_ns(); /* those of the file before */
    if (hparams_ns && !l->hparams_logged) lc__tb_add_hparams(&l->out, &l->hparams, l->run_id, hparams_ns);
    for (size_t cursor = 0; lc__log_next(batch, &cursor, &r);) LC_TRY(encode(l, &r));
    if (l->out.failed) return lc_fail(LC_ERR_MEMORY, "out of memory: the events of \"%s\"", l->path);
    if (!l->yaml_written) LC_TRY(lc__hparams_write_yaml(&l->hparams, l->yaml_path));
    l->yaml_written = true;
    lc_status status = lc__write_all(&lc__io_system, l->fd, l->path, l->out.s, l->out.n, l->size);
    if (status >= 0) {
        l->size += l->out.n;
        l->hparams_logged |= hparams_ns != 0;
    } else if (ftruncate(l->fd, (off_t)l->size) < 0) {
        /* An incomplete record stays for now; the next attempt overwrites it. */
    }
    return status;
}

static lc_status tensorboard_start(void *self, const lc_run_info *run)
{
    tensorboard_logger *l = self;
    if (l->writer) return lc_fail(LC_ERR_STATE, "the tensorboard logger was already started");
    char host[256] = "";
    int64_t now = lc__realtime_ns();
    if (gethostname(host, sizeof host - 1) < 0 || !*host) snprintf(host, sizeof host, "localhost");
    LC_TRY(lc__path_join(run->run_dir, "hparams.yaml", &l->yaml_path));
    LC_TRY(lc__format(&l->run_id, "%s", run->run_id ? run->run_id : ""));
    /* The last number distinguishes files of one process within a second. */
    for (int i = 0; !l->path; i++) {
        LC_TRY(lc__format(&l->path, "%s/events.out.tfevents.%010" PRId64 ".%s.%ld.%d", run->run_dir, now / 1000000000,
                          host, (long)getpid(), i));
        if (access(l->path, F_OK) == 0) {
            free(l->path);
            l->path = NULL;
        }
    }
    LC_TRY(lc__log_writer_new("tensorboard", sink, l, INTERVAL_MS, &l->writer));
    return open_file(l); /* on the caller's thread, as the writer has nothing yet */
}

static lc_status tensorboard_finish(void *self, const char *status)
{
    tensorboard_logger *l = self;
    lc__log_writer *w = l->writer;
    l->writer = NULL;
    if (!w) return LC_OK;
    /* This also makes the sink write a file if nothing was logged. */
    lc_status logged = lc__log_event(w, "finish", status), ended = lc__log_finish(w);
    return ended < 0 ? ended : logged;
}

static void tensorboard_release(void *self)
{
    tensorboard_logger *l = self;
    if (tensorboard_finish(l, "interrupted") < 0) {
    } /* callers that need the result call finish */
    if (l->fd >= 0) close(l->fd);
    lc__hparams_release(&l->hparams);
    lc__str_free(&l->out);
    free(l->yaml_path);
    free(l->run_id);
    free(l->path);
}

static const lc_logger_ops tensorboard_ops = {
    LC_LOGGER_OPS_INIT,
    .name = "tensorboard",
    .start = tensorboard_start,
    .log_row = lc__slot_row,
    .log_hyperparameters = lc__slot_hparams,
    .log_histogram = lc__slot_histogram,
    .log_image = lc__slot_image,
    .log_text = lc__slot_text,
    .flush = lc__slot_flush,
    .finish = tensorboard_finish,
    .free = lc__owned_free,
};

lc_status lc_tensorboard_logger_new(lc_logger *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    tensorboard_logger *l = lc__owned_new(sizeof *l, tensorboard_release);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: the tensorboard logger");
    l->fd = -1;
    *out = (lc_logger){&tensorboard_ops, l};
    return LC_OK;
}
