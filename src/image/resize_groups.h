/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing along x by AVX-512: what it needs to know of the weights, which is the same for all rows of a picture. */
#ifndef LC_IMAGE_RESIZE_GROUPS_H
#define LC_IMAGE_RESIZE_GROUPS_H

#include "image/resize_rows.h"

#include <stdbool.h>

/* A group is sixteen bytes of the result next to each other. They come from at most 128 of the source, which two
 * registers hold. A step picks two sources for each of the sixteen, and multiplies them by their weights. */
typedef struct lc__resize_groups {
    int64_t n, steps; /* n = 0: not for this machine, or not for these sizes */
    int64_t last;     /* where the last group is in the result; the others are one after the other */
    int channels, bits;
    int16_t *weights; /* [n,steps,16,2] */
    uint8_t *index;   /* [n,16,4]: the first two sources of each byte, each twice; those of the next step follow them */
    int64_t *from;    /* [n]: where the 128 bytes begin */
} lc__resize_groups;

/* Sets *bytes to the room for rows of `to` bytes with at most `taps` weights each; false: it is more than there is. */
bool lc__resize_groups_room(size_t to, int64_t taps, size_t *bytes);
/* For rows of `from` pixels; `room` begins at a multiple of 64 bytes. */
void lc__resize_groups_prepare(lc__resize_groups *g, const lc__resize_weights *w, int64_t from, void *room);
/* As lc__resize_along_x. */
void lc__resize_groups_row(const lc__resize_groups *g, const uint8_t *row, uint8_t *to);

#endif
