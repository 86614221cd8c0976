/* SPDX-License-Identifier: Apache-2.0 */
/* An event file is a sequence of records (TFRecord): the length, its checksum, the data, its checksum. The data is an
 * `Event` of tensorflow/core/util/event.proto; in it a `Summary` of tensorflow/core/framework/summary.proto, and for
 * the hparams plugin an HParamsPluginData of tensorboard/plugins/hparams/plugin_data.proto. The few fields used of each
 * message are named below. */
#include "loggers/tensorboard_events.h"

#include "base/crc32c.h"
#include "base/png.h"
#include "loggers/protobuf.h"

enum {
    EVENT_WALL_TIME = 1, /* double */
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,

    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2, /* float */
    VALUE_IMAGE = 4,
    VALUE_HISTOGRAM = 5,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,

    IMAGE_HEIGHT = 1,
    IMAGE_WIDTH = 2,
    IMAGE_COLORSPACE = 3, /* the number of channels */
    IMAGE_ENCODED = 4,

    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_NUM = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SUM_SQUARES = 5,
    HISTOGRAM_LIMIT = 6, /* upper ends */
    HISTOGRAM_BUCKET = 7,

    METADATA_PLUGIN = 1,
    PLUGIN_NAME = 1,
    PLUGIN_CONTENT = 2,

    TENSOR_DTYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRING = 8,
    SHAPE_DIM = 2,
    DIM_SIZE = 1,
    DT_STRING = 7,

    HPARAMS_EXPERIMENT = 2,
    HPARAMS_SESSION_START = 3,
    HPARAMS_SESSION_END = 4,
    EXPERIMENT_HPARAM = 4,
    EXPERIMENT_METRIC = 5,
    HPARAM_NAME = 1,
    HPARAM_TYPE = 4, /* 1 text, 2 bool, 3 number */
    METRIC_NAME = 1,
    METRIC_NAME_TAG = 2,
    SESSION_HPARAM = 1, /* map */
    SESSION_GROUP = 4,
    SESSION_START_TIME = 5,
    SESSION_STATUS = 1, /* 1 success, 2 failure */
    SESSION_END_TIME = 2,
    MAP_KEY = 1,
    MAP_VALUE = 2,
    STRUCT_NUMBER = 2, /* google.protobuf.Value */
    STRUCT_TEXT = 3,
    STRUCT_BOOL = 4,
};

static const char hp_metric[] = "hp_metric"; /* what Lightning logs if no metric belongs to the hyperparameters */

/* ---- records ---- */

static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t crc = lc__crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Leaves room for the length and its checksum; the event follows. */
static size_t begin_event(lc__str *t, int64_t time_ns)
{
    size_t begin = t->n;
    lc__str_add_bytes(t, "            ", 12);
    lc__pb_double(t, EVENT_WALL_TIME, (double)time_ns * 1e-9);
    return begin;
}

static void end_event(lc__str *t, size_t begin)
{
    if (t->failed) return;
    uint64_t n = t->n - begin - 12;
    for (int i = 0; i < 8; i++) t->s[begin + (size_t)i] = (char)(n >> (8 * i));
    uint32_t crc = masked_crc(t->s + begin, 8);
    for (int i = 0; i < 4; i++) t->s[begin + 8 + (size_t)i] = (char)(crc >> (8 * i));
    lc__pb_little(t, masked_crc(t->s + begin + 12, n), 4);
}

void lc__tb_add_version(lc__str *out, int64_t time_ns)
{
    size_t event = begin_event(out, time_ns);
    lc__pb_text(out, EVENT_FILE_VERSION, "brain.Event:2");
    end_event(out, event);
}

/* ---- summaries ---- */

typedef struct place {
    size_t event, summary, value;
} place;

/* Begins an event whose summary has one value with the tag TAG SUFFIX; the value's other fields follow. */
static place begin_value(lc__str *t, const char *tag, const char *suffix, int64_t step, int64_t time_ns)
{
    size_t n = strlen(tag), m = strlen(suffix);
    place p = {.event = begin_event(t, time_ns)};
    if (step) lc__pb_int(t, EVENT_STEP, step);
    p.summary = lc__pb_begin(t, EVENT_SUMMARY);
    p.value = lc__pb_begin(t, SUMMARY_VALUE);
    lc__pb_key(t, VALUE_TAG, LC__PB_BYTES);
    lc__pb_varint(t, n + m);
    lc__str_add_bytes(t, tag, n);
    lc__str_add_bytes(t, suffix, m);
    return p;
}

static void end_value(lc__str *t, place p)
{
    lc__pb_end(t, p.value);
    lc__pb_end(t, p.summary);
    end_event(t, p.event);
}

static void add_scalar(lc__str *t, const char *tag, double value, int64_t step, int64_t time_ns)
{
    place p = begin_value(t, tag, "", step, time_ns);
    lc__pb_float(t, VALUE_SIMPLE, (float)value);
    end_value(t, p);
}

void lc__tb_add_row(lc__str *out, lc__log_record *row)
{
    const char *tag;
    bool has_epoch = row->epoch >= 0;
    for (int i = 0; i < row->n; i++) {
        double value = lc__log_value(row, &tag);
        add_scalar(out, tag, value, row->step, row->time_ns);
        if (!strcmp(tag, "epoch")) has_epoch = false; /* the program logs its own */
    }
    if (has_epoch) add_scalar(out, "epoch", (double)row->epoch, row->step, row->time_ns);
}

void lc__tb_add_histogram(lc__str *out, const lc_log_histogram *h)
{
    place p = begin_value(out, h->name, "", h->step, h->time_ns);
    size_t histogram = lc__pb_begin(out, VALUE_HISTOGRAM);
    lc__pb_double(out, HISTOGRAM_MIN, h->minimum);
    lc__pb_double(out, HISTOGRAM_MAX, h->maximum);
    lc__pb_double(out, HISTOGRAM_NUM, h->count);
    lc__pb_double(out, HISTOGRAM_SUM, h->sum);
    lc__pb_double(out, HISTOGRAM_SUM_SQUARES, h->sum_squares);
    /* An empty bin in front gives the lower end of the first one. */
    size_t limits = lc__pb_begin(out, HISTOGRAM_LIMIT);
    for (int i = 0; i <= h->n_bins; i++) lc__pb_bare_double(out, h->edges[i]);
    lc__pb_end(out, limits);
    size_t buckets = lc__pb_begin(out, HISTOGRAM_BUCKET);
    lc__pb_bare_double(out, 0);
    for (int i = 0; i < h->n_bins; i++) lc__pb_bare_double(out, h->counts[i]);
    lc__pb_end(out, buckets);
    lc__pb_end(out, histogram);
    end_value(out, p);
}

lc_status lc__tb_add_image(lc__str *out, const lc_log_image *m)
{
    place p = begin_value(out, m->name, "", m->step, m->time_ns);
    size_t image = lc__pb_begin(out, VALUE_IMAGE);
    lc__pb_int(out, IMAGE_HEIGHT, m->height);
    lc__pb_int(out, IMAGE_WIDTH, m->width);
    lc__pb_int(out, IMAGE_COLORSPACE, m->channels);
    size_t encoded = lc__pb_begin(out, IMAGE_ENCODED);
    LC_TRY(lc__png_add(out, m->pixels, m->width, m->height, m->channels));
    lc__pb_end(out, encoded);
    lc__pb_end(out, image);
    end_value(out, p);
    return LC_OK;
}

/* Begins the metadata of a value: its plugin, and the plugin's own data. */
static size_t begin_plugin(lc__str *t, const char *name, size_t *metadata, size_t *plugin)
{
    *metadata = lc__pb_begin(t, VALUE_METADATA);
    *plugin = lc__pb_begin(t, METADATA_PLUGIN);
    lc__pb_text(t, PLUGIN_NAME, name);
    return lc__pb_begin(t, PLUGIN_CONTENT);
}

static void end_plugin(lc__str *t, size_t content, size_t metadata, size_t plugin)
{
    lc__pb_end(t, content);
    lc__pb_end(t, plugin);
    lc__pb_end(t, metadata);
}

void lc__tb_add_text(lc__str *out, const lc__log_record *r)
{
    size_t metadata, plugin;
    place p = begin_value(out, r->text, "/text_summary", r->step, r->time_ns);
    size_t content = begin_plugin(out, "text", &metadata, &plugin); /* version 0: nothing to say */
    end_plugin(out, content, metadata, plugin);
    size_t tensor = lc__pb_begin(out, VALUE_TENSOR); /* [1] of texts */
    lc__pb_int(out, TENSOR_DTYPE, DT_STRING);
    size_t shape = lc__pb_begin(out, TENSOR_SHAPE), dim = lc__pb_begin(out, SHAPE_DIM);
    lc__pb_int(out, DIM_SIZE, 1);
    lc__pb_end(out, dim);
    lc__pb_end(out, shape);
    lc__pb_text(out, TENSOR_STRING, r->text2);
    lc__pb_end(out, tensor);
    end_value(out, p);
}

/* ---- hyperparameters ---- */

static void add_hparam_value(lc__str *t, const lc_hparam *h)
{
    switch (h->kind) {
    case LC_HPARAM_NONE:
        lc__pb_text(t, STRUCT_TEXT, "None");
        return;
    case LC_HPARAM_BOOL:
        lc__pb_int(t, STRUCT_BOOL, h->integer != 0);
        return;
    case LC_HPARAM_INT:
        lc__pb_double(t, STRUCT_NUMBER, (double)h->integer);
        return;
    case LC_HPARAM_FLOAT:
        lc__pb_double(t, STRUCT_NUMBER, h->number);
        return;
    case LC_HPARAM_TEXT:
        lc__pb_text(t, STRUCT_TEXT, h->text);
        return;
    }
}

static int hparam_type(const lc_hparam *h)
{
    return h->kind == LC_HPARAM_BOOL ? 2 : h->kind == LC_HPARAM_INT || h->kind == LC_HPARAM_FLOAT ? 3 : 1;
}

typedef struct session {
    place value;
    size_t metadata, plugin, content, data;
} session;

static session begin_session(lc__str *t, const char *tag, int field, int64_t time_ns)
{
    session s = {.value = begin_value(t, tag, "", 0, time_ns)};
    s.content = begin_plugin(t, "hparams", &s.metadata, &s.plugin);
    s.data = lc__pb_begin(t, field);
    return s;
}

static void end_session(lc__str *t, session s)
{
    lc__pb_end(t, s.data);
    end_plugin(t, s.content, s.metadata, s.plugin);
    end_value(t, s.value);
}

void lc__tb_add_hparams(lc__str *out, const lc__hparams *h, const char *run_id, int64_t time_ns)
{
    add_scalar(out, hp_metric, -1, 0, time_ns);

    session s = begin_session(out, "_hparams_/experiment", HPARAMS_EXPERIMENT, time_ns);
    for (int i = 0; i < h->n; i++) {
        size_t info = lc__pb_begin(out, EXPERIMENT_HPARAM);
        lc__pb_text(out, HPARAM_NAME, h->p[i].name);
        lc__pb_int(out, HPARAM_TYPE, hparam_type(&h->p[i]));
        lc__pb_end(out, info);
    }
    size_t info = lc__pb_begin(out, EXPERIMENT_METRIC), name = lc__pb_begin(out, METRIC_NAME);
    lc__pb_text(out, METRIC_NAME_TAG, hp_metric);
    lc__pb_end(out, name);
    lc__pb_end(out, info);
    end_session(out, s);

    s = begin_session(out, "_hparams_/session_start_info", HPARAMS_SESSION_START, time_ns);
    for (int i = 0; i < h->n; i++) {
        size_t entry = lc__pb_begin(out, SESSION_HPARAM);
        lc__pb_text(out, MAP_KEY, h->p[i].name);
        size_t value = lc__pb_begin(out, MAP_VALUE);
        add_hparam_value(out, &h->p[i]);
        lc__pb_end(out, value);
        lc__pb_end(out, entry);
    }
    if (*run_id) lc__pb_text(out, SESSION_GROUP, run_id); /* a run and its continuations are one session group */
    lc__pb_double(out, SESSION_START_TIME, (double)time_ns * 1e-9);
    end_session(out, s);
}

void lc__tb_add_session_end(lc__str *out, bool success, int64_t time_ns)
{
    session s = begin_session(out, "_hparams_/session_end_info", HPARAMS_SESSION_END, time_ns);
    lc__pb_int(out, SESSION_STATUS, success ? 1 : 2);
    lc__pb_double(out, SESSION_END_TIME, (double)time_ns * 1e-9);
    end_session(out, s);
}
