/* SPDX-License-Identifier: Apache-2.0 */
/* Text that is shown may come from an untrusted file or another host. lc_fail and lc__show_line clean what they are
 * given; text that is composed otherwise, or that arrives over a connection, goes through these functions. */
#ifndef LC_BASE_PRINTABLE_H
#define LC_BASE_PRINTABLE_H

#include <lightc/status.h>

/* As lc_printable, for n bytes, or those before a NUL. Returns the length written. */
size_t lc__printable(const char *from, size_t n, bool lines, char *text, size_t size);
/* The length without a character that was cut in two at n. */
size_t lc__cut_character(const char *text, size_t n);
/* Whether newlines in what this format makes are intended: its own, or those of a text that is passed on whole. */
bool lc__format_has_lines(const char *format);

#endif
