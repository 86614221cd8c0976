/* SPDX-License-Identifier: Apache-2.0 */
/* Spool files: appended to under a lock, read from where sending stopped, emptied when all was sent. They are not
 * synced: a loss of power may lose the last lines. */
#define _GNU_SOURCE
#include "loggers/spool.h"

#include "base/remove.h"
#include "base/grow.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20)

static lc_status measure(lc__spool *s)
{
    struct stat st;
    char last = 0;
    if (fstat(s->fd, &st) < 0) return lc__io_fail(errno, "read", s->path);
    for (s->size = (uint64_t)st.st_size; s->size; s->size--) { /* an incomplete line of a process that died */
        LC_TRY(lc__read_all(&lc__io_system, s->fd, s->path, &last, 1, s->size - 1));
        if (last == '\n') break;
    }
    return LC_OK;
}

lc_status lc__spool_open(lc__spool *s, const char *path)
{
    struct stat here, there;
    *s = (lc__spool){.fd = -1};
    LC_TRY(lc__format(&s->path, "%s", path));
    lc_status status = lc__open_to_write(path, O_RDWR | O_CREAT, &s->fd);
    if (status >= 0 && flock(s->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) status = LC_SKIP;
    /* Its former owner may have removed it in the meantime. */
    if (status == LC_OK && (fstat(s->fd, &here) < 0 || stat(path, &there) < 0 || here.st_ino != there.st_ino))
        status = LC_SKIP;
    if (status == LC_OK) status = measure(s);
    if (status != LC_OK) lc__spool_close(s, false);
    return status;
}

bool lc__spool_is_empty(const lc__spool *s)
{
    struct stat st;
    return fstat(s->fd, &st) == 0 && st.st_size == 0;
}

void lc__spool_close(lc__spool *s, bool remove)
{
    if (s->fd >= 0 && remove) lc__remove_made(&lc__io_system, s->path);
    if (s->fd >= 0) close(s->fd);
    free(s->path);
    *s = (lc__spool){.fd = -1};
}

lc_status lc__spool_append(lc__spool *s, const char *lines, size_t n)
{
    lc_status status = lc__write_all(&lc__io_system, s->fd, s->path, lines, n, s->size);
    if (status >= 0)
        s->size += n;
    else if (ftruncate(s->fd, (off_t)s->size) < 0) {
        /* An incomplete line stays for now; the next one overwrites it. */
    }
    return status;
}

lc_status lc__spool_restart(lc__spool *s, const char *lines, size_t n)
{
    if (s->size == n && s->sent == n) return LC_OK;
    if (ftruncate(s->fd, 0) < 0) return lc__io_fail(errno, "write", s->path);
    s->size = s->sent = 0;
    LC_TRY(lc__spool_append(s, lines, n));
    s->sent = n;
    return LC_OK;
}

lc_status lc__spool_read(lc__spool *s, lc__text *out)
{
    out->length = 0;
    for (size_t chunk = CHUNK; s->sent < s->size; chunk *= 2) {
        size_t n = s->size - s->sent < chunk ? (size_t)(s->size - s->sent) : chunk;
        LC_TRY(lc__grow(&out->data, &out->capacity, 0, n + 1, "lines of a spool"));
        LC_TRY(lc__read_all(&lc__io_system, s->fd, s->path, out->data, n, s->sent));
        while (n && out->data[n - 1] != '\n') n--;
        out->length = n;
        if (n) break; /* otherwise a line is longer than the chunk */
    }
    return LC_OK;
}

lc_status lc__spool_orphans(const char *dir, lc_status (*fn)(void *ctx, lc__spool *s), void *ctx)
{
    lc_status status = LC_OK;
    DIR *d = opendir(dir);
    if (!d) return LC_OK;
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        char *path;
        struct stat st;
        lc__spool s;
        if (n < 6 || strcmp(e->d_name + n - 6, ".jsonl") != 0) continue;
        status = lc__path_join(dir, e->d_name, &path);
        if (status < 0) break;
        /* Only a regular file is a spool; anything else is skipped. */
        status = lstat(path, &st) < 0 || !S_ISREG(st.st_mode) ? LC_SKIP : lc__spool_open(&s, path);
        free(path);
        if (status != LC_OK) continue;
        status = fn(ctx, &s);
        lc__spool_close(&s, status == LC_OK);
    }
    closedir(d);
    return status < 0 ? status : LC_OK;
}
