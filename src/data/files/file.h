/* SPDX-License-Identifier: Apache-2.0 */
/* Files of arrays, as their kinds and what reads them see them. */
#ifndef LC_DATA_FILES_FILE_H
#define LC_DATA_FILES_FILE_H

#include "base/handle.h"
#include "data/data_internal.h"
#include <lightc/array_file.h>

/* An array of a file. Its elements are in memory, or the kind reads them (lc__file_kind.read). */
typedef struct lc__file_array {
    lc_array_info info; /* the name is the array's own; type and dtype are those of `number` */
    lc__number number;
    bool swapped;                /* numbers in the other byte order */
    char *refused;               /* why the numbers cannot be read: "has complex numbers; ..."; NULL: they can */
    const char *data;            /* of the first element; NULL: not yet, or never */
    int64_t stride[LC_MAX_DIMS]; /* bytes from one element to the next, in each dimension */
    void *owned;                 /* memory that is freed with the file: of classes, or of data */
    const char **classes;        /* of a column of texts */
    uint64_t place[4];           /* of the kind */
} lc__file_array;

typedef struct lc__file_kind {
    bool (*matches)(const lc_array_file *f);
    /* Adds the arrays. */
    lc_status (*read_header)(lc_array_file *f);
    /* Gets the elements of an array into memory, if they are not; NULL: they always are. */
    lc_status (*load)(lc_array_file *f, lc__file_array *a);
    /* For arrays that are never in memory: elements of samples [first, first + n), row-major, in this machine's byte
     * order. Any thread may call it. */
    lc_status (*read)(const lc_array_file *f, const lc__file_array *a, int64_t first, int64_t n, void *to);
    void (*free)(lc_array_file *f);
} lc__file_kind;

struct lc_array_file {
    lc__mark mark;
    atomic_long refs; /* the handle's and the datasets' */
    char *path;
    const lc__file_kind *kind;
    const unsigned char *bytes; /* the file */
    size_t size;
    bool mapped;
    lc__file_array *arrays;
    int64_t n, capacity;
    void *state;                    /* of the kind */
    const lc_array_file_args *args; /* while it is opened */
};

extern const lc__file_kind lc__npy_kind, lc__npz_kind, lc__tokens_kind, lc__csv_kind, lc__safetensors_kind,
    lc__hdf5_kind;

/* A file in memory, for fuzzers; `path` decides its kind where bytes do not. The bytes must outlive it. */
lc_status lc__array_file_of(const char *path, const void *bytes, size_t size, const lc_array_file_args *args,
                            lc_array_file **out) LC_MUST_USE;
lc_array_file *lc__array_file_ref(lc_array_file *f);
void lc__array_file_unref(lc_array_file *f);

/* An error about array `name` of the file, or about the file if it is NULL or "". */
lc_status lc__file_fail(const lc_array_file *f, lc_status status, const char *name, const char *format, ...)
    LC_PRINTF(4, 5);
/* Adds an array; its name is copied. */
lc_status lc__file_add(lc_array_file *f, const char *name, size_t n, lc__file_array **out) LC_MUST_USE;
/* Takes note that the numbers of an array cannot be read. */
lc_status lc__file_refuse(lc__file_array *a, const char *format, ...) LC_PRINTF(2, 3);
/* Sets strides for row-major or Fortran order. *bytes: of all elements. False: more than 2^62. The shape must be set.
 */
bool lc__file_strides(lc__file_array *a, bool fortran, uint64_t *bytes);

/* The header of an .npy in the n bytes at `bytes`: sets everything of `a` except its data. *header: where the elements
 * begin; *data_bytes: how long they are. n may be less than the file, which has `whole` bytes. */
lc_status lc__npy_header(const lc_array_file *f, const unsigned char *bytes, size_t n, uint64_t whole,
                         lc__file_array *a, uint64_t *header, uint64_t *data_bytes) LC_MUST_USE;

/* How samples of an array become numbers of a batch. */
typedef struct lc__part {
    const lc_array_file *file;
    const lc__file_array *array;
    const char *data; /* NULL: the kind reads */
    int64_t stride;   /* bytes from sample to sample */
    int64_t samples;
    bool direct; /* the elements of a sample are side by side, in this machine's byte order */
    bool swapped;
    int ndim; /* of a sample; 1 if its elements are side by side */
    int64_t shape[LC_MAX_DIMS], strides[LC_MAX_DIMS];
    int64_t numel; /* of a sample */
    size_t size;   /* of an element */
    size_t to_size;
    lc__convert_fn *convert; /* NULL: a plain copy */
    double scale, shift;
} lc__part;

/* Gets the array into memory, if its kind does that. `to` 0: as in the file. */
lc_status lc__part_init(lc__part *p, lc_array_file *f, int64_t i, lc_dtype to, double scale, double shift) LC_MUST_USE;
/* Converts a sample whose first element is at `from`. */
void lc__part_convert(const lc__part *p, const char *from, char *to);
/* The same for samples [first, first + n), one after the other. Without p->data `scratch` has room for `room` of them,
 * at least one, and as many are read at once. */
lc_status lc__part_read(const lc__part *p, int64_t first, int64_t n, char *to, void *scratch, int64_t room) LC_MUST_USE;

#endif
