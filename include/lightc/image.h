/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of picture files, which are read and decoded whenever a batch is made: a folder may be larger than memory.
 *
 * A sample is "x", u8 [3,height,width] in channels-last layout, red, green and blue from 0 to 255, and "y", its target,
 * i64. Transforms make floats of it (lc_transform_to_tensor, lc_transform_normalize). JPEG, PNG and WebP are decoded by
 * libjpeg, libpng and libwebp; if this build lacks one of them, its files are an error that says so. Content decides
 * the format of a file, not its name.
 *
 * Pictures are converted as Pillow's convert("RGB") does: gray is repeated, CMYK and palettes become colors,
 * transparency is ignored, of 16 bits the upper 8 stay (in Pillow not for gray, which it clips to white), and of an
 * animation there is the first picture. As in torchvision, the orientation in a picture's EXIF data is ignored by
 * default; exif_transpose turns pictures upright, as Pillow's ImageOps.exif_transpose does with EXIF data.
 *
 * Each thread that reads has memory for one file and one picture, which grows up to the largest of them. */
#ifndef LIGHTC_IMAGE_H
#define LIGHTC_IMAGE_H

#include <lightc/data.h>

LC_BEGIN_DECLS

/* How a picture that cannot be read is handled. */
typedef enum lc_image_on_error {
    LC_IMAGE_FAIL = 0, /* an error, which names the file */
    /* The sample is replaced by the next one in the dataset (after the last comes the first) whose picture can be read,
     * with its target. Batches keep their sizes and order, and are the same for any number of workers and ranks.
     * Broken, empty, missing and too large files and other formats are skipped; an error of the disk, too little memory
     * and a missing library stay errors. The loader counts replaced samples (lc_dataloader_replaced), and the trainer
     * reports them at the end of each epoch. */
    LC_IMAGE_SKIP,
} lc_image_on_error;

typedef struct lc_image_args {
    size_t size;
    /* Both, or neither. Pictures of another size are resized to it: bilinear with antialias, as torchvision's
     * resize([height, width]) of bytes, which keeps no aspect ratio. 0: the size of the first picture, which all must
     * have; one with another is an error. */
    int64_t height, width;
    lc_image_on_error on_error;
    bool exif_transpose;
    /* height * width; larger pictures are refused. The default is where Pillow sees an attack. A picture is also
     * refused if a resize would make more pixels of it than the default, and more than it has. */
    int64_t max_pixels;
    /* ---- folders ---- */
    const char *extensions; /* of the files that count, in any case, without dots: "jpg,jpeg". NULL: torchvision's, jpg,
                               jpeg, png, ppm, bmp, pgm, tif, tiff and webp */
    bool allow_empty;       /* classes without files are allowed */
    /* ---- lists ---- */
    const char *root; /* the folder that names of files are relative to. NULL: that of the CSV file; with a function the
                         working directory */
    /* Columns of the CSV file, by the names in its first line. Both NULL: it has no such line; its first column is
     * meant, and its second. */
    const char *file_column, *target_column;
    /* ---- transforms ---- */
    /* Applied to each picture in its own size, after height and width if these are given, and before pictures must have
     * one: `x` is what it makes, straight in the batch. It must end in one size: random_resized_crop, or resize and
     * center_crop (lightc/transforms.h). The dataset takes over what it points to, also when it fails. */
    lc_transform *transform;
    bool fast_scale; /* JPEG files are decoded at 1/2, 1/4 or 1/8 of their size where what follows needs no more:
                        faster, with other pixels than Pillow's */
    /* ---- shards ---- */
    const char *target_extension; /* of the members that hold targets; NULL: "cls" */
    /* ---- a cache ---- */
    /* Files are kept in memory, as they are on disk, until they take this many bytes; they are then read only once. For
     * slow disks: of a local one the system keeps files itself. All threads share it, and each rank has its own. A file
     * that has changed is read again. 0: none. */
    int64_t cache_bytes;
} lc_image_args;
LC_DEFAULTS(lc_image, lc_image_args, .max_pixels = 178956970)

/* lc_image_folder_new("photos/train", &data, .height = 224, .width = 224)
 *
 * As torchvision's ImageFolder: each folder in `dir` is a class, and its files are the pictures, also those in folders
 * within. Targets number the classes in the order of their names (as bytes); samples are ordered by class, folder and
 * name. Links are followed. The extensions are torchvision's, and samples have the same numbers, though lightc does not
 * decode all of these formats. A class without files is an error, unless allow_empty; a folder without
 * one picture always is. */
#define lc_image_folder_new(dir, ...) LC_CALL_NEW_(lc_image_folder_new, lc_image, (dir, ), __VA_ARGS__, )
LC_API lc_status lc_image_folder_new_with(const char *dir, lc_dataset **out, const lc_image_args *args) LC_MUST_USE;

/* Pictures that a CSV file lists, one a line: the name of a file, and its target. Fields are separated by commas, and
 * may be quoted ("a, b.jpg"); blanks around a target do not count. If every target is an integer, these are the
 * targets; otherwise they are names of classes, which are numbered in their order (as bytes). LC_ERR_FORMAT: a line
 * lacks a file or a target; or only the first target is a name, or only the first file has no extension, since the line
 * is then one of names of columns. */
#define lc_image_list_new(csv, ...) LC_CALL_NEW_(lc_image_list_new, lc_image, (csv, ), __VA_ARGS__, )
LC_API lc_status lc_image_list_new_with(const char *csv, lc_dataset **out, const lc_image_args *args) LC_MUST_USE;

/* Names the file of sample `index` and its target. Called once for each sample, in order, when the dataset is made; the
 * name is copied. */
typedef lc_status lc_image_list_fn(void *ctx, int64_t index, const char **file, int64_t *target);
/* `n` pictures that a function lists. */
#define lc_image_list_from(n, fn, ctx, ...) LC_CALL_NEW_(lc_image_list_from, lc_image, (n, fn, ctx, ), __VA_ARGS__, )
LC_API lc_status lc_image_list_from_with(int64_t n, lc_image_list_fn *fn, void *ctx, lc_dataset **out,
                                         const lc_image_args *args) LC_MUST_USE;

/* ---- shards ---- */

/* Pictures in tar files, as WebDataset writes them: members one after the other whose names are equal up to the first
 * dot are a sample, of which one is the picture (`extensions` says which can be) and KEY.cls its target, an integer or
 * the name of a class. `pattern` is a tar file, a folder of them, or several: "train-{000000..000123}.tar". The samples
 * of each are found by its index (lc_image_shards_index), or by reading all of its headers. Any thread reads any
 * sample, so samples are split over ranks, and a run is resumed, as with other datasets. Each thread keeps one shard
 * open.
 *
 * lc_image_shards_new("train-{000..123}.tar", &data, .transform = &t) */
#define lc_image_shards_new(pattern, ...) LC_CALL_NEW_(lc_image_shards_new, lc_image, (pattern, ), __VA_ARGS__, )
LC_API lc_status lc_image_shards_new_with(const char *pattern, lc_dataset **out, const lc_image_args *args) LC_MUST_USE;
/* How many tar files a dataset has; 0 if its pictures are files of their own. */
LC_API int64_t lc_image_shards(const lc_dataset *d);
/* The order for files that are slow to read at random: shards in a random order, from which samples pass one after the
 * other through a buffer of `buffer` samples, out of which the next is drawn. `shuffle` of a loader is more random, and
 * reads everywhere. */
LC_API lc_status lc_image_shards_sampler(const lc_dataset *d, int64_t buffer, uint64_t seed,
                                         lc_sampler *out) LC_MUST_USE;
/* Writes the index PATH.idx, so that opening the shard need not read its headers; it is used with the default
 * extensions only, and if it is not older than the shard. `samples` (may be NULL): how many the shard has. */
LC_API lc_status lc_image_shards_index(const char *path, int64_t *samples) LC_MUST_USE;

typedef struct lc_image_shards_pack_args {
    size_t size;
    int64_t samples, bytes; /* of a shard, at most */
    bool shuffle;           /* in a random order; else that of the folder, class after class */
    uint64_t seed;
    bool allow_empty; /* classes without a picture have numbers, too; else they are an error */
} lc_image_shards_pack_args;
LC_DEFAULTS(lc_image_shards_pack, lc_image_shards_pack_args, .samples = 10000, .bytes = 1000000000, .shuffle = true)
/* Packs class folders: PREFIX-000000.tar, ..., each with its index, and the classes' names in PREFIX-classes.txt.
 * Existing shards are an error. lc_image_shards_pack("photos/train", "shards/train", &n_shards) */
#define lc_image_shards_pack(dir, prefix, ...)                                                                         \
    LC_CALL_NEW_(lc_image_shards_pack, lc_image_shards_pack, (dir, prefix, ), __VA_ARGS__, )
LC_API lc_status lc_image_shards_pack_with(const char *dir, const char *prefix, int64_t *shards,
                                           const lc_image_shards_pack_args *args) LC_MUST_USE;

/* ---- what a dataset has ---- */

/* The following are for the datasets that these functions make, not for those made of them (lc_dataset_subset, ...);
 * what they return is borrowed from the dataset. */
/* How many classes have names; 0 if targets were given as integers. */
LC_API int64_t lc_image_classes(const lc_dataset *d);
/* The name of a class, by its target; NULL if there is none. */
LC_API const char *lc_image_class(const lc_dataset *d, int64_t target);
/* LC_ERR_ARGUMENT, with the first difference, unless both have the same classes. Targets are positions in the order of
 * names, so datasets to train and to test with must have the same. */
LC_API lc_status lc_image_same_classes(const lc_dataset *a, const lc_dataset *b) LC_MUST_USE;
/* The file of sample `index`, relative to the folder, or as the list names it; NULL if there is none. */
LC_API const char *lc_image_file(const lc_dataset *d, int64_t index);
/* Its target; LC_UNSET if there is none. */
LC_API int64_t lc_image_target(const lc_dataset *d, int64_t index);
LC_END_DECLS

#endif
