/* SPDX-License-Identifier: Apache-2.0 */
/* The stream logger: a run as JSON lines (stream_format.h), for another program that forwards them to a service this
 * library does not know (tools/bridge/). They go to
 *
 *   a file         appended to, also after somebody has replaced it; without a name stream.jsonl in the run's folder
 *   a FIFO         its reader; without one, lines wait
 *   "|COMMAND"     the standard input of a shell command, which is started with the run and restarted if it exits early
 *
 * A reader that joins later first gets the lines `start` and `hparams`, then continues with the line that its
 * predecessor did not read completely. Pipes are written without blocking: a stuck reader delays this thread, but not
 * the training. */
#define _GNU_SOURCE
#include "base/owned.h"
#include "base/clock.h"
#include "base/handle.h"
#include "base/io.h"
#include "base/spawn.h"
#include "base/str.h"
#include "loggers/stream_format.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_MS 200
#define PATIENCE_MS 5000 /* waiting for a reader that does not read, per attempt */
#define FIRST_PAUSE 1000 /* before a command is restarted; doubled each time */
#define LAST_PAUSE  60000
#define EXIT_MS     60000 /* for a command to exit after its input ended */

typedef struct stream_logger {
    lc__log_writer *writer; /* first: lc__slot_* */
    char *target;           /* a path, or "|" and a command; NULL: stream.jsonl */
    /* Used by the writer's thread, once it runs. */
    char *path;
    int fd;
    bool is_file;
    uint64_t size; /* of complete lines, in a file */
    pid_t child;
    int64_t started_ms, pause_ms;
    lc__text start; /* the line every reader gets first */
    lc__hparams hparams;
    int64_t hparams_ns;
    lc__text greeting, out; /* being written: to a new reader, and of the batch */
    size_t greeted, sent;
} stream_logger;

/* ---- opening ---- */

/* Continues after the last complete line. An incomplete line is removed if this logger wrote it (a process died); any
 * other is ended with a newline. */
static lc_status continue_file(stream_logger *l, uint64_t size)
{
    static const char ours[] = "{\"type\":\"";
    char last = 0, head[sizeof ours] = "";
    uint64_t line = size;
    int fd = open(l->path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && line && pread(fd, &last, 1, (off_t)line - 1) == 1 && last != '\n') line--;
    size_t n = size - line < sizeof ours - 1 ? (size_t)(size - line) : sizeof ours - 1;
    bool cut = fd >= 0 && pread(fd, head, n, (off_t)line) == (ssize_t)n && !memcmp(head, ours, n);
    if (fd >= 0) close(fd);
    l->size = cut ? line : size;
    if (cut) return ftruncate(l->fd, (off_t)line) < 0 ? lc__io_fail(errno, "write", l->path) : LC_OK;
    LC_TRY(lc__write_all(&lc__io_system, l->fd, l->path, "\n", 1, size));
    l->size++;
    return LC_OK;
}

static lc_status open_path(stream_logger *l)
{
    struct stat st;
    l->fd = open(l->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (l->fd < 0 && errno == ENXIO && stat(l->path, &st) == 0 && !S_ISFIFO(st.st_mode))
        return lc_fail(LC_ERR_IO, "cannot write \"%s\": it is a socket or a device, not a file or a FIFO", l->path);
    if (l->fd < 0 && errno == ENXIO) return lc_fail(LC_ERR_IO, "the FIFO \"%s\" has no reader yet", l->path);
    if (l->fd < 0) return lc__io_fail(errno, "open", l->path);
    if (fstat(l->fd, &st) < 0) return lc__io_fail(errno, "open", l->path);
    l->is_file = S_ISREG(st.st_mode);
    if (!l->is_file) return LC_OK;
    return continue_file(l, (uint64_t)st.st_size);
}

static void close_stream(stream_logger *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    if (l->child > 0 && waitpid(l->child, NULL, WNOHANG) != 0) l->child = 0;
}

/* Opens the target, and prepares the greeting of the new reader. */
static lc_status open_stream(stream_logger *l)
{
    if (l->fd >= 0 && l->is_file && !lc__is_there(l->path, l->fd, l->size)) close_stream(l);
    if (l->fd >= 0) return LC_OK;
    if (l->target && *l->target == '|') {
        if (l->started_ms && lc__now_ms() - l->started_ms < l->pause_ms)
            return lc_fail(LC_ERR_IO, "the command exited early: %s (it will be started again)", l->target + 1);
        if (l->child > 0) waitpid(l->child, NULL, WNOHANG); /* reaps the previous command */
        LC_TRY(lc__spawn_shell(l->target + 1, NULL, false, &l->child, &l->fd));
        /* A command that keeps exiting at once is not restarted every second. */
        bool lived = lc__now_ms() - l->started_ms > LAST_PAUSE;
        l->pause_ms = lived ? FIRST_PAUSE : l->pause_ms * 2 < LAST_PAUSE ? l->pause_ms * 2 : LAST_PAUSE;
        l->started_ms = lc__now_ms();
    } else {
        LC_TRY(open_path(l));
    }
    l->greeting.length = l->greeted = 0;
    LC_TRY(lc__text_add(&l->greeting, l->start.data, l->start.length));
    if (l->hparams.n) LC_TRY(lc__stream_add_hparams(&l->greeting, &l->hparams, l->hparams_ns));
    while (l->sent && l->out.data[l->sent - 1] != '\n') l->sent--;
    return LC_OK;
}

/* ---- writing ---- */

/* Continues writing a text, of which *done bytes were written. */
static lc_status write_some(stream_logger *l, const lc__text *t, size_t *done)
{
    const char *where = l->path ? l->path : l->target + 1;
    if (*done == t->length) return LC_OK;
    if (l->is_file) {
        lc_status status = lc__write_all(&lc__io_system, l->fd, where, t->data + *done, t->length - *done, l->size);
        if (status >= 0) {
            l->size += t->length - *done;
            *done = t->length;
        } else if (ftruncate(l->fd, (off_t)l->size) < 0) {
            /* An incomplete line stays for now; the next attempt overwrites it. */
        }
        return status;
    }
    for (int64_t until = lc__now_ms() + PATIENCE_MS; *done < t->length;) {
        ssize_t n = write(l->fd, t->data + *done, t->length - *done);
        if (n > 0) {
            *done += (size_t)n;
            until = lc__now_ms() + PATIENCE_MS;
        } else if (n < 0 && errno == EPIPE) {
            close_stream(l);
            return lc_fail(LC_ERR_IO, "the reader of \"%s\" has closed it", where);
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return lc__io_fail(errno, "write", where);
        } else {
            int64_t left = until - lc__now_ms();
            if (left <= 0) return lc_fail(LC_ERR_IO, "the reader of \"%s\" does not read", where);
            struct pollfd p = {.fd = l->fd, .events = POLLOUT};
            poll(&p, 1, (int)left);
        }
    }
    return LC_OK;
}

static lc_status sink(void *self, const lc__log_batch *batch)
{
    stream_logger *l = self;
    lc__log_record r;
    if (!l->out.length) { /* a new batch, not a retry */
        lc_status status = LC_OK;
        for (size_t cursor = 0; status >= 0 && lc__log_next(batch, &cursor, &r);) {
            lc__log_record params = r;
            status = lc__stream_add(&l->out, &r);
            if (r.kind != LC__LOG_HPARAMS || status < 0) continue;
            status = lc__hparams_merge(&l->hparams, &params);
            l->hparams_ns = r.time_ns;
        }
        if (status < 0) {
            l->out.length = 0;
            return status;
        }
    }
    LC_TRY(open_stream(l));
    LC_TRY(write_some(l, &l->greeting, &l->greeted));
    LC_TRY(write_some(l, &l->out, &l->sent));
    l->out.length = l->sent = 0;
    return LC_OK;
}

/* ---- the logger ---- */

static lc_status stream_start(void *self, const lc_run_info *run)
{
    stream_logger *l = self;
    if (l->writer) return lc_fail(LC_ERR_STATE, "the stream logger was already started");
    if (!l->target)
        LC_TRY(lc__path_join(run->run_dir, "stream.jsonl", &l->path));
    else if (*l->target != '|')
        LC_TRY(lc__format(&l->path, "%s", l->target));
    l->start.length = 0;
    LC_TRY(lc__stream_add_start(&l->start, run, lc__realtime_ns()));
    LC_TRY(lc__log_writer_new("stream", sink, l, INTERVAL_MS, &l->writer));
    /* On the caller's thread, as the writer has nothing yet. A FIFO may get its reader later. */
    lc_status status = open_stream(l);
    return l->fd < 0 && l->path && access(l->path, F_OK) == 0 ? LC_OK : status;
}

/* Waits for the command to exit after its input has ended. */
static lc_status wait_for_command(stream_logger *l)
{
    int how = 0;
    pid_t child = l->child;
    l->child = 0;
    for (int64_t until = lc__now_ms() + EXIT_MS; child > 0;) {
        pid_t ended = waitpid(child, &how, WNOHANG);
        if (ended == child) break;
        if (ended < 0 && errno != EINTR) return LC_OK; /* other code in this program waited for it */
        if (lc__now_ms() > until)
            return lc_fail(LC_ERR_IO, "the command is still busy and is left running: %s", l->target + 1);
        struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
    if (child > 0 && how)
        return lc_fail(LC_ERR_IO, "the command %s %d: %s",
                       WIFEXITED(how) ? "exited with status" : "was killed by signal",
                       WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how), l->target + 1);
    return LC_OK;
}

static lc_status stream_finish(void *self, const char *status)
{
    stream_logger *l = self;
    lc__log_writer *w = l->writer;
    l->writer = NULL;
    if (!w) return LC_OK;
    lc_status logged = lc__log_event(w, "finish", status), ended = lc__log_finish(w);
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    if (logged < 0 || ended < 0) return logged < 0 ? logged : ended;
    return wait_for_command(l);
}

static void stream_release(void *self)
{
    stream_logger *l = self;
    if (stream_finish(l, "interrupted") < 0) {
    } /* callers that need the result call finish */
    lc__hparams_release(&l->hparams);
    lc__text_release(&l->start);
    lc__text_release(&l->greeting);
    lc__text_release(&l->out);
    free(l->target);
    free(l->path);
}

static const lc_logger_ops stream_ops = {
    LC_LOGGER_OPS_INIT,
    .name = "stream",
    .start = stream_start,
    .log_row = lc__slot_row,
    .log_hyperparameters = lc__slot_hparams,
    .log_histogram = lc__slot_histogram,
    .log_image = lc__slot_image,
    .log_text = lc__slot_text,
    .log_checkpoint = lc__slot_checkpoint,
    .log_checkpoint_removed = lc__slot_removed,
    .log_message = lc__slot_message,
    .log_status = lc__slot_status,
    .flush = lc__slot_flush,
    .finish = stream_finish,
    .free = lc__owned_free,
};

lc_status lc_stream_logger_new(const char *target, lc_logger *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (target && *target == '|' && !target[strspn(target, "| ")])
        return lc_fail(LC_ERR_CONFIG, "stream:| needs a command, as in stream:|cat");
    stream_logger *l = lc__owned_new(sizeof *l, stream_release);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: the stream logger");
    l->fd = -1;
    l->pause_ms = FIRST_PAUSE / 2;
    if (target && *target && lc__copy_text(target, &l->target) < 0) {
        lc__owned_free(l);
        return LC_ERR_MEMORY;
    }
    *out = (lc_logger){&stream_ops, l};
    return LC_OK;
}
