/* SPDX-License-Identifier: Apache-2.0 */
/* The device that a rank computes on. */
#include "core/ranks/ranks.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

lc_status lc__rank_device(const char *accelerator, const lc_strategy_ops *strategy, void *self,
                          char name[LC__DEVICE_NAME])
{
    int count, rank = 0, ranks = 1;
    snprintf(name, LC__DEVICE_NAME, "%s", accelerator ? accelerator : "auto");
    if (strategy->place) strategy->place(self, &rank, &ranks);
    bool shared = !strcmp(name, "auto") || !strcmp(name, lc__host_device()->ops->name) || strchr(name, ':');
    if (ranks == 1 || shared) return LC_OK;
    LC_TRY(lc__device_count(name, &count));
    if (ranks > count)
        return lc_fail(LC_ERR_CONFIG,
                       "accelerator=%s: %d ranks are on this machine, which has %d of these devices; start one rank "
                       "for each (--devices %d), or name the device that all of them share (--accelerator %s:0)",
                       name, ranks, count, count, name);
    snprintf(name + strlen(name), LC__DEVICE_NAME - strlen(name), ":%d", rank);
    return LC_OK;
}
