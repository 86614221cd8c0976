/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pictures into a batch: straight from the decoder, unless they are resized or transformed first. */
#include "data/image_reader.h"
#include "base/args.h"
#include "base/clock.h"
#include "base/grow.h"
#include "base/io.h"
#include "data/tar.h"
#include "data_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_FILE ((size_t)1 << 31) /* bytes of a file */

/* r->path: a path to open, or one for messages. */
static lc_status set_path(lc__image_reader *r, const char *first, const char *between, const char *last)
{
    const size_t a = strlen(first), b = strlen(between), c = strlen(last) + 1;
    LC_TRY(lc__grow(&r->path, &r->cap_path, 0, a + b + c, "the path of a picture"));
    memcpy(r->path, first, a);
    memcpy(r->path + a, between, b);
    memcpy(r->path + a + b, last, c);
    return LC_OK;
}

/* Reads n bytes from `offset` of an open file. */
static lc_status read_bytes(lc__image_reader *r, int fd, uint64_t n, uint64_t offset)
{
    lc_status status = LC_OK;
    if (n > MOST_FILE)
        status = lc_fail(LC_ERR_FORMAT, "%s has %llu bytes; at most %zu are read", r->path, (unsigned long long)n,
                         MOST_FILE);
    if (status == LC_OK) status = lc__grow(&r->file, &r->cap_file, 0, (size_t)n, "the bytes of a picture");
    return status == LC_OK ? lc__read_all(&lc__io_system, fd, r->path, r->file, (size_t)n, offset) : status;
}

static lc_status read_own_file(lc__image_reader *r, lc__image_file *file)
{
    int fd;
    LC_TRY(lc__open_to_read(&lc__io_system, r->path, &fd, &r->st));
    file->n = (size_t)r->st.st_size;
    lc_status status = read_bytes(r, fd, file->n, 0);
    lc__io_system.close(&lc__io_system, fd);
    file->bytes = r->file;
    return status;
}

static void close_archive(lc__image_reader *r)
{
    if (r->is_open) lc__io_system.close(&lc__io_system, r->fd);
    r->is_open = false;
}

static lc_status open_archive(lc__image_reader *r, const lc__image_list *list, int64_t archive)
{
    if (r->is_open && r->archive == archive) return LC_OK;
    close_archive(r);
    LC_TRY(lc__open_to_read(&lc__io_system, lc__names_at(&list->archives, archive), &r->fd, &r->st));
    r->is_open = true;
    r->archive = archive;
    return LC_OK;
}

/* A member of a tar file, with its header, which must be that of a file of this size. */
static lc_status read_member(lc__image_reader *r, const lc__image_list *list, int64_t i, lc__image_file *file)
{
    const lc__image_place *p = &list->places[i];
    LC_TRY(open_archive(r, list, p->archive));
    const lc_status status = read_bytes(r, r->fd, p->size + LC__TAR_BLOCK, p->offset - LC__TAR_BLOCK);
    if (status < 0) close_archive(r); /* of a network disk, another open may help */
    LC_TRY(status);
    if (!lc__tar_is_header(r->file, p->size))
        return lc_fail(LC_ERR_FORMAT, "%s is not at byte %llu; has the file changed, or is its index an old one?",
                       r->path, (unsigned long long)p->offset);
    file->n = (size_t)p->size;
    file->bytes = r->file + LC__TAR_BLOCK;
    return LC_OK;
}

/* The bytes of sample i, and its name. */
static lc_status read_file(const lc__image_source *from, lc__image_reader *r, int64_t i, lc__image_file *file)
{
    const lc__image_list *list = &from->list;
    const char *name = lc__names_at(&list->files, i), *path;
    if (list->places)
        LC_TRY(set_path(r, lc__names_at(&list->archives, list->places[i].archive), ": ", name));
    else
        LC_TRY(set_path(r, *name == '/' ? "" : list->root, "", name));
    path = list->places ? lc__names_at(&list->archives, list->places[i].archive) : r->path;
    if (from->cache && lc__image_cache_get(from->cache, i, path, &file->bytes, &file->n)) return LC_OK;
    LC_TRY(list->places ? read_member(r, list, i, file) : read_own_file(r, file));
    if (from->cache) lc__image_cache_put(from->cache, i, &r->st, file->bytes, file->n);
    return LC_OK;
}

lc_field lc__image_field(int64_t height, int64_t width)
{
    return (lc_field){.name = "x", .dtype = LC_U8, .layout = LC_CHANNELS_LAST, .ndim = 3, .shape = {3, height, width}};
}

/* The context of a decoder's questions, which it asks when it knows the size of a picture, and of the rows that it
 * gives. */
typedef struct question {
    const lc__image_source *from;
    uint64_t key;
    lc__image_reader *r;
    void *out;          /* of the sample, as a batch has it; NULL: only the picture is wanted */
    bool takes;         /* the sample is made of rows while the picture is decoded: */
    int64_t width, row; /* they have so many pixels, and this one is next */
    void *scratch;
} question;

/* Memory for a transform, at a multiple of 64 bytes. */
static lc_status scratch_of(lc__image_reader *r, size_t bytes, void **scratch)
{
    LC_TRY(lc__grow(&r->scratch, &r->cap_scratch, 0, bytes + 63, "the transform of a picture"));
    *scratch = (void *)(((uintptr_t)r->scratch + 63) & ~(uintptr_t)63);
    return LC_OK;
}

/* An error unless a picture becomes what all samples are. */
static lc_status check_made(const lc__image_source *from, lc__image_reader *r, const lc_field *own)
{
    const lc_transform *t = &from->transform;
    lc_field made = {0};
    if (own->shape[1] == r->checked_height && own->shape[2] == r->checked_width) return LC_OK;
    LC_TRY(lc__transform_describe(t, own, &made));
    if (lc__field_difference(&made, &from->x))
        return lc_fail(LC_ERR_SHAPE, "transform '%s' makes samples of different sizes or types", t->ops->name);
    r->scratch_bytes = lc__transform_scratch(t, own);
    r->checked_height = own->shape[1];
    r->checked_width = own->shape[2];
    return LC_OK;
}

static double least_scale(void *ctx, int64_t height, int64_t width)
{
    const question *q = ctx;
    const lc__image_source *from = q->from;
    if (from->resizes) return fmax((double)from->height / (double)height, (double)from->width / (double)width);
    const lc_field own = lc__image_field(height, width);
    if (!from->transform.ops || !LC__SLOT(from->transform.ops, least_scale)) return 1;
    return from->transform.ops->least_scale(from->transform.self, &own, q->key);
}

static lc_box reads(void *ctx, int64_t height, int64_t width, bool *takes)
{
    question *q = ctx;
    const lc_transform *t = &q->from->transform;
    const lc_field own = lc__image_field(height, width);
    const lc_box all = {.height = height, .width = width};
    if (q->from->resizes || !t->ops || !LC__SLOT(t->ops, reads)) return all;
    lc_box part = all;
    t->ops->reads(t->self, &own, q->key, &part);
    part = lc__box_within(part, all);
    if (part.height < 1 || part.width < 1) return all;
    q->width = part.width;
    q->takes = *takes =
        q->out && lc__transform_takes_rows(t, &q->from->x, &part) && check_made(q->from, q->r, &own) == LC_OK;
    return part;
}

static lc_status take(void *ctx, const uint8_t *rows, int64_t n)
{
    question *q = ctx;
    const lc_transform *t = &q->from->transform;
    const lc_field in = lc__image_field(n, q->width);
    lc_field out = q->from->x;
    const size_t row = lc_field_bytes(&out) / (size_t)out.shape[1];
    const int64_t start = lc__now_ns();
    out.shape[1] = n;
    if (!q->row) LC_TRY(scratch_of(q->r, lc__transform_rows_scratch(t, &in), &q->scratch)); /* others are not more */
    const lc_status status = lc__transform_rows(t, &in, rows, &out, (char *)q->out + row * (size_t)q->row, q->key,
                                                q->scratch, lc__transform_streams(&q->from->x));
    q->row += n;
    const int64_t ns = lc__now_ns() - start;
    lc__spent.transform_ns += ns;
    lc__spent.decode_ns -= ns;
    return status < 0 ? lc_fail_context(status, "%s", q->r->path) : LC_OK;
}

/* Adds the time since *start, and begins again. */
static void add_time(int64_t *to, int64_t *start)
{
    const int64_t now = lc__now_ns();
    *to += now - *start;
    *start = now;
}

static lc_status decode(question *q, int64_t i, uint8_t *into)
{
    const lc__image_source *from = q->from;
    lc__image_reader *r = q->r;
    lc__image_file file = {.max_pixels = from->args.max_pixels,
                           .exif_transpose = from->args.exif_transpose,
                           .least_scale = from->args.fast_scale ? least_scale : NULL,
                           .reads = reads,
                           .take = take,
                           .ctx = q};
    int64_t start = lc__now_ns();
    LC_TRY(read_file(from, r, i, &file));
    add_time(&lc__spent.read_ns, &start);
    file.name = r->path;
    r->image.into = into;
    r->image.into_height = from->height;
    r->image.into_width = from->width;
    const lc_status status = lc__image_decode(&file, &r->image);
    add_time(&lc__spent.decode_ns, &start);
    return status;
}

lc_status lc__image_reader_decode(const lc__image_source *from, lc__image_reader *r, int64_t i)
{
    question q = {.from = from, .r = r};
    return decode(&q, i, NULL);
}

/* Reads sample i in the size that pictures have before the transform; `out`, if any, is room for it. */
static lc_status read_pixels(question *q, int64_t i, uint8_t *out, const uint8_t **pixels, lc_field *own)
{
    const lc__image_source *from = q->from;
    lc__image_reader *r = q->r;
    LC_TRY(decode(q, i, out));
    const lc__image *p = &r->image;
    *pixels = p->pixels;
    *own = lc__image_field(p->height, p->width);
    if (!from->height || (p->height == from->height && p->width == from->width)) return LC_OK;
    if (!from->resizes)
        return lc_fail(LC_ERR_SHAPE,
                       "%s is %lld x %lld pixels, but the first picture is %lld x %lld, and a batch has one size; give "
                       "the dataset a height and a width, to which pictures are resized",
                       r->path, (long long)p->width, (long long)p->height, (long long)from->width,
                       (long long)from->height);
    if (!out) {
        LC_TRY(lc__grow(&r->resized, &r->cap_resized, 0, 3 * from->height * from->width, "a picture that is resized"));
        out = r->resized;
    }
    *pixels = out;
    *own = lc__image_field(from->height, from->width);
    int64_t start = lc__now_ns();
    const lc_status status = lc__resize_rgb(&r->resize, p->pixels, p->height, p->width, out, from->height, from->width);
    add_time(&lc__spent.transform_ns, &start);
    return status < 0 ? lc_fail_context(status, "%s", r->path) : LC_OK;
}

static lc_status transform(const lc__image_source *from, lc__image_reader *r, const lc_field *own,
                           const uint8_t *pixels, uint64_t key, void *out)
{
    const lc_transform *t = &from->transform;
    void *scratch;
    LC_TRY(check_made(from, r, own));
    LC_TRY(scratch_of(r, r->scratch_bytes, &scratch));
    int64_t start = lc__now_ns();
    lc_status status = lc__transform_apply(t, own, pixels, &from->x, out, key, scratch);
    add_time(&lc__spent.transform_ns, &start);
    return status;
}

lc_status lc__image_reader_read(const lc__image_source *from, lc__image_reader *r, int64_t i, uint64_t key,
                                uint8_t *out)
{
    const bool transforms = from->transform.ops != NULL;
    const uint8_t *pixels;
    lc_field own;
    if (transforms) key = lc_random_key_name(key, "transform");
    question q = {.from = from, .key = key, .r = r, .out = out};
    LC_TRY(read_pixels(&q, i, transforms ? NULL : out, &pixels, &own));
    if (q.takes) {
        lc__stores_arrive();
        return LC_OK;
    }
    if (!transforms) {
        if (pixels != out) memcpy(out, pixels, (size_t)(3 * from->height * from->width));
        return LC_OK;
    }
    lc_status status = transform(from, r, &own, pixels, key, out);
    return status < 0 ? lc_fail_context(status, "%s", r->path) : LC_OK;
}

void lc__image_reader_free(lc__image_reader *r)
{
    close_archive(r);
    lc__image_release(&r->image);
    lc__resize_release(&r->resize);
    free(r->file);
    free(r->path);
    free(r->resized);
    free(r->scratch);
    free(r);
}
