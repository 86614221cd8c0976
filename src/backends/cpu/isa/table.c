/* SPDX-License-Identifier: Apache-2.0 */
/* All fast kernels of one instruction set. */
#include "backends/cpu/isa/lists.h"

static const lc__kernel_entry *const lists[] = {
#define LIST(name) LC_ISA_NAME(lc__##name##_kernels),
    LC_ISA_LISTS(LIST)
#undef LIST
        NULL,
};

extern const lc__isa LC_ISA_NAME(lc__isa);
const lc__isa LC_ISA_NAME(lc__isa) = {LC_ISA_STRING, lists};
