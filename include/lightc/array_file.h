/* SPDX-License-Identifier: Apache-2.0 */
/* Data from files of arrays: NumPy's .npy and .npz; tokens in a .bin, as nanoGPT (16-bit numbers) and llm.c (after a
 * header) write them; CSV (.csv, .tsv), each column of which is an array;
 * safetensors; HDF5, each dataset of which is an array ("train/images"). WAV files are not read.
 *
 * A file is opened, knows its arrays (name, type of the numbers, shape), and gives datasets, whose samples are written
 * from the mapped file straight into the batch:
 *
 *     lc_array_file *f;
 *     lc_dataset *data;
 *     LC_TRY(lc_array_file_open("digits.npz", &f));
 *     lc_file_field fields[] = {{.name = "x", .file = f, .arrays = "images", .to = LC_F32, .scale = 1 / 255.0},
 *                               {.name = "y", .file = f, .arrays = "labels", .to = LC_I64}};
 *     LC_TRY(lc_file_dataset_new(2, fields, &data));
 *     lc_array_file_close(f); // the dataset keeps what it needs
 *
 * The first dimension of an array counts samples, the others are a sample's shape. Files are mapped, not read: memory
 * holds what the system caches of them. Only deflated arrays of an .npz are kept in memory, from their first use on,
 * and the table of a CSV file. HDF5 datasets in chunks, or in another byte order, are read by libhdf5, one thread at a
 * time: the samples of a batch are read in the file's order, so that samples of one chunk share the work of
 * decompressing it, and up to 64 MiB of chunks are kept for each dataset. A program that uses libhdf5 itself at the
 * same time needs one that is built for threads. A file must not become shorter while it is open: the system ends a
 * process that reads past its end.
 *
 * Nothing in a file is trusted: sizes and places are checked against each other and against the length of the file
 * before they are used. An error names the file and the array. */
#ifndef LIGHTC_ARRAY_FILE_H
#define LIGHTC_ARRAY_FILE_H

#include <lightc/data.h>

LC_BEGIN_DECLS

/* An open file. One thread at a time may call its functions; its datasets may be read by any. */
typedef struct lc_array_file lc_array_file;

/* How a CSV file is read; other kinds ignore these. */
typedef struct lc_array_file_args {
    size_t size;
    lc_choice header; /* the first row has the names of the columns; LC_AUTO: if none of its values is a number, nor
                         missing. Without a header columns are named "0", "1", ... */
    char delimiter;   /* 0: a tab in files that end in .tsv, else a comma; an error if each line has another one, or if
                         numbers have only blanks between them */
    double missing;   /* what empty values, NA and NaN stand for in columns of numbers; LC_NOT_GIVEN: they are errors.
                         If it is given, an empty value in a column of texts is the empty text */
    const char *text; /* columns of texts even if they look like numbers, as in lc_file_field.arrays */
} lc_array_file_args;
LC_DEFAULTS(lc_array_file, lc_array_file_args, .header = LC_AUTO, .missing = LC_NOT_GIVEN)

/* Opens a file and checks its header. The kind is known by the file's first bytes, or else by the end of
 * its name. LC_ERR_NOT_FOUND, LC_ERR_FORMAT. */
#define lc_array_file_open(path, ...) LC_CALL_NEW_(lc_array_file_open, lc_array_file, (path, ), __VA_ARGS__, )
LC_API lc_status lc_array_file_open_with(const char *path, lc_array_file **out,
                                         const lc_array_file_args *args) LC_MUST_USE;
LC_API void lc_array_file_close(lc_array_file *f); /* NULL is fine; datasets made of it stay valid */
LC_API const char *lc_array_file_path(const lc_array_file *f);

typedef struct lc_array_info {
    const char *name; /* borrowed from the file; "" in an .npy, which has one array without a name; "tokens" in a
                         .bin */
    const char *type; /* of its numbers: "f32", "u16"; NULL: lightc cannot read them, and says why when they are used */
    lc_dtype dtype;   /* the same; 0 if lightc has no tensors of this type: i8, u16, i16, u32, u64 */
    int ndim;         /* 0: a number, which has no samples */
    int64_t shape[LC_MAX_DIMS]; /* samples first */
    int64_t classes;            /* of a CSV column of texts: how many different ones there are; else 0 */
} lc_array_info;

LC_API int64_t lc_array_file_count(const lc_array_file *f); /* arrays in the file */
/* Array i in the order of the file, or NULL. Borrowed. */
LC_API const lc_array_info *lc_array_file_info(const lc_array_file *f, int64_t i);
/* Its number, or -1. */
LC_API int64_t lc_array_file_find(const lc_array_file *f, const char *name);
/* The text of class k of array i, a CSV column of texts; NULL if there is none. Borrowed. Classes are sorted by their
 * bytes, so that files with the same texts give them the same numbers. */
LC_API const char *lc_array_file_class(const lc_array_file *f, int64_t i, int64_t k);
/* Samples [first, first + n) of array i as numbers of type `to`, row-major, into `data` of exactly `bytes` bytes. An
 * array without dimensions is one sample. */
LC_API lc_status lc_array_file_read(lc_array_file *f, int64_t i, int64_t first, int64_t n, lc_dtype to, void *data,
                                    size_t bytes) LC_MUST_USE;

/* A field of a sample. */
typedef struct lc_file_field {
    const char *name;    /* REQUIRED: "x" */
    lc_array_file *file; /* REQUIRED; fields may come from different files */
    const char *arrays;  /* the name of an array; or several, with commas between them, of one dimension each, which are
                            put side by side ("width,height" -> [2]; a name with a comma is quoted as in CSV); "*": all
                            that no other field of this file names. NULL: the only array of the file, or else the one
                            named as the field */
    lc_dtype to;         /* type in the batch; 0: as in the file. Conversions are those of lc_array */
    lc_layout layout;    /* LC_CHANNELS_LAST: a sample is H,W,C in the file and in the batch, and the field's shape is
                            C,H,W */
    double scale, shift; /* float results are value * scale + shift; scale 0: 1 */
    void *reserved[2];
} lc_file_field;

/* A dataset of fields that have the same number of samples. Allocates nothing per sample, and reads of the files what
 * the samples need. Arrays in Fortran order, whose samples are spread over the whole file, are read as they are: slowly
 * if they are large. */
LC_API lc_status lc_file_dataset_new(int n, const lc_file_field *fields, lc_dataset **out) LC_MUST_USE;

/* ---- tokens ---- */

typedef struct lc_file_windows_args {
    size_t size;
    const char *array;  /* the array of tokens, of one dimension and any type of whole numbers except u64; NULL: the
                           only one */
    int64_t window;     /* REQUIRED: tokens of a sample */
    int64_t stride;     /* from window to window; LC_UNSET: `window`, so that each token is predicted once */
    int64_t begin, end; /* the tokens that are used: [begin, end); end LC_UNSET: to the last one */
    int64_t random;     /* samples of an epoch, each a window from a random place, as nanoGPT has them; 0: all windows
                           in order */
} lc_file_windows_args;
LC_DEFAULTS(lc_file_windows, lc_file_windows_args, .stride = LC_UNSET, .end = LC_UNSET)

/* Windows over the tokens of a file, which may be any kind of file: x = tokens[s .. s+T), y = tokens[s+1 .. s+T+1),
 * both i64 [T]. Windows in order begin at s = begin + i * stride, and a loader shuffles them. Random places depend only
 * on the sample's key, so on seed, epoch and number of the sample: the same for any number of workers and ranks, and
 * after a resume. Several files are joined by lc_dataset_concat. */
#define lc_file_windows_new(file, ...) LC_CALL_NEW_(lc_file_windows_new, lc_file_windows, (file, ), __VA_ARGS__, )
LC_API lc_status lc_file_windows_new_with(lc_array_file *f, lc_dataset **out,
                                          const lc_file_windows_args *args) LC_MUST_USE;

LC_END_DECLS
#endif
