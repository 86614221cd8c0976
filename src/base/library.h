/* SPDX-License-Identifier: Apache-2.0 */
/* Shared objects that a user names. */
#ifndef LC_BASE_LIBRARY_H
#define LC_BASE_LIBRARY_H

#include <lightc/status.h>

/* dlopen with these flags. What is not a file is refused at once: LC_ERR_FORMAT; dlopen would wait for the writer of a
 * FIFO. Other failures are LC_ERR_NOT_FOUND with the text of dlerror. A name without a slash is searched for. On
 * failure *out is NULL. */
lc_status lc__library_open(const char *path, int flags, void **out) LC_MUST_USE;

#endif
