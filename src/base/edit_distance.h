/* SPDX-License-Identifier: Apache-2.0 */
/* How far two names are apart: for the suggestion in an error about a misspelled one. */
#ifndef LC_BASE_EDIT_DISTANCE_H
#define LC_BASE_EDIT_DISTANCE_H

#include <stddef.h>

/* The number of letters to insert, drop or change between two names, where swapping two neighbors is one change and "-"
 * equals "_" (optimal string alignment). 64 if one of them is longer than that. */
int lc__edit_distance(const char *a, size_t n, const char *b, size_t m);

#endif
