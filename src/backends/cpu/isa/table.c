/* SPDX-License-Identifier: Apache-2.0 */
/* All fast kernels of one instruction set. */
#include "backends/cpu/isa/lists.h"

static const lc__kernel_entry *const lists[] = {
#define LIST(name) LC_ISA_NAME(lc__##name##_kernels),
#if defined(LC_ISA_PAIRS)
#define ROUNDS_LIST(name) LC_ISA_ROUNDS_LIST(name),
#define AVX512_LIST(name) LC_ISA_AVX512_LIST(name),
    LC_ISA_LISTS_PAIRS(LIST) LC_ISA_LISTS_ROUNDS(ROUNDS_LIST) LC_ISA_LISTS(AVX512_LIST)
#undef ROUNDS_LIST
#undef AVX512_LIST
#else
    LC_ISA_LISTS(LIST)
#endif
#undef LIST
        NULL,
};

extern const lc__isa LC_ISA_NAME(lc__isa);
const lc__isa LC_ISA_NAME(lc__isa) = {LC_ISA_STRING, lists};
