/* SPDX-License-Identifier: Apache-2.0 */
/* How the prints of a rank that mpirun started reach lightc's supervisor.
 *
 * mpirun mixes what ranks print into one stream, and its way to distinguish them (--tag-output) loses bytes when there
 * are many short lines. So ranks other than 0 print into a pipe, and a helper process for each sends the output in
 * frames: over the rank's standard error, which is a pipe wherever the rank runs. That process outlives the rank,
 * whatever kills it, until the pipe is empty. Rank 0 prints as it would without lightc.
 *
 * A frame has a fixed size, and mpirun's blocks (4 KiB) hold whole ones: no other rank's bytes come in between. It
 * begins with a byte that text does not have, and the name of the run. */
#ifndef LC_COMM_WORLD_PRINTS_H
#define LC_COMM_WORLD_PRINTS_H

#include <stddef.h>

enum {
    LC__MARK_SIZE = 16, /* characters of the mark, the value of LIGHTC_KEEP */
    LC__PRINT_SIZE = 512,
    LC__PRINT_HEAD = 1 + LC__MARK_SIZE + 4 + 2, /* the byte, the mark, the rank, how many of its bytes follow */
    LC__PRINT_BYTES = LC__PRINT_SIZE - LC__PRINT_HEAD
};

/* A frame with n <= LC__PRINT_BYTES bytes of a rank. */
void lc__print_make(char frame[LC__PRINT_SIZE], const char *mark, int rank, const char *bytes, size_t n);

/* Takes a stream apart, in whatever pieces it arrives. Set the mark and the functions, all else is 0. Bytes outside of
 * frames are passed on as they arrive: only bytes that may begin a frame wait for those that decide it. */
typedef struct lc__prints {
    char mark[LC__MARK_SIZE + 1];
    void (*other)(void *ctx, const char *bytes, size_t n);
    void (*of_rank)(void *ctx, int rank, const char *bytes, size_t n);
    void *ctx;
    size_t n; /* held */
    char held[LC__PRINT_SIZE];
} lc__prints;

void lc__prints_take(lc__prints *f, const char *bytes, size_t n);
/* The stream has ended, perhaps inside of a frame, whose bytes so far are passed on. */
void lc__prints_end(lc__prints *f);

#define LC__FORWARDER "lightc-prints" /* the name of a rank's helper process */

/* In a rank: from now on its prints are sent in frames, if LIGHTC_KEEP asks for it and this is not rank 0. Unsets the
 * variable, for programs that this process starts. If it fails, prints go to the terminal. */
void lc__prints_forward(void);

#endif
