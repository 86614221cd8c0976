/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two sides that write a checkpoint: the caller's (write.c, write_files.c) and the background thread's
 * (write_job.c). */
#ifndef LC_CORE_CHECKPOINT_WRITE_JOB_H
#define LC_CORE_CHECKPOINT_WRITE_JOB_H

#include "base/handle.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/taken.h"
#include "safetensors/safetensors_impl.h"
#include "base/status.h"
#include <pthread.h>

/* A tensor to write. */
typedef struct lc__ckpt_entry {
    lc_named_tensor named; /* owned name; one-dimensional for a range */
    lc_safetensors *from;  /* not NULL: the value is tensor `from_index` of this file */
    int64_t from_index;
    char *mapped; /* the value, if the tensor stays mapped until the commit is over, or NULL */
    bool mine;    /* only this rank has it, or these elements of it */
    bool ranged;  /* elements from `first` on of a tensor of type `whole`, in the order of `layout` */
    lc_type whole;
    lc_layout layout;
    int64_t first;
} lc__ckpt_entry;

/* Contiguous bytes of a file, in memory or (`data` NULL) in another file. */
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
    lc__st_layout all; /* rank 0 of several: tensors that all ranks have and that must exist in the end */
    uint64_t size;     /* bytes of the file; 0: no file */
    /* A snapshot: */
    char *image; /* kept from one checkpoint to the next */
    size_t image_capacity;
    uint64_t ready; /* bytes copied to the image; under the lock */
    /* Or, if the caller waits, the values in place: */
    lc__ckpt_source *sources; /* in the order of the file, header first; NULL: snapshot */
    int64_t n_sources;
} lc__ckpt_file;

/* Work to do when a checkpoint is safe. */
typedef struct lc__ckpt_chore {
    struct lc__ckpt_chore *next;
    bool late;    /* requested after the commit: errors are not part of its result */
    uint64_t job; /* number of the checkpoint */
    char *link;   /* becomes a link to `path`; NULL: remove `path` */
    char *path;   /* a checkpoint or, if `raw`, the replaced entry under its temporary name */
    bool raw;
    size_t trusted;    /* as in lc__open_parent */
    char training[48]; /* remove only checkpoints of this training, also to make a link; "": of any */
    lc__taken *taken;  /* the link's reserved name, until the link is made */
} lc__ckpt_chore;

struct lc_ckpt_writer {
    lc__mark mark;
    const lc__io *io;
    lc__ckpt_file files[LC_CKPT_KINDS];
    lc__ckpt_origin origin;
    lc_state *state; /* not NULL: a checkpoint was begun */
    char *path;
    lc__taken *taken;   /* its reserved name */
    lc__taken *dropped; /* a reserved name to release later */
    /* The checkpoint in flight, or the last one. */
    char *job_path, *state_text;
    lc__taken *job_taken;
    size_t state_length;
    bool in_flight; /* the result has not been fetched */
    pthread_t thread;
    bool has_thread; /* from the first checkpoint on */
    /* If several ranks write one checkpoint: */
    struct {
        int rank, size; /* size 0: only this writer */
        char *dir;      /* the temporary directory, made by rank 0 */
        int lock_fd;    /* rank 0: the lock against removal by others; -1: none */
    } joint;
    bool together;               /* the ranks have not agreed on its result yet */
    lc__first_error joint_error; /* this rank's error before handing over */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    uint64_t job;           /* number of the last checkpoint handed over */
    uint64_t done;          /* number of the last one with a result */
    bool cancelled;         /* copying failed */
    bool joint_safe;        /* the files of this rank are written and read back */
    bool given_up;          /* do not wait for unfinished ranks */
    bool quit, idle;        /* the thread must end; has nothing to do */
    lc__first_error result; /* of `done` */
    lc__ckpt_chore *chores; /* oldest first */
    char complaint[1024];   /* the error of a late link */
};

/* Makes a locked directory with a temporary name next to `path`, containing LC__MARK. */
lc_status lc__ckpt_make_temp(const lc__io *io, const char *path, char **temp, int *lock_fd);

/* Removes the mark before the directory gets its name. A directory that keeps it is still a checkpoint. */
void lc__ckpt_unmark(const lc__io *io, const char *dir);
/* Gives the finished directory its name in `parent`. *old: new path of the entry that had the name (NULL: none). */
lc_status lc__ckpt_put_in_place(lc_ckpt_writer *w, const char *parent, char **temp, char **old);

/* Prepares this writer's file of kind k: its entries, the layout, and memory for a snapshot if needed. `load` [ranks]:
 * bytes that each rank writes for earlier kinds; those of this kind are added. */
lc_status lc__ckpt_prepare(lc_ckpt_writer *w, int k, bool wait, uint64_t *load) LC_MUST_USE;
/* Takes the snapshot, while the background thread writes the part already copied. */
lc_status lc__ckpt_copy_file(lc_ckpt_writer *w, lc__ckpt_file *p) LC_MUST_USE;
void lc__ckpt_clear_entries(lc_ckpt_writer *w);

/* The background thread: writes checkpoints handed over, then does the chores. `arg` is the lc_ckpt_writer. */
void *lc__ckpt_run(void *arg);
/* The same, once, on the caller's thread. */
void lc__ckpt_run_once(lc_ckpt_writer *w);
void lc__ckpt_do_chores(lc_ckpt_writer *w);
void lc__ckpt_chore_free(lc__ckpt_chore *c); /* NULL is fine */

#endif
