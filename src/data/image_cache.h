/* SPDX-License-Identifier: Apache-2.0 */
/* Files of pictures kept in memory as they are on disk, shared by the threads that read a dataset. What was stored
 * stays until the cache is freed: every epoch reads every file once, so no file is a better guess than those that are
 * there. A file that has changed since is not taken from here. */
#ifndef LC_DATA_IMAGE_CACHE_H
#define LC_DATA_IMAGE_CACHE_H

#include <lightc/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef struct lc__image_cache lc__image_cache;

/* For `n` samples; entries take at most `most` bytes. */
lc_status lc__image_cache_new(int64_t n, int64_t most, lc__image_cache **out) LC_MUST_USE;
void lc__image_cache_free(lc__image_cache *c); /* NULL is fine */
/* The bytes of sample i, which is in the file `path`; valid until the cache is freed. */
bool lc__image_cache_get(lc__image_cache *c, int64_t i, const char *path, const uint8_t **bytes, size_t *n);
/* Stores a copy if there is room. `st`: the file as it was before these bytes were read. */
void lc__image_cache_put(lc__image_cache *c, int64_t i, const struct stat *st, const uint8_t *bytes, size_t n);

#endif
