/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sides of a checkpoint's writing share: the caller's (write.c, write_files.c) and the background thread's
 * (write_job.c). */
#ifndef LC_CORE_CHECKPOINT_WRITE_JOB_H
#define LC_CORE_CHECKPOINT_WRITE_JOB_H

#include "base/handle.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/taken.h"
#include "safetensors/safetensors_impl.h"
#include "base/status.h"
#include <pthread.h>

/* A tensor to be written. */
typedef struct lc__ckpt_entry {
    lc_named_tensor named; /* the name is ours; of a range: one-dimensional */
    lc_safetensors *from;  /* not NULL: the value is that of tensor `from_index` there */
    int64_t from_index;
    char *mapped; /* the value of a tensor that is mapped until the commit is over, or NULL */
    bool mine;    /* no other rank has it, or these elements of it */
    bool ranged;  /* elements from `first` on of a tensor of type `whole`, in the order of `layout` */
    lc_type whole;
    lc_layout layout;
    int64_t first;
} lc__ckpt_entry;

/* Contiguous bytes of a file: in memory, or (`data` is NULL) in another file. */
typedef struct lc__ckpt_source {
    const char *data;
    uint64_t offset, bytes; /* in the file */
    lc_safetensors *from;
    int64_t from_index;
} lc__ckpt_source;

typedef struct lc__ckpt_file {
    lc__ckpt_entry *entries;
    int64_t n, capacity;
    lc__st_layout layout;
    lc__st_layout all; /* rank 0 of several: of what all ranks have, which must be there in the end */
    uint64_t size;     /* bytes of the file; 0: there is none */
    /* A snapshot: */
    char *image; /* kept from one checkpoint to the next */
    size_t image_capacity;
    uint64_t ready; /* bytes of the image that are copied; under the lock */
    /* or, where the caller waits, the places themselves: */
    lc__ckpt_source *sources; /* in the order of the file, the header first; NULL: there is a snapshot */
    int64_t n_sources;
} lc__ckpt_file;

/* What is to be done once a checkpoint is safe. */
typedef struct lc__ckpt_chore {
    struct lc__ckpt_chore *next;
    bool late;    /* asked for after the commit: errors are no part of its result */
    uint64_t job; /* of which checkpoint */
    char *link;   /* to be made a link to `path`; NULL: */
    char *path; /* is removed: a checkpoint, or (`raw`) what had the name of the new one and has a temporary one now */
    bool raw;
    size_t trusted;    /* as in lc__open_parent */
    char training[48]; /* "": of any; else only checkpoints of this training are removed, for a link too */
    lc__taken *taken;  /* the link's name, until it is made */
} lc__ckpt_chore;

struct lc_ckpt_writer {
    lc__mark mark;
    const lc__io *io;
    lc__ckpt_file parts[LC_CKPT_PARTS];
    lc__ckpt_origin origin;
    lc_state *state; /* not NULL: a checkpoint was begun */
    char *path;
    lc__taken *taken;   /* its name, from before it was begun */
    lc__taken *dropped; /* one that is given back when there is time */
    /* The checkpoint in flight, or the last one. */
    char *job_path, *state_text;
    lc__taken *job_taken;
    size_t state_length;
    bool in_flight; /* there is a result to fetch */
    pthread_t thread;
    bool has_thread; /* from the first checkpoint on */
    /* When several ranks write one checkpoint: */
    struct {
        int rank, size; /* size 0: only this writer */
        char *dir;      /* the temporary directory, made by rank 0 */
        int lock_fd;    /* rank 0: keeps others from cleaning it away; -1 */
    } share;
    bool together;               /* its result was not agreed on yet */
    lc__first_error share_error; /* why nothing was committed on this rank */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    uint64_t job;     /* number of the last checkpoint handed over */
    uint64_t done;    /* and of the last one that has a result */
    bool cancelled;   /* copying failed */
    bool share_safe;  /* the files of this rank are written and read back */
    bool given_up;    /* unfinished ranks will not be waited for */
    bool quit, idle;  /* the thread shall end; has nothing to do */
    lc_status result; /* of `done` */
    char message[1024];
    int result_of;          /* the rank on which that error happened; -1: this one */
    lc__ckpt_chore *chores; /* oldest first */
    char complaint[1024];   /* about a link that was asked for late and could not be made */
};

/* A new, locked directory with a temporary name next to `path`, and LC__MARK in it. */
lc_status lc__ckpt_make_temp(const lc__io *io, const char *path, char **temp, int *lock_fd);

/* The result of `done`, as this thread's. With the lock. */
lc_status lc__ckpt_result(const lc_ckpt_writer *w) LC_MUST_USE;

/* Takes the mark away, before the directory gets its name. One that keeps it is a checkpoint all the same. */
void lc__ckpt_unmark(const lc__io *io, const char *dir);
/* Gives the finished directory its name, in `parent`. What had it before is at `*old` afterwards (NULL: nothing was).
 */
lc_status lc__ckpt_put_in_place(lc_ckpt_writer *w, const char *parent, char **temp, char **old);

/* What this writer writes of part k: its entries, the layout, and memory for the snapshot if there will be one. `load`
 * [ranks]: bytes that each rank writes of the parts before; this one's are added. */
lc_status lc__ckpt_prepare(lc_ckpt_writer *w, int k, bool wait, uint64_t *load) LC_MUST_USE;
/* Takes the snapshot, while the background thread writes what is there of it. */
lc_status lc__ckpt_copy_part(lc_ckpt_writer *w, lc__ckpt_file *p) LC_MUST_USE;
void lc__ckpt_clear_entries(lc_ckpt_writer *w);

/* The background thread: writes what is handed over, then does the chores. `arg` is the lc_ckpt_writer. */
void *lc__ckpt_run(void *arg);
/* The same, once, on the caller's thread. */
void lc__ckpt_run_once(lc_ckpt_writer *w);
void lc__ckpt_do_chores(lc_ckpt_writer *w);
void lc__ckpt_chore_free(lc__ckpt_chore *c); /* NULL is fine */

#endif
