/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting the ranks of a run, and closing their connections. */
#ifndef LC_COMM_WORLD_CONNECT_H
#define LC_COMM_WORLD_CONNECT_H

#include "comm/world/world.h"

/* `backend`: as in lc__world_args, but not NULL. Collective. Call lc__world_disconnect afterwards, even if it
 * failed. */
lc_status lc__world_connect(lc__world *w, const lc__world_args *o, const char *backend) LC_MUST_USE;
void lc__world_disconnect(lc__world *w);

/* `list` ends with NULL. */
bool lc__is_one_of(const char *name, const char *const *list);

#endif
