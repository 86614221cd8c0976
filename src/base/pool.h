/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of this process that help with loops.
 *
 * A loop is cut into pieces. The caller takes one piece after the other; so does every helper that has a processor at
 * that time. The caller waits only for helpers that are in the middle of a piece, so a helper that is not scheduled
 * holds up one piece at most. Helpers that find nothing to do spin for some microseconds, then they sleep.
 *
 * There is one set of helpers in a process, because the processors belong to the process: callers on several threads
 * share them. They are started when a loop first wants them, and stay. A forked child has none, and starts its own. */
#ifndef LC_BASE_POOL_H
#define LC_BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define LC__POOL_SEATS      128   /* threads that work on one loop, at most */
#define LC__POOL_MAX_PIECES 65535 /* of a loop */

/* Does a piece. `seat` is in [0, threads); no two threads have the same one at a time, so it can index their scratch
 * memory. */
typedef void lc__piece_fn(void *context, int64_t piece, int seat);

/* Calls fn for every piece in [0, pieces), pieces <= LC__POOL_MAX_PIECES, on at most `threads` threads, of which the
 * caller's is one. Each thread begins with a run of neighboring pieces of its own, the same in loops of the same number
 * of pieces, and takes from the others' runs afterwards. Allocates nothing once the helpers are there; a piece may run
 * a loop itself.
 *
 * Fewer threads than asked for take part while the last loops show that one fewer would have been as fast (lost
 * processors); after a while one more is tried. */
void lc__pool_run(int threads, int64_t pieces, lc__piece_fn *fn, void *context);

/* Whether helpers have been started: then a core that is not the caller's may have in its caches what the caller has
 * written before. */
bool lc__pool_helps(void);

/* For tests: how many threads the next loop that asks for `threads` begins with. */
int lc__pool_allowed(int threads);

#endif
