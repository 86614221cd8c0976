/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a plan that is being made. */
#include "test.h"

#include "engine/plan/plan_impl.h"

/* The type is in memory that moves when there are more values. */
TEST(a_value_takes_its_type_from_another)
{
    enum { VALUES = 20000 };
    lc_build b = {0};
    CHECK(lc__build_value(&b, &(lc_type){.dtype = LC_BF16, .ndim = 1, .shape = {7}}) == 0);
    for (uint32_t i = 1; i < VALUES; i++) {
        CHECK(lc__build_value(&b, &b.values[i - 1].type) == i);
        const lc_type *t = &b.values[i].type;
        CHECK(t->dtype == LC_BF16 && t->ndim == 1 && t->shape[0] == 7);
    }
    free(b.values);
}

TEST_MAIN
