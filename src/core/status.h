/* SPDX-License-Identifier: Apache-2.0 */
/* Status, inside the library. */
#ifndef LC_CORE_STATUS_H
#define LC_CORE_STATUS_H

#include <lightc/status.h>

/* How many errors this thread has reported so far, to know whether one happened in a function that cannot return it;
 * *last (may be NULL) is the code of the newest. */
unsigned lc__error_count(lc_status *last);

/* Copies this thread's message, which other errors would replace. */
void lc__copy_message(char *text, size_t size);

#endif
