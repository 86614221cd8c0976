/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the writer, the reader and the cleanup of checkpoints. */
#ifndef LC_CORE_CHECKPOINT_CHECKPOINT_H
#define LC_CORE_CHECKPOINT_CHECKPOINT_H

#include <lightc/checkpoint.h>
#include "base/io.h"

#define LC__MANIFEST     "manifest.json"
#define LC__STATE        "state.json"
#define LC__FORMAT       "lightc checkpoint"  /* the manifest's `format` */
#define LC__MARK         ".lightc-unfinished" /* empty file in a directory that is being written */
#define LC__NEW_LINK     ".link"              /* link in such a directory, before it gets its name */
#define LC__MAX_MANIFEST ((size_t)1 << 26)

typedef struct lc__manifest_file {
    char name[64];
    uint64_t size;
    uint32_t crc;
} lc__manifest_file;

/* The origin of a checkpoint. */
typedef struct lc__ckpt_origin {
    char run[24];      /* run whose ranks may be restarted (LIGHTC_RUN); "": none */
    int64_t fit;       /* number of the program's fit, from 1; 0: not in a fit */
    char training[48]; /* unique id of the training; kept when a training continues from a checkpoint */
} lc__ckpt_origin;

typedef struct lc__manifest {
    int64_t saved_ns;
    lc__ckpt_origin origin;
    int ranks;   /* ranks that wrote it together; 0: one rank alone */
    char id[24]; /* id of such a save, also in every file of tensors */
    int n, capacity;
    lc__manifest_file *files;
} lc__manifest;

#define LC__ST_CHECKPOINT "checkpoint" /* key of `id` in the metadata of a file of tensors */

/* "model.safetensors" */
const char *lc__kind_name(lc_ckpt_kind kind);
/* "model-00002-of-00004.safetensors" for rank 1 of 4; lc__kind_name if `ranks` is 0. */
void lc__kind_file(lc_ckpt_kind kind, int rank, int ranks, char name[64]);

lc_status lc__manifest_add(lc__manifest *m, const char *name, uint64_t size, uint32_t crc);
void lc__manifest_release(lc__manifest *m);

lc_status lc__manifest_print(const lc__manifest *m, char **text, size_t *length);
/* Reads and checks the manifest of a checkpoint (but not its files). The caller releases *out, even if it fails. */
lc_status lc__manifest_read(const lc__io *io, const char *dir, lc__manifest *out);
/* The same from a text. */
lc_status lc__manifest_parse(const char *text, size_t length, const char *path, lc__manifest *out);
/* The same from a file that lists the files of one rank. */
lc_status lc__manifest_read_file(const lc__io *io, const char *path, lc__manifest *out);
/* Opens the tensors of a kind; *out is NULL if there are none. */
lc_status lc__manifest_open_kind(const lc__io *io, const char *dir, const lc__manifest *m, lc_ckpt_kind kind,
                                 lc_safetensors **out);
/* Reads every byte of every file and compares sizes and checksums. */
lc_status lc__manifest_check(const lc__io *io, const char *dir, const lc__manifest *m);
lc_status lc__manifest_check_file(const lc__io *io, const char *dir, const lc__manifest *m, int i);

/* lc_checkpoint_open for one of n readers, each of which verifies some of the files; the caller combines their
 * results. */
lc_status lc__checkpoint_open_together(const char *path, int reader, int n, lc_checkpoint **out);
/* Whether lc_checkpoint_open succeeds; to_continue: and whether a training can continue from it. */
bool lc__checkpoint_opens(const char *path, bool to_continue);

/* The origin of the checkpoint. Borrowed. */
const lc__ckpt_origin *lc__checkpoint_origin(const lc_checkpoint *c);

/* Whether the result of the checkpoint in flight is known; if so, *status is the result. lc_ckpt_wait will still return
 * it. */
bool lc__ckpt_peek(lc_ckpt_writer *w, lc_status *status);
/* Whether several ranks write the checkpoint and have not agreed on the result yet (lc__ckpt_wait_together). */
bool lc__ckpt_is_joint(const lc_ckpt_writer *w);
/* Whether the background thread has nothing left to do. */
bool lc__ckpt_is_idle(lc_ckpt_writer *w);
/* Waits until lc__ckpt_is_idle. */
void lc__ckpt_rest(lc_ckpt_writer *w);
/* Why a link requested after lc_ckpt_commit could not be made; false: no such error. */
bool lc__ckpt_complaint(lc_ckpt_writer *w, char *text, size_t size);
/* Sets the origin of the checkpoint that was begun. */
void lc__ckpt_set_origin(lc_ckpt_writer *w, const lc__ckpt_origin *origin);
/* Sets another lc__io for a writer's files. */
void lc__ckpt_writer_set_io(lc_ckpt_writer *w, const lc__io *io);

/* read.c. Returns s; adds the checkpoint to an error message that does not name it. */
lc_status lc__name_checkpoint(const char *path, lc_status s) LC_MUST_USE;

#endif
