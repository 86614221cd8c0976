/* SPDX-License-Identifier: Apache-2.0 */
/* Profilers, inside the trainer: all of it only where t->profiling is set. */
#ifndef LC_CORE_HOOKS_PROFILING_H
#define LC_CORE_HOOKS_PROFILING_H

#include "base/io.h"
#include "core/hooks/trainer_internal.h"

lc_status lc__profiling_open(lc_trainer *t) LC_MUST_USE; /* makes them, by options */
void lc__profiling_free(lc_trainer *t);
/* A run; the graph exists and the module is attached. */
void lc__profiling_begin(lc_trainer *t);
void lc__profiling_end(lc_trainer *t); /* writes the reports */
/* From now on the loader tells of its batches (on), before it begins an epoch; or no longer. */
void lc__profiling_watch(lc_trainer *t, lc_dataloader *loader, bool on);

#endif
