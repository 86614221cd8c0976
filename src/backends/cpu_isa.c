/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an instruction set. */
#include "backends/cpu/isa.h"
#include "backends/cpu_units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_base(const lc__units *u)
{
    (void)u;
    return true;
}

#ifdef LC_ISA_X86
static bool has_avx2(const lc__units *u)
{
    return u->avx2;
}

static bool has_avx512(const lc__units *u)
{
    return u->avx512;
}

static bool has_avx512_bf16(const lc__units *u)
{
    return u->avx512_bf16;
}

static bool has_amx(const lc__units *u)
{
    return u->avx512 && u->avx512_bf16 && u->amx_bf16;
}
#endif

/* Best last. */
static const struct {
    const lc__isa *isa;
    bool (*runs_on)(const lc__units *);
    bool (*pays)(void); /* OPTIONAL: whether it is better than those before it on this machine */
} sets[] = {
    {&lc__isa_base, is_base, NULL},
#ifdef LC_ISA_X86
    {&lc__isa_avx2, has_avx2, NULL},
    {&lc__isa_avx512, has_avx512, NULL},
    {&lc__isa_avx512_bf16, has_avx512_bf16, lc__units_bf16_is_fast},
    {&lc__isa_amx, has_amx, NULL},
#endif
};

#define SET_COUNT ((int)(sizeof sets / sizeof sets[0]))

const lc__isa *lc__isa_find(const char *name)
{
    const lc__units u = lc__units_find();
    for (int i = 0; i < SET_COUNT; i++) {
        if (!strcmp(name, sets[i].isa->name) && sets[i].runs_on(&u)) return sets[i].isa;
    }
    return NULL;
}

lc_status lc__isa_choose(const lc__isa **out)
{
    const lc__units u = lc__units_find();
    const char *wanted = getenv("LIGHTC_ISA");
    char list[64] = "";
    size_t used = 0;
    *out = NULL;
    for (int i = 0; i < SET_COUNT; i++) {
        if (!sets[i].runs_on(&u)) continue;
        bool free_choice = !wanted || !*wanted;
        if (free_choice ? !sets[i].pays || sets[i].pays() : !strcmp(wanted, sets[i].isa->name)) *out = sets[i].isa;
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
