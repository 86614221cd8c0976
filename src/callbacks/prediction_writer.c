/* SPDX-License-Identifier: Apache-2.0 */
/* PredictionWriter: predictions go to functions of the program, or row by row to a .npy file as they are made (one for
 * each loader), or at the end to a .safetensors file.
 *
 * A .npy file is written under a temporary name, its header filled in when the number of rows is known, and renamed: a
 * file with the final name is complete.
 *
 * With several ranks, rank 0 writes the files from the predictions that the trainer keeps: those of all ranks, in the
 * order of the data. Functions of the program are called on every rank with its own predictions. */
#include "core/input/input.h"
#include "core/loop/loop.h"
#include "base/remove.h"
#include "callbacks/callbacks.h"
#include "core/hooks/trainer_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lightc/safetensors.h>

enum { NPY_HEADER = 192 }; /* room for any shape; a multiple of 64, as the format requires */

typedef struct stream {
    FILE *f;
    char *part;          /* the temporary name while it is open */
    lc_type type;        /* of one row; shape[0] is ignored */
    int64_t rows, taken; /* taken: how many predictions kept by the trainer have been written */
} stream;

typedef struct writer {
    lc_prediction_writer_args a;
    char *path;
    bool batch, epoch, npy, safetensors;
    stream streams[LC_MAX_LOADERS];
    void *data;
    size_t bytes;
} writer;

/* "out.npy" -> "out.npy", "out_1.npy", ... */
static lc_status path_of(const writer *w, int loader, lc__str *out)
{
    const char *dot = strrchr(w->path, '.');
    lc__str_clear(out);
    lc__str_add_bytes(out, w->path, (size_t)(dot - w->path));
    if (loader) lc__str_add(out, "_%d", loader);
    lc__str_add(out, "%s", dot);
    return out->failed ? lc_fail(LC_ERR_MEMORY, "out of memory: PredictionWriter") : LC_OK;
}

static lc_status grow(writer *w, size_t bytes)
{
    if (bytes <= w->bytes) return LC_OK;
    void *data = realloc(w->data, bytes);
    if (!data) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of predictions", bytes);
    w->data = data;
    w->bytes = bytes;
    return LC_OK;
}

/* ---- .npy ---- */

static const char *npy_type(lc_dtype dtype)
{
    switch (dtype) {
    case LC_F32:
        return "<f4";
    case LC_F64:
        return "<f8";
    case LC_F16:
        return "<f2";
    case LC_I64:
        return "<i8";
    case LC_I32:
        return "<i4";
    case LC_U8:
        return "|u1";
    case LC_BOOL:
        return "|b1";
    default:
        return NULL;
    }
}

static lc_status write_header(stream *s, const char *path)
{
    char text[NPY_HEADER + 1];
    size_t n = (size_t)snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,",
                                npy_type(s->type.dtype), (long long)s->rows);
    for (int d = 1; d < s->type.ndim; d++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", d > 1 ? ", " : " ", (long long)s->type.shape[d]);
    n += (size_t)snprintf(text + n, sizeof text - n, "), }");
    memset(text + n, ' ', NPY_HEADER - 10 - n - 1);
    text[NPY_HEADER - 10 - 1] = '\n';
    unsigned char magic[10] = "\x93NUMPY\x01";
    magic[8] = (NPY_HEADER - 10) & 0xff;
    magic[9] = (NPY_HEADER - 10) >> 8;
    bool written = fseeko(s->f, 0, SEEK_SET) == 0 && fwrite(magic, 1, sizeof magic, s->f) == sizeof magic &&
                   fwrite(text, 1, NPY_HEADER - 10, s->f) == NPY_HEADER - 10;
    return written ? LC_OK : lc_fail(LC_ERR_IO, "%s cannot be written: %s", path, strerror(errno));
}

static lc_status open_stream(stream *s, const char *path, const lc_tensor *x)
{
    char *dir = NULL;
    if (!npy_type(lc_tensor_dtype(x)))
        return lc_fail(LC_ERR_UNSUPPORTED,
                       ".npy files have no type for %s; write a .safetensors file, or cast the "
                       "prediction",
                       lc_dtype_name(lc_tensor_dtype(x)));
    s->type = *lc_tensor_type(x);
    s->rows = 0;
    free(s->part);
    s->part = NULL;
    LC_TRY(lc__path_dir(path, &dir));
    lc_status status = lc__temp_name(dir, "tmp", lc__path_base(path), &s->part);
    free(dir);
    LC_TRY(status);
    s->f = fopen(s->part, "wbx");
    if (!s->f) return lc_fail(LC_ERR_IO, "%s cannot be opened: %s", s->part, strerror(errno));
    return write_header(s, s->part);
}

static lc_status append(writer *w, int loader, lc_tensor *x)
{
    stream *s = &w->streams[loader];
    lc__str path = {0};
    size_t bytes = (size_t)lc_tensor_numel(x) * lc_dtype_size(lc_tensor_dtype(x));
    lc_status status = path_of(w, loader, &path);
    if (status >= 0 && lc_tensor_ndim(x) < 1)
        status = lc_fail(LC_ERR_SHAPE, "PredictionWriter: a prediction needs a first dimension, the samples");
    if (status >= 0 && !s->f) status = open_stream(s, path.s, x);
    bool same = status >= 0 && lc_tensor_ndim(x) == s->type.ndim && lc_tensor_dtype(x) == s->type.dtype;
    for (int d = 1; same && d < s->type.ndim; d++) same = lc_tensor_dim(x, d) == s->type.shape[d];
    if (status >= 0 && !same)
        status = lc_fail(LC_ERR_SHAPE, "PredictionWriter: the shape of this prediction differs from earlier ones in %s",
                         path.s);
    if (status >= 0) status = grow(w, bytes);
    if (status >= 0) status = lc_tensor_read(x, w->data, bytes);
    if (status >= 0 && fwrite(w->data, 1, bytes, s->f) != bytes)
        status = lc_fail(LC_ERR_IO, "%s cannot be written: %s", path.s, strerror(errno));
    if (status >= 0) s->rows += lc_tensor_dim(x, 0);
    lc__str_free(&path);
    return status;
}

static lc_status close_stream(writer *w, int loader, bool keep)
{
    stream *s = &w->streams[loader];
    lc__str path = {0};
    s->taken = 0;
    if (!s->f) return LC_OK;
    lc_status status = path_of(w, loader, &path);
    if (status >= 0 && keep) status = write_header(s, s->part);
    if (status >= 0 && keep && (fflush(s->f) != 0 || fsync(fileno(s->f)) != 0))
        status = lc_fail(LC_ERR_IO, "%s cannot be written: %s", s->part, strerror(errno));
    fclose(s->f);
    s->f = NULL;
    if (status >= 0 && keep)
        status = lc__replace_by(&lc__io_system, s->part, path.s);
    else
        lc__remove_made(&lc__io_system, s->part);
    lc__str_free(&path);
    return status;
}

/* ---- .safetensors: "predictions", or "predictions.I" with several loaders ---- */

static lc_status join(const lc_trainer *t, int loader, lc_named_tensor *out)
{
    int64_t n = lc_trainer_prediction_count(t, loader);
    size_t bytes = 0, at = 0;
    const lc_tensor *first = lc_trainer_prediction(t, loader, 0);
    out->type = *lc_tensor_type(first);
    out->type.shape[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const lc_tensor *x = lc_trainer_prediction(t, loader, i);
        bool same =
            lc_tensor_ndim(x) == out->type.ndim && lc_tensor_ndim(x) > 0 && lc_tensor_dtype(x) == out->type.dtype;
        for (int d = 1; same && d < out->type.ndim; d++) same = lc_tensor_dim(x, d) == out->type.shape[d];
        if (!same) return lc_fail(LC_ERR_SHAPE, "PredictionWriter: predictions have different shapes or types");
        out->type.shape[0] += lc_tensor_dim(x, 0);
        bytes += (size_t)lc_tensor_numel(x) * lc_dtype_size(lc_tensor_dtype(x));
    }
    char *data = malloc(bytes + 1);
    if (!data) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of predictions", bytes);
    out->data = data;
    for (int64_t i = 0; i < n; i++) {
        lc_tensor *x = lc_trainer_prediction(t, loader, i);
        size_t size = (size_t)lc_tensor_numel(x) * lc_dtype_size(lc_tensor_dtype(x));
        LC_TRY(lc_tensor_read(x, data + at, size));
        at += size;
    }
    return LC_OK;
}

static lc_status save_all(writer *w, lc_trainer *t)
{
    lc_named_tensor list[LC_MAX_LOADERS] = {{0}};
    char names[LC_MAX_LOADERS][32];
    lc_status s = LC_OK;
    int n = 0;
    for (int i = 0; i < t->input->eval.n && s >= 0; i++) {
        if (!lc_trainer_prediction_count(t, i)) continue;
        snprintf(names[n], sizeof names[n], t->input->eval.n > 1 ? "predictions.%d" : "predictions", i);
        list[n].name = names[n];
        s = join(t, i, &list[n++]);
    }
    if (s >= 0 && !n)
        s = lc_fail(LC_ERR_CONFIG, "PredictionWriter: there are no predictions to write; predict_step returned none");
    if (s >= 0) s = lc_safetensors_save(w->path, n, list, 0, NULL);
    for (int i = 0; i < n; i++) free((void *)(uintptr_t)list[i].data);
    return s;
}

/* ---- hooks ---- */

static lc_status pw_setup(void *self, lc_trainer *t, lc_stage stage)
{
    const writer *w = self;
    if (stage == LC_STAGE_PREDICT && (w->epoch || (w->npy && t->comm))) t->loop->keeps_predictions = true;
    return LC_OK;
}

/* Appends the predictions of all ranks for this batch, possibly none. */
static lc_status append_kept(writer *w, lc_trainer *t, int loader)
{
    stream *s = &w->streams[loader];
    int64_t n = lc_trainer_prediction_count(t, loader);
    if (n == s->taken || !lc__is_rank_zero(t)) return LC_OK;
    s->taken = n;
    return append(w, loader, lc_trainer_prediction(t, loader, n - 1));
}

static lc_status pw_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i, int loader)
{
    writer *w = self;
    lc_tensor *prediction = o->n ? o->values[0] : NULL;
    if (w->batch && w->npy && t->comm) LC_TRY(append_kept(w, t, loader));
    if (!w->batch || !prediction) return LC_OK;
    if (w->a.write_on_batch_end) LC_TRY(w->a.write_on_batch_end(w->a.context, t, prediction, b, i, loader));
    return w->npy && !t->comm ? append(w, loader, prediction) : LC_OK;
}

static lc_status pw_epoch_end(void *self, lc_trainer *t)
{
    writer *w = self;
    for (int i = 0; i < LC_MAX_LOADERS; i++) LC_TRY(close_stream(w, i, true));
    if (!w->epoch) return LC_OK;
    if (w->a.write_on_epoch_end) LC_TRY(w->a.write_on_epoch_end(w->a.context, t));
    return w->safetensors && lc__is_rank_zero(t) ? save_all(w, t) : LC_OK;
}

static lc_status pw_teardown(void *self, lc_trainer *t, lc_stage stage)
{
    if (stage == LC_STAGE_PREDICT && t->args && t->args->discard_predictions) lc__forget_predictions(t);
    for (int i = 0; i < LC_MAX_LOADERS; i++) LC_TRY(close_stream(self, i, false)); /* left open by an error */
    return LC_OK;
}

static void pw_release(void *self)
{
    writer *w = self;
    for (int i = 0; i < LC_MAX_LOADERS; i++) {
        if (w->streams[i].f) fclose(w->streams[i].f);
        free(w->streams[i].part);
    }
    free(w->path);
    free(w->data);
}

static const lc_callback_ops prediction_writer_ops = {
    LC_CALLBACK_OPS_INIT("PredictionWriter"), .setup = pw_setup,       .on_predict_batch_end = pw_batch_end,
    .on_predict_epoch_end = pw_epoch_end,     .teardown = pw_teardown, .free = lc__owned_free,
};

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a > b && !strcmp(text + a - b, end);
}

lc_status lc_prediction_writer_new(const lc_prediction_writer_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_prediction_writer, given);
    const char *path = args->path ? args->path : "", *when = args->write_interval;
    bool npy = ends_in(path, ".npy"), safetensors = ends_in(path, ".safetensors");
    if (!when) when = npy ? "batch" : "epoch";
    bool batch = !strcmp(when, "batch") || !strcmp(when, "batch_and_epoch");
    bool epoch = !strcmp(when, "epoch") || !strcmp(when, "batch_and_epoch");
    if (!batch && !epoch)
        return lc_fail(LC_ERR_CONFIG,
                       "PredictionWriter: write_interval is \"%.40s\"; it must be batch, epoch or batch_and_epoch",
                       when);
    if (*path && !npy && !safetensors)
        return lc_fail(LC_ERR_CONFIG, "PredictionWriter: %.200s ends neither in .npy nor in .safetensors", path);
    if ((npy && !batch) || (safetensors && !epoch))
        return lc_fail(LC_ERR_CONFIG,
                       "PredictionWriter: .npy files are written at batches, .safetensors files at the "
                       "end; write_interval is %s",
                       when);
    if (!*path && !args->write_on_batch_end && !args->write_on_epoch_end)
        return lc_fail(LC_ERR_CONFIG, "PredictionWriter needs a path, or a function that writes");
    writer *w = lc__owned_new(sizeof *w, pw_release);
    if (!w || !lc__dup(path, &w->path)) {
        lc__owned_free(w);
        return lc_fail(LC_ERR_MEMORY, "out of memory: PredictionWriter");
    }
    w->a = *args;
    w->batch = batch;
    w->epoch = epoch;
    w->npy = npy;
    w->safetensors = safetensors;
    *out = (lc_callback){&prediction_writer_ops, w};
    return LC_OK;
}
