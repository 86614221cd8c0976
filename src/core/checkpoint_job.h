/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sides of a checkpoint's writing share: the caller's (checkpoint_write.c) and the background thread's
 * (checkpoint_job.c). */
#ifndef LC_CORE_CHECKPOINT_JOB_H
#define LC_CORE_CHECKPOINT_JOB_H

#include "core/checkpoint.h"
#include "core/safetensors.h"
#include <pthread.h>

/* Bytes of a file that lie together in memory. */
typedef struct lc__ckpt_source {
    const char *data;
    uint64_t offset, bytes; /* in the file */
} lc__ckpt_source;

typedef struct lc__ckpt_file {
    lc_named_tensor *entries; /* names are ours */
    int64_t n, capacity;
    lc__st_layout layout;
    uint64_t size; /* bytes of the file; 0: there is none */
    /* A snapshot: */
    char *image; /* kept from one checkpoint to the next */
    size_t image_capacity;
    uint64_t ready; /* bytes of the image that are copied; under the lock */
    /* or, where the caller waits, the places themselves: */
    lc__ckpt_source *sources; /* in the order of the file, the header first; NULL: there is a snapshot */
    int64_t n_sources;
} lc__ckpt_file;

struct lc_ckpt_writer {
    const lc__io *io;
    lc__ckpt_file parts[LC_CKPT_PARTS];
    lc_state *state; /* not NULL: a checkpoint was begun */
    char *path;
    char **afterwards; /* "l" or "r" in front of the path of a link to make or a checkpoint to remove */
    int n_afterwards;
    /* The checkpoint in flight. */
    char *job_path, *state_text, *old;
    char **job_afterwards;
    int job_n_afterwards;
    size_t state_length;
    pthread_t thread;
    bool in_flight; /* there is a result to fetch */
    bool joinable;  /* there is a thread to join */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool cancelled;   /* under the lock: copying failed */
    bool finished;    /* under the lock */
    lc_status result; /* valid once finished */
    char message[1024];
};

/* Writes the checkpoint and leaves its result in the writer; `arg` is the lc_ckpt_writer. */
void *lc__ckpt_run(void *arg);

#endif
