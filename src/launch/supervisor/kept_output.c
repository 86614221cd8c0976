/* SPDX-License-Identifier: Apache-2.0 */
/* The output of ranks other than 0 is kept in unnamed files, so that no file remains however the run ends, and is shown
 * if the rank fails. While a rank runs, `tail -f /proc/PID/fd/1` follows it. */
#include "launch/supervisor/supervisor.h"

#include "base/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How much of the end is searched for lines. */
#define TAIL_BYTES (64 << 10)

static int open_in(const char *dir)
{
    char path[4200];
    int n = snprintf(path, sizeof path, "%s/lightc-XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof path) return -1;
    int fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    if (fd >= 0) lc__remove_made(&lc__io_system, path);
    return fd;
}

lc_status lc__output_open(const char *root, int *fd)
{
    const char *tmp = getenv("TMPDIR");
    if (!tmp || !*tmp) tmp = "/tmp";
    *fd = open_in(tmp);
    int error = errno;
    if (*fd < 0) *fd = open_in(root);
    return *fd >= 0 ? LC_OK : lc__io_fail(error, "make a file for the output of a rank in", tmp);
}

void lc__output_tail(int fd, int lines, lc__str *out, bool *more)
{
    off_t end = lseek(fd, 0, SEEK_END), from = end > TAIL_BYTES ? end - TAIL_BYTES : 0;
    char *text = malloc(TAIL_BYTES);
    ssize_t n = text && end > 0 ? pread(fd, text, (size_t)(end - from), from) : 0;
    ssize_t at = n > 0 ? n : 0;
    for (int found = 0; at > 0; at--)
        if (text[at - 1] == '\n' && at < n && ++found == lines) break;
    *more = from > 0 || at > 0;
    if (n > 0) lc__str_add_bytes(out, text + at, (size_t)(n - at));
    if (n > 0 && text[n - 1] != '\n') lc__str_add(out, "\n");
    free(text);
}

lc_status lc__output_save(int fd, const char *path)
{
    char block[16 << 10];
    lc_status status = LC_OK;
    off_t at = 0;
    int to;
    LC_TRY(lc__open_to_write(path, O_WRONLY | O_CREAT | O_TRUNC, &to));
    for (ssize_t n; (n = pread(fd, block, sizeof block, at)) > 0 && status == LC_OK; at += n)
        status = lc__write_all(&lc__io_system, to, path, block, (size_t)n, (uint64_t)at);
    if (close(to) != 0 && status == LC_OK) status = lc__io_fail(errno, "write", path);
    return status;
}
