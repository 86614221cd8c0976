/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays: room for the requested elements, capacities for each type, and an error that changes nothing if the
 * request is too large. */
#include "base/grow.h"
#include "test.h"

TEST(elements_stay_and_capacities_double)
{
    int64_t *list = NULL;
    int capacity = 0, times = 0;
    for (int i = 0; i < 10000; i++) {
        int before = capacity;
        CHECK_OK(lc__grow(&list, &capacity, i, 1, "numbers"));
        CHECK(capacity > i);
        times += capacity != before;
        list[i] = i;
    }
    CHECK(times < 12);
    for (int i = 0; i < 10000; i++) CHECK_EQ(list[i], i);
    CHECK_OK(lc__grow(&list, &capacity, 10000, 90000, "numbers"));
    CHECK(capacity >= 100000);
    CHECK_EQ(list[9999], 9999);
    free(list);
}

TEST(capacities_of_each_type)
{
    char *a = NULL, *b = NULL, *c = NULL;
    uint32_t narrow = 0;
    int64_t wide = 0;
    size_t size = 0;
    CHECK_OK(lc__grow(&a, &narrow, 0, 1000, "bytes"));
    CHECK_OK(lc__grow(&b, &wide, 0, 1000, "bytes"));
    CHECK_OK(lc__grow(&c, &size, 0, 1000, "bytes"));
    CHECK(narrow == 1000 && wide == 1000 && size == 1000);
    memset(a, 1, narrow), memset(b, 1, (size_t)wide), memset(c, 1, size);
    free(a), free(b), free(c);
}

TEST(a_capacity_that_is_not_stored)
{
    struct element {
        char bytes[24];
    } *list = NULL;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(lc__grow_one(&list, i, "elements"));
        memset(&list[i], i, sizeof list[i]); /* a sanitizer detects elements that do not fit */
    }
    for (int i = 0; i < 1000; i++) CHECK_EQ(list[i].bytes[23], (char)i);
    free(list);
}

TEST(too_large_a_request_is_an_error_and_changes_nothing)
{
    double *list = NULL, *was;
    int capacity = 0;
    int64_t wide;
    size_t size;
    CHECK_OK(lc__grow(&list, &capacity, 0, 5, "numbers"));
    was = list;
    wide = capacity, size = (size_t)capacity;
    CHECK_STATUS(lc__grow(&list, &capacity, capacity, INT32_MAX, "numbers"), LC_ERR_MEMORY);
    CHECK_STR(lc_error_message(), "out of memory: numbers");
    CHECK_STATUS(lc__grow(&list, &wide, wide, INT64_MAX, "numbers"), LC_ERR_MEMORY);
    CHECK_STATUS(lc__grow(&list, &wide, wide, INT64_MAX / 8, "numbers"), LC_ERR_MEMORY); /* overflows in bytes */
    CHECK_STATUS(lc__grow(&list, &size, size, SIZE_MAX, "numbers"), LC_ERR_MEMORY);
    CHECK_STATUS(lc__grow(&list, &size, size, SIZE_MAX - size + 1, "numbers"), LC_ERR_MEMORY); /* overflows to 0 */
    CHECK(list == was && wide == capacity && size == (size_t)capacity);
    free(list);
}

TEST_MAIN
