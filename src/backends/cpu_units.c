/* SPDX-License-Identifier: Apache-2.0 */
/* The extensions of the processor's instruction set that kernels could use. Units for matrices (AMX) count if the
 * operating system lets this process use their registers. */
#define _GNU_SOURCE /* syscall */
#include "backends/cpu_units.h"

#include <stdio.h>

#ifdef LC_ISA_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct words {
    unsigned leaf1[4], leaf7[4], leaf7_1[4]; /* eax, ebx, ecx, edx */
} words;

/* The host of a virtual machine answers each cpuid, which takes long: none is asked for twice. */
static words ask(void)
{
    words w = {{0}};
    unsigned last = __get_cpuid_max(0, NULL);
    if (last >= 1) __cpuid(1, w.leaf1[0], w.leaf1[1], w.leaf1[2], w.leaf1[3]);
    if (last < 7) return w;
    __cpuid_count(7, 0, w.leaf7[0], w.leaf7[1], w.leaf7[2], w.leaf7[3]);
    if (w.leaf7[0] >= 1) __cpuid_count(7, 1, w.leaf7_1[0], w.leaf7_1[1], w.leaf7_1[2], w.leaf7_1[3]);
    return w;
}

/* Registers of tiles are larger than what a thread's state has room for, so Linux wants to be asked for them. */
static bool system_grants_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

static bool has(unsigned word, int bit)
{
    return word >> bit & 1;
}

/* The compiler's library has asked when the program started. */
bool lc__units_have_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

bool lc__units_bf16_is_fast(void)
{
    return lc__units_have_bf16() && __builtin_cpu_is("amd");
}

lc__units lc__units_find(void)
{
    const words w = ask();
    __builtin_cpu_init();
    lc__units u = {.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
                   .f16c = has(w.leaf1[2], 29)};
    u.f16c = u.f16c && u.avx2;
    u.avx512 = u.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    u.avx512_bf16 = u.avx512 && lc__units_have_bf16();
    u.avx512_fp16 = u.avx512 && has(w.leaf7[3], 23);
    bool tiles = has(w.leaf7[3], 24) && system_grants_tiles();
    u.amx_bf16 = tiles && has(w.leaf7[3], 22);
    u.amx_fp16 = tiles && has(w.leaf7_1[0], 21);
#ifdef LC_EMULATE_AMX
    u.amx_bf16 = u.avx512_bf16;
#endif
    return u;
}
#else
bool lc__units_have_bf16(void)
{
    return false;
}

bool lc__units_bf16_is_fast(void)
{
    return false;
}

lc__units lc__units_find(void)
{
    return (lc__units){0};
}
#endif

void lc__units_names(char *text, size_t size)
{
    const lc__units u = lc__units_find();
    const struct {
        const char *name;
        bool there;
    } all[] = {{"avx2", u.avx2},
               {"f16c", u.f16c},
               {"avx512", u.avx512},
               {"avx512_bf16", u.avx512_bf16},
               {"avx512_fp16", u.avx512_fp16},
               {"amx_bf16", u.amx_bf16},
               {"amx_fp16", u.amx_fp16}};
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && n < size; i++)
        if (all[i].there) n += (size_t)snprintf(text + n, size - n, "%s%s", n ? " " : "", all[i].name);
}
