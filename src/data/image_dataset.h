/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset over a list of picture files, for what fills such a list (image_folder.c, image_list.c, shards). */
#ifndef LC_DATA_IMAGE_DATASET_H
#define LC_DATA_IMAGE_DATASET_H

#include "data/image_files.h"

/* What a dataset reads; NULL, with an error, if it is of another kind. */
const lc__image_list *lc__image_list_of(const lc_dataset *d);

/* Arguments that do not fit together, before anything is read. */
lc_status lc__image_args_check(const lc_image_args *args) LC_MUST_USE;
/* Releases the transform of arguments that came to nothing; returns the status. */
lc_status lc__image_args_taken(lc_status status, const lc_image_args *args);
/* The dataset; takes what the list holds over, also when it fails. */
lc_status lc__image_dataset_new(lc__image_list *list, const lc_image_args *args, lc_dataset **out) LC_MUST_USE;

#endif
