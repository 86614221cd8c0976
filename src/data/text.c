/* SPDX-License-Identifier: Apache-2.0 */
/* Text as tokens: the vocabulary of the bytes that occur, and windows for language modeling. */
#include "data_internal.h"
#include "base/handle.h"

#include <stdlib.h>
#include <string.h>

struct lc_text {
    lc__mark mark;
    atomic_long refs; /* the handle and every dataset of windows hold one */
    int64_t length;
    int vocabulary;
    int16_t token_of[256];
    unsigned char byte_of[256];
    unsigned char tokens[];
};

static void text_unref(lc_text *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1) return;
    lc__mark_clear(&t->mark);
    free(t);
}

lc_status lc_text_new(const void *bytes, size_t size, lc_text **out)
{
    if (size) LC__NEEDS(bytes, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    if (size == 0) return lc_fail(LC_ERR_ARGUMENT, "a text must have at least one byte");
    size_t room;
    lc_text *t = __builtin_add_overflow(size, sizeof *t, &room) ? NULL : malloc(room);
    if (!t) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for a text", size);
    t->mark = LC__MARK_OF(TEXT);
    const unsigned char *p = bytes;
    bool seen[256] = {false};
    for (size_t i = 0; i < size; i++) seen[p[i]] = true;
    t->vocabulary = 0;
    memset(t->byte_of, 0, sizeof t->byte_of);
    for (int c = 0; c < 256; c++) {
        t->token_of[c] = -1;
        if (!seen[c]) continue;
        t->byte_of[t->vocabulary] = (unsigned char)c;
        t->token_of[c] = (int16_t)t->vocabulary++;
    }
    for (size_t i = 0; i < size; i++) t->tokens[i] = (unsigned char)t->token_of[p[i]];
    t->length = (int64_t)size;
    atomic_init(&t->refs, 1);
    *out = t;
    return LC_OK;
}

lc_status lc_text_read(const char *path, lc_text **out)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    void *data;
    size_t size;
    LC_TRY(lc__read_file(path, (size_t)1 << 40, &data, &size));
    lc_status status = size ? lc_text_new(data, size, out) : lc_fail(LC_ERR_FORMAT, "%s is empty", path);
    free(data);
    return status;
}

void lc_text_free(lc_text *t)
{
    if (!t) return;
    LC__IS_OR_NULL(t, TEXT, );
    text_unref(t);
}

int lc_text_vocabulary(const lc_text *t)
{
    LC__IS(t, TEXT, 0);
    return t->vocabulary;
}

int64_t lc_text_length(const lc_text *t)
{
    LC__IS(t, TEXT, 0);
    return t->length;
}

int lc_text_encode(const lc_text *t, unsigned char c)
{
    LC__IS(t, TEXT, -1);
    return t->token_of[c];
}

unsigned char lc_text_decode(const lc_text *t, int64_t token)
{
    LC__IS(t, TEXT, 0);
    return token >= 0 && token < t->vocabulary ? t->byte_of[token] : '?';
}

/* ---- windows ---- */

typedef struct windows {
    lc_text *text;
    int64_t begin, length, window, stride;
} windows;

static int64_t windows_length(void *self)
{
    return ((windows *)self)->length;
}

lc_status lc__windows_describe(int64_t window, lc_sample_spec *spec)
{
    spec->n = 2;
    spec->fields[0] = (lc_field){.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {window}};
    spec->fields[1] = (lc_field){.name = "y", .dtype = LC_I64, .ndim = 1, .shape = {window}};
    return LC_OK;
}

static lc_status windows_describe(void *self, lc_sample_spec *spec)
{
    return lc__windows_describe(((const windows *)self)->window, spec);
}

static lc_status windows_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)key, (void)scratch;
    const windows *w = self;
    const unsigned char *p = w->text->tokens + w->begin + index * w->stride;
    int64_t *x = out[0], *y = out[1];
    for (int64_t i = 0; i < w->window; i++) {
        x[i] = p[i];
        y[i] = p[i + 1];
    }
    return LC_OK;
}

static void windows_free(void *self)
{
    text_unref(((windows *)self)->text);
    free(self);
}

static const lc_dataset_ops windows_ops = {
    LC_DATASET_OPS_INIT,          .name = "text windows", .length = windows_length,
    .describe = windows_describe, .get = windows_get,     .free = windows_free,
};

lc_status lc_text_windows(lc_text *t, int64_t begin, int64_t end, int64_t window, int64_t stride, lc_dataset **out)
{
    LC__IS(t, TEXT, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    if (end == LC_UNSET) end = t->length;
    if (stride == LC_UNSET) stride = window;
    if (begin < 0 || end > t->length || begin > end)
        return lc_fail(LC_ERR_ARGUMENT, "windows over tokens %lld to %lld are not in a text of %lld", (long long)begin,
                       (long long)end, (long long)t->length);
    if (window < 1 || stride < 1)
        return lc_fail(LC_ERR_ARGUMENT, "a window of %lld tokens with stride %lld: both must be at least 1",
                       (long long)window, (long long)stride);
    if (end - begin <= window || window >= t->length)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%lld tokens are too few for a window of %lld plus its target token; use a longer text or a "
                       "smaller window",
                       (long long)(end - begin), (long long)window);
    windows *w = malloc(sizeof *w);
    if (!w) return lc_fail(LC_ERR_MEMORY, "out of memory for a dataset");
    atomic_fetch_add(&t->refs, 1);
    *w = (windows){t, begin, (end - begin - window - 1) / stride + 1, window, stride};
    return lc_dataset_new(&windows_ops, w, out);
}
