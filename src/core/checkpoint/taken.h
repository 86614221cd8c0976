/* SPDX-License-Identifier: Apache-2.0 */
/* Reserved names of checkpoints, since runs that share a directory must not choose the same one.
 *
 * A name is reserved by an empty directory ".taken-NAME", which only one process can make, on every file system. The
 * process keeps it locked (flock), so that others see whether the process lives. The directory is removed when the
 * checkpoint has its name or was abandoned; that of a dead process is removed by the next process that wants the name
 * or cleans up. */
#ifndef LC_CORE_CHECKPOINT_TAKEN_H
#define LC_CORE_CHECKPOINT_TAKEN_H

#include "core/checkpoint/checkpoint.h"

#define LC__TAKEN ".taken-"

typedef struct lc__taken lc__taken;

/* Reserves `path`, and makes its directory. *taken: the name exists, or another process has reserved it; *out is then
 * NULL. If no directory can be made or opened, *out is NULL too: saving there will fail and say why. */
lc_status lc__take_name(const char *path, bool *taken, lc__taken **out);
/* NULL is fine. */
void lc__taken_release(lc__taken *t);

bool lc__taken_is_of(const lc__taken *t, const char *path);

bool lc__taken_is_name(const char *name);
/* Removes ".taken-NAME" in the open directory if its process is dead. */
void lc__taken_clean(int at, const char *name);

/* write.c. Sets the reserved name of the checkpoint begun next; released when that has its name or has failed. Owns
 * `taken`. */
void lc__ckpt_set_taken(lc_ckpt_writer *w, lc__taken *taken);
/* Call if that checkpoint will not be committed. Touches no file, since a rank that fails must report it before others
 * take it for lost. The name is released with the next checkpoint, by lc__ckpt_rest, or with the writer. */
void lc__ckpt_drop_taken(lc_ckpt_writer *w);
/* lc_ckpt_then_link, which also releases the link's name when the link is made or dropped. Owns `taken`, even if it
 * fails. */
lc_status lc__ckpt_then_link_taken(lc_ckpt_writer *w, const char *link, lc__taken *taken) LC_MUST_USE;
/* lc_ckpt_then_remove for a path whose first `trusted` bytes are a directory of the caller (lc__open_parent). */
lc_status lc__ckpt_then_remove_in(lc_ckpt_writer *w, const char *path, size_t trusted) LC_MUST_USE;

#endif
