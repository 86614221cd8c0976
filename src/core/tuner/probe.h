/* SPDX-License-Identifier: Apache-2.0 */
/* A probe: a short extra run of the trainer that leaves the module unchanged. */
#ifndef LC_CORE_TUNER_PROBE_H
#define LC_CORE_TUNER_PROBE_H

#include "core/hooks/trainer_internal.h"
#include <lightc/tuner.h>

typedef struct lc__probe {
    lc_trainer *t; /* supplies the options. If it is running, the probe leaves out setup, teardown and the like */
    lc_module *m;
    const lc_run_args *run;
    lc_stage stage;       /* the stage to run */
    int64_t steps;        /* fit: optimizer steps, in any number of epochs; else batches of each loader */
    int64_t max_bytes;    /* limit for a plan; 0: the machine's memory */
    lc_callback watch;    /* freed by the caller: its ops->free is not set */
    lc_graph_stats stats; /* output */
} lc__probe;

lc_status lc__probe_run(lc__probe *p) LC_MUST_USE;
/* Call after the last of several successful probes: gives a running fit its slices of the module back, and optimizers
 * without state. Collective. */
lc_status lc__probes_end(lc_trainer *t) LC_MUST_USE;

/* Finds the hyperparameter to tune: the one named `asked` or, if that is NULL, the first of `names` that exists, also
 * inside a struct; in the module, else in the datamodule. *field NULL: none. */
lc_status lc__tuned_field(const lc_module *m, const lc_run_args *run, const char *asked, const char *const *names,
                          const lc_option **field, void **values) LC_MUST_USE;
/* Names to look for by default. */
extern const char *const lc__rate_names[], *const lc__size_names[];

#endif
