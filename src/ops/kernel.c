/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a call, and those that programs add. */
#include "ops/kernel.h"
#include "base/args.h"
#include "base/handle.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__kernel_supports(const lc_kernel *kernel, const lc_call *call, bool *yes)
{
    errno = 0;
    *yes = !kernel->supports || kernel->supports(call);
    if (errno != ENOMEM) return LC_OK;
    return lc_fail(LC_ERR_MEMORY, "out of memory while looking for a kernel for %s", call->op->name);
}

/* ---- kernels of programs ---- */

typedef struct added {
    const lc_op *op;
    const lc_kernel *kernel;
    const struct added *next;
    char backend[32];
} added;

/* The newest comes first. An entry stays as it is. */
static struct {
    pthread_mutex_t lock;
    const added *first;
} added_kernels = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const added *first_added(void)
{
    pthread_mutex_lock(&added_kernels.lock);
    const added *a = added_kernels.first;
    pthread_mutex_unlock(&added_kernels.lock);
    return a;
}

static lc_status check(const lc_op *op, const char *backend, const lc_kernel *kernel)
{
    size_t n = strlen(backend);
    if (!n || n >= sizeof((added *)NULL)->backend || strchr(backend, ':'))
        return lc_fail(LC_ERR_ARGUMENT, "lc_op_add_kernel: \"%.60s\" is not the name of a backend, such as \"cuda\"",
                       backend);
    LC_TRY(lc__reserved_check(op->reserved, "lc_op"));
    LC_TRY(lc__reserved_check(kernel->reserved, "lc_kernel"));
    if (kernel != op->kernel && kernel->run) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "lc_op_add_kernel: %s",
                   kernel->run ? "the kernel of the operator itself is the host's" : "the kernel has no run");
}

lc_status lc_op_add_kernel(const lc_op *op, const char *backend, const lc_kernel *kernel)
{
    LC__NEEDS(op, LC_ERR_ARGUMENT);
    LC__NEEDS(backend, LC_ERR_ARGUMENT);
    LC__NEEDS(kernel, LC_ERR_ARGUMENT);
    LC_TRY(check(op, backend, kernel));
    added *a = calloc(1, sizeof *a);
    if (!a) return lc_fail(LC_ERR_MEMORY, "out of memory for a kernel of %s", op->name);
    *a = (added){.op = op, .kernel = kernel};
    snprintf(a->backend, sizeof a->backend, "%s", backend);
    pthread_mutex_lock(&added_kernels.lock);
    a->next = added_kernels.first;
    added_kernels.first = a;
    pthread_mutex_unlock(&added_kernels.lock);
    return LC_OK;
}

lc_status lc__find_kernels(const lc_device *on, const void *set, const lc_call *call, int max, const lc_kernel **out,
                           int *n)
{
    int own = 0;
    *n = 0;
    for (const added *a = first_added(); a && *n < max; a = a->next) {
        bool yes = false;
        if (a->op != call->op || strcmp(a->backend, on->ops->name) != 0) continue;
        LC_TRY(lc__kernel_supports(a->kernel, call, &yes));
        if (yes) out[(*n)++] = a->kernel;
    }
    if (*n < max) LC_TRY(on->ops->find_kernels(set, call, max - *n, out + *n, &own));
    own += *n;
    *n = 0;
    for (int i = 0; i < own; i++)
        if (!call->rounded || out[i]->flags & LC_KERNEL_ROUNDS) out[(*n)++] = out[i];
    return LC_OK;
}
