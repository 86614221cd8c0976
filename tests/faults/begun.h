/* SPDX-License-Identifier: Apache-2.0 */
/* A struct as a program has it that was compiled with older headers. */
#ifndef LC_TESTS_BEGUN_H
#define LC_TESTS_BEGUN_H

#include "test.h"

/* Memory that contains the first `size` bytes of a struct, followed by bytes that must not be read. */
static inline void *begun(const void *full, size_t size)
{
    char *p = malloc(size + 4096);
    CHECK(p != NULL);
    memset(p, 0xff, size + 4096);
    memcpy(p, full, size);
    *(size_t *)(void *)p = size;
    return p;
}

#endif
