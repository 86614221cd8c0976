/* SPDX-License-Identifier: Apache-2.0 */
/* For a thread that spins: a pause between two looks, in which the other thread of the core has its units. */
#ifndef LC_BASE_SPIN_H
#define LC_BASE_SPIN_H

static inline void lc__spin(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
