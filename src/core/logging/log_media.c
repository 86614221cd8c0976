/* SPDX-License-Identifier: Apache-2.0 */
/* Logged values that are not rows of numbers: hyperparameters, histograms, images, texts.
 *
 * A tensor is read once, on the training thread, and the result is sent to every logger that stores its kind. Its
 * memory is kept from one call to the next. */
#include "base/args.h"
#include "core/logging/logging.h"
#include "core/hooks/trainer_internal.h"
#include "base/handle.h"
#include "tensor/host_access.h"
#include "tensor/tensor_impl.h"

#include "base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The bins that TensorBoard's own writers use: each a tenth wider than the one before, from 1e-12 to 1e20, and the same
 * below zero. Edge ZERO is 0. */
enum { SIDE = 774, ZERO = SIDE, EDGES = 2 * SIDE + 1, FIRST_EXPONENT = -40, EXPONENTS = 108 };

typedef struct lc__media {
    void *value; /* values of a tensor */
    uint8_t *pixels;
    size_t value_bytes, pixel_bytes;
    double edges[EDGES], counts[EDGES];
    int first[EXPONENTS]; /* the last edge (counted from ZERO) that is at most 2^(FIRST_EXPONENT + i) */
    bool warned[4];
} lc__media;

enum { HPARAMS, HISTOGRAM, IMAGE, TEXT };

static lc_status media(lc_trainer *t, lc__media **out)
{
    lc__media *m = *out = t->logging->media;
    if (m) return LC_OK;
    m = *out = t->logging->media = calloc(1, sizeof *m);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory: logged media");
    double edge = 1e-12;
    for (int i = 1; i <= SIDE; i++, edge *= 1.1) m->edges[ZERO + i] = edge, m->edges[ZERO - i] = -edge;
    for (int e = 0, i = 0; e < EXPONENTS; e++) {
        while (i < SIDE && m->edges[ZERO + i + 1] <= ldexp(1, FIRST_EXPONENT + e)) i++;
        m->first[e] = i;
    }
    return LC_OK;
}

void lc__media_free(lc__media *m)
{
    if (!m) return;
    free(m->value);
    free(m->pixels);
    free(m);
}

static lc_status room(void **memory, size_t *bytes, size_t wanted)
{
    if (wanted <= *bytes) return LC_OK;
    void *grown = realloc(*memory, wanted);
    if (!grown) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes of a logged tensor", wanted);
    *memory = grown, *bytes = wanted;
    return LC_OK;
}

/* The cause of a failed operation is what the thread reported last. */
static lc_status check_made(const lc_tensor *x, const char *name)
{
    if (!lc_tensor_is_error(x)) return LC_OK;
    return lc_fail_context(LC_ERR_STATE, "\"%s\" is the result of a failed operation", name);
}

static lc_status read_tensor(lc__media *m, lc_tensor *x, size_t *bytes)
{
    *bytes = (size_t)lc_tensor_numel(x) * lc_dtype_size(lc_tensor_dtype(x));
    LC_TRY(room(&m->value, &m->value_bytes, *bytes));
    return lc_tensor_read(x, m->value, *bytes);
}

/* Rank 0 reads the tensor, which runs the step up to there. The step may have calls of all ranks (to gather parameters,
 * of batch norm), so these read it as well. */
static lc_status without_loggers(const lc_trainer *t, lc_tensor *x)
{
    lc_view unused;
    if (t->n_ranks == 1 || lc_tensor_is_persistent(x)) return LC_OK;
    LC_TRY(lc__tensor_map(x, LC__READ, &unused));
    lc__tensor_unmap(x, LC__READ);
    return LC_OK;
}

static int64_t step_or_now(const lc_trainer *t, int64_t step)
{
    return step < 0 ? t->batches_that_stepped : step;
}

/* Sends to every logger that has the slot. */
#define SEND(t, m, kind, slot, what, ...)                                                                              \
    do {                                                                                                               \
        bool kept_ = false;                                                                                            \
        for (int i_ = 0; i_ < (t)->logging->n_loggers; i_++) {                                                         \
            if (!LC__SLOT((t)->logging->loggers[i_].ops, slot)) continue;                                              \
            kept_ = true;                                                                                              \
            LC__LOGGER_CALL((t), i_, slot, "write " what, l_->self, __VA_ARGS__);                                      \
        }                                                                                                              \
        if (!kept_ && !(m)->warned[kind]) {                                                                            \
            (m)->warned[kind] = true;                                                                                  \
            lc_trainer_message((t), LC_WARNING, "none of the loggers stores " what "; tensorboard does");              \
        }                                                                                                              \
    } while (0)

lc_status lc_trainer_log_hyperparameters(lc_trainer *t, const lc_hparam *params, int n)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("params", n, params));
    lc__media *m;
    for (int i = 0; i < n; i++)
        if (!params[i].name || (params[i].kind == LC_HPARAM_TEXT && !params[i].text))
            return lc_fail(LC_ERR_ARGUMENT, "hyperparameter %d (%s) has no %s", i, params[i].name ? params[i].name : "",
                           params[i].name ? "text" : "name");
    if (!t->logging->loggers_started || !n) return LC_OK;
    LC_TRY(media(t, &m));
    SEND(t, m, HPARAMS, log_hyperparameters, "hyperparameters", params, n);
    return LC_OK;
}

lc_status lc_trainer_log_text(lc_trainer *t, const char *name, const char *text, int64_t step)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    lc__media *m;
    if (!name || !text) return lc_fail(LC_ERR_ARGUMENT, "a text is logged without a name or a text");
    if (!t->logging->loggers_started) return LC_OK;
    LC_TRY(media(t, &m));
    lc_log_text one = {.name = name, .step = step_or_now(t, step), .time_ns = lc__realtime_ns(), .text = text};
    SEND(t, m, TEXT, log_text, "texts", &one);
    return LC_OK;
}

/* ---- histograms ---- */

/* The bin of a finite value. */
static int bin_of(const lc__media *m, double x)
{
    double size = fabs(x);
    int exponent, i = 0;
    frexp(size, &exponent);
    exponent -= 1 + FIRST_EXPONENT;
    if (size >= m->edges[ZERO + 1]) {
        i = m->first[exponent < 0 ? 0 : exponent < EXPONENTS ? exponent : EXPONENTS - 1];
        while (i < SIDE && m->edges[ZERO + i + 1] <= size) i++;
    }
    if (x >= 0) return ZERO + (i < SIDE ? i : SIDE - 1);
    /* Below zero bins are closed on the other side: an edge belongs to the bin above it. */
    if (size == m->edges[ZERO + i] && i) i--;
    return ZERO - 1 - (i < SIDE ? i : SIDE - 1);
}

static lc_status send_histogram(lc_trainer *t, lc__media *m, lc_log_histogram *h, const char *name, int64_t step)
{
    h->name = name, h->step = step_or_now(t, step), h->time_ns = lc__realtime_ns();
    SEND(t, m, HISTOGRAM, log_histogram, "histograms", h);
    return LC_OK;
}

lc_status lc_trainer_log_histogram(lc_trainer *t, const char *name, lc_tensor *x, int64_t step)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__IS_TENSOR(x, LC_ERR_ARGUMENT);
    lc__media *m;
    size_t bytes;
    if (!name) return lc_fail(LC_ERR_ARGUMENT, "a histogram is logged without a name");
    LC_TRY(check_made(x, name));
    if (!t->logging->loggers_started) return without_loggers(t, x);
    LC_TRY(media(t, &m));
    LC_TRY(read_tensor(m, x, &bytes));
    lc_dtype dtype = lc_tensor_dtype(x);
    size_t size = lc_dtype_size(dtype);
    int64_t n = lc_tensor_numel(x);
    lc_log_histogram h = {.minimum = INFINITY, .maximum = -INFINITY};
    int low = EDGES, high = -1;
    memset(m->counts, 0, sizeof m->counts);
    for (int64_t i = 0; i < n; i++) {
        double v = lc__load_number((const char *)m->value + (size_t)i * size, dtype);
        if (!isfinite(v)) continue;
        int bin = bin_of(m, v);
        m->counts[bin]++;
        if (bin < low) low = bin;
        if (bin > high) high = bin;
        h.minimum = v < h.minimum ? v : h.minimum;
        h.maximum = v > h.maximum ? v : h.maximum;
        h.count++, h.sum += v, h.sum_squares += v * v;
    }
    if (high < 0) low = high = ZERO, h.minimum = h.maximum = 0; /* no finite value: one empty bin */
    h.n_bins = high - low + 1, h.edges = m->edges + low, h.counts = m->counts + low;
    return send_histogram(t, m, &h, name, step);
}

lc_status lc_trainer_log_counts(lc_trainer *t, const char *name, const double *edges, const double *counts, int n_bins,
                                int64_t step)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    lc__media *m;
    if (!name || !edges || !counts || n_bins < 1)
        return lc_fail(LC_ERR_ARGUMENT, "a histogram is logged without a name, edges or counts");
    for (int i = 0; i <= n_bins; i++)
        if (!isfinite(edges[i]) || (i && edges[i] < edges[i - 1]))
            return lc_fail(LC_ERR_ARGUMENT, "histogram \"%s\": its edges must ascend and be finite; edge %d is %g",
                           name, i, edges[i]);
    if (!t->logging->loggers_started) return LC_OK;
    LC_TRY(media(t, &m));
    lc_log_histogram h = {
        .n_bins = n_bins, .edges = edges, .counts = counts, .minimum = edges[0], .maximum = edges[n_bins]};
    for (int i = 0; i < n_bins; i++) { /* values are unknown: each counts as the middle of its bin */
        double middle = edges[i] / 2 + edges[i + 1] / 2;
        h.count += counts[i], h.sum += counts[i] * middle, h.sum_squares += counts[i] * middle * middle;
    }
    return send_histogram(t, m, &h, name, step);
}

/* ---- images ---- */

lc_status lc_trainer_log_image(lc_trainer *t, const char *name, lc_tensor *x, int64_t step)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__IS_TENSOR(x, LC_ERR_ARGUMENT);
    lc__media *m;
    size_t bytes;
    if (!name) return lc_fail(LC_ERR_ARGUMENT, "an image is logged without a name");
    LC_TRY(check_made(x, name));
    int ndim = lc_tensor_ndim(x);
    lc_dtype dtype = lc_tensor_dtype(x);
    int64_t c = ndim == 3 ? lc_tensor_dim(x, 0) : 1, height = lc_tensor_dim(x, -2), width = lc_tensor_dim(x, -1);
    if ((ndim != 2 && ndim != 3) || (c != 1 && c != 3 && c != 4) || height < 1 || width < 1 || height > 65535 ||
        width > 65535)
        return lc_fail(LC_ERR_SHAPE, "image \"%s\" must be [H,W] or [C,H,W] with C 1, 3 or 4", name);
    if (dtype != LC_U8 && !lc_dtype_is_float(dtype))
        return lc_fail(LC_ERR_DTYPE, "image \"%s\" is %s; it must be u8, or floats from 0 to 1", name,
                       lc_dtype_name(dtype));
    if (!t->logging->loggers_started) return without_loggers(t, x);
    LC_TRY(media(t, &m));
    LC_TRY(read_tensor(m, x, &bytes));
    void *pixels = m->pixels;
    int64_t area = height * width;
    size_t size = lc_dtype_size(dtype);
    lc_status status = room(&pixels, &m->pixel_bytes, (size_t)(area * c));
    m->pixels = pixels;
    LC_TRY(status);
    for (int64_t k = 0; k < c; k++)
        for (int64_t i = 0; i < area; i++) {
            double v = lc__load_number((const char *)m->value + (size_t)(k * area + i) * size, dtype);
            if (dtype != LC_U8) v = v > 0 ? v < 1 ? v * 255 : 255 : 0; /* clamped, as other loggers do; NaN is black */
            m->pixels[i * c + k] = (uint8_t)v;
        }
    lc_log_image image = {.name = name,
                          .step = step_or_now(t, step),
                          .time_ns = lc__realtime_ns(),
                          .width = (int)width,
                          .height = (int)height,
                          .channels = (int)c,
                          .pixels = m->pixels};
    SEND(t, m, IMAGE, log_image, "images", &image);
    return LC_OK;
}
