/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer, the reader and the housekeeping of checkpoints share. */
#ifndef LC_CORE_CHECKPOINT_H
#define LC_CORE_CHECKPOINT_H

#include <lightc/checkpoint.h>
#include "core/io.h"

#define LC__MANIFEST   "manifest.json"
#define LC__STATE      "state.json"
#define LC__CKPT_FILES 64

typedef struct lc__manifest_file {
    char name[64];
    uint64_t size;
    uint32_t crc;
} lc__manifest_file;

typedef struct lc__manifest {
    int64_t saved_ns;
    int n;
    lc__manifest_file files[LC__CKPT_FILES];
} lc__manifest;

/* "model.safetensors" */
const char *lc__part_name(lc_ckpt_part part);

lc_status lc__manifest_print(const lc__manifest *m, char **text, size_t *length);
/* Reads and checks the manifest of a checkpoint (but not its files). */
lc_status lc__manifest_read(const lc__io *io, const char *dir, lc__manifest *out);
/* Reads every byte of every file and compares sizes and checksums. */
lc_status lc__manifest_check(const lc__io *io, const char *dir, const lc__manifest *m);
lc_status lc__manifest_check_file(const lc__io *io, const char *dir, const lc__manifest_file *f);

/* A name in `parent` for something unfinished, in new memory: ".KIND-BASE-HOST-PID-NUMBER".
 * Kinds: "tmp" being written, "old" moved away for a new one of its name, "del" being removed. */
lc_status lc__ckpt_temp_name(const char *parent, const char *kind, const char *base, char **out);

/* Waits until the background thread has nothing left to do. */
void lc__ckpt_rest(lc_ckpt_writer *w);
/* Why a link could not be made that was asked for after lc_ckpt_commit; false if there is nothing to say. */
bool lc__ckpt_complaint(lc_ckpt_writer *w, char *text, size_t size);
/* Another lc__io for a writer's files. */
void lc__ckpt_writer_set_io(lc_ckpt_writer *w, const lc__io *io);

#endif
