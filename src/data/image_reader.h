/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one picture at a time: the bytes of its file are decoded, resized and transformed. */
#ifndef LC_DATA_IMAGE_READER_H
#define LC_DATA_IMAGE_READER_H

#include "data/image_cache.h"
#include "data/image_files.h"
#include "image/image.h"
#include "image/resize.h"

/* What the pictures of a dataset come from, and what becomes of them. The same for all threads. */
typedef struct lc__image_source {
    lc__image_list list;
    int64_t height, width;
    bool resizes; /* otherwise every picture has this size, or its own (0, with a transform) */
    lc_image_args args;
    lc_transform transform; /* .ops NULL: none */
    lc_field x;             /* what a sample has */
    lc__image_cache *cache; /* NULL: none */
} lc__image_source;

/* The buffers of a thread that reads pictures; {0} is empty. */
typedef struct lc__image_reader {
    struct lc__image_reader *next;
    lc__image image;
    lc__resize resize;
    bool is_open; /* the tar file `archive`, as `fd`: the next sample is likely to be in it too */
    int64_t archive;
    int fd;
    struct stat st; /* of the file that was opened last */
    uint8_t *file;
    size_t cap_file;
    char *path;
    size_t cap_path;
    uint8_t *resized, *scratch; /* of a picture that is transformed next; of its transform */
    size_t cap_resized, cap_scratch;
    int64_t checked_height, checked_width; /* of the last picture that was found to become what all samples are, */
    size_t scratch_bytes;                  /* and what its transform needs */
} lc__image_reader;

/* Three bytes per pixel, as decoders make them; a size of 0 is not known. */
lc_field lc__image_field(int64_t height, int64_t width);
/* Decodes the picture of sample i, which has no transform. */
lc_status lc__image_reader_decode(const lc__image_source *from, lc__image_reader *r, int64_t i) LC_MUST_USE;
/* Reads sample i as a batch has it. */
lc_status lc__image_reader_read(const lc__image_source *from, lc__image_reader *r, int64_t i, uint64_t key,
                                uint8_t *out) LC_MUST_USE;
void lc__image_reader_free(lc__image_reader *r);

#endif
