/* SPDX-License-Identifier: Apache-2.0 */
/* Which arrays of a file a field names. */
#ifndef LC_DATA_FILES_NAMES_H
#define LC_DATA_FILES_NAMES_H

#include <lightc/array_file.h>

/* The arrays that `field`, one of `n`, stands for: *count numbers at *which (free). */
lc_status lc__arrays_of_field(int n, const lc_file_field *fields, const lc_file_field *field, int64_t **which,
                              int64_t *count) LC_MUST_USE;

#endif
