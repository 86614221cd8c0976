/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.csv: one row per call, columns sorted by name, cells without a value empty, as Lightning's CSVLogger writes
 * it.
 *
 * Rows are appended whole, so that a reader sees a complete table at any moment. A new name adds a column: the file is
 * rewritten under a temporary name and renamed. An existing file (of a resumed run) is continued. */
#define _GNU_SOURCE
#include "base/owned.h"
#include "base/handle.h"
#include "base/grow.h"
#include "base/json.h"
#include "base/remove.h"
#include "loggers/hparams.h"
#include "loggers/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MS 500
#define MOST_READ   ((size_t)4 << 30)

typedef struct column {
    char *name;
    int old;        /* its number in the file on disk; -1: new */
    int64_t filled; /* the row that filled the cell */
    double value;
} column;

typedef struct csv_logger {
    lc__log_writer *writer; /* first: lc__slot_* */
    /* Used by the writer's thread, once it runs. */
    char *path, *hparams_path;
    lc__hparams hparams;
    int fd;
    uint64_t size;   /* bytes of whole rows in the file */
    column *columns; /* sorted by name */
    int n, capacity;
    int n_old;     /* columns of the file on disk; 0: there is no file yet */
    bool replaced; /* the file on disk is not the one that was written */
    int64_t row;
    lc__text text;
} csv_logger;

/* ---- columns ---- */

/* The index of a name; if it is missing, -1 - the index where it belongs. */
static int find_column(const csv_logger *l, const char *name)
{
    int lo = 0, hi = l->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2, order = strcmp(l->columns[mid].name, name);
        if (!order) return mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1 - lo;
}

static lc_status add_column(csv_logger *l, const char *name, int old)
{
    int at = find_column(l, name);
    if (at >= 0) return LC_OK;
    at = -1 - at;
    LC_TRY(lc__grow(&l->columns, &l->capacity, l->n, 1, "the columns of a table"));
    char *copy;
    LC_TRY(lc__format(&copy, "%s", name));
    memmove(&l->columns[at + 1], &l->columns[at], (size_t)(l->n - at) * sizeof *l->columns);
    l->columns[at] = (column){copy, old, -1, 0};
    l->n++;
    return LC_OK;
}

static lc_status add_header(csv_logger *l, lc__text *t)
{
    for (int i = 0; i < l->n; i++) {
        const char *name = l->columns[i].name;
        if (i) LC_TRY(lc__text_puts(t, ","));
        if (!strpbrk(name, ",\"\r\n")) {
            LC_TRY(lc__text_puts(t, name));
            continue;
        }
        LC_TRY(lc__text_puts(t, "\""));
        for (const char *p = name; *p; p++) LC_TRY(lc__text_add(t, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1));
        LC_TRY(lc__text_puts(t, "\""));
    }
    return lc__text_puts(t, "\n");
}

/* ---- rows ---- */

static lc_status add_row(csv_logger *l, lc__text *t, lc__log_record *r)
{
    char cell[LC__DOUBLE_SIZE];
    const char *name;
    int64_t row = ++l->row;
    bool has_epoch = r->epoch >= 0;
    for (int i = 0; i < r->n; i++) {
        double value = lc__log_value(r, &name);
        column *c = &l->columns[find_column(l, name)];
        c->filled = row, c->value = value;
        if (!strcmp(name, "epoch")) has_epoch = false; /* the program logs its own */
    }
    for (int i = 0; i < l->n; i++) {
        const column *c = &l->columns[i];
        if (i) LC_TRY(lc__text_puts(t, ","));
        if (!strcmp(c->name, "step"))
            snprintf(cell, sizeof cell, "%" PRId64, r->step);
        else if (has_epoch && !strcmp(c->name, "epoch"))
            snprintf(cell, sizeof cell, "%" PRId64, r->epoch);
        else if (c->filled == row)
            lc__print_double(cell, c->value);
        else
            continue;
        LC_TRY(lc__text_puts(t, cell));
    }
    return lc__text_puts(t, "\n");
}

/* Adds a line of the old file (without its newline) in the new order of columns. */
static lc_status add_old_line(csv_logger *l, lc__text *t, const char *line, size_t n)
{
    const char **cells = calloc((size_t)l->n_old + 1, sizeof *cells);
    if (!cells) return lc_fail(LC_ERR_MEMORY, "out of memory: a row of \"%s\"", l->path);
    int k = 0;
    cells[k++] = line;
    for (const char *p = line; p < line + n; p++)
        if (*p == ',' && k <= l->n_old) cells[k++] = p + 1;
    while (k <= l->n_old) cells[k++] = line + n + 1; /* a short line: empty cells */
    cells[l->n_old] = line + n + 1;
    lc_status status = LC_OK;
    for (int i = 0; i < l->n && status >= 0; i++) {
        if (i) status = lc__text_puts(t, ",");
        int old = l->columns[i].old;
        if (status >= 0 && old >= 0 && cells[old + 1] > cells[old])
            status = lc__text_add(t, cells[old], (size_t)(cells[old + 1] - cells[old] - 1));
    }
    free(cells);
    return status < 0 ? status : lc__text_puts(t, "\n");
}

/* ---- the file ---- */

/* End of the header line (after the newline); NULL if it is incomplete. */
static const char *header_end(const char *text, size_t n)
{
    bool quoted = false;
    for (const char *p = text; p < text + n; p++) {
        if (*p == '"') quoted = !quoted;
        if (*p == '\n' && !quoted) return p + 1;
    }
    return NULL;
}

static lc_status open_file(csv_logger *l)
{
    if (l->fd >= 0) return LC_OK;
    return lc__open_to_write(l->path, O_WRONLY | O_CREAT, &l->fd);
}

/* Rewrites the file with all columns, its old rows and `rows`. */
static lc_status rewrite(csv_logger *l, const lc__log_batch *batch)
{
    lc__text t = {0};
    char *old = NULL, *temp = NULL, *dir = NULL;
    size_t n = 0;
    lc_status status;
    LC_TRY_GOTO(status, done, add_header(l, &t));
    if (l->n_old) {
        LC_TRY_GOTO(status, done, lc__io_read_file(&lc__io_system, l->path, MOST_READ, &old, &n));
        if (n > l->size) n = l->size;
        const char *p = header_end(old, n), *end = old + n;
        while (p && p < end) {
            const char *stop = memchr(p, '\n', (size_t)(end - p));
            if (!stop) break;
            LC_TRY_GOTO(status, done, add_old_line(l, &t, p, (size_t)(stop - p)));
            p = stop + 1;
        }
    }
    lc__log_record r;
    for (size_t cursor = 0; lc__log_next(batch, &cursor, &r);)
        if (r.kind == LC__LOG_ROW) LC_TRY_GOTO(status, done, add_row(l, &t, &r));
    LC_TRY_GOTO(status, done, lc__path_dir(l->path, &dir));
    LC_TRY_GOTO(status, done, lc__temp_name(dir, "tmp", lc__path_base(l->path), &temp));
    LC_TRY_GOTO(status, done, lc__create_file(&lc__io_system, temp, t.data, t.length));
    LC_TRY_GOTO(status, done, lc__replace_by(&lc__io_system, temp, l->path));
    /* From here on the rows count as written, whatever happens. */
    if (l->fd >= 0) close(l->fd);
    (void)!lc__open_to_write(l->path, O_WRONLY, &l->fd); /* or at the next row */
    l->size = t.length, l->n_old = l->n;
    for (int i = 0; i < l->n; i++) l->columns[i].old = i;
done:
    free(dir);
    free(temp);
    free(old);
    lc__text_release(&t);
    return status;
}

static lc_status not_ours(const csv_logger *l, const char *why)
{
    return lc_fail(LC_ERR_FORMAT, "\"%s\" was not written by this logger (%s); move it away", l->path, why);
}

/* Continues an existing file: reads its columns, and its size up to the last complete row. */
static lc_status continue_file(csv_logger *l)
{
    char *text = NULL;
    size_t n;
    if (access(l->path, F_OK) < 0) return LC_OK;
    LC_TRY(lc__io_read_file(&lc__io_system, l->path, MOST_READ, &text, &n));
    lc_status status = LC_OK;
    const char *end = header_end(text, n);
    if (!end && n) status = not_ours(l, "it has no header"); /* this logger always writes one */
    if (!end) goto done;
    lc__text name = {0};
    for (const char *p = text; p < end && status >= 0;) {
        name.length = 0;
        if (*p == '"') {
            for (p++; p < end && !(*p == '"' && p[1] != '"') && status >= 0; p++) {
                if (*p == '"') p++;
                status = lc__text_add(&name, p, 1);
            }
            p++;
        } else {
            size_t length = strcspn(p, ",\n");
            status = lc__text_add(&name, p, length);
            p += length;
        }
        p++; /* the comma or the end of the line */
        if (status < 0) break;
        int before = l->n;
        status = add_column(l, name.data, l->n_old++);
        if (status >= 0 && l->n == before)
            status = lc_fail(LC_ERR_FORMAT, "\"%s\" has two columns \"%s\"; move it away", l->path, name.data);
    }
    lc__text_release(&name);
    for (int i = 0; i < l->n && status >= 0; i++)
        if (l->columns[i].old != i) status = not_ours(l, "its columns are not sorted");
    if (status >= 0 && find_column(l, "step") < 0) status = not_ours(l, "it has no column \"step\"");
    while (n && text[n - 1] != '\n') n--; /* an incomplete row of a process that died */
    l->size = n;
    if (status >= 0) status = open_file(l);
    if (status >= 0 && ftruncate(l->fd, (off_t)n) < 0) status = lc__io_fail(errno, "write", l->path);
done:
    free(text);
    return status;
}

static void forget_columns(csv_logger *l)
{
    for (int i = 0; i < l->n; i++) free(l->columns[i].name);
    l->n = l->n_old = 0;
}

/* Somebody has removed, replaced or cut the file: what has its name now is continued as at the start. */
static lc_status start_over(csv_logger *l)
{
    l->replaced = true;
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    l->size = 0;
    forget_columns(l);
    LC_TRY(continue_file(l));
    l->replaced = false;
    return LC_OK;
}

static lc_status sink(void *self, const lc__log_batch *batch)
{
    csv_logger *l = self;
    lc__log_record r;
    const char *name;
    if (l->replaced || (l->n_old && !lc__is_there(l->path, l->fd, l->size))) LC_TRY(start_over(l));
    for (size_t cursor = 0; lc__log_next(batch, &cursor, &r);) {
        if (r.kind == LC__LOG_HPARAMS) {
            LC_TRY(lc__hparams_merge(&l->hparams, &r));
            LC_TRY(lc__hparams_write_yaml(&l->hparams, l->hparams_path));
        }
        if (r.kind != LC__LOG_ROW) continue;
        LC_TRY(add_column(l, "step", -1));
        if (r.epoch >= 0) LC_TRY(add_column(l, "epoch", -1));
        for (int i = 0; i < r.n; i++) {
            lc__log_value(&r, &name);
            LC_TRY(add_column(l, name, -1));
        }
    }
    if (l->n != l->n_old) return rewrite(l, batch);
    lc_status status = LC_OK;
    l->text.length = 0;
    for (size_t cursor = 0; lc__log_next(batch, &cursor, &r) && status >= 0;)
        if (r.kind == LC__LOG_ROW) status = add_row(l, &l->text, &r);
    if (status >= 0 && l->text.length) status = open_file(l);
    if (status < 0 || !l->text.length) return status;
    status = lc__write_all(&lc__io_system, l->fd, l->path, l->text.data, l->text.length, l->size);
    if (status >= 0) {
        l->size += l->text.length;
    } else if (ftruncate(l->fd, (off_t)l->size) < 0) {
        /* An incomplete row stays for now; the next attempt overwrites it. */
    }
    return status;
}

/* ---- the logger ---- */

static lc_status csv_start(void *self, const lc_run_info *run)
{
    csv_logger *l = self;
    if (l->writer) return lc_fail(LC_ERR_STATE, "the csv logger was already started");
    LC_TRY(lc__path_join(run->run_dir, "metrics.csv", &l->path));
    LC_TRY(lc__path_join(run->run_dir, "hparams.yaml", &l->hparams_path));
    LC_TRY(continue_file(l));
    LC_TRY(lc__log_writer_new("csv", sink, l, INTERVAL_MS, &l->writer));
    return access(run->run_dir, W_OK) < 0 ? lc__io_fail(errno, "write into", run->run_dir) : LC_OK;
}

static lc_status csv_finish(void *self, const char *status)
{
    csv_logger *l = self;
    (void)status;
    lc__log_writer *w = l->writer;
    l->writer = NULL;
    return lc__log_finish(w);
}

static void csv_release(void *self)
{
    csv_logger *l = self;
    if (csv_finish(l, "interrupted") < 0) {
    } /* callers that need the result call finish */
    if (l->fd >= 0) close(l->fd);
    forget_columns(l);
    free(l->columns);
    lc__text_release(&l->text);
    lc__hparams_release(&l->hparams);
    free(l->hparams_path);
    free(l->path);
}

static const lc_logger_ops csv_ops = {
    LC_LOGGER_OPS_INIT,
    .name = "csv",
    .start = csv_start,
    .log_row = lc__slot_row,
    .log_hyperparameters = lc__slot_hparams,
    .flush = lc__slot_flush,
    .finish = csv_finish,
    .free = lc__owned_free,
};

lc_status lc_csv_logger_new(lc_logger *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    csv_logger *l = lc__owned_new(sizeof *l, csv_release);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: the csv logger");
    l->fd = -1;
    *out = (lc_logger){&csv_ops, l};
    return LC_OK;
}
