/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an instruction set. */
#include "backends/cpu/isa.h"
#include "backends/cpu_units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool machine_has_base(void)
{
    return true;
}

#ifdef LC_ISA_X86
static bool machine_has_avx2(void)
{
    return lc__units_find().avx2;
}

static bool machine_has_avx512(void)
{
    return lc__units_find().avx512;
}

static bool machine_has_amx(void)
{
    const lc__units u = lc__units_find();
    return u.avx512 && u.avx512_bf16 && u.amx_bf16;
}
#endif

/* Best last. */
static const struct {
    const lc__isa *isa;
    bool (*machine_has)(void);
} sets[] = {
    {&lc__isa_base, machine_has_base},
#ifdef LC_ISA_X86
    {&lc__isa_avx2, machine_has_avx2},
    {&lc__isa_avx512, machine_has_avx512},
    {&lc__isa_amx, machine_has_amx},
#endif
};

#define SET_COUNT ((int)(sizeof sets / sizeof sets[0]))

const lc__isa *lc__isa_find(const char *name)
{
    for (int i = 0; i < SET_COUNT; i++) {
        if (!strcmp(name, sets[i].isa->name) && sets[i].machine_has()) return sets[i].isa;
    }
    return NULL;
}

lc_status lc__isa_choose(const lc__isa **out)
{
    const char *wanted = getenv("LIGHTC_ISA");
    char list[64] = "";
    size_t used = 0;
    *out = NULL;
    for (int i = 0; i < SET_COUNT; i++) {
        if (!sets[i].machine_has()) continue;
        if (!wanted || !*wanted || !strcmp(wanted, sets[i].isa->name)) *out = sets[i].isa;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", sets[i].isa->name);
    }
    if (*out) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "LIGHTC_ISA=%s: this machine has %s", wanted, list);
}

const lc_kernel *lc__isa_kernel(const lc__isa *isa, const lc_call *call)
{
    for (const lc__kernel_entry *const *list = isa->lists; *list; list++) {
        for (const lc__kernel_entry *e = *list; e->op; e++) {
            if (e->op == call->op && (!e->kernel->supports || e->kernel->supports(call))) return e->kernel;
        }
    }
    return NULL;
}
