/* SPDX-License-Identifier: Apache-2.0 */
/* The option memory_limit: parsed, and applied to the steps of a module when its optimizers have been sharded. devices:
 * those that run the steps, or NULL; gathers: sliced parameters become whole at the end of the run. */
#ifndef LC_CORE_TRAINER_MEMORY_LIMIT_H
#define LC_CORE_TRAINER_MEMORY_LIMIT_H

#include <lightc/trainer.h>

lc_status lc__memory_limit_parse(const char *text, int64_t *bytes) LC_MUST_USE;
struct lc__devices;
lc_status lc__memory_limit_apply(const char *text, lc_graph *g, lc_module *m, const lc_optimizers *optimizers,
                                 struct lc__devices *devices, bool gathers) LC_MUST_USE;

/* At the end of a fit with profilers: passes on to them what lc_trainer_memory reports. */
void lc__memory_profile(lc_trainer *t);

#endif
