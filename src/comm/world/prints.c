/* SPDX-License-Identifier: Apache-2.0 */
/* The frames in which a rank's prints travel (prints.h). */
#include "comm/world/prints.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FIRST '\x1e' /* a mark does not have it, so no frame begins inside the head of another */

void lc__print_make(char frame[LC__PRINT_SIZE], const char *mark, int rank, const char *bytes, size_t n)
{
    unsigned char *head = (unsigned char *)frame + 1 + LC__MARK_SIZE;
    memset(frame, 0, LC__PRINT_SIZE);
    frame[0] = FIRST;
    memcpy(frame + 1, mark, LC__MARK_SIZE);
    for (int i = 0; i < 4; i++) head[i] = (unsigned char)((unsigned)rank >> 8 * i);
    for (int i = 0; i < 2; i++) head[4 + i] = (unsigned char)(n >> 8 * i);
    memcpy(frame + LC__PRINT_HEAD, bytes, n);
}

/* Passes on what is held if it is a frame, or as much of one as has arrived; else false. */
static bool pass_frame(lc__prints *f)
{
    const unsigned char *head = (const unsigned char *)f->held + 1 + LC__MARK_SIZE;
    uint32_t rank = 0;
    size_t n = 0, there = f->n > LC__PRINT_HEAD ? f->n - LC__PRINT_HEAD : 0;
    if (f->n < LC__PRINT_HEAD) return false;
    for (int i = 3; i >= 0; i--) rank = rank << 8 | head[i];
    for (int i = 1; i >= 0; i--) n = n << 8 | head[4 + i];
    if (rank > INT32_MAX || n > LC__PRINT_BYTES) return false;
    if (n > there) n = there;
    if (n) f->of_rank(f->ctx, (int)rank, f->held + LC__PRINT_HEAD, n);
    return true;
}

static void pass_held(lc__prints *f)
{
    if (f->n && !pass_frame(f)) f->other(f->ctx, f->held, f->n);
    f->n = 0;
}

void lc__prints_take(lc__prints *f, const char *bytes, size_t n)
{
    for (const char *end = bytes + n; bytes < end;) {
        size_t left = (size_t)(end - bytes);
        if (!f->n) {
            const char *first = memchr(bytes, FIRST, left);
            size_t before = first ? (size_t)(first - bytes) : left;
            if (before) f->other(f->ctx, bytes, before);
            bytes += before;
            if (first) f->held[f->n++] = *bytes++;
        } else if (f->n <= LC__MARK_SIZE) {
            if (*bytes == f->mark[f->n - 1])
                f->held[f->n++] = *bytes++;
            else
                pass_held(f); /* this byte may begin a frame */
        } else {
            size_t part = LC__PRINT_SIZE - f->n < left ? LC__PRINT_SIZE - f->n : left;
            memcpy(f->held + f->n, bytes, part);
            f->n += part;
            bytes += part;
            if (f->n == LC__PRINT_SIZE) pass_held(f);
        }
    }
}

void lc__prints_end(lc__prints *f)
{
    pass_held(f);
}
