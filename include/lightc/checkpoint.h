/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints on disk (docs/checkpoints.md has the format byte by byte).
 *
 * A checkpoint is a directory, "epoch=4-step=10.ckpt": model.safetensors, optimizer.safetensors, tensors.safetensors
 * (what else is tensors: accumulated gradients, metric sums; only if there are any), state.json and manifest.json,
 * which holds the size and the CRC-32C of every other file. It is written under a temporary name, made durable, read
 * back and only then renamed, so a name that exists is a complete checkpoint whatever happens to the process or the
 * machine.
 *
 * One thread at a time uses a writer. Readers may be anywhere. */
#ifndef LIGHTC_CHECKPOINT_H
#define LIGHTC_CHECKPOINT_H

#include <lightc/safetensors.h>
#include <lightc/state.h>

typedef enum lc_ckpt_kind {
    LC_CKPT_MODEL = 0,     /* model.safetensors: parameters and buffers under their PyTorch names */
    LC_CKPT_OPTIMIZER = 1, /* optimizer.safetensors */
    LC_CKPT_TENSORS = 2,   /* tensors.safetensors: other state that is tensors */
    LC_CKPT_KINDS = 3,
} lc_ckpt_kind;

typedef struct lc_ckpt_writer lc_ckpt_writer;

/* ---- reading ---- */
typedef struct lc_checkpoint lc_checkpoint;

/* A file of a checkpoint, as its manifest lists it. */
typedef struct lc_checkpoint_file {
    const char *name;
    uint64_t bytes;
    uint32_t crc32c;
    const char *damage; /* NULL: every byte is what was saved; else what is wrong, in a sentence */
} lc_checkpoint_file;
typedef lc_status lc_checkpoint_file_fn(void *ctx, const lc_checkpoint_file *file);

LC_BEGIN_DECLS

/* ---- writing ---- */

/* A writer, with a background thread while a checkpoint is written. It keeps the memory of its snapshot from one
 * checkpoint to the next. */
LC_API lc_status lc_ckpt_writer_new(lc_ckpt_writer **out) LC_MUST_USE;
/* Waits for a checkpoint in flight; its error, if any, is lost: call lc_ckpt_wait before. NULL is fine. */
LC_API void lc_ckpt_writer_free(lc_ckpt_writer *w);

/* Starts a checkpoint at `path` (its parent directories are made). Waits for the one in flight and returns its error,
 * if it had one; in that case nothing was started: call again. */
LC_API lc_status lc_ckpt_begin(lc_ckpt_writer *w, const char *path) LC_MUST_USE;
/* Adds a tensor. The name is copied; the value is only looked at by lc_ckpt_commit. */
LC_API lc_status lc_ckpt_add_tensor(lc_ckpt_writer *w, lc_ckpt_kind kind, const char *name, lc_tensor *t) LC_MUST_USE;
/* The same from row-major memory, which must stay as it is until lc_ckpt_commit returns. */
LC_API lc_status lc_ckpt_add_data(lc_ckpt_writer *w, lc_ckpt_kind kind, const char *name, const lc_type *type,
                                  const void *data) LC_MUST_USE;
/* The same from an open file, which must stay open until lc_ckpt_commit returns. Takes no memory: commit with `wait`,
 * and the value is copied from file to file. */
LC_API lc_status lc_ckpt_add_stored(lc_ckpt_writer *w, lc_ckpt_kind kind, lc_safetensors *from, int64_t i) LC_MUST_USE;
/* The root of state.json; fill it before lc_ckpt_commit. Borrowed. */
LC_API lc_state *lc_ckpt_state(lc_ckpt_writer *w);
/* As soon as the checkpoint that was begun (if none was: the one committed last) is safe, the background thread makes
 * `link` ("DIR/last.ckpt") a symbolic link to it; if it is not saved, nothing happens. The checkpoint must be in
 * the link's directory or in a folder below it (LC_ERR_ARGUMENT). If called before lc_ckpt_commit, an error of linking
 * is part of the commit's result. A checkpoint with the link's name is removed. LC_ERR_STATE: no checkpoint
 * was begun or committed. */
LC_API lc_status lc_ckpt_then_link(lc_ckpt_writer *w, const char *link) LC_MUST_USE;
/* Removes an older checkpoint at the same moment. A failure to remove it is not part of the result. */
LC_API lc_status lc_ckpt_then_remove(lc_ckpt_writer *w, const char *path) LC_MUST_USE;
/* Takes the snapshot. With `wait` it returns when the checkpoint is durable, read back and under its name; otherwise a
 * thread does that and the result comes from the next lc_ckpt_wait or lc_ckpt_begin. A checkpoint at that path is
 * replaced (the old one is removed, in the background, after the new one has its name). A file, a directory that is not
 * a checkpoint, or one with any foreign entry is left unchanged, and is an error that names it (LC_ERR_STATE). */
LC_API lc_status lc_ckpt_commit(lc_ckpt_writer *w, bool wait) LC_MUST_USE;
/* Waits for the checkpoint in flight and returns its result (once); LC_OK if there is none. */
LC_API lc_status lc_ckpt_wait(lc_ckpt_writer *w) LC_MUST_USE;
/* True if a checkpoint is in flight; false when it is safe, which may be before links are made and others removed. */
LC_API bool lc_ckpt_busy(lc_ckpt_writer *w);
/* Drops the checkpoint that was begun and not committed. A checkpoint in flight continues. */
LC_API void lc_ckpt_abort(lc_ckpt_writer *w);

/* ---- reading ---- */

/* Opens a checkpoint and verifies every byte of it. An error names the file and what is wrong with it, and the newest
 * good checkpoint in the same directory, if there is one. */
LC_API lc_status lc_checkpoint_open(const char *path, lc_checkpoint **out) LC_MUST_USE;
LC_API void lc_checkpoint_close(lc_checkpoint *c);             /* NULL is fine */
LC_API const char *lc_checkpoint_path(const lc_checkpoint *c); /* without symbolic links */
LC_API const lc_state *lc_checkpoint_state(const lc_checkpoint *c);
/* Its tensors of a kind, whichever ranks wrote them, or NULL if it has none. Borrowed. */
LC_API lc_safetensors *lc_checkpoint_tensors(lc_checkpoint *c, lc_ckpt_kind kind);

/* When it was saved: nanoseconds since 1970. */
LC_API int64_t lc_checkpoint_saved_ns(const lc_checkpoint *c);

/* LC_OK if every byte is what was written. */
LC_API lc_status lc_checkpoint_verify(const char *path) LC_MUST_USE;
/* The same, and calls fn for every file that the manifest lists, whether it is whole or not. Returns what fn returned
 * if that was an error, else the first damage. */
LC_API lc_status lc_checkpoint_visit_files(const char *path, lc_checkpoint_file_fn *fn, void *ctx) LC_MUST_USE;
/* The newest checkpoint in `dir` that can be opened (by the time it was saved; of the symbolic links, only those to a
 * checkpoint in a folder below are followed). One that lost its name to a new one whose writer died gets it back first;
 * nothing is removed. LC_ERR_NOT_FOUND if there is none. */
LC_API lc_status lc_checkpoint_find_last_good(const char *dir, char *path, size_t size) LC_MUST_USE;

/* ---- maintenance ---- */
/* Makes `link` ("DIR/last.ckpt") a symbolic link to the checkpoint `path`, which is in the same directory or in a
 * folder below it, atomically replacing a link of that name. The link's target is relative. */
LC_API lc_status lc_checkpoint_link(const char *link, const char *path) LC_MUST_USE;
/* Removes a checkpoint: it loses its name first, so that it is never seen in part. Symbolic links to it stay; links in
 * it are removed, never followed. LC_ERR_NOT_FOUND: nothing is at `path`. LC_ERR_ARGUMENT: it is a file, a link, or a
 * directory without a manifest.json of lightc. LC_ERR_STATE: it holds an entry that its manifest does not list; the
 * error names it. After an error nothing has been removed. */
LC_API lc_status lc_checkpoint_remove(const char *path) LC_MUST_USE;
/* Removes leftovers of dead processes in `dir`: half-written and half-removed checkpoints, in directories that lightc
 * has named and marked, and that hold nothing else. lc_ckpt_commit does this first; reading never does. */
LC_API lc_status lc_checkpoint_clean(const char *dir) LC_MUST_USE;

LC_END_DECLS
#endif
