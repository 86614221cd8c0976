/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread that spins does between two looks: it leaves the core's units to the other thread of the core. */
#ifndef LC_BASE_SPIN_H
#define LC_BASE_SPIN_H

static inline void lc__spin(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
