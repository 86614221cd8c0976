/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow: capacities double, sizes are computed with overflow checks, and failure is one error. */
#ifndef LC_BASE_GROW_H
#define LC_BASE_GROW_H

#include <lightc/status.h>

#include <stddef.h>
#include <stdint.h>

/* Makes room for `more` elements after the first n: lc__grow(&list, &capacity, n, 1, "names of files"). A capacity is
 * an int, or an integer of 32 or 64 bits; it is never reduced, so refilling an array allocates nothing, and arrays of
 * the same length may share a capacity (each with a copy of it: the same calls give the same capacity). When it fails
 * ("out of memory: names of files"), array and capacity stay as they were. */
#define lc__grow(array, capacity, n, more, what)                                                                       \
    ((uint64_t)(more) <= (uint64_t) * (capacity) - (uint64_t)(n)                                                       \
         ? LC_OK                                                                                                       \
         : lc__grow_array(array, capacity, sizeof *(capacity), (uint64_t)(n), (uint64_t)(more), sizeof **(array),      \
                          what))

/* Makes room for one element more than n in an array whose capacity is not stored: it follows from n. */
#define lc__grow_one(array, n, what) lc__grow_counted(array, (uint64_t)(n), sizeof **(array), what)

/* `array` is a T **. */
lc_status lc__grow_array(void *array, void *capacity, size_t capacity_size, uint64_t n, uint64_t more, size_t size,
                         const char *what) LC_MUST_USE;
lc_status lc__grow_counted(void *array, uint64_t n, size_t size, const char *what) LC_MUST_USE;

#endif
