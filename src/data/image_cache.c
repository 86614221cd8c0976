/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image_cache.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETTLED = 2 }; /* seconds after which another change gives a file another time */

/* A copy of a file, and which state of it that is. */
typedef struct entry {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
    size_t n;
    uint8_t bytes[];
} entry;

struct lc__image_cache {
    int64_t most;
    atomic_llong used;
    int64_t n;
    _Atomic(entry *) entries[];
};

lc_status lc__image_cache_new(int64_t n, int64_t most, lc__image_cache **out)
{
    size_t bytes = sizeof **out + (size_t)n * sizeof *(*out)->entries;
    *out = calloc(1, bytes);
    if (!*out) return lc_fail(LC_ERR_MEMORY, "out of memory: a cache for %lld pictures", (long long)n);
    (*out)->n = n;
    (*out)->most = most;
    return LC_OK;
}

void lc__image_cache_free(lc__image_cache *c)
{
    for (int64_t i = 0; c && i < c->n; i++) free(atomic_load(&c->entries[i]));
    free(c);
}

bool lc__image_cache_get(lc__image_cache *c, int64_t i, const char *path, const uint8_t **bytes, size_t *n)
{
    struct stat st;
    const entry *e = atomic_load(&c->entries[i]);
    if (!e || stat(path, &st) != 0 || st.st_dev != e->device || st.st_ino != e->inode || st.st_size != e->size ||
        st.st_mtim.tv_sec != e->changed.tv_sec || st.st_mtim.tv_nsec != e->changed.tv_nsec)
        return false;
    *bytes = e->bytes;
    *n = e->n;
    return true;
}

/* A file that has just been written may be written again without getting another time. */
static bool is_settled(const struct stat *st)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec - st->st_mtim.tv_sec > SETTLED;
}

void lc__image_cache_put(lc__image_cache *c, int64_t i, const struct stat *st, const uint8_t *bytes, size_t n)
{
    const long long needs = (long long)(sizeof(entry) + n);
    entry *none = NULL;
    if (atomic_load(&c->entries[i]) || !is_settled(st)) return;
    if (atomic_fetch_add(&c->used, needs) + needs <= c->most) {
        entry *e = malloc((size_t)needs);
        if (e) {
            *e = (entry){st->st_dev, st->st_ino, st->st_size, st->st_mtim, n};
            memcpy(e->bytes, bytes, n);
            if (atomic_compare_exchange_strong(&c->entries[i], &none, e)) return;
            free(e); /* another thread was first */
        }
    }
    atomic_fetch_sub(&c->used, needs);
}
