/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files, as the checkpoint writer and the fuzzer need them. */
#ifndef LC_SAFETENSORS_SAFETENSORS_IMPL_H
#define LC_SAFETENSORS_SAFETENSORS_IMPL_H

#include "base/handle.h"
#include <lightc/safetensors.h>
#include "base/io.h"
#include "tensor/host_access.h"

#define LC__ST_MOST_HEADER 100000000u /* bytes; the limit of other readers, too */

/* The place of a range of elements of a tensor: in bytes, counted from its first element, in the order of `layout`. */
typedef struct lc__st_piece {
    int file;          /* of lc_safetensors.files */
    int64_t index;     /* of the tensor there that holds them */
    uint64_t at, size; /* bytes [at, at + size) */
} lc__st_piece;

/* An open file, or several that ranks wrote together and that look like one. */
struct lc_safetensors {
    lc__mark mark;
    const lc__io *io;
    int fd; /* -1 if there are several */
    char *path;
    bool converts;             /* numbers are converted to the type of the tensor that they are loaded into */
    lc_safetensor_info *infos; /* in the order of the data */
    int64_t n, capacity;
    int64_t *sorted; /* indices of the infos, ordered by name */
    lc_text_pair *metadata;
    int64_t n_metadata, metadata_capacity;
    /* For several files (join.c): */
    lc_safetensors **files;
    int n_files;
    lc__st_piece *pieces;   /* those of tensor i from first_piece[i] on, without holes; the last ends at [n] */
    int64_t *first_piece;   /* [n + 1] */
    unsigned char *layouts; /* of tensor i in the files */
};

/* The key of "__metadata__" under which a file says which elements of which tensors it holds, if these are not all: a
 * JSON array of {"name", "shape", "first", "layout"}, where the tensor of that name is one-dimensional. */
#define LC__ST_RANGES "ranges"

/* The layout of a file to be written. */
typedef struct lc__st_layout {
    char *header; /* length, JSON and padding */
    size_t header_bytes;
    uint64_t total;   /* bytes of the file */
    int64_t *order;   /* entry numbers in the order of their data; every entry's data follows the one before it */
    uint64_t *offset; /* of entry i's data, from the start of the file */
} lc__st_layout;

/* Checks names, shapes and sizes; `what` names the file in messages. */
lc_status lc__st_layout_make(const char *what, int64_t n, const lc_named_tensor *tensors, int n_metadata,
                             const lc_text_pair *metadata, lc__st_layout *out);
void lc__st_layout_release(lc__st_layout *layout);

/* Maps a tensor whose value is whole and row-major in memory; NULL, and nothing is mapped, if it is not. */
void *lc__st_map(lc_tensor *t, lc__access access);
/* The type of an entry. */
const lc_type *lc__st_type(const lc_named_tensor *t);
/* Elements and bytes of a type; false if they do not fit 63 bits or the type is not valid. */
bool lc__type_bytes(const lc_type *type, uint64_t *bytes);

/* The tensors of n files as one, known as `path` in messages. Every tensor must be there without holes and overlaps.
 * Takes ownership of the files, also on failure. */
lc_status lc__st_join(const char *path, int n, lc_safetensors **files, lc_safetensors **out);
/* Bytes [offset, offset + count) of tensor i of joined files, row-major. The caller has checked the arguments. */
lc_status lc__st_read_joined(lc_safetensors *f, int64_t i, uint64_t offset, void *data, size_t count);
/* Sorts infos by name. */
lc_status lc__st_index(lc_safetensors *f);

/* Opens with another lc__io than the system's. */
lc_status lc__st_open(const lc__io *io, const char *path, lc_safetensors **out);
/* Whether a file that begins with these bytes was written by torch.save: an archive, or a pickle. */
bool lc__st_is_torch(const unsigned char first[8]);
/* Checks a header of n bytes of JSON in a file of file_bytes bytes; the result has no file to read from. */
lc_status lc__st_parse(const char *path, const char *json, uint64_t n, uint64_t file_bytes, lc_safetensors **out);
/* Checks a whole file in memory; the result has none to read from. */
lc_status lc__st_parse_file(const char *path, const unsigned char *bytes, uint64_t size, lc_safetensors **out);

/* From now on numbers are converted, or not, to the type of the tensor that they are loaded into; without, a type that
 * differs is an error. */
void lc__safetensors_convert(lc_safetensors *f, bool on);
/* lc_safetensors_load_all; may_be_left says of a tensor of the file that is not in the list that it need not be. */
lc_status lc__safetensors_load_all(lc_safetensors *f, int64_t n, const lc_named_tensor *tensors,
                                   bool (*may_be_left)(const char *name)) LC_MUST_USE;

#endif
