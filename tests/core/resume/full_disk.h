/* SPDX-License-Identifier: Apache-2.0 */
/* A disk with no room for some checkpoints: files cannot be created if their path contains one of some texts. A
 * callback installs it under the trainer's writer and keeps the messages. */
#ifndef LC_TESTS_FULL_DISK_H
#define LC_TESTS_FULL_DISK_H

#include "core/resume/resume.h"
#include "core/checkpoint/checkpoint.h"
#include "core/hooks/trainer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

static struct {
    lc__io io;
    const char *no_room_for[8]; /* texts in paths, up to a NULL */
    pthread_mutex_t lock;
    int refused, at_most; /* number of files; 0: no limit */
    char errors[16384], messages[16384];
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline int disk_open(const lc__io *io, const char *path, int flags, mode_t mode)
{
    bool full = false;
    (void)io;
    for (int i = 0; (flags & O_CREAT) && disk.no_room_for[i]; i++) full |= strstr(path, disk.no_room_for[i]) != NULL;
    pthread_mutex_lock(&disk.lock);
    full &= !disk.at_most || disk.refused < disk.at_most;
    disk.refused += full;
    pthread_mutex_unlock(&disk.lock);
    if (!full) return lc__io_system.open(&lc__io_system, path, flags, mode);
    errno = ENOSPC;
    return -1;
}

static inline void disk_reset(void)
{
    disk.io = lc__io_system;
    disk.io.open = disk_open;
    memset(disk.no_room_for, 0, sizeof disk.no_room_for);
    disk.refused = disk.at_most = 0;
    *disk.errors = *disk.messages = 0;
}

static inline lc_status disk_fit_start(void *self, lc_trainer *t)
{
    (void)self;
    if (!t->resume->writer) LC_TRY(lc_ckpt_writer_new(&t->resume->writer));
    lc__ckpt_writer_set_io(t->resume->writer, &disk.io);
    return LC_OK;
}

static inline void disk_message(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)self, (void)t;
    pthread_mutex_lock(&disk.lock);
    char *to = level == LC_ERROR ? disk.errors : disk.messages;
    size_t n = strlen(to);
    snprintf(to + n, sizeof disk.errors - n, "%s\n", text);
    pthread_mutex_unlock(&disk.lock);
}

static const lc_callback_ops disk_ops = {LC_CALLBACK_OPS_INIT("Disk"), .on_fit_start = disk_fit_start,
                                         .on_message = disk_message};

#endif
