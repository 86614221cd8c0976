/* SPDX-License-Identifier: Apache-2.0 */
/* Precisions: in which data types a run computes. One today: "32-true".
 *
 * To add one: a file in src/precision/ with an lc_precision_ops, and a line in src/builtin.c. */
#ifndef LIGHTC_PRECISION_H
#define LIGHTC_PRECISION_H

#include <lightc/hooks.h>

typedef struct lc_precision_ops {
    size_t size; /* LC_PRECISION_OPS_INIT(name) */
    const char *name;
    /* ---- OPTIONAL, in call order ---- */
    lc_status (*convert_module)(void **self, lc_module *m); /* before configure_optimizers */
    lc_tensor *(*scale_loss)(void *self, lc_tensor *loss);  /* recorded before backward */
    /* Before the hooks on_before_optimizer_step: gradients are unscaled here. LC_SKIP (they overflowed) leaves the
     * update out on all ranks; the step still counts. */
    lc_status (*before_optimizer_step)(void *self, lc_optimizer *optimizer);
    lc_status (*save_state)(void *self, lc_state *state);
    lc_status (*load_state)(void *self, const lc_state *state);
    void (*teardown)(void *self);
} lc_precision_ops;

#define LC_PRECISION_OPS_INIT(text) .size = sizeof(lc_precision_ops), .name = (text)

LC_BEGIN_DECLS
/* The precision of that name or alias ("32"); the error for an unknown name lists the available ones. */
LC_API lc_status lc_precision_find(const char *name, const lc_precision_ops **out) LC_MUST_USE;
LC_END_DECLS
#endif
