/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer, as sync.c (at run time) and expand_sync.c (when a plan is made) share it. */
#ifndef LC_TENSOR_SYNC_IMPL_H
#define LC_TENSOR_SYNC_IMPL_H

#include "tensor/sync.h"

struct lc__reducer {
    lc_graph *g;
    lc_comm *comm;
    size_t bucket_bytes;
    double weight;
    lc_flat **flats; /* referenced */
    int n_flats;
    uint8_t *mask; /* has_gradient of all flats, then the trainer's flags */
    int64_t n_mask;
    lc_request **requests; /* room for the largest plan's */
    int n_requests, cap_requests;
    lc_status status; /* of the kernels */
    char message[1024];
    lc__reducer_stats stats;
};

extern const lc_op lc__op_launch_bucket;

#endif
