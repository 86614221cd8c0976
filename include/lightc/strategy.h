/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies: how a run is spread over devices and processes. One today: "single_device".
 *
 * To add one: a file in src/strategies/ with an lc_strategy_ops, and a line in registry.c. */
#ifndef LIGHTC_STRATEGY_H
#define LIGHTC_STRATEGY_H

#include <lightc/hooks.h>

typedef struct lc_strategy_ops {
    size_t size; /* LC_STRATEGY_OPS_INIT(name) */
    const char *name;
    /* ---- REQUIRED, in call order ---- */
    /* Before the module is set up: processes and devices exist afterwards. `devices` and `num_nodes` are the options;
     * what cannot be done is an error that says what can. */
    lc_status (*setup_environment)(void **self, const char *devices, int64_t num_nodes);
    int (*rank)(void *self);
    int (*world_size)(void *self);
    /* ---- OPTIONAL ---- */
    /* The module and its optimizers exist; parameters may be made equal on all ranks here. */
    lc_status (*setup)(void *self, lc_module *m, lc_optimizer *const *optimizers, int n);
    /* Reduces n values over all ranks, in place. Collective. Default: nothing (one rank). */
    lc_status (*reduce)(void *self, double *values, int n, lc_log_reduce how);
    lc_status (*barrier)(void *self); /* collective */
    /* Records collectives behind a backward pass that ends an accumulation window. */
    lc_status (*after_backward)(void *self);
    void (*teardown)(void *self);
} lc_strategy_ops;

#define LC_STRATEGY_OPS_INIT(text) .size = sizeof(lc_strategy_ops), .name = (text)

LC_BEGIN_DECLS
/* The strategy of that name ("auto": the best for the devices); an error lists what there is. */
LC_API lc_status lc_strategy_find(const char *name, const lc_strategy_ops **out) LC_MUST_USE;
LC_END_DECLS
#endif
