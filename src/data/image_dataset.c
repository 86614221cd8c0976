/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset over a list of picture files: a sample is read when a batch wants it (image_reader.h), or, if its
 * file is broken and that is allowed, the next one instead.
 *
 * Threads decode at the same time, each with a reader that it takes from a list and puts back. So the memory grows with
 * the number of threads and the largest picture, and then only the decoding libraries allocate. */
#include "data/image_dataset.h"
#include "base/args.h"
#include "base/str.h"
#include "data/image_reader.h"
#include "data_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SIDE ((int64_t)1 << 24)

typedef struct images {
    lc__image_source from;
    _Atomic(char *) *why; /* of LC_IMAGE_SKIP: for each sample why it is replaced, NULL: it is not, so far */
    pthread_mutex_t lock;
    lc__image_reader *free_readers; /* under the lock */
} images;

/* ---- readers ---- */

static lc__image_reader *reader_take(images *d)
{
    pthread_mutex_lock(&d->lock);
    lc__image_reader *r = d->free_readers;
    if (r) d->free_readers = r->next;
    pthread_mutex_unlock(&d->lock);
    if (!r && !(r = calloc(1, sizeof *r))) (void)lc_fail(LC_ERR_MEMORY, "out of memory: a reader of pictures");
    return r;
}

static void reader_put(images *d, lc__image_reader *r)
{
    pthread_mutex_lock(&d->lock);
    r->next = d->free_readers;
    d->free_readers = r;
    pthread_mutex_unlock(&d->lock);
}

/* ---- pictures that cannot be read ---- */

/* Errors that depend only on the file, so that every rank and every epoch skips the same samples. */
static bool can_be_skipped(lc_status status)
{
    return status == LC_ERR_FORMAT || status == LC_ERR_NOT_FOUND;
}

/* Keeps this thread's message as the reason why sample i is replaced. */
static lc_status note_replaced(images *d, int64_t i)
{
    char *text, *none = NULL;
    LC_TRY(lc__copy_text(lc_error_message(), &text));
    if (!atomic_compare_exchange_strong(&d->why[i], &none, text)) free(text); /* another thread found the same */
    return LC_OK;
}

static bool is_replaced(const images *d, int64_t i)
{
    return d->why && atomic_load(&d->why[i]);
}

static lc_status none_can_be_read(const images *d)
{
    return lc_fail(LC_ERR_FORMAT, "none of the %lld pictures can be read; the first: %s",
                   (long long)d->from.list.files.n, atomic_load(&d->why[0]));
}

/* The sample that index i gives: its own, or the next whose picture can be read. */
static lc_status read_sample(images *d, lc__image_reader *r, int64_t i, uint64_t key, uint8_t *pixels, int64_t *target)
{
    const int64_t n = d->from.list.files.n;
    for (int64_t tried = 0; tried < n; tried++, i = i + 1 < n ? i + 1 : 0) {
        if (is_replaced(d, i)) continue;
        lc_status status = lc__image_reader_read(&d->from, r, i, key, pixels);
        *target = d->from.list.targets[i];
        if (status == LC_OK || !d->why || !can_be_skipped(status)) return status;
        LC_TRY(note_replaced(d, i));
    }
    return none_can_be_read(d);
}

/* ---- the dataset ---- */

static int64_t images_length(void *self)
{
    return ((images *)self)->from.list.files.n;
}

static lc_status images_describe(void *self, lc_sample_spec *spec)
{
    const images *d = self;
    *spec = (lc_sample_spec){.n = 2};
    spec->fields[0] = d->from.x;
    spec->fields[1] = (lc_field){.name = "y", .dtype = LC_I64};
    return LC_OK;
}

static lc_status images_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)scratch;
    images *d = self;
    int64_t target = 0;
    lc__image_reader *r = reader_take(d);
    if (!r) return LC_ERR_MEMORY;
    lc_status status = read_sample(d, r, index, key, out[0], &target);
    if (status == LC_OK) memcpy(out[1], &target, sizeof target);
    reader_put(d, r);
    return status;
}

static const char *images_replaced(void *self, int64_t index)
{
    const images *d = self;
    return d->why ? atomic_load(&d->why[index]) : NULL;
}

/* With LC_IMAGE_SKIP that of the sample whose data it has. */
static const char *images_source(void *self, int64_t index)
{
    const images *d = self;
    const int64_t n = d->from.list.files.n;
    int64_t i = index;
    for (int64_t tried = 0; tried < n && is_replaced(d, i); tried++) i = i + 1 < n ? i + 1 : 0;
    return lc__names_at(&d->from.list.files, i);
}

static void images_free(void *self)
{
    images *d = self;
    for (lc__image_reader *r = d->free_readers, *next; r; r = next) {
        next = r->next;
        lc__image_reader_free(r);
    }
    for (int64_t i = 0; d->why && i < d->from.list.files.n; i++) free(atomic_load(&d->why[i]));
    free(d->why);
    lc__image_cache_free(d->from.cache);
    lc__transform_free(&d->from.transform);
    pthread_mutex_destroy(&d->lock);
    lc__image_list_free(&d->from.list);
    free(d);
}

/* The size of the first picture that can be read; there is at least one file. */
static lc_status find_size(images *d)
{
    lc__image_reader *r = reader_take(d);
    if (!r) return LC_ERR_MEMORY;
    lc_status status = LC_OK;
    for (int64_t i = 0; i < d->from.list.files.n; i++) {
        status = lc__image_reader_decode(&d->from, r, i);
        if (status == LC_OK || !d->why || !can_be_skipped(status)) break;
        LC_TRY_GOTO(status, done, note_replaced(d, i));
        status = none_can_be_read(d);
    }
    d->from.height = r->image.height;
    d->from.width = r->image.width;
done:
    reader_put(d, r);
    return status;
}

static lc_status check_extensions(const char *list)
{
    for (const char *p = list, *end; p; p = *end ? end + 1 : NULL) {
        end = p + strcspn(p, ",");
        if (end == p || *p == '.' || memchr(p, ' ', (size_t)(end - p)))
            return lc_fail(LC_ERR_ARGUMENT,
                           "extensions are \"%s\"; between commas they have neither a dot in front nor blanks, as in "
                           "\"jpg,png\"",
                           list);
    }
    return LC_OK;
}

lc_status lc__image_args_check(const lc_image_args *a)
{
    LC_TRY(check_extensions(a->extensions));
    if (a->height < 0 || a->width < 0 || a->height > MOST_SIDE || a->width > MOST_SIDE)
        return lc_fail(LC_ERR_ARGUMENT, "pictures of height %lld and width %lld; each must be from 1 to %lld",
                       (long long)a->height, (long long)a->width, (long long)MOST_SIDE);
    if (!a->height != !a->width)
        return lc_fail(LC_ERR_ARGUMENT, "pictures have a height and a width; only the %s was given",
                       a->height ? "height" : "width");
    if (a->max_pixels < 1)
        return lc_fail(LC_ERR_ARGUMENT, "max_pixels is %lld; it must be at least 1", (long long)a->max_pixels);
    if (a->cache_bytes < 0)
        return lc_fail(LC_ERR_ARGUMENT, "cache_bytes is %lld; it must not be negative", (long long)a->cache_bytes);
    if ((unsigned)a->on_error > LC_IMAGE_SKIP)
        return lc_fail(LC_ERR_ARGUMENT, "on_error is %d; it must be LC_IMAGE_FAIL or LC_IMAGE_SKIP", (int)a->on_error);
    return LC_OK;
}

lc_status lc__image_args_taken(lc_status status, const lc_image_args *a)
{
    if (status < 0 && a->transform) lc_transform_release(a->transform);
    return status;
}

/* The sample's field: that of the picture, or what the transform makes of it. Pictures may differ in size if the
 * transform ends in one size for all. */
static lc_status find_field(images *d)
{
    if (!d->from.transform.ops) {
        if (!d->from.resizes) LC_TRY(find_size(d));
        d->from.x = lc__image_field(d->from.height, d->from.width);
        return LC_OK;
    }
    const lc_field own = lc__image_field(d->from.height, d->from.width);
    LC_TRY(lc__transform_describe(&d->from.transform, &own, &d->from.x));
    for (int i = 0; i < d->from.x.ndim; i++)
        if (d->from.x.shape[i] < 1)
            return lc_fail(LC_ERR_SHAPE,
                           "transform '%s' leaves pictures in different sizes, and a batch has one; end it with a crop "
                           "or a resize to a height and a width",
                           d->from.transform.ops->name);
    return LC_OK;
}

static const lc_dataset_ops images_ops = {
    LC_DATASET_OPS_INIT, .name = "images",    .length = images_length,     .describe = images_describe,
    .get = images_get,   .free = images_free, .replaced = images_replaced, .source = images_source,
};

lc_status lc__image_dataset_new(lc__image_list *list, const lc_image_args *args, lc_dataset **out)
{
    const int64_t n = list->files.n;
    images *d = calloc(1, sizeof *d);
    lc_status status = d ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory for a dataset of pictures");
    if (!d) {
        lc__image_list_free(list);
        return status;
    }
    d->from.list = *list;
    *list = (lc__image_list){0};
    d->from.args = *args;
    d->from.height = args->height;
    d->from.width = args->width;
    d->from.resizes = args->height > 0;
    pthread_mutex_init(&d->lock, NULL);
    if (args->on_error == LC_IMAGE_SKIP && !(d->why = calloc((size_t)n + 1, sizeof *d->why)))
        status = lc_fail(LC_ERR_MEMORY, "out of memory for a dataset of pictures");
    if (args->cache_bytes && status == LC_OK) status = lc__image_cache_new(n, args->cache_bytes, &d->from.cache);
    if (args->transform && status == LC_OK) {
        status = lc__transform_check(args->transform);
        if (status == LC_OK) status = lc__transform_own(args->transform);
        if (status == LC_OK) {
            d->from.transform = *args->transform;
            *args->transform = (lc_transform){0};
        }
    }
    if (status == LC_OK && !n) status = lc_fail(LC_ERR_ARGUMENT, "a dataset of pictures needs at least one");
    if (status == LC_OK) status = find_field(d);
    if (status < 0) {
        images_free(d);
        return status;
    }
    LC_TRY(lc_dataset_new(&images_ops, d, out));
    (*out)->transforms[0] = args->transform != NULL;
    return LC_OK;
}

/* ---- what programs ask ---- */

/* NULL, with an error, if the dataset is of another kind. */
static const images *images_of(const lc_dataset *d)
{
    if (d->ops.get == images_get) return d->self;
    (void)lc_fail(LC_ERR_ARGUMENT, "dataset '%s' has no pictures; ask the dataset of pictures that it was made of",
                  d->ops.name);
    return NULL;
}

const lc__image_list *lc__image_list_of(const lc_dataset *d)
{
    const images *self = images_of(d);
    return self ? &self->from.list : NULL;
}

int64_t lc_image_classes(const lc_dataset *d)
{
    LC__IS(d, DATASET, 0);
    const images *self = images_of(d);
    return self ? self->from.list.classes.n : 0;
}

const char *lc_image_class(const lc_dataset *d, int64_t target)
{
    LC__IS(d, DATASET, NULL);
    const images *self = images_of(d);
    if (!self) return NULL;
    return target >= 0 && target < self->from.list.classes.n ? lc__names_at(&self->from.list.classes, target) : NULL;
}

/* For messages; only folders and lists have one. */
static const char *place_of(const lc__image_list *list, const char *otherwise)
{
    return *list->root ? list->root : otherwise;
}

lc_status lc_image_same_classes(const lc_dataset *a, const lc_dataset *b)
{
    LC__IS(a, DATASET, LC_ERR_ARGUMENT);
    LC__IS(b, DATASET, LC_ERR_ARGUMENT);
    const lc__image_list *of_a = lc__image_list_of(a), *of_b = lc__image_list_of(b);
    if (!of_a || !of_b) return LC_ERR_ARGUMENT;
    const lc__names *in_a = &of_a->classes, *in_b = &of_b->classes;
    const char *first = place_of(of_a, "the first dataset"), *second = place_of(of_b, "the second");
    if (in_a->n != in_b->n)
        return lc_fail(LC_ERR_ARGUMENT, "there are %lld classes in %s, but %lld in %s", (long long)in_a->n, first,
                       (long long)in_b->n, second);
    for (int64_t i = 0; i < in_a->n; i++)
        if (strcmp(lc__names_at(in_a, i), lc__names_at(in_b, i)) != 0)
            return lc_fail(LC_ERR_ARGUMENT, "class %lld is %s in %s, but %s in %s", (long long)i, lc__names_at(in_a, i),
                           first, lc__names_at(in_b, i), second);
    return LC_OK;
}

const char *lc_image_file(const lc_dataset *d, int64_t index)
{
    LC__IS(d, DATASET, NULL);
    const images *self = images_of(d);
    if (!self) return NULL;
    return index >= 0 && index < self->from.list.files.n ? lc__names_at(&self->from.list.files, index) : NULL;
}

int64_t lc_image_target(const lc_dataset *d, int64_t index)
{
    LC__IS(d, DATASET, LC_UNSET);
    const images *self = images_of(d);
    if (!self) return LC_UNSET;
    return index >= 0 && index < self->from.list.files.n ? self->from.list.targets[index] : LC_UNSET;
}
