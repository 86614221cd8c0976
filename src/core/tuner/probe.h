/* SPDX-License-Identifier: Apache-2.0 */
/* A probe: a short extra run of the trainer, after which the module is as it was. */
#ifndef LC_CORE_TUNER_PROBE_H
#define LC_CORE_TUNER_PROBE_H

#include "core/hooks/trainer_internal.h"
#include <lightc/tuner.h>

typedef struct lc__probe {
    lc_trainer *t; /* whose options it takes. While it runs itself, setup, teardown and the like are left out */
    lc_module *m;
    const lc_run_args *run;
    lc_stage stage;       /* what is run */
    int64_t steps;        /* fit: optimizer steps, in as many epochs as it takes; else batches of each loader */
    int64_t max_bytes;    /* of a plan; 0: what the machine has */
    lc_callback watch;    /* freed by the caller: its ops->free is not set */
    lc_graph_stats stats; /* afterwards */
} lc__probe;

lc_status lc__probe_run(lc__probe *p) LC_MUST_USE;
/* After the last probe of several that went well: the fit around them, if there is one, has its slices of the module
 * again, and optimizers without state. Collective. */
lc_status lc__probes_end(lc_trainer *t) LC_MUST_USE;

/* The hyperparameter to tune: the one of that name, or (asked NULL) the first of `names` that there is, also inside of
 * a struct; of the module, or else of the datamodule. *field NULL if there is none. */
lc_status lc__tuned_field(const lc_module *m, const lc_run_args *run, const char *asked, const char *const *names,
                          const lc_option **field, void **values) LC_MUST_USE;
/* Names to look for, where none was given. */
extern const char *const lc__rate_names[], *const lc__size_names[];

#endif
