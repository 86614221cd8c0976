/* SPDX-License-Identifier: Apache-2.0 */
/* Links to checkpoints. */
#define _GNU_SOURCE
#include "core/checkpoint/write_job.h"
#include "core/checkpoint/removal.h"
#include "base/handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `path` as seen from `dir`, if it is in it or in a folder below; NULL: it is elsewhere. Compares only the text. */
static const char *seen_from(const char *dir, const char *path)
{
    size_t n = strlen(dir);
    if (!strncmp(path, dir, n) && (dir[n - 1] == '/' || path[n] == '/')) {
        for (path += n; *path == '/'; path++) {
        }
        return path;
    }
    return !strcmp(dir, ".") && *path != '/' ? path : NULL;
}

/* Makes the link in a directory with a temporary name, then renames it. */
lc_status lc_checkpoint_link(const char *link, const char *path)
{
    LC__NEEDS(link, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    const lc__io *io = &lc__io_system;
    char *dir = NULL, *temp = NULL, *made = NULL, *clean = NULL;
    int lock_fd = -1;
    struct stat st;
    lc_status status;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    LC_TRY_GOTO(status, done, lc__format(&clean, "%.*s", (int)n, path));
    LC_TRY_GOTO(status, done, lc__path_dir(link, &dir));
    const char *target = seen_from(dir, clean);
    if (!target || lc__path_goes_up(target)) {
        status = lc_fail(LC_ERR_ARGUMENT,
                         "checkpoint \"%s\" is not in the same directory as link \"%s\", nor in a folder below it",
                         path, link);
        goto done;
    }
    if (lstat(link, &st) == 0 && !S_ISLNK(st.st_mode)) {
        status = lc_fail(LC_ERR_IO, "\"%s\" cannot become a link to \"%s\": something else has that name; move it away",
                         link, target);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__ckpt_make_temp(io, link, &temp, &lock_fd));
    LC_TRY_GOTO(status, done, lc__path_join(temp, LC__NEW_LINK, &made));
    if (io->symlink(io, target, made) < 0) {
        status = lc__io_fail(errno, "make link", made);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__replace_by(io, made, link));
    status = lc__sync_dir(io, dir);
done:
    if (temp && lock_fd >= 0) {
        char message[1024];
        lc__copy_message(message, sizeof message);
        if (lc__ckpt_remove_own(io, temp) < 0 && status < 0) lc_fail(status, "%s", message);
    }
    if (lock_fd >= 0) close(lock_fd);
    free(clean);
    free(made);
    free(temp);
    free(dir);
    return status;
}
