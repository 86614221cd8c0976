/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of pictures: what shards.c, index.c and pack.c have in common. */
#ifndef LC_DATA_SHARDS_SHARDS_H
#define LC_DATA_SHARDS_SHARDS_H

#include "data/image_dataset.h"

#define LC__SHARD_TARGET "cls"

/* Adds the samples of a tar file to the list, as those of archive `archive`, and the text of each target. */
lc_status lc__shard_list(const char *path, int64_t archive, const lc_image_args *a, lc__image_list *list,
                         lc__names *targets) LC_MUST_USE;
/* The same from its index; *found is false if it has none that is as new. */
lc_status lc__shard_index_read(const char *path, int64_t archive, lc__image_list *list, lc__names *targets,
                               bool *found) LC_MUST_USE;

#endif
