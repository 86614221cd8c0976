/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* fegetexcept */
#include "base/float_traps.h"

#include <fenv.h>
#include <features.h>

#ifdef __GLIBC__
int lc__traps_off(void)
{
    int on = fegetexcept();
    if (on > 0) fedisableexcept(FE_ALL_EXCEPT);
    return on;
}

void lc__traps_on(int traps)
{
    feclearexcept(FE_ALL_EXCEPT); /* else the next operation could trap because of an earlier one */
    feenableexcept(traps);
}
#else
/* The C library has no traps. */
int lc__traps_off(void)
{
    return 0;
}

void lc__traps_on(int traps)
{
    (void)traps;
}
#endif
