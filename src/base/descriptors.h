/* SPDX-License-Identifier: Apache-2.0 */
/* The limit on file descriptors. */
#ifndef LC_BASE_DESCRIPTORS_H
#define LC_BASE_DESCRIPTORS_H

#include <lightc/status.h>

/* Raises this process's limit, as far as allowed, if `more` descriptors on top of the open ones would exceed it. */
void lc__descriptors_allow(int more);
/* Whether the error means that no descriptor was left: EMFILE, ENFILE. */
bool lc__descriptors_lacked(int error);
/* About how many more this process may open. */
long long lc__descriptors_left(void);
/* The limit that `ulimit -n` prints; -1: no limit. */
long long lc__descriptors_limit(void);

#endif
