/* SPDX-License-Identifier: Apache-2.0 */
/* Special files in the place of those that lightc reads and writes: opening a FIFO as a file would block until its
 * other end is opened, and reading a device would never end. */
#ifndef LC_TESTS_NO_FILE_H
#define LC_TESTS_NO_FILE_H

#include "test.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { NO_FILE_FIFO, NO_FILE_FOLDER, NO_FILE_DEVICE, NO_FILE_SOCKET, NO_FILES };

static inline void make_no_file(int kind, const char *path)
{
    (void)remove(path);
    if (kind == NO_FILE_FIFO) CHECK(mkfifo(path, 0666) == 0);
    if (kind == NO_FILE_FOLDER) CHECK(mkdir(path, 0777) == 0);
    if (kind == NO_FILE_DEVICE) CHECK(symlink("/dev/zero", path) == 0);
    if (kind == NO_FILE_SOCKET) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(strlen(path) < sizeof name.sun_path);
        memcpy(name.sun_path, path, strlen(path) + 1);
        CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof name) == 0);
        close(fd);
    }
}

#endif
