/* SPDX-License-Identifier: Apache-2.0 */
/* Fast kernels that are compiled once per instruction set.
 *
 * Every file in isa/ is compiled with LC_ISA=base, avx2 and avx512, and some with avx512_bf16, for vectors that round
 * to bf16 and multiply pairs of it, and with amx, for units for matrices. Exported names get the name of the set
 * through LC_ISA_NAME(x). isa/table.c collects the kernels of one set in an lc__isa, and lc__isa_choose chooses the set
 * (backends/cpu_isa.c).
 *
 * To add a kernel: put it in a file of isa/, with a line in that file's list; a new list gets a line in isa/lists.h. */
#ifndef LC_BACKENDS_CPU_ISA_H
#define LC_BACKENDS_CPU_ISA_H

#include <lightc/op.h>

#define LC_ISA_PASTE_(name, isa) name##_##isa
#define LC_ISA_PASTE(name, isa)  LC_ISA_PASTE_(name, isa)
#define LC_ISA_NAME(name)        LC_ISA_PASTE(name, LC_ISA)

/* A kernel for an operator. Several entries may name one operator: the first that supports the call is taken. */
typedef struct lc__kernel_entry {
    const lc_op *op;
    const lc_kernel *kernel;
} lc__kernel_entry;

typedef struct lc__isa {
    const char *name;
    const lc__kernel_entry *const *lists; /* NULL-terminated; each list ends with {NULL, NULL} */
} lc__isa;

extern const lc__isa lc__isa_base;
#ifdef LC_ISA_X86
extern const lc__isa lc__isa_avx2;
extern const lc__isa lc__isa_avx512;
extern const lc__isa lc__isa_avx512_bf16;
extern const lc__isa lc__isa_amx;
#endif

/* The set of that name if this machine can run it, else NULL. */
const lc__isa *lc__isa_find(const char *name);
/* The best set that this machine supports, or the one that LIGHTC_ISA names; LC_ERR_CONFIG if it does not support that
 * one. */
lc_status lc__isa_choose(const lc__isa **out);
/* The first kernel of a set for the call, or NULL. Needs no memory to decide. */
const lc_kernel *lc__isa_kernel(const lc__isa *isa, const lc_call *call);

#endif
