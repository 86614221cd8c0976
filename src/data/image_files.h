/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of picture files: their names, where they are, and their targets. */
#ifndef LC_DATA_IMAGE_FILES_H
#define LC_DATA_IMAGE_FILES_H

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
/* Sorts by bytes. */
lc_status lc__names_sort(lc__names *names) LC_MUST_USE;
void lc__names_free(lc__names *names);

/* Extensions of the files that are pictures by default: torchvision's. */
#define LC__IMAGE_EXTENSIONS "jpg,jpeg,png,ppm,bmp,pgm,tif,tiff,webp"

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
/* *fits: into 64 bits. */
bool lc__target_is_integer(const char *text, int64_t *value, bool *fits);
/* Sets targets from one text for each file: integers, or the positions of names among the sorted names. */
lc_status lc__image_list_targets(lc__image_list *list, const lc__names *texts) LC_MUST_USE;
/* Sets `root`; "" is the working directory. */
lc_status lc__image_list_root(lc__image_list *list, const char *root) LC_MUST_USE;
void lc__image_list_free(lc__image_list *list);

#endif
