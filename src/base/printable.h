/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown to people may come from a stranger, a file, or another host. lc_fail and lc__show_line see to it for
 * what they are given; a text that is put together otherwise, or that comes over a connection, goes through here. */
#ifndef LC_BASE_PRINTABLE_H
#define LC_BASE_PRINTABLE_H

#include <lightc/status.h>

/* As lc_printable: of n bytes, or as many as come before a NUL. Returns the length of what it has written. */
size_t lc__printable(const char *from, size_t n, bool lines, char *text, size_t size);
/* The length without the beginning of a character whose rest was cut off at n. */
size_t lc__cut_character(const char *text, size_t n);
/* Whether lines in what this format makes are meant: its own, or those of a text that is passed on whole. */
bool lc__format_has_lines(const char *format);

#endif
