/* SPDX-License-Identifier: Apache-2.0 */
/* Work on the pieces of a large file with a few threads that live as long as the call. For input and output, for which
 * the engine's threads are of no use. */
#ifndef LC_BASE_CHUNKS_H
#define LC_BASE_CHUNKS_H

#include <lightc/status.h>
#include <stdint.h>

#define LC__CHUNK ((uint64_t)4 << 20)

/* Calls fn(ctx, i) for every i in [0, n) on several threads, the caller's among them. Calls start in ascending order;
 * after an error no more are started; the first error and its message are returned. */
lc_status lc__for_chunks(uint64_t n, lc_status (*fn)(void *ctx, uint64_t i), void *ctx);

#endif
