/* SPDX-License-Identifier: Apache-2.0 */
/* The backends there are, and what they share. To add one: declare its lc_backend_ops in backend.h and give it a line
 * in `backends`. */
#include "backends/backend.h"

#include <lightc/status.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const lc_backend_ops *const backends[] = {&lc__cpu_backend};

const lc_backend_ops *lc__backend_find(const char *name)
{
    const int count = (int)(sizeof backends / sizeof backends[0]);
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (name && !strcmp(name, backends[i]->name)) return backends[i];
        int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", backends[i]->name);
        if (n < 0 || (size_t)n >= sizeof list - used) break;
        used += (size_t)n;
    }
    lc_fail(LC_ERR_NOT_FOUND, "there is no backend \"%s\"; this build has: %s", name ? name : "(null)", list);
    return NULL;
}

lc_status lc__kernel_supports(const lc_kernel *kernel, const lc_call *call, bool *yes)
{
    errno = 0;
    *yes = !kernel->supports || kernel->supports(call);
    if (errno != ENOMEM) return LC_OK;
    return lc_fail(LC_ERR_MEMORY, "out of memory while looking for a kernel for %s", call->op->name);
}
