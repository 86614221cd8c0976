/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over the tokens of a file, for language modeling: in order, or from random places. */
#include "base/args.h"
#include "data/files/file.h"
#include "data/files/names.h"

#include <stdlib.h>
#include <string.h>

typedef struct windows {
    lc__part part; /* of one token */
    int64_t begin, length, window, stride;
    int64_t places; /* where a random window may begin; 0: windows in order */
} windows;

static int64_t windows_length(void *self)
{
    return ((windows *)self)->length;
}

static lc_status windows_describe(void *self, lc_sample_spec *spec)
{
    return lc__windows_describe(((const windows *)self)->window, spec);
}

static size_t windows_scratch(void *self)
{
    const windows *w = self;
    return w->part.data ? 0 : ((size_t)w->window + 1) * w->part.size;
}

static lc_status windows_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    const windows *w = self;
    int64_t from = w->begin + (w->places ? (int64_t)lc_random_below(key, 0, (uint64_t)w->places) : index * w->stride);
    lc__part p = w->part;
    const char *data = p.data ? p.data + from * p.stride : scratch;
    if (!p.data) LC_TRY(p.file->kind->read(p.file, p.array, from, w->window + 1, scratch));
    p.numel = p.shape[0] = w->window;
    lc__part_convert(&p, data, out[0]);
    lc__part_convert(&p, data + p.strides[0], out[1]);
    return LC_OK;
}

static void windows_free(void *self)
{
    windows *w = self;
    lc__array_file_unref((lc_array_file *)(uintptr_t)w->part.file);
    free(w);
}

static const lc_dataset_ops windows_ops = {
    LC_DATASET_OPS_INIT, .name = "token windows",         .length = windows_length, .describe = windows_describe,
    .get = windows_get,  .scratch_size = windows_scratch, .free = windows_free,
};

/* The array as one long sample. */
static lc_status tokens_of(lc_array_file *f, const char *array, lc__part *p)
{
    int64_t *which = NULL, n = 0, i;
    lc_file_field field = {.name = "tokens", .file = f, .arrays = array};
    LC_TRY(lc__arrays_of_field(1, &field, &field, &which, &n));
    i = which[0];
    free(which);
    const lc__file_array *a = &f->arrays[i];
    LC_TRY(lc__part_init(p, f, i, LC_I64, 1, 0));
    if (n > 1 || a->info.ndim != 1)
        return lc__file_fail(f, LC_ERR_SHAPE, a->info.name,
                             "is not a row of tokens: it must have one dimension, and be "
                             "the only one named");
    p->strides[0] = p->data ? p->stride : (int64_t)p->size;
    p->direct = !p->swapped && p->strides[0] == (int64_t)p->size;
    return LC_OK;
}

lc_status lc_file_windows_new_with(lc_array_file *f, lc_dataset **out, const lc_file_windows_args *args)
{
    LC__IS(f, ARRAY_FILE, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    LC__TAKE(a, lc_file_windows, lc_file_windows_args, args, LC_ERR_ARGUMENT);
    lc__part p;
    LC_TRY(tokens_of(f, a.array, &p));
    if (a.end == LC_UNSET) a.end = p.samples;
    if (a.random > 0 && a.stride != LC_UNSET)
        return lc_fail(LC_ERR_ARGUMENT, "windows from random places have no stride; give .random or .stride, not both");
    if (a.stride == LC_UNSET) a.stride = a.window;
    if (a.begin < 0 || a.end > p.samples || a.begin > a.end)
        return lc_fail(LC_ERR_ARGUMENT, "%s: windows from token %lld (.begin) to %lld (.end), but it has %lld", f->path,
                       (long long)a.begin, (long long)a.end, (long long)p.samples);
    if (a.window < 1 || a.stride < 1 || a.random < 0)
        return lc_fail(LC_ERR_ARGUMENT,
                       "a window of %lld tokens with stride %lld, %lld at random: window and stride must be at least 1",
                       (long long)a.window, (long long)a.stride, (long long)a.random);
    if (a.end - a.begin <= a.window)
        return lc_fail(
            LC_ERR_ARGUMENT,
            "%s: tokens %lld (.begin) to %lld (.end) are too few for a window of %lld and the target after it", f->path,
            (long long)a.begin, (long long)a.end, (long long)a.window);
    windows *w = malloc(sizeof *w);
    if (!w) return lc_fail(LC_ERR_MEMORY, "out of memory for a dataset");
    int64_t places = a.end - a.begin - a.window;
    *w = (windows){.part = p, .begin = a.begin, .window = a.window, .stride = a.stride};
    w->length = a.random ? a.random : (places - 1) / a.stride + 1;
    w->places = a.random ? places : 0;
    lc__array_file_ref(f);
    return lc_dataset_new(&windows_ops, w, out);
}
