/* SPDX-License-Identifier: Apache-2.0 */
/* Two functions of liblightc_sim.so that tests find by dlsym: lc_sim_counters_of returns what a simulated device has
 * done, and lc_sim_launch enqueues a kernel. */
#ifndef LC_BACKENDS_SIM_COUNTERS_H
#define LC_BACKENDS_SIM_COUNTERS_H

#include <lightc/op.h>

typedef struct lc_sim_counters {
    int64_t waits, launches, programs, allocations; /* waits: also for what was done already; programs: launched */
    int64_t bytes_in, bytes_out;                    /* copied from the host, and to it */
    int64_t bytes_registered, bytes_ahead; /* of bytes_in: from memory of host_register; on the second stream */
} lc_sim_counters;

typedef void lc_sim_counters_of_fn(int device, lc_sim_counters *out);

/* For kernels that a test adds: enqueues `kernel`, which runs with addresses of the host, on call->queue. */
typedef void lc_sim_launch_fn(const lc_call *call, const lc_kernel *kernel);

#endif
