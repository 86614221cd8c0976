/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer, the reader and the housekeeping of checkpoints share. */
#ifndef LC_CORE_CHECKPOINT_CHECKPOINT_H
#define LC_CORE_CHECKPOINT_CHECKPOINT_H

#include <lightc/checkpoint.h>
#include "base/io.h"

#define LC__MANIFEST     "manifest.json"
#define LC__STATE        "state.json"
#define LC__FORMAT       "lightc checkpoint"  /* the manifest's `format` */
#define LC__MARK         ".lightc-unfinished" /* an empty file in a directory that is being written */
#define LC__NEW_LINK     ".link"              /* a link in such a directory, before it gets its name */
#define LC__MAX_MANIFEST ((size_t)1 << 26)

typedef struct lc__manifest_file {
    char name[64];
    uint64_t size;
    uint32_t crc;
} lc__manifest_file;

/* By whom a checkpoint was saved. */
typedef struct lc__ckpt_origin {
    char run[24];      /* whose ranks may be started again (LIGHTC_RUN); "": of none */
    int64_t fit;       /* which of the program's fits, counted from 1; 0: it was none */
    char training[48]; /* which training, a text that no other one has; what goes on from a checkpoint has the same */
} lc__ckpt_origin;

typedef struct lc__manifest {
    int64_t saved_ns;
    lc__ckpt_origin origin;
    int ranks;   /* that wrote it together; 0: written by one rank */
    char id[24]; /* then: of this save, in every file of tensors too */
    int n, capacity;
    lc__manifest_file *files;
} lc__manifest;

#define LC__ST_CHECKPOINT "checkpoint" /* the key of `id` in the metadata of such a file */

/* "model.safetensors" */
const char *lc__part_name(lc_ckpt_part part);
/* "model-00002-of-00004.safetensors" for rank 1 of 4; lc__part_name for one of 0. */
void lc__part_file(lc_ckpt_part part, int rank, int ranks, char name[64]);

lc_status lc__manifest_add(lc__manifest *m, const char *name, uint64_t size, uint32_t crc);
void lc__manifest_release(lc__manifest *m);

lc_status lc__manifest_print(const lc__manifest *m, char **text, size_t *length);
/* Reads and checks the manifest of a checkpoint (but not its files). Released by the caller, also when it fails. */
lc_status lc__manifest_read(const lc__io *io, const char *dir, lc__manifest *out);
/* The same of its text. */
lc_status lc__manifest_parse(const char *text, size_t length, const char *path, lc__manifest *out);
/* The same of a file of that form, which says what one rank has written. */
lc_status lc__manifest_read_file(const lc__io *io, const char *path, lc__manifest *out);
/* The tensors of a part; *out is NULL where there are none. */
lc_status lc__manifest_open_part(const lc__io *io, const char *dir, const lc__manifest *m, lc_ckpt_part part,
                                 lc_safetensors **out);
/* Reads every byte of every file and compares sizes and checksums. */
lc_status lc__manifest_check(const lc__io *io, const char *dir, const lc__manifest *m);
lc_status lc__manifest_check_file(const lc__io *io, const char *dir, const lc__manifest *m, int i);

/* state.json, unverified, in new memory. */
lc_status lc__ckpt_read_state(const char *path, lc_state **out);

/* lc_checkpoint_open by n readers, who each verify a share of the files and then compare notes. */
lc_status lc__checkpoint_open_share(const char *path, int reader, int n, lc_checkpoint **out);

/* By whom it was saved. Borrowed. */
const lc__ckpt_origin *lc__checkpoint_origin(const lc_checkpoint *c);

/* Whether it is known how the checkpoint in flight went; then *status says so, and lc_ckpt_wait still will. */
bool lc__ckpt_peek(lc_ckpt_writer *w, lc_status *status);
/* Several ranks write it, and have not agreed on how it went yet (lc__ckpt_wait_together). */
bool lc__ckpt_is_shared(const lc_ckpt_writer *w);
/* The background thread has nothing left to do. */
bool lc__ckpt_is_idle(lc_ckpt_writer *w);
/* Waits until it has. */
void lc__ckpt_rest(lc_ckpt_writer *w);
/* Why a link could not be made that was asked for after lc_ckpt_commit; false if there is nothing to say. */
bool lc__ckpt_complaint(lc_ckpt_writer *w, char *text, size_t size);
/* For the checkpoint that was begun. */
void lc__ckpt_set_origin(lc_ckpt_writer *w, const lc__ckpt_origin *origin);
/* Another lc__io for a writer's files. */
void lc__ckpt_writer_set_io(lc_ckpt_writer *w, const lc__io *io);

/* read.c. Returns s; an error names the checkpoint, if its message does not yet. */
lc_status lc__name_checkpoint(const char *path, lc_status s) LC_MUST_USE;

#endif
