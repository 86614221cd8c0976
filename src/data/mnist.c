/* SPDX-License-Identifier: Apache-2.0 */
/* Image data sets in IDX files: MNIST, Fashion-MNIST and others of the same form. */
#include "base/args.h"
#include "data_internal.h"
#include "base/handle.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Makes the dataset of two parsed files; takes their memory over, also when it fails, and clears them. */
static lc_status images_and_labels(const char *images_name, lc_idx *images, const char *labels_name, lc_idx *labels,
                                   const lc_idx_args *args, lc_dataset **out)
{
    lc_status status = LC_OK;
    if (images->dtype != LC_U8 || images->ndim < 3 || images->ndim > 4)
        status = lc_fail(LC_ERR_FORMAT, "%s: images must be u8 [N,H,W] or [N,C,H,W], but this file is %s with rank %d",
                         images_name, lc_dtype_name(images->dtype), images->ndim);
    else if (labels->dtype != LC_U8 || labels->ndim != 1)
        status = lc_fail(LC_ERR_FORMAT, "%s: labels must be u8 [N], but this file is %s with rank %d", labels_name,
                         lc_dtype_name(labels->dtype), labels->ndim);
    else if (images->shape[0] != labels->shape[0])
        status = lc_fail(LC_ERR_FORMAT, "%s has %lld images, but %s has %lld labels", images_name,
                         (long long)images->shape[0], labels_name, (long long)labels->shape[0]);
    if (status < 0) {
        lc_idx_release(images);
        lc_idx_release(labels);
        return status;
    }
    double std = args->std;
    lc_array arrays[2] = {
        {.field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {1, images->shape[1], images->shape[2]}},
         .data = images->data,
         .to = args->raw ? LC_U8 : LC_F32,
         .scale = args->raw ? 1.0 : 1.0 / (255.0 * std),
         .shift = args->raw ? 0.0 : -args->mean / std,
         .free = free},
        {.field = {.name = "y", .dtype = LC_U8}, .data = labels->data, .to = LC_I64, .free = free},
    };
    if (images->ndim == 4)
        for (int i = 0; i < 3; i++) arrays[0].field.shape[i] = images->shape[i + 1];
    int64_t n = images->shape[0];
    *images = *labels = (lc_idx){0}; /* the arrays own the memory now */
    return lc_array_dataset_new(n, 2, arrays, out);
}

static lc_status check(const lc_idx_args *a)
{
    if (a->raw && (a->mean != 0.0 || a->std != 1.0))
        return lc_fail(LC_ERR_ARGUMENT, "raw images stay bytes: mean and std are for the others; put "
                                        "lc_transform_normalize after the transforms that want bytes");
    if (a->std > 0) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "images are divided by std, which must be positive; it is %g", a->std);
}

lc_status lc_idx_dataset_new_with(const char *images, const char *labels, lc_dataset **out, const lc_idx_args *args)
{
    LC__TAKE_IF_GIVEN(a, lc_idx, lc_idx_args, args);
    LC_TRY(check(&a));
    LC__NEEDS(images, LC_ERR_ARGUMENT);
    LC__NEEDS(labels, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    lc_idx x, y;
    LC_TRY(lc_idx_read(images, &x));
    lc_status status = lc_idx_read(labels, &y);
    if (status < 0) {
        lc_idx_release(&x);
        return status;
    }
    return images_and_labels(images, &x, labels, &y, &a, out);
}

typedef struct one_file {
    char path[4096];
    lc_idx idx;
    lc_status status;
    char error[1024];
} one_file;

static const char *const mnist_stems[4] = {"train-images", "train-labels", "t10k-images", "t10k-labels"};

#define GIVE                                                                                                           \
    "pass the directory with the four files of MNIST or Fashion-MNIST (Debian and Ubuntu: package "                    \
    "dataset-fashion-mnist, in /usr/share/datasets/fashion-mnist)"

static lc_status find_file(const char *dir, int which, one_file *f)
{
    static const char *const forms[4] = {"%s/%s-idx%c-ubyte", "%s/%s-idx%c-ubyte.gz", "%s/%s.idx%c-ubyte",
                                         "%s/%s.idx%c-ubyte.gz"};
    char kind = which % 2 ? '1' : '3';
    for (int i = 0; i < 4; i++) {
        int n = snprintf(f->path, sizeof f->path, forms[i], dir, mnist_stems[which], kind);
        if (n < 0 || (size_t)n >= sizeof f->path) return lc_fail(LC_ERR_ARGUMENT, "the path of the data is too long");
        if (access(f->path, R_OK) == 0) return LC_OK;
    }
    if (access(dir, F_OK) != 0) return lc_fail(LC_ERR_NOT_FOUND, "there is no directory \"%.200s\"; " GIVE, dir);
    return lc_fail(LC_ERR_NOT_FOUND, "\"%.200s\" contains neither %s-idx%c-ubyte nor %s-idx%c-ubyte.gz; " GIVE, dir,
                   mnist_stems[which], kind, mnist_stems[which], kind);
}

static void *read_one(void *arg)
{
    one_file *f = arg;
    f->status = lc_idx_read(f->path, &f->idx);
    if (f->status < 0) snprintf(f->error, sizeof f->error, "%s", lc_error_message());
    return NULL;
}

lc_status lc_mnist_load_with(const char *dir, lc_dataset **train, lc_dataset **test, const lc_idx_args *args)
{
    LC__NEEDS(dir, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_idx, lc_idx_args, args);
    LC_TRY(check(&a));
    lc_status status = LC_OK;
    pthread_t thread;
    bool threaded = false;
    if (train) *train = NULL;
    if (test) *test = NULL;
    one_file *files = calloc(4, sizeof *files);
    if (!files) return lc_fail(LC_ERR_MEMORY, "out of memory");
    bool wanted[4] = {train != NULL, train != NULL, test != NULL, test != NULL};
    for (int i = 0; i < 4; i++)
        if (wanted[i]) LC_TRY_GOTO(status, done, find_file(dir, i, &files[i]));
    /* The training images are most of the work: a thread reads them, and this thread the rest. */
    if (wanted[0] && wanted[2]) threaded = lc__thread_create(&thread, read_one, &files[0]) == 0;
    for (int i = threaded ? 1 : 0; i < 4; i++)
        if (wanted[i]) read_one(&files[i]);
    if (threaded) pthread_join(thread, NULL);
    for (int i = 0; i < 4; i++)
        if (files[i].status < 0) {
            status = lc_fail(files[i].status, "%s", files[i].error);
            goto done;
        }
    if (train)
        LC_TRY_GOTO(status, done,
                    images_and_labels(files[0].path, &files[0].idx, files[1].path, &files[1].idx, &a, train));
    if (test)
        LC_TRY_GOTO(status, done,
                    images_and_labels(files[2].path, &files[2].idx, files[3].path, &files[3].idx, &a, test));
done:
    for (int i = 0; i < 4; i++) lc_idx_release(&files[i].idx);
    if (status < 0 && train) {
        lc_dataset_unref(*train);
        *train = NULL;
    }
    free(files);
    return status;
}
