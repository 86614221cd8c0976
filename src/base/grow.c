/* SPDX-License-Identifier: Apache-2.0 */
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ELEMENTS 16
#define FIRST_COUNTED  8

/* The pointer is copied, since a T ** is not a void **. */
static lc_status resize(void *array, uint64_t n, size_t size, const char *what)
{
    void *p;
    size_t bytes;
    memcpy(&p, array, sizeof p);
    void *grown = __builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX ? NULL : realloc(p, bytes);
    if (!grown) return lc_fail(LC_ERR_MEMORY, "out of memory: %s", what);
    memcpy(array, &grown, sizeof grown);
    return LC_OK;
}

lc_status lc__grow_array(void *array, void *capacity, size_t capacity_size, uint64_t n, uint64_t more, size_t size,
                         const char *what)
{
    uint64_t most = capacity_size == sizeof(int32_t) ? INT32_MAX : INT64_MAX, had = 0, want;
    uint32_t narrow;
    if (capacity_size == sizeof narrow) {
        memcpy(&narrow, capacity, sizeof narrow);
        had = narrow;
    } else {
        memcpy(&had, capacity, sizeof had);
    }
    if (__builtin_add_overflow(n, more, &want) || want > most) return lc_fail(LC_ERR_MEMORY, "out of memory: %s", what);
    if (want < 2 * had) want = 2 * had < most ? 2 * had : most;
    if (want < FIRST_ELEMENTS) want = FIRST_ELEMENTS;
    LC_TRY(resize(array, want, size, what));
    narrow = (uint32_t)want;
    memcpy(capacity, capacity_size == sizeof narrow ? (void *)&narrow : (void *)&want, capacity_size);
    return LC_OK;
}

/* The capacity is FIRST_COUNTED, then the power of two above n. */
lc_status lc__grow_counted(void *array, uint64_t n, size_t size, const char *what)
{
    if (n & (n - 1) || (n && n < FIRST_COUNTED)) return LC_OK;
    return resize(array, n ? 2 * n : FIRST_COUNTED, size, what);
}
