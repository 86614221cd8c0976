/* SPDX-License-Identifier: Apache-2.0 */
/* All fast kernels of one instruction set. To add a list: declare it and put it in `lists`. */
#include "backends/cpu/isa.h"

#define LC_STRING_(x) #x
#define LC_STRING(x)  LC_STRING_(x)

static const lc__kernel_entry *const lists[] = {
    NULL,
};

extern const lc__isa LC_ISA_NAME(lc__isa);
const lc__isa LC_ISA_NAME(lc__isa) = {LC_STRING(LC_ISA), lists};
