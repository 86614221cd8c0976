/* SPDX-License-Identifier: Apache-2.0 */
/* Data: datasets, transforms, samplers and the loader that makes batches of them.
 *
 * A dataset knows how many samples it has, what a sample consists of (a list of named fields, each with a dtype and a
 * shape), and writes sample i, in its final dtype and layout, straight into the slot of a batch. The loader decides the
 * order (a sampler), gathers batches (on the calling thread, or on worker threads ahead of time) into buffers that it
 * reuses, and hands them out as lc_batch.
 *
 * Two rules make runs repeatable:
 * - the order of an epoch depends only on (seed, epoch), never on the number of workers;
 * - what is random in a sample (crops, flips) depends only on the sample's key, which is a function of (seed, epoch,
 *   index). Nothing here has hidden random state, so a position in the data is two numbers: epoch and batch.
 *
 * Ownership: datasets are reference counted; a dataset made of others (subset, concat, ...) holds references of its
 * own, so the maker may unref its handles at once. */
#ifndef LIGHTC_DATA_H
#define LIGHTC_DATA_H

#include <lightc/args.h>
#include <lightc/span.h>
#include <lightc/batch.h>
#include <lightc/random.h>

LC_BEGIN_DECLS

/* ================================================= samples ==================================================== */

/* One tensor of a sample. The batch's tensor has the batch dimension in front. */
typedef struct lc_field {
    const char *name; /* "x", which no other field has; borrowed from the dataset (static, or lives as long as it) */
    lc_dtype dtype;   /* 0: f32 */
    lc_layout layout; /* of the batch: LC_CHANNELS_LAST stores a C,H,W sample as H,W,C */
    int ndim;         /* 0: a number per sample; the batch's tensor is then [B] */
    int64_t
        shape[LC_MAX_DIMS - 1]; /* logical: images C,H,W; 0: a size in which samples differ (lc_dataset_ops.sizes) */
} lc_field;

typedef struct lc_sample_spec {
    int n;
    lc_field fields[LC_MAX_BATCH_TENSORS];
} lc_sample_spec;

/* Elements and bytes of one sample of a field. */
LC_API int64_t lc_field_numel(const lc_field *f);
LC_API size_t lc_field_bytes(const lc_field *f);

/* ================================================= datasets =================================================== */

typedef struct lc_dataset lc_dataset;

/* Where the time of a loader went since it was made, in seconds. */
typedef struct lc_loader_times {
    double waited;                     /* the caller of next waited for a batch, or made it itself */
    double gathered;                   /* all threads made batches */
    double read, decoded, transformed; /* what of `gathered` the dataset knows; the rest is copies and other work */
    int64_t batches;                   /* that next gave */
    int workers;                       /* its threads */
    int64_t bytes;                     /* of memory that its batches have now */
} lc_loader_times;

/* A dataset's vtable. All functions except `free` may be called by several threads at once and must not change `self`:
 * a dataset has no state (a stream of data is an lc_dataloader_ops). */
typedef struct lc_dataset_ops {
    size_t size; /* LC_DATASET_OPS_INIT */
    const char *name;
    /* ---- REQUIRED ---- */
    /* How many samples there are. Constant. */
    int64_t (*length)(void *self);
    /* The fields of a sample. Called once, when the dataset is made. */
    lc_status (*describe)(void *self, lc_sample_spec *spec);
    /* Writes sample `index` (0 <= index < length): field f to out[f], exactly lc_field_bytes of it, which need not be
     * aligned beyond its dtype. `key` is the sample's own random key. `scratch` is scratch_size() bytes of this thread,
     * 64-byte aligned, NULL if 0. Must not allocate in the steady state. */
    lc_status (*get)(void *self, int64_t index, uint64_t key, void *const *out, void *scratch);
    /* ---- OPTIONAL ---- */
    /* Writes `n` samples one after the other: sample j of field f at out[f] + j * lc_field_bytes. Default: get, n
     * times. A program with its own way to collate overrides this. */
    lc_status (*get_many)(void *self, int n, const int64_t *indices, const uint64_t *keys, void *const *out,
                          void *scratch);
    /* Bytes of scratch memory that get and get_many want. Default: 0. */
    size_t (*scratch_size)(void *self);
    void (*free)(void *self);
    /* After get has written sample `index`: why that was the data of another sample, since its own cannot be read, or
     * NULL: they are its own. The text lives as long as the dataset. Default: NULL. */
    const char *(*replaced)(void *self, int64_t index);
    /* The sizes in which sample `index` differs from others: replaces the zeros of the field's shape in `sizes`. get
     * writes a field of these sizes. Called for all samples of an epoch when it begins, so it should read no files.
     * REQUIRED if a field has such sizes; get_many is then not called. */
    lc_status (*sizes)(void *self, int64_t index, int field, int64_t *sizes);
    /* Adds how long all threads have read, decoded and transformed, for whichever loader. Worth a clock only for
     * samples that take long. Default: unknown. */
    void (*times)(void *self, lc_loader_times *add);
    /* Returns the name of the file that sample `index` is read from, "cat/001.jpg", for messages. The text lives as
     * long as the dataset. Default: unknown (NULL). */
    const char *(*source)(void *self, int64_t index);
} lc_dataset_ops;

#define LC_DATASET_OPS_INIT .size = sizeof(lc_dataset_ops)

/* A dataset of the program's own. Takes `self` over, also when it fails (then `free` is called). */
LC_API lc_status lc_dataset_new(const lc_dataset_ops *ops, void *self, lc_dataset **out) LC_MUST_USE;
LC_API lc_dataset *lc_dataset_ref(lc_dataset *d); /* returns d */
LC_API void lc_dataset_unref(lc_dataset *d);      /* NULL is fine */

LC_API const char *lc_dataset_name(const lc_dataset *d);           /* lc_dataset_ops.name: in messages */
LC_API int64_t lc_dataset_length(const lc_dataset *d);             /* samples */
LC_API const lc_sample_spec *lc_dataset_spec(const lc_dataset *d); /* borrowed */
LC_API size_t lc_dataset_scratch_size(const lc_dataset *d);        /* bytes that reading a sample needs */
/* Why sample `index`, which was read before, has the data of another one (see lc_dataset_ops); NULL: it has its own. */
LC_API const char *lc_dataset_replaced(const lc_dataset *d, int64_t index);
/* The sizes of a field in sample `index`: those of the spec, except the ones in which samples differ. `sizes` has room
 * for LC_MAX_DIMS - 1. */
LC_API lc_status lc_dataset_sizes(lc_dataset *d, int64_t index, int field, int64_t *sizes) LC_MUST_USE;
/* Sample `index`, for programs and wrappers: bounds checked, errors name the index. As lc_dataset_ops.get: out[f] is
 * memory for field f, and `scratch` lc_dataset_scratch_size bytes, 64-byte aligned (NULL if 0). */
LC_API lc_status lc_dataset_get(lc_dataset *d, int64_t index, uint64_t key, void *const *out,
                                void *scratch) LC_MUST_USE;
LC_API lc_status lc_dataset_get_many(lc_dataset *d, int n, const int64_t *indices, const uint64_t *keys,
                                     void *const *out, void *scratch) LC_MUST_USE;
/* Convenience: reads one sample and allocates its own scratch memory. */
LC_API lc_status lc_dataset_read(lc_dataset *d, int64_t index, uint64_t key, void *const *out) LC_MUST_USE;

/* ---- arrays in memory ---- */

/* One field over an array of samples in memory, contiguous in the field's layout. Arrays may be converted on the way
 * into the batch (see `to`), so that images stay small in memory. */
typedef struct lc_array {
    lc_field field; /* name, dtype (as in memory), layout, shape */
    const void *data;
    lc_dtype to;  /* dtype in the batch; 0: as in memory. All become floats (f32, f64, f16, bf16), and whole numbers
                     become those that hold all their values (u8 -> i32, i64; i32 -> i64; bool -> u8, i32, i64) */
    double scale; /* float results are value * scale + shift; 0: 1. (x/255 - mean)/std is scale 1/(255 std), */
    double shift; /* shift -mean/std */
    void (*free)(void *data); /* NULL: the memory is borrowed and must outlive the dataset; else called when the dataset
                                 is freed */
    /* Samples of different lengths: sample i is rows [offsets[i], offsets[i+1]) of `data`, and field.shape[0] is 0. n +
     * 1 numbers, which belong to the caller and must outlive the dataset. NULL: all samples have the same shape. */
    const int64_t *offsets;
    void *reserved[2];
} lc_array;

/* `n` samples; takes arrays with a `free` over, also when it fails. */
LC_API lc_status lc_array_dataset_new(int64_t n, int n_arrays, const lc_array *arrays, lc_dataset **out) LC_MUST_USE;

/* ---- IDX files (MNIST and its relatives) ---- */

/* A parsed IDX file: `shape` is the file's, numbers are in this machine's byte order; s8 and i16 become i32. */
typedef struct lc_idx {
    lc_dtype dtype;
    int ndim;
    int64_t shape[LC_MAX_DIMS];
    void *data;
    size_t bytes;
    void *reserved;
} lc_idx;

/* Reads a plain or gzip-compressed IDX file (known by its first bytes, not its name). Strict: the sizes in the header
 * must be exactly those of the data. */
LC_API lc_status lc_idx_read(const char *path, lc_idx *out) LC_MUST_USE;
/* The same from memory; `name` is for messages. */
LC_API lc_status lc_idx_parse(const void *bytes, size_t size, const char *name, lc_idx *out) LC_MUST_USE;
LC_API void lc_idx_release(lc_idx *idx);

typedef struct lc_idx_args {
    size_t size;
    double mean, std; /* images as (x/255 - mean)/std in f32 */
    bool raw;         /* images stay u8 (for transforms that want bytes) */
} lc_idx_args;
LC_DEFAULTS(lc_idx, lc_idx_args, .std = 1)

/* Images (u8, [N,H,W] or [N,C,H,W]; a missing channel dimension is added) as "x", labels (u8, [N]) as "y" in i64. */
#define lc_idx_dataset_new(images, labels, ...)                                                                        \
    LC_CALL_NEW_(lc_idx_dataset_new, lc_idx, (images, labels, ), __VA_ARGS__, )
LC_API lc_status lc_idx_dataset_new_with(const char *images, const char *labels, lc_dataset **out,
                                         const lc_idx_args *args) LC_MUST_USE;
/* The four files of MNIST or Fashion-MNIST in `dir` (train-images-idx3-ubyte, with or without .gz, ...), read on
 * several threads at once. `train` or `test` may be NULL. */
#define lc_mnist_load(dir, train, ...) LC_CALL_NEW_(lc_mnist_load, lc_idx, (dir, train, ), __VA_ARGS__, )
LC_API lc_status lc_mnist_load_with(const char *dir, lc_dataset **train, lc_dataset **test,
                                    const lc_idx_args *args) LC_MUST_USE;

/* ---- text ---- */

/* A text and the vocabulary of its bytes: token i is the i-th smallest byte value that occurs in it. */
typedef struct lc_text lc_text;

/* The bytes of a file; an empty one is an error. */
LC_API lc_status lc_text_read(const char *path, lc_text **out) LC_MUST_USE;
LC_API lc_status lc_text_new(const void *bytes, size_t size, lc_text **out) LC_MUST_USE; /* copies */
LC_API void lc_text_free(lc_text *t);                                 /* datasets made of it stay valid */
LC_API int lc_text_vocabulary(const lc_text *t);                      /* how many tokens there are */
LC_API int64_t lc_text_length(const lc_text *t);                      /* tokens of the text: its bytes */
LC_API int lc_text_encode(const lc_text *t, unsigned char c);         /* -1: c does not occur */
LC_API unsigned char lc_text_decode(const lc_text *t, int64_t token); /* '?' for one that does not exist */

/* Windows over the tokens [begin, end) (end LC_UNSET: to the end): sample i is x = tokens[s .. s+T), y = tokens[s+1 ..
 * s+T+1), both i64 [T], with s = begin + i * stride. stride LC_UNSET: T (contiguous, each token predicted once). */
LC_API lc_status lc_text_windows(lc_text *t, int64_t begin, int64_t end, int64_t window, int64_t stride,
                                 lc_dataset **out) LC_MUST_USE;

/* ---- made of other datasets ---- */

/* The samples `indices` (copied) of `d`. */
LC_API lc_status lc_dataset_subset(lc_dataset *d, const int64_t *indices, int64_t n, lc_dataset **out) LC_MUST_USE;
/* Cuts `d` at random (depending only on `seed`) into `n` parts of `sizes`, which must add up to its length: out[0] to
 * out[n - 1]. */
LC_API lc_status lc_dataset_split(lc_dataset *d, uint64_t seed, int n, const int64_t *sizes,
                                  lc_dataset **out) LC_MUST_USE;
/* Concatenated; the fields must be the same. */
LC_API lc_status lc_dataset_concat(lc_dataset *const *parts, int n, lc_dataset **out) LC_MUST_USE;

/* ================================================ transforms ================================================== */

/* A part of a picture: from row `top` and column `left` on. */
typedef struct lc_box {
    int64_t top, left, height, width;
} lc_box;

/* A transform changes one field of a sample. It is a pure function of the sample and its key.
 * To add one to lightc: src/data/transforms, and its constructor in transforms.h. */
typedef struct lc_transform_ops {
    size_t size; /* LC_TRANSFORM_OPS_INIT */
    const char *name;
    /* ---- REQUIRED ---- */
    /* The output field for an input field, or an error that says what the transform expects. A height or width of 0 is
     * not known yet, since pictures differ (lc_image_args.transform); sizes that follow from it are 0 as well. It is
     * asked again with a sample's own sizes. */
    lc_status (*describe)(void *self, const lc_field *in, lc_field *out);
    /* `src` and `dst` never overlap. */
    lc_status (*apply)(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst, uint64_t key,
                       void *scratch);
    /* ---- OPTIONAL ---- */
    size_t (*scratch_size)(void *self, const lc_field *in);
    void (*free)(void *self);
    /* How far a picture may be reduced before this transform without being enlarged by it: a factor of its sides, from
     * 0 to 1. For lc_image_args.fast_scale. Default: 1. */
    double (*least_scale)(void *self, const lc_field *in, uint64_t key);
    /* Which part of the picture `in`, of at least one pixel, apply reads; what is outside of it may then be anything,
     * which saves decoding it. `part` is the whole picture before. Default: all of it. */
    void (*reads)(void *self, const lc_field *in, uint64_t key, lc_box *part);
    /* As apply, for a `dst` that is not read soon, since it is a large sample of a batch: it may be written past the
     * caches (the fence is the library's). Default: apply. */
    lc_status (*apply_streaming)(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                 uint64_t key, void *scratch);
    /* Bytes of `self`, if it is plain data that may be copied: then lc_transform_batch can record the transform. It
     * must keep the layout, and apply must not fail for a field that describe accepts. Default: 0, it cannot. */
    size_t self_size;
    /* The result is the part of the picture that `reads` says, if that is as large as the result. Default: false. */
    bool cuts;
    /* A picture keeps its size and layout, and each row of the result depends on the same row of the picture and on no
     * other, so that apply may get some rows at a time: in a chain that begins with a transform that cuts, as they are
     * decoded. Default: false. */
    bool by_rows;
} lc_transform_ops;

#define LC_TRANSFORM_OPS_INIT .size = sizeof(lc_transform_ops)

typedef struct lc_transform {
    const lc_transform_ops *ops;
    void *self;
} lc_transform;

/* For one that was not taken over; NULL, and one that is zeroed, are fine. */
LC_API void lc_transform_release(lc_transform *t);

/* One after the other. Takes the parts over, also when it fails. */
LC_API lc_status lc_transform_compose(int n, const lc_transform *parts, lc_transform *out) LC_MUST_USE;

/* `d` with `t` applied to field `field` (0 = x). Transforms that are put on a field one after the other draw different
 * random numbers; the first ones of two fields draw the same. Takes `t` over, also when it fails: the next dataset, or
 * list, needs another one. */
LC_API lc_status lc_dataset_transform(lc_dataset *d, int field, lc_transform t, lc_dataset **out) LC_MUST_USE;

/* `d` with a last field "key" (i64): a random key of each sample in this epoch, for lc_transform_batch. It is none of
 * those that transforms of the loader draw from. */
LC_API lc_status lc_dataset_keys(lc_dataset *d, lc_dataset **out) LC_MUST_USE;

/* ================================================= samplers =================================================== */

/* Decides which samples an epoch has, in which order. When LC_MAX_SIZE_CYCLE has restarted a loader k times within an
 * epoch, its sampler gets that epoch + k * 2^32, so that each cycle can have an order of its own. */
typedef struct lc_sampler_ops {
    size_t size; /* LC_SAMPLER_OPS_INIT */
    const char *name;
    /* ---- REQUIRED ---- */
    /* How many samples `epoch` has. */
    int64_t (*length)(void *self, int64_t epoch);
    /* Writes them: n = length(epoch) indices. A pure function of self and epoch, so that a run can be resumed. */
    lc_status (*order)(void *self, int64_t epoch, int64_t n, int64_t *indices);
    /* ---- OPTIONAL ---- */
    void (*free)(void *self);
} lc_sampler_ops;

#define LC_SAMPLER_OPS_INIT .size = sizeof(lc_sampler_ops)

typedef struct lc_sampler {
    const lc_sampler_ops *ops;
    void *self;
} lc_sampler;

/* For one that was not taken over; NULL, and one that is zeroed, are fine. */
LC_API void lc_sampler_release(lc_sampler *s);
/* The samples 0 to n - 1, in order, and at random, in another order each epoch. */
LC_API lc_status lc_sampler_sequential(int64_t n, lc_sampler *out) LC_MUST_USE;
LC_API lc_status lc_sampler_random(int64_t n, uint64_t seed, lc_sampler *out) LC_MUST_USE;
/* The permutation that lc_sampler_random and `shuffle` use: of 0..n-1, a function of (seed, epoch). */
LC_API void lc_random_permutation(uint64_t seed, int64_t epoch, int64_t n, int64_t *out);

/* ================================================== shares ==================================================== */

/* Which rank's share of the data a loader gives. The batch_size of a loader is that of one rank; together the ranks
 * have a *global batch*. Global batch b of an epoch equals batch b of a single process whose loader has the size of the
 * global batch: the same samples in the same order, since the order depends only on (seed, epoch). It is cut into one
 * share a rank, without gaps or overlaps, in the order of ranks, and as evenly as possible. So all ranks have the same
 * number of batches, and every sample is seen exactly once, in training and in evaluation; no sample is repeated to
 * make shares equal. In the last global batch of an epoch shares may differ by one sample, and are empty on some ranks
 * if there are fewer samples than ranks; drop_last drops that batch on all ranks. */
typedef struct lc_share {
    int rank, size; /* this rank, of how many */
    int batches;    /* a global batch has `batches` times batch_size samples; 0: `size`, or, if the remaining ranks
                       continue after others were lost (max_restarts), the number of ranks before. A run that continues
                       with another number of ranks keeps its steps by setting the earlier number. */
    int64_t pieces; /* 0: shares are as even as possible. Else a full global batch is cut into that many pieces of equal
                       size (the last may be smaller), and shares consist of whole pieces: for sums over a batch in a
                       fixed order of parts. Each rank has ceil(pieces / size) of them, so a smaller last batch of an
                       epoch fills one rank after the other. */
    void *reserved[2];
} lc_share;

/* For a program's own loaders, and to know the shares of other ranks; `share` must be valid (lc_dataloader_share checks
 * it). `full`: samples of a full global batch, batch_size * share->batches. */
/* The rank's range [*begin, *begin + *n) of a global batch of `samples` <= full: without pieces [rank * samples / size,
 * (rank + 1) * samples / size), rounded down. */
LC_API void lc_share_range(const lc_share *share, int64_t full, int64_t samples, int64_t *begin, int64_t *n);
/* Samples in a piece (lc_batch.piece); 0: there are no pieces. */
LC_API int64_t lc_share_piece(const lc_share *share, int64_t full);

/* ================================================== loaders =================================================== */

typedef struct lc_dataloader lc_dataloader;

/* A loader of the program's own: anything that makes batches one after the other. Called on the training thread. */
typedef struct lc_dataloader_ops {
    size_t size; /* LC_DATALOADER_OPS_INIT */
    const char *name;
    /* ---- REQUIRED ---- */
    /* An epoch starts, at its batch `start` (0, except after a resume). Batches of an earlier epoch are no longer
     * valid. A loader with save/load gets load() before this when a run is resumed, and may then ignore `start`. */
    lc_status (*begin)(void *self, int64_t epoch, int64_t start);
    /* The next batch, which the loader owns and may reuse at the next call; *out = NULL at the end. */
    lc_status (*next)(void *self, lc_batch **out);
    /* ---- OPTIONAL ---- */
    /* Batches of `epoch`, or -1: unknown until its end (the default). */
    int64_t (*length)(void *self, int64_t epoch);
    /* The epoch is over, perhaps early. */
    void (*end)(void *self);
    /* State beyond (epoch, batch): stored in checkpoints. *size in: the room in `data` (0 with data NULL asks for the
     * size); out: the bytes. Each rank gets its own state back; if the states differ, the run can only continue with
     * the same number of ranks. */
    lc_status (*save)(void *self, void *data, size_t *size);
    lc_status (*load)(void *self, const void *data, size_t size);
    /* Samples in a full batch as the loader was made, even if it gives only a share of them since `share`; 0: unknown
     * (the default). */
    int64_t (*batch_size)(void *self);
    void (*free)(void *self);
    /* From the next epoch on samples come in the order of the dataset (on), or in the loader's own order again. Returns
     * whether the two differ. For overfit_batches. */
    bool (*sequential)(void *self, bool on);
    /* From now on the loader's threads report their work to `fn` (LC_SPAN_LOADER); NULL ends that. Called when no epoch
     * runs. */
    void (*observe)(void *self, lc_span_fn *fn, void *ctx);
    /* From the next epoch on the loader gives only this rank's shares: the same number of batches on every rank, empty
     * ones included (lc_batch.size 0), each with its global_size and global_offset. Rank 0 of 1 undoes that. The
     * defaults in `share` are resolved. Called when no epoch runs. Default: the loader can only give whole batches. */
    lc_status (*share)(void *self, const lc_share *share);
    /* A line of text about everything that must be equal on all ranks, so that each sees its share of the same data:
     * "96 samples of 'mnist' in batches of 4, random (seed 1)". As snprintf. Default: nothing. */
    int (*describe)(void *self, int64_t epoch, char *text, size_t size);
    /* For a loader that gives one rank's shares: replaces the last share from next by samples [begin, begin + n) of the
     * same global batch, with its global_size, and global_offset = begin. Combined loaders need this to cut all parts
     * in the same proportions. Default: not supported. */
    lc_status (*cut)(void *self, int64_t begin, int64_t n, lc_batch **out);
    /* Each rank's loader already gives different samples (its own stream, as Lightning's IterableDataset): the trainer
     * leaves it as it is, and shares only the program's other loaders. In place of `share`. */
    bool per_rank;
    /* How many samples of the batches since `begin` had the data of other samples, because their own cannot be read
     * (lc_dataset_ops.replaced); *why: why the first had. -1: none ever has (the default). */
    int64_t (*replaced)(void *self, const char **why);
    /* Adds where its time went. Default: unknown. */
    void (*times)(void *self, lc_loader_times *add);
} lc_dataloader_ops;

#define LC_DATALOADER_OPS_INIT .size = sizeof(lc_dataloader_ops)

/* How the samples of a batch are mixed, as torchvision's v2.MixUp and v2.CutMix do: each with the one before it, the
 * first with the last, in one proportion for the batch, from the Beta distribution. */
typedef enum lc_mix {
    LC_MIX_NONE = 0,
    LC_MIXUP,           /* x and y are weighted sums */
    LC_CUTMIX,          /* a rectangle of x comes from the other sample, and y in proportion */
    LC_MIXUP_OR_CUTMIX, /* one of them at random, for each batch */
} lc_mix;

/* Where samples that are smaller than the batch are filled up. */
typedef enum lc_pad_side { LC_PAD_RIGHT = 0, LC_PAD_LEFT } lc_pad_side;

/* A program's own way to make batches of samples of different sizes, in place of padding. Both are called by several
 * threads at once, and must give the same for the same arguments. */
/* The shape of a field in a batch: `batch` has the largest sizes of the batch's samples, as multiples of pad_multiple,
 * and may be changed where it differs between samples. A sample that is larger than this is cut off, unless
 * lc_collate_fn does otherwise. */
typedef lc_status lc_collate_sizes_fn(void *ctx, lc_field *batch);
/* Writes a sample, whose field is `sample`, to its place in the batch, which has the shape of `batch`. */
typedef lc_status lc_collate_fn(void *ctx, const lc_field *sample, const void *data, const lc_field *batch,
                                void *place);

/* For num_workers: one for each processor that this rank may keep busy, except for one that trains; at most 8. Counts
 * quotas of containers, and divides them among the ranks of a machine. */
#define LC_WORKERS_AUTO (-1)

/* The loader over a dataset. */
typedef struct lc_dataloader_args {
    size_t size;
    lc_dataset *dataset; /* REQUIRED; the loader holds a reference of its own */
    int64_t batch_size;
    bool shuffle;        /* in a random order, a new one each epoch */
    lc_sampler *sampler; /* instead of shuffle; the loader takes over what it points to, also when it fails */
    bool drop_last;      /* drop the last batch if it isn't full; else it is smaller */
    /* Threads that gather ahead. 0: the calling thread gathers, inside next, which is best for cheap samples on one or
     * two cores. */
    int num_workers;
    int prefetch;  /* batches each worker may be ahead, at least 1 */
    uint64_t seed; /* of the order and of the samples' keys */
    /* Samples must be x in f32 and y in f32 [classes] (lc_transform_one_hot on field 1); other fields stay. With
     * several ranks the global batch is mixed: a rank reads the sample before its share as well. */
    lc_mix mix;
    double mix_alpha;
    /* Samples of different sizes are filled up to the largest of the batch (of the global batch, with several ranks).
     * After its fields a batch has the lengths of each field that differs, "x_lengths", i64: [B], or [B,k] with k such
     * sizes. lc_length_mask makes a mask of them. */
    double pad_value;        /* what they are filled with */
    double target_pad_value; /* the same for the second field; default: pad_value. -100 is what losses ignore */
    lc_pad_side pad_side;
    int64_t pad_multiple; /* sizes are rounded up to multiples of it: a plan is made for each, and few are kept */
    lc_collate_sizes_fn *collate_sizes;
    lc_collate_fn *collate;
    void *collate_ctx; /* for both */
    /* In place of batch_size, for samples of different sizes: a batch has as many samples as have at most this many
     * tokens once they are padded. A sample's tokens are the product of the sizes that differ, in its longest field.
     * With several ranks a global batch has lc_share.batches times as many, and is cut into even numbers of samples. */
    int64_t max_tokens;
    /* Batches of samples of like length, which need little padding. With shuffle or a sampler, the samples of 50
     * batches are sorted together, and all batches come in a random order; else those of the dataset are, longest
     * first. */
    bool group_by_length;
    /* Seconds that next waits for a batch of the workers, after which it fails (LC_ERR_IO), for disks and services that
     * may hang; 0: forever. A worker that is late cannot be stopped: until it is done no epoch can begin, and if the
     * loader is freed before, the last worker frees its memory and releases the dataset. No effect without workers. */
    double timeout;
    bool pin_memory; /* accepted, without effect: batches are pinned wherever a device copies faster from such memory */
} lc_dataloader_args;
LC_DEFAULTS(lc_dataloader, lc_dataloader_args, .batch_size = 1, .prefetch = 2, .mix_alpha = 1,
            .target_pad_value = LC_NOT_GIVEN, .pad_multiple = 1)

/* lc_dataloader_new(&loader, .dataset = data, .batch_size = 64, .shuffle = true) */
#define lc_dataloader_new(...) LC_CALL_NEW_(lc_dataloader_new, lc_dataloader, (), __VA_ARGS__, )
LC_API lc_status lc_dataloader_new_with(lc_dataloader **out, const lc_dataloader_args *args) LC_MUST_USE;
/* How several loaders become one. */
typedef enum lc_combine {
    LC_MAX_SIZE_CYCLE = 0, /* until each has ended once; those that end earlier restart */
    LC_MIN_SIZE,           /* until the first ends */
    LC_MAX_SIZE,           /* until all have ended; the part of an ended loader is NULL */
    LC_SEQUENTIAL,         /* one after the other: plain batches, without parts */
} lc_combine;
/* A loader whose batches have one part of each loader (lc_batch.parts). Takes the loaders over, also when it fails.
 *
 * With several ranks (lc_dataloader_share) a rank has the same share of all parts, so that a sum of means over parts is
 * that of the whole batch: of 12 and 8 samples three ranks get 3 and 2, 3 and 2, 6 and 4. If one part has fewer samples
 * than there are ranks, some ranks get nothing of any part. If all parts have enough samples, but no common divisor as
 * large as the number of ranks (16 and 7, two ranks), each part is cut separately, as evenly as possible: samples then
 * have unequal weights, and the trainer warns. In pieces (lc_share.pieces) every part is cut in proportion to the first
 * one. */
LC_API lc_status lc_combined_loader_new(lc_combine mode, int n, lc_dataloader *const *loaders,
                                        lc_dataloader **out) LC_MUST_USE;

/* Takes `self` over, also when it fails. */
LC_API lc_status lc_dataloader_from_ops(const lc_dataloader_ops *ops, void *self, lc_dataloader **out) LC_MUST_USE;
LC_API void lc_dataloader_free(lc_dataloader *l); /* NULL is fine */

/* Starts an epoch at batch `start`: with the same (epoch, start) the same batches follow, bit for bit. */
LC_API lc_status lc_dataloader_begin(lc_dataloader *l, int64_t epoch, int64_t start) LC_MUST_USE;
/* *out: the next batch, borrowed until the next call on this loader; NULL at the end of the epoch. An error of a
 * dataset or a worker comes back here, at the batch where it belongs, and names the sample. */
LC_API lc_status lc_dataloader_next(lc_dataloader *l, lc_batch **out) LC_MUST_USE;
/* Ends the epoch early (or after its end: then nothing happens); workers stop. */
LC_API void lc_dataloader_end(lc_dataloader *l);
LC_API int64_t lc_dataloader_length(lc_dataloader *l, int64_t epoch); /* batches; -1: unknown */
/* See lc_dataloader_ops.replaced; *why (unless NULL) is NULL if there are none, and lives as long as the datasets. A
 * loop of the program's own asks at the end of an epoch; the trainer prints a warning. */
LC_API int64_t lc_dataloader_replaced(lc_dataloader *l, const char **why);
/* The batch_size the loader was made with; 0: unknown. With a share, a full global batch has share->batches times as
 * many samples, and this rank's share of it may be larger or smaller than batch_size. */
LC_API int64_t lc_dataloader_batch_size(const lc_dataloader *l);
/* The position of the run: the epoch, and how many of its batches were handed out (not how many were prefetched). Pass
 * both to begin to continue after these batches. */
LC_API void lc_dataloader_cursor(const lc_dataloader *l, int64_t *epoch, int64_t *batches);
/* State beyond the cursor (see lc_dataloader_ops.save); *size = 0 if there is none. */
LC_API lc_status lc_dataloader_save(lc_dataloader *l, void *data, size_t *size) LC_MUST_USE;
LC_API lc_status lc_dataloader_load(lc_dataloader *l, const void *data, size_t size) LC_MUST_USE;
/* See lc_dataloader_ops.sequential. */
LC_API bool lc_dataloader_sequential(lc_dataloader *l, bool on);
/* From the next epoch on `l` gives one rank's shares of its batches; a running epoch ends. All ranks do the same with
 * loaders made in the same way. NULL: one rank, which has all. Resuming at batch k, with any number of ranks, continues
 * after global batch k - 1 if the global batch has the same size. With several ranks the trainer does this by itself
 * (use_distributed_sampler). Fails, and leaves the loader as it was, if a program's own loader has no ops->share, also
 * within a combined loader. */
LC_API lc_status lc_dataloader_share(lc_dataloader *l, const lc_share *share) LC_MUST_USE;
/* See lc_dataloader_ops.describe. The trainer compares it over the ranks at the start. */
LC_API int lc_dataloader_describe(lc_dataloader *l, int64_t epoch, char *text, size_t size);
/* The current share, with the defaults resolved; borrowed from the loader. */
LC_API const lc_share *lc_dataloader_get_share(const lc_dataloader *l);

/* All zero if the loader does not know. */
LC_API void lc_dataloader_times(lc_dataloader *l, lc_loader_times *out);
/* ops->observe: for profilers. */
LC_API void lc_dataloader_observe(lc_dataloader *l, lc_span_fn *fn, void *ctx);
LC_END_DECLS

#endif
