/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of picture files: a list of names and targets (image_folder.c and image_list.c fill it), and what reads them
 * (image_dataset.c). */
#ifndef LC_DATA_IMAGE_DATASET_H
#define LC_DATA_IMAGE_DATASET_H

#include <lightc/image.h>

/* Texts in one piece of memory, each with its end. */
typedef struct lc__names {
    char *text;
    size_t used, cap;
    size_t *at; /* where each begins */
    int64_t n, cap_n;
} lc__names;

lc_status lc__names_add(lc__names *names, const char *name) LC_MUST_USE;
static inline const char *lc__names_at(const lc__names *names, int64_t i)
{
    return names->text + names->at[i];
}
void lc__names_free(lc__names *names);

/* A file inside another one, after a header of tar. */
typedef struct lc__image_place {
    int64_t archive;
    uint64_t offset, size;
} lc__image_place;

typedef struct lc__image_list {
    char *root; /* what names of files are relative to; "" or with a slash at its end */
    lc__names files, classes;
    int64_t *targets, cap_targets; /* one for each file */
    lc__names archives;            /* paths of tar files; none: files are by themselves */
    lc__image_place *places;       /* one for each file, in order of the archives */
    int64_t cap_places;
} lc__image_list;

lc_status lc__image_list_add(lc__image_list *list, const char *file, int64_t target) LC_MUST_USE;
lc_status lc__image_list_add_place(lc__image_list *list, const char *file, const lc__image_place *place) LC_MUST_USE;
/* Sets targets from one text for each file: integers, or the positions of names among the sorted names. */
lc_status lc__image_list_targets(lc__image_list *list, const lc__names *texts) LC_MUST_USE;
void lc__image_list_free(lc__image_list *list);
/* What a dataset reads; NULL, with an error, if it is of another kind. */
const lc__image_list *lc__image_list_of(const lc_dataset *d);
/* Sets `root`; "" is the working directory. */
lc_status lc__image_list_root(lc__image_list *list, const char *root) LC_MUST_USE;

/* Arguments that do not fit together, before anything is read. */
lc_status lc__image_args_check(const lc_image_args *args) LC_MUST_USE;
/* Releases the transform of arguments that came to nothing; returns the status. */
lc_status lc__image_args_taken(lc_status status, const lc_image_args *args);
/* The dataset; takes what the list holds over, also when it fails. */
lc_status lc__image_dataset_new(lc__image_list *list, const lc_image_args *args, lc_dataset **out) LC_MUST_USE;

#endif
