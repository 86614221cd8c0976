/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset over a list of picture files: a sample is read, decoded, resized and transformed when a batch wants it,
 * straight into the batch if no other size comes between.
 *
 * Threads decode at the same time, each with a reader (a file's bytes, a picture, the weights of a resize) that it
 * takes from a list and puts back. So the memory grows with the number of threads and the largest picture, and then
 * nothing but the decoding libraries allocates. */
#include "data/image_dataset.h"
#include "base/args.h"
#include "base/grow.h"
#include "base/io.h"
#include "base/str.h"
#include "data_internal.h"
#include "data/tar.h"
#include "image/image.h"
#include "image/resize.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_SIDE ((int64_t)1 << 24)
#define MOST_FILE ((size_t)1 << 31) /* bytes of a file */

/* The buffers of a thread that reads pictures. */
typedef struct reader {
    struct reader *next;
    lc__image image;
    lc__resize resize;
    uint8_t *file;
    size_t cap_file;
    char *path;
    size_t cap_path;
    uint8_t *resized, *scratch; /* of a picture that is transformed next; of its transform */
    size_t cap_resized, cap_scratch;
} reader;

typedef struct images {
    lc__image_list list;
    int64_t height, width;
    bool resizes; /* otherwise every picture has this size, or its own (0, with a transform) */
    lc_image_args a;
    lc_transform transform; /* .ops NULL: none */
    lc_field x;             /* what a sample has */
    _Atomic(char *) *why;   /* of LC_IMAGE_SKIP: for each sample why it is replaced, NULL: it is not, so far */
    pthread_mutex_t lock;
    reader *free_readers; /* under the lock */
} images;

/* ---- names ---- */

lc_status lc__names_add(lc__names *names, const char *name)
{
    size_t n = strlen(name) + 1;
    LC_TRY(lc__grow(&names->at, &names->cap_n, names->n, 1, "names of files"));
    LC_TRY(lc__grow(&names->text, &names->cap, names->used, n, "names of files"));
    memcpy(names->text + names->used, name, n);
    names->at[names->n++] = names->used;
    names->used += n;
    return LC_OK;
}

void lc__names_free(lc__names *names)
{
    free(names->text);
    free(names->at);
    *names = (lc__names){0};
}

lc_status lc__image_list_add(lc__image_list *list, const char *file, int64_t target)
{
    LC_TRY(lc__grow(&list->targets, &list->cap_targets, list->files.n, 1, "targets of files"));
    list->targets[list->files.n] = target;
    return lc__names_add(&list->files, file);
}

lc_status lc__image_list_add_place(lc__image_list *list, const char *file, const lc__image_place *place)
{
    LC_TRY(lc__grow(&list->places, &list->cap_places, list->files.n, 1, "places of files"));
    list->places[list->files.n] = *place;
    return lc__image_list_add(list, file, 0);
}

lc_status lc__image_list_root(lc__image_list *list, const char *root)
{
    size_t n = strlen(root);
    return lc__format(&list->root, n && root[n - 1] != '/' ? "%s/" : "%s", root);
}

void lc__image_list_free(lc__image_list *list)
{
    lc__names_free(&list->files);
    lc__names_free(&list->classes);
    lc__names_free(&list->archives);
    free(list->places);
    free(list->targets);
    free(list->root);
    *list = (lc__image_list){0};
}

/* ---- readers ---- */

static reader *reader_take(images *d)
{
    pthread_mutex_lock(&d->lock);
    reader *r = d->free_readers;
    if (r) d->free_readers = r->next;
    pthread_mutex_unlock(&d->lock);
    if (!r && !(r = calloc(1, sizeof *r))) (void)lc_fail(LC_ERR_MEMORY, "out of memory: a reader of pictures");
    return r;
}

static void reader_put(images *d, reader *r)
{
    pthread_mutex_lock(&d->lock);
    r->next = d->free_readers;
    d->free_readers = r;
    pthread_mutex_unlock(&d->lock);
}

static void reader_free(reader *r)
{
    lc__image_release(&r->image);
    lc__resize_release(&r->resize);
    free(r->file);
    free(r->path);
    free(r->resized);
    free(r->scratch);
    free(r);
}

/* r->path: a path to open, or one for messages. */
static lc_status set_path(reader *r, const char *first, const char *between, const char *last)
{
    const size_t a = strlen(first), b = strlen(between), c = strlen(last) + 1;
    LC_TRY(lc__grow(&r->path, &r->cap_path, 0, a + b + c, "the path of a picture"));
    memcpy(r->path, first, a);
    memcpy(r->path + a, between, b);
    memcpy(r->path + a + b, last, c);
    return LC_OK;
}

/* Reads n bytes from `offset` of an open file, and closes it. */
static lc_status read_bytes(reader *r, int fd, uint64_t n, uint64_t offset)
{
    lc_status status = LC_OK;
    if (n > MOST_FILE)
        status = lc_fail(LC_ERR_FORMAT, "%s has %llu bytes; at most %zu are read", r->path, (unsigned long long)n,
                         MOST_FILE);
    if (status == LC_OK) status = lc__grow(&r->file, &r->cap_file, 0, (size_t)n, "the bytes of a picture");
    if (status == LC_OK) status = lc__read_all(&lc__io_system, fd, r->path, r->file, (size_t)n, offset);
    lc__io_system.close(&lc__io_system, fd);
    return status;
}

static lc_status read_own_file(reader *r, const lc__image_list *list, int64_t i, lc__image_file *file)
{
    struct stat st;
    int fd;
    const char *name = lc__names_at(&list->files, i);
    LC_TRY(set_path(r, *name == '/' ? "" : list->root, "", name));
    LC_TRY(lc__open_to_read(&lc__io_system, r->path, &fd, &st));
    file->n = (size_t)st.st_size;
    LC_TRY(read_bytes(r, fd, file->n, 0));
    file->bytes = r->file;
    return LC_OK;
}

/* A member of a tar file, with its header, which must be that of a file of this size. */
static lc_status read_member(reader *r, const lc__image_list *list, int64_t i, lc__image_file *file)
{
    struct stat st;
    int fd;
    const lc__image_place *p = &list->places[i];
    const char *archive = lc__names_at(&list->archives, p->archive);
    LC_TRY(lc__open_to_read(&lc__io_system, archive, &fd, &st));
    lc_status status = set_path(r, archive, ": ", lc__names_at(&list->files, i));
    if (status < 0) lc__io_system.close(&lc__io_system, fd);
    LC_TRY(status);
    LC_TRY(read_bytes(r, fd, p->size + LC__TAR_BLOCK, p->offset - LC__TAR_BLOCK));
    if (!lc__tar_is_header(r->file, p->size))
        return lc_fail(LC_ERR_FORMAT, "%s is not at byte %llu; has the file changed, or is its index an old one?",
                       r->path, (unsigned long long)p->offset);
    file->n = (size_t)p->size;
    file->bytes = r->file + LC__TAR_BLOCK;
    return LC_OK;
}

static lc_field picture_field(int64_t height, int64_t width)
{
    return (lc_field){.name = "x", .dtype = LC_U8, .layout = LC_CHANNELS_LAST, .ndim = 3, .shape = {3, height, width}};
}

/* What a decoder asks about the size of a file. */
typedef struct scale_question {
    const images *d;
    uint64_t key;
} scale_question;

static double least_scale(void *ctx, int64_t height, int64_t width)
{
    const scale_question *q = ctx;
    const images *d = q->d;
    if (d->resizes) return fmax((double)d->height / (double)height, (double)d->width / (double)width);
    const lc_field own = picture_field(height, width);
    if (!d->transform.ops || !LC__SLOT(d->transform.ops, least_scale)) return 1;
    return d->transform.ops->least_scale(d->transform.self, &own, q->key);
}

/* Decodes sample i, into `into` if it has the dataset's size and need not be turned. */
static lc_status decode(images *d, reader *r, int64_t i, uint64_t key, uint8_t *into)
{
    scale_question question = {d, key};
    lc__image_file file = {.max_pixels = d->a.max_pixels,
                           .exif_transpose = d->a.exif_transpose,
                           .least_scale = d->a.fast_scale ? least_scale : NULL,
                           .ctx = &question};
    LC_TRY(d->list.places ? read_member(r, &d->list, i, &file) : read_own_file(r, &d->list, i, &file));
    file.name = r->path;
    r->image.into = into;
    r->image.into_height = d->height;
    r->image.into_width = d->width;
    return lc__image_decode(&file, &r->image);
}

/* Reads sample i in the size that pictures have before the transform; `out`, if any, is room for it. */
static lc_status read_pixels(images *d, reader *r, int64_t i, uint64_t key, uint8_t *out, const uint8_t **pixels,
                             lc_field *own)
{
    LC_TRY(decode(d, r, i, key, out));
    const lc__image *p = &r->image;
    *pixels = p->pixels;
    *own = picture_field(p->height, p->width);
    if (!d->height || (p->height == d->height && p->width == d->width)) return LC_OK;
    if (!d->resizes)
        return lc_fail(LC_ERR_SHAPE,
                       "%s is %lld x %lld pixels, but the first picture is %lld x %lld, and a batch has one size; give "
                       "the dataset a height and a width, to which pictures are resized",
                       r->path, (long long)p->width, (long long)p->height, (long long)d->width, (long long)d->height);
    if (!out) {
        LC_TRY(lc__grow(&r->resized, &r->cap_resized, 0, 3 * d->height * d->width, "a picture that is resized"));
        out = r->resized;
    }
    *pixels = out;
    *own = picture_field(d->height, d->width);
    return lc__resize_rgb(&r->resize, p->pixels, p->height, p->width, out, d->height, d->width);
}

static lc_status transform(const images *d, reader *r, const lc_field *own, const uint8_t *pixels, uint64_t key,
                           void *out)
{
    const lc_transform *t = &d->transform;
    lc_field made = {0};
    LC_TRY(t->ops->describe(t->self, own, &made));
    if (!lc__field_same(&made, &d->x))
        return lc_fail(LC_ERR_SHAPE, "transform '%s' makes samples of different sizes or types", t->ops->name);
    LC_TRY(lc__grow(&r->scratch, &r->cap_scratch, 0, lc__transform_scratch(t, own) + 63, "the transform of a picture"));
    void *scratch = (void *)(((uintptr_t)r->scratch + 63) & ~(uintptr_t)63);
    lc_status status = t->ops->apply(t->self, own, pixels, &d->x, out, key, scratch);
    if (status > 0)
        return lc_fail(LC_ERR_USER, "transform '%s' returned \"%s\", which it cannot", t->ops->name,
                       lc_status_text(status));
    return status < 0 ? lc_fail_context(status, "transform '%s'", t->ops->name) : LC_OK;
}

static lc_status read_picture(images *d, reader *r, int64_t i, uint64_t key, uint8_t *out)
{
    const bool transforms = d->transform.ops != NULL;
    const uint8_t *pixels;
    lc_field own;
    if (transforms) key = lc_random_key_name(key, "transform");
    LC_TRY(read_pixels(d, r, i, key, transforms ? NULL : out, &pixels, &own));
    if (!transforms) {
        if (pixels != out) memcpy(out, pixels, (size_t)(3 * d->height * d->width));
        return LC_OK;
    }
    lc_status status = transform(d, r, &own, pixels, key, out);
    return status < 0 ? lc_fail_context(status, "%s", r->path) : LC_OK;
}

/* ---- pictures that cannot be read ---- */

/* Errors that depend on the file alone, so that every rank and every epoch skips the same samples. */
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
    return lc_fail(LC_ERR_FORMAT, "none of the %lld pictures can be read; the first: %s", (long long)d->list.files.n,
                   atomic_load(&d->why[0]));
}

/* The sample that index i gives: its own, or the next whose picture can be read. */
static lc_status read_sample(images *d, reader *r, int64_t i, uint64_t key, uint8_t *pixels, int64_t *target)
{
    const int64_t n = d->list.files.n;
    for (int64_t tried = 0; tried < n; tried++, i = i + 1 < n ? i + 1 : 0) {
        if (is_replaced(d, i)) continue;
        lc_status status = read_picture(d, r, i, key, pixels);
        *target = d->list.targets[i];
        if (status == LC_OK || !d->why || !can_be_skipped(status)) return status;
        LC_TRY(note_replaced(d, i));
    }
    return none_can_be_read(d);
}

/* ---- the dataset ---- */

static int64_t images_length(void *self)
{
    return ((images *)self)->list.files.n;
}

static lc_status images_describe(void *self, lc_sample_spec *spec)
{
    const images *d = self;
    *spec = (lc_sample_spec){.n = 2};
    spec->fields[0] = d->x;
    spec->fields[1] = (lc_field){.name = "y", .dtype = LC_I64};
    return LC_OK;
}

static lc_status images_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)scratch;
    images *d = self;
    int64_t target = 0;
    reader *r = reader_take(d);
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

static void images_free(void *self)
{
    images *d = self;
    for (reader *r = d->free_readers, *next; r; r = next) {
        next = r->next;
        reader_free(r);
    }
    for (int64_t i = 0; d->why && i < d->list.files.n; i++) free(atomic_load(&d->why[i]));
    free(d->why);
    lc_transform_release(&d->transform);
    pthread_mutex_destroy(&d->lock);
    lc__image_list_free(&d->list);
    free(d);
}

/* The size of the first picture that can be read; there is at least one file. */
static lc_status find_size(images *d)
{
    reader *r = reader_take(d);
    if (!r) return LC_ERR_MEMORY;
    lc_status status = LC_OK;
    for (int64_t i = 0; i < d->list.files.n; i++) {
        status = decode(d, r, i, 0, NULL);
        if (status == LC_OK || !d->why || !can_be_skipped(status)) break;
        LC_TRY_GOTO(status, done, note_replaced(d, i));
        status = none_can_be_read(d);
    }
    d->height = r->image.height;
    d->width = r->image.width;
done:
    reader_put(d, r);
    return status;
}

lc_status lc__image_args_check(const lc_image_args *a)
{
    if (a->height < 0 || a->width < 0 || a->height > MOST_SIDE || a->width > MOST_SIDE)
        return lc_fail(LC_ERR_ARGUMENT, "pictures of height %lld and width %lld; each must be from 1 to %lld",
                       (long long)a->height, (long long)a->width, (long long)MOST_SIDE);
    if (!a->height != !a->width)
        return lc_fail(LC_ERR_ARGUMENT, "pictures have a height and a width; only the %s was given",
                       a->height ? "height" : "width");
    if (a->max_pixels < 1)
        return lc_fail(LC_ERR_ARGUMENT, "max_pixels is %lld; it must be at least 1", (long long)a->max_pixels);
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
    d->x = picture_field(d->height, d->width);
    if (!d->transform.ops) {
        if (!d->resizes) LC_TRY(find_size(d));
        d->x = picture_field(d->height, d->width);
        return LC_OK;
    }
    const lc_field own = d->x;
    d->x = (lc_field){0};
    LC_TRY(d->transform.ops->describe(d->transform.self, &own, &d->x));
    for (int i = 0; i < d->x.ndim; i++)
        if (d->x.shape[i] < 1)
            return lc_fail(LC_ERR_SHAPE,
                           "transform '%s' leaves pictures in different sizes, and a batch has one; end it with a crop "
                           "or a resize to a height and a width",
                           d->transform.ops->name);
    return LC_OK;
}

static const lc_dataset_ops images_ops = {
    LC_DATASET_OPS_INIT, .name = "images",    .length = images_length,     .describe = images_describe,
    .get = images_get,   .free = images_free, .replaced = images_replaced,
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
    d->list = *list;
    *list = (lc__image_list){0};
    d->a = *args;
    d->height = args->height;
    d->width = args->width;
    d->resizes = args->height > 0;
    pthread_mutex_init(&d->lock, NULL);
    if (args->on_error == LC_IMAGE_SKIP && !(d->why = calloc((size_t)n + 1, sizeof *d->why)))
        status = lc_fail(LC_ERR_MEMORY, "out of memory for a dataset of pictures");
    if (args->transform && status == LC_OK) {
        status = lc__transform_check(args->transform);
        if (status == LC_OK) {
            d->transform = *args->transform;
            *args->transform = (lc_transform){0};
        }
    }
    if (status == LC_OK && !n) status = lc_fail(LC_ERR_ARGUMENT, "a dataset of pictures needs at least one");
    if (status == LC_OK) status = find_field(d);
    if (status < 0) {
        images_free(d);
        return status;
    }
    return lc_dataset_new(&images_ops, d, out);
}

/* ---- what programs ask ---- */

/* NULL, with an error, if the dataset is of another kind. */
static const images *images_of(const lc_dataset *d)
{
    if (d->ops.get == images_get) return d->self;
    (void)lc_fail(LC_ERR_ARGUMENT, "dataset '%s' is no dataset of pictures; ask the one it was made of", d->ops.name);
    return NULL;
}

const lc__image_list *lc__image_list_of(const lc_dataset *d)
{
    const images *self = images_of(d);
    return self ? &self->list : NULL;
}

int64_t lc_image_classes(const lc_dataset *d)
{
    LC__IS(d, DATASET, 0);
    const images *self = images_of(d);
    return self ? self->list.classes.n : 0;
}

const char *lc_image_class(const lc_dataset *d, int64_t target)
{
    LC__IS(d, DATASET, NULL);
    const images *self = images_of(d);
    if (!self) return NULL;
    return target >= 0 && target < self->list.classes.n ? lc__names_at(&self->list.classes, target) : NULL;
}

const char *lc_image_file(const lc_dataset *d, int64_t index)
{
    LC__IS(d, DATASET, NULL);
    const images *self = images_of(d);
    if (!self) return NULL;
    return index >= 0 && index < self->list.files.n ? lc__names_at(&self->list.files, index) : NULL;
}

int64_t lc_image_target(const lc_dataset *d, int64_t index)
{
    LC__IS(d, DATASET, LC_UNSET);
    const images *self = images_of(d);
    if (!self) return LC_UNSET;
    return index >= 0 && index < self->list.files.n ? self->list.targets[index] : LC_UNSET;
}
