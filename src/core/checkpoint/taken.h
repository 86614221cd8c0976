/* SPDX-License-Identifier: Apache-2.0 */
/* Names that processes are about to give to checkpoints: runs that share a directory must not choose the same one.
 *
 * A name is reserved by an empty directory ".taken-NAME", which only one process can make, on every file system, and
 * which it keeps locked (flock), so that others see whether it lives. It is removed when the checkpoint has its name,
 * or was abandoned; that of a dead process is removed by the next process that wants the name, or cleans up. */
#ifndef LC_CORE_CHECKPOINT_TAKEN_H
#define LC_CORE_CHECKPOINT_TAKEN_H

#include "core/checkpoint/checkpoint.h"

#define LC__TAKEN ".taken-"

typedef struct lc__taken lc__taken;

/* Reserves `path`, whose directory is made; *taken: the name exists, or another process has reserved it (then *out is
 * NULL). If no directory can be made *out is NULL too: saving there fails and says why. */
lc_status lc__take_name(const char *path, bool *taken, lc__taken **out);
/* NULL is fine. */
void lc__taken_release(lc__taken *t);

bool lc__taken_is_of(const lc__taken *t, const char *path);

bool lc__taken_is_name(const char *name);
/* Removes ".taken-NAME" in the open directory if its process is dead. */
void lc__taken_clean(int at, const char *name);

/* write.c. The name of the checkpoint that will be begun next: given back when it has its name or has
 * failed. Takes `taken` over. */
void lc__ckpt_set_taken(lc_ckpt_writer *w, lc__taken *taken);
/* That checkpoint will not be committed. Touches no file: a rank that fails has to say so before others miss it. The
 * name is given back with the next checkpoint, lc__ckpt_rest, or the writer. */
void lc__ckpt_drop_taken(lc_ckpt_writer *w);
/* lc_ckpt_then_link, and gives the link's name back when that is done or dropped. Takes `taken` over, also when it
 * fails. */
lc_status lc__ckpt_then_link_taken(lc_ckpt_writer *w, const char *link, lc__taken *taken) LC_MUST_USE;
/* lc_ckpt_then_remove, of a path of which `trusted` bytes are a directory of the caller (lc__open_parent). */
lc_status lc__ckpt_then_remove_in(lc_ckpt_writer *w, const char *path, size_t trusted) LC_MUST_USE;

#endif
