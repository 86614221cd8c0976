/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel computes a call, and whether a fusion has one. */
#include "engine/plan/plan_impl.h"
#include "base/args.h"
#include "base/grow.h"
#include "base/str.h"
#include "ops/kernel.h"

#include <pthread.h>
#include <string.h>

/* Sets call->kernel (NULL: there is none) and call->threads. The kernel is chosen for the number of threads that it
 * will be prepared for. */
static lc_status find_kernel(const lc_build *b, lc_call *call)
{
    const lc_graph *g = b->g;
    const lc_kernel *reference = call->op->kernel;
    bool plain = false;
    int n = 0;
    call->threads = g->threads > 1 && lc__worth_threads(call) ? g->threads : 1;
    call->deterministic = g->options.deterministic;
    call->matmul_precision = g->products;
    bool host = lc__on_host(g->on);
    if (reference && !call->rounded && (host || call->op->flags & LC_OP_HOST))
        LC_TRY(lc__kernel_supports(reference, call, &plain));
    if (!plain || (host && !g->reference_only))
        LC_TRY(lc__find_kernels(g->on, g->kernel_set, call, 1, &call->kernel, &n));
    if (n == 0) call->kernel = plain ? reference : NULL;
    if (call->kernel && call->kernel->flags & LC_KERNEL_SERIAL) call->threads = 1;
    return LC_OK;
}

static const char *type_name(const lc_call *call)
{
    const lc_view *first = call->n_in && call->in[0].ndim >= 0 ? &call->in[0] : call->n_out ? &call->out[0] : NULL;
    return first ? lc_dtype_name(first->dtype) : "it";
}

/* ---- LIGHTC_HOST_FALLBACK: the reference kernel runs on the host ---- */

typedef struct missing {
    const lc_backend_ops *backend;
    const lc_op *op;
    const char *type;
} missing;

/* The operators that a message of this process has named. */
static struct {
    pthread_mutex_t lock;
    missing *list;
    uint32_t n, cap;
} on_the_host = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether it is new. Adds it, with the lock held. */
static lc_status add_missing(missing m, bool *is_new)
{
    *is_new = false;
    for (uint32_t i = 0; i < on_the_host.n; i++)
        if (!memcmp(&on_the_host.list[i], &m, sizeof m)) return LC_OK;
    LC_TRY(lc__grow(&on_the_host.list, &on_the_host.cap, on_the_host.n, 1, "the operators that run on the host"));
    on_the_host.list[on_the_host.n++] = m;
    *is_new = true;
    return LC_OK;
}

static lc_status say_missing(const lc_graph *g, const lc_call *call)
{
    const missing m = {g->on->ops, call->op, type_name(call)};
    bool is_new;
    pthread_mutex_lock(&on_the_host.lock);
    lc_status status = add_missing(m, &is_new);
    pthread_mutex_unlock(&on_the_host.lock);
    if (is_new)
        lc__show_line(2, "lightc: %s has no kernel for %s of %s, which runs on the host in every step", m.backend->name,
                      m.op->name, m.type);
    return status;
}

static lc_status fall_back(const lc_graph *g, lc_call *call)
{
    const lc_kernel *reference = call->op->kernel;
    bool yes = false;
    if (lc__on_host(g->on) || !g->host_fallback || !reference) return LC_OK;
    LC_TRY(lc__kernel_supports(reference, call, &yes));
    if (!yes) return LC_OK;
    call->kernel = reference;
    if (reference->flags & LC_KERNEL_SERIAL) call->threads = 1;
    return say_missing(g, call);
}

lc_status lc__choose_kernel(const lc_build *b, lc_call *call)
{
    LC_TRY(find_kernel(b, call));
    if (!call->kernel) LC_TRY(fall_back(b->g, call));
    if (call->kernel) return lc__reserved_check(call->kernel->reserved, "lc_kernel");
    char device[LC__DEVICE_NAME];
    return lc_fail(LC_ERR_UNSUPPORTED, "there is no kernel for %s on %s", type_name(call),
                   lc__device_name(b->g->on, device));
}

lc_call lc__call_of(const lc_build *b, const lc_ir_node *n, lc_view *views)
{
    return (lc_call){.op = n->op,
                     .n_in = n->n_in,
                     .n_out = n->n_out,
                     .n_int = n->n_int,
                     .n_float = n->n_float,
                     .in = views,
                     .out = views + n->n_in,
                     .ints = n->ints,
                     .floats = n->floats,
                     .rounded = n->rounded,
                     .rounded_to = b->g->low};
}

lc_status lc__kernel_of(lc_build *b, const lc_ir_node *n, const lc_kernel **kernel)
{
    lc_view *views = lc__build_alloc(b, (size_t)(n->n_in + n->n_out + 1) * sizeof *views);
    if (!views) return LC_ERR_MEMORY;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        uint32_t value = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        if (value == LC_ABSENT)
            views[i].ndim = -1;
        else
            lc__view_of(&b->values[value].type, LC_ROW_MAJOR, NULL, &views[i]);
    }
    lc_call call = lc__call_of(b, n, views);
    LC_TRY(find_kernel(b, &call));
    *kernel = call.kernel;
    return LC_OK;
}

lc_status lc__can_fuse(lc_build *b, const lc_ir_node *fused, const lc_ir_node *part, bool *yes)
{
    const lc_kernel *kernel, *alone;
    LC_TRY(lc__kernel_of(b, fused, &kernel));
    *yes = kernel != NULL;
    if (!kernel || kernel != fused->op->kernel) return LC_OK;
    LC_TRY(lc__kernel_of(b, part, &alone));
    *yes = !alone || alone == part->op->kernel;
    return LC_OK;
}
