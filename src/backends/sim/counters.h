/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated device has done. Tests find lc_sim_counters_of in liblightc_sim.so by dlsym. */
#ifndef LC_BACKENDS_SIM_COUNTERS_H
#define LC_BACKENDS_SIM_COUNTERS_H

#include <stdint.h>

typedef struct lc_sim_counters {
    int64_t waits, launches, programs, allocations; /* programs: launched */
    int64_t bytes_in, bytes_out;                    /* copied from the host, and to it */
} lc_sim_counters;

typedef void lc_sim_counters_of_fn(int device, lc_sim_counters *out);

#endif
