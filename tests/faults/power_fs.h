/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that loses its power (power_fs.c): in memory, mounted through /dev/fuse, served by a process of its
 * own. It sees every system call, whichever process or library makes it.
 *
 * What was synced is durable: the bytes of a file after fsync of the file, the names in a directory after fsync of the
 * directory. A part of everything else, chosen by the seed, survives the power loss: any of the writes to a file in
 * whole, in pages, or in sectors of 512 bytes, its old or its new size, and any of the changes of names. A change of
 * names is atomic and needs those that it builds on; independent ones may survive in any order. With `journal`, changes
 * of names survive in the order in which they were made, and every sync makes all of them durable (ext4, XFS); without
 * it, a sync of a directory covers only that directory (what POSIX promises).
 *
 * It needs root, or user namespaces and a /dev/fuse that every user may open. */
#ifndef LC_TESTS_POWER_FS_H
#define LC_TESTS_POWER_FS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct power_fs {
    pid_t server;
    int control;
    uint64_t lost_changes, lost_writes; /* so far, in power losses */
} power_fs;

enum { POWER_JOURNAL = 1, POWER_NO_FILE_SYNC = 2, POWER_NO_DIR_SYNC = 4 };

/* From now on this process has its own mounts. Returns NULL, or why the kernel does not allow it. Call it before there
 * are threads. */
const char *power_fs_own_mounts(void);
/* Mounts an empty file system at `dir`. Returns NULL, or the reason why it cannot. flags: POWER_*. */
const char *power_fs_start(power_fs *fs, const char *dir, uint64_t seed, int flags);
/* The power fails at the n-th change or sync from now on: the processes of the group are killed, and every call
 * fails. */
void power_fs_arm(power_fs *fs, pid_t group, uint64_t n);
/* Restores the power; if it has not failed yet, it fails now. Files must have been closed. Returns the number of
 * changes and syncs since the file system was armed, and whether the power had failed by itself. */
uint64_t power_fs_back(power_fs *fs, bool *gone);
void power_fs_end(power_fs *fs);

#endif
