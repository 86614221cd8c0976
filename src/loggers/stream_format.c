/* SPDX-License-Identifier: Apache-2.0 */
/* Records as lines of JSON. A number that is not finite is the text "nan", "inf" or "-inf", as in a checkpoint's
 * state.json; pictures are PNG in base64. To add a kind: a function here, and its line in docs/loggers.md. */
#include "loggers/stream_format.h"

#include "base/base64.h"
#include "base/png.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lc_status add_double(lc__text *t, double v)
{
    char text[LC__DOUBLE_SIZE];
    lc__print_double(text, v);
    return isfinite(v) ? lc__text_puts(t, text) : lc__text_quoted(t, text);
}

/* ,"key": */
static lc_status add_key(lc__text *t, const char *key)
{
    LC_TRY(lc__text_puts(t, ","));
    LC_TRY(lc__text_quoted(t, key));
    return lc__text_puts(t, ":");
}

static lc_status add_key_int(lc__text *t, const char *key, int64_t v)
{
    LC_TRY(add_key(t, key));
    return lc__text_int(t, v);
}

static lc_status add_key_double(lc__text *t, const char *key, double v)
{
    LC_TRY(add_key(t, key));
    return add_double(t, v);
}

/* Paths and options need not be UTF-8. */
static lc_status add_text(lc__text *t, const char *v)
{
    char *copy;
    if (!v) return lc__text_puts(t, "null");
    if (!lc__utf8_first_bad(v, strlen(v))) return lc__text_quoted(t, v);
    LC_TRY(lc__copy_text(v, &copy));
    lc__utf8_repair(copy, strlen(copy));
    lc_status status = lc__text_quoted(t, copy);
    free(copy);
    return status;
}

static lc_status add_key_text(lc__text *t, const char *key, const char *v)
{
    LC_TRY(add_key(t, key));
    return add_text(t, v);
}

static lc_status add_key_doubles(lc__text *t, const char *key, const double *v, int n)
{
    LC_TRY(add_key(t, key));
    for (int i = 0; i < n; i++) {
        LC_TRY(lc__text_puts(t, i ? "," : "["));
        LC_TRY(add_double(t, v[i]));
    }
    return lc__text_puts(t, "]");
}

/* {"type":"row","time":1700000000.250000000 */
static lc_status begin(lc__text *t, const char *type, int64_t time_ns)
{
    char text[96];
    snprintf(text, sizeof text, "{\"type\":\"%s\",\"time\":%" PRId64 ".%09" PRId64, type, time_ns / 1000000000,
             time_ns % 1000000000);
    return lc__text_puts(t, text);
}

lc_status lc__stream_add_start(lc__text *t, const lc_run_info *run, int64_t time_ns)
{
    LC_TRY(begin(t, "start", time_ns));
    LC_TRY(add_key_int(t, "format", 1));
    LC_TRY(add_key_text(t, "lightc", lc_version()));
    LC_TRY(add_key_text(t, "run_id", run->run_id ? run->run_id : ""));
    LC_TRY(add_key_text(t, "name", run->name));
    LC_TRY(add_key_int(t, "version", run->version));
    LC_TRY(add_key_text(t, "root_dir", run->root_dir));
    LC_TRY(add_key_text(t, "run_dir", run->run_dir));
    LC_TRY(add_key(t, "resumed_step"));
    LC_TRY(run->resumed ? lc__text_int(t, run->resumed_step) : lc__text_puts(t, "null"));
    LC_TRY(add_key(t, "options"));
    LC_TRY(lc__text_puts(t, "{"));
    for (int i = 0; i < run->n_options; i++) {
        if (i) LC_TRY(lc__text_puts(t, ","));
        LC_TRY(lc__text_quoted(t, run->options[i].name));
        LC_TRY(lc__text_puts(t, ":"));
        LC_TRY(add_text(t, run->options[i].value));
    }
    return lc__text_puts(t, "}}\n");
}

static lc_status add_hparam(lc__text *t, const lc_hparam *p)
{
    LC_TRY(lc__text_quoted(t, p->name));
    LC_TRY(lc__text_puts(t, ":"));
    switch (p->kind) {
    case LC_HPARAM_NONE:
        break;
    case LC_HPARAM_BOOL:
        return lc__text_puts(t, p->integer ? "true" : "false");
    case LC_HPARAM_INT:
        return lc__text_int(t, p->integer);
    case LC_HPARAM_FLOAT:
        return add_double(t, p->number);
    case LC_HPARAM_TEXT:
        return lc__text_quoted(t, p->text);
    }
    return lc__text_puts(t, "null");
}

lc_status lc__stream_add_hparams(lc__text *t, const lc__hparams *h, int64_t time_ns)
{
    LC_TRY(begin(t, "hparams", time_ns));
    LC_TRY(add_key(t, "values"));
    LC_TRY(lc__text_puts(t, "{"));
    for (int i = 0; i < h->n; i++) {
        if (i) LC_TRY(lc__text_puts(t, ","));
        LC_TRY(add_hparam(t, &h->p[i]));
    }
    return lc__text_puts(t, "}}\n");
}

static lc_status add_row(lc__text *t, lc__log_record *r)
{
    const char *name;
    LC_TRY(begin(t, "row", r->time_ns));
    LC_TRY(add_key_int(t, "step", r->step));
    if (r->epoch >= 0) LC_TRY(add_key_int(t, "epoch", r->epoch));
    LC_TRY(add_key(t, "values"));
    LC_TRY(lc__text_puts(t, "{"));
    for (int i = 0; i < r->n; i++) {
        double value = lc__log_value(r, &name);
        if (i) LC_TRY(lc__text_puts(t, ","));
        LC_TRY(lc__text_quoted(t, name));
        LC_TRY(lc__text_puts(t, ":"));
        LC_TRY(add_double(t, value));
    }
    return lc__text_puts(t, "}}\n");
}

static lc_status begin_named(lc__text *t, const char *type, const lc__log_record *r)
{
    LC_TRY(begin(t, type, r->time_ns));
    LC_TRY(add_key_int(t, "step", r->step));
    return add_key_text(t, "name", r->text);
}

static lc_status add_histogram(lc__text *t, const lc__log_record *r)
{
    const lc_log_histogram *h = &r->histogram;
    LC_TRY(begin_named(t, "histogram", r));
    LC_TRY(add_key_double(t, "minimum", h->minimum));
    LC_TRY(add_key_double(t, "maximum", h->maximum));
    LC_TRY(add_key_double(t, "count", h->count));
    LC_TRY(add_key_double(t, "sum", h->sum));
    LC_TRY(add_key_double(t, "sum_squares", h->sum_squares));
    LC_TRY(add_key_doubles(t, "edges", h->edges, h->n_bins + 1));
    LC_TRY(add_key_doubles(t, "counts", h->counts, h->n_bins));
    return lc__text_puts(t, "}\n");
}

static lc_status add_image(lc__text *t, const lc__log_record *r)
{
    const lc_log_image *m = &r->image;
    lc__str png = {0}, text = {0};
    LC_TRY(begin_named(t, "image", r));
    LC_TRY(add_key_int(t, "width", m->width));
    LC_TRY(add_key_int(t, "height", m->height));
    LC_TRY(add_key_int(t, "channels", m->channels));
    LC_TRY(add_key(t, "png"));
    LC_TRY(lc__text_puts(t, "\""));
    lc_status status = lc__png_add(&png, m->pixels, m->width, m->height, m->channels);
    if (status >= 0) lc__base64_add(&text, png.s, png.n);
    if (status >= 0) status = text.failed ? lc_fail(LC_ERR_MEMORY, "out of memory") : lc__text_add(t, text.s, text.n);
    lc__str_free(&png);
    lc__str_free(&text);
    LC_TRY(status);
    return lc__text_puts(t, "\"}\n");
}

lc_status lc__stream_add(lc__text *t, lc__log_record *r)
{
    switch (r->kind) {
    case LC__LOG_ROW:
        return add_row(t, r);
    case LC__LOG_HISTOGRAM:
        return add_histogram(t, r);
    case LC__LOG_IMAGE:
        return add_image(t, r);
    case LC__LOG_TEXT:
        LC_TRY(begin_named(t, "text", r));
        LC_TRY(add_key_text(t, "text", r->text2));
        return lc__text_puts(t, "}\n");
    case LC__LOG_CHECKPOINT:
        LC_TRY(begin(t, "checkpoint", r->time_ns));
        LC_TRY(add_key_int(t, "step", r->step));
        LC_TRY(add_key_text(t, "path", r->text));
        LC_TRY(add_key(t, "score"));
        LC_TRY(r->has_score ? add_double(t, r->score) : lc__text_puts(t, "null"));
        return lc__text_puts(t, "}\n");
    case LC__LOG_REMOVED:
        LC_TRY(begin(t, "checkpoint_removed", r->time_ns));
        LC_TRY(add_key_text(t, "path", r->text));
        return lc__text_puts(t, "}\n");
    case LC__LOG_EVENT:
        /* "status" and "finish" say how the run is and how it ended; levels are those of printed messages. */
        if (!strcmp(r->text, "status") || !strcmp(r->text, "finish")) {
            LC_TRY(begin(t, r->text, r->time_ns));
            LC_TRY(add_key_text(t, "status", r->text2));
        } else {
            LC_TRY(begin(t, "message", r->time_ns));
            LC_TRY(add_key_text(t, "level", r->text));
            LC_TRY(add_key_text(t, "text", r->text2));
        }
        return lc__text_puts(t, "}\n");
    case LC__LOG_HPARAMS: {
        lc__hparams h = {0};
        lc_status status = lc__hparams_merge(&h, r);
        if (status >= 0) status = lc__stream_add_hparams(t, &h, r->time_ns);
        lc__hparams_release(&h);
        return status;
    }
    }
    return LC_OK;
}
