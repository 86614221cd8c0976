/* SPDX-License-Identifier: Apache-2.0 */
/* Two layers of weights, and a run that ends as if the machine had died. */
#ifndef LC_TESTS_TWO_LAYERS_H
#define LC_TESTS_TWO_LAYERS_H

#include "scratch.h"

enum { SAMPLES = 96, HIDDEN = 8 };
#include "small_data.h"

enum { N1 = HIDDEN * FEATURES, N2 = CLASSES * HIDDEN };

static inline void add_layers(lc_module *m, lc_dtype dtype, lc_tensor **w1, lc_tensor **w2)
{
    static const int64_t first[] = {HIDDEN, FEATURES}, second[] = {CLASSES, HIDDEN};
    const lc_init init = {.kind = LC_INIT_KAIMING_UNIFORM};
    *w1 = lc_module_add_parameter(m, "w1.weight", dtype, LC_ROW_MAJOR, 2, first, init);
    *w2 = lc_module_add_parameter(m, "w2.weight", dtype, LC_ROW_MAJOR, 2, second, init);
}

/* Saves stop.ckpt and fails. */
static inline lc_status save_and_die(lc_trainer *t)
{
    char path[600];
    snprintf(path, sizeof path, "%s/stop.ckpt", lc_trainer_get_options(t)->default_root_dir);
    LC_TRY(lc_trainer_save_checkpoint(t, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

/* After that many steps; 0: never. */
static inline lc_status die_after(lc_trainer *t, int64_t steps)
{
    return steps && lc_trainer_global_step(t) == steps ? save_and_die(t) : LC_OK;
}

#endif
