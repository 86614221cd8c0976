/* SPDX-License-Identifier: Apache-2.0 */
/* Fast kernels for matmul, linear, conv, conv_input_grad and conv_weight_grad: the CPU backend's interface to oneDNN.
 *
 * Works with oneDNN 2.6 and 3.x; in a build without it stub.c is compiled instead and finds nothing. To add a kernel:
 * write it in a file of its own here and add it, in order of preference, to lc__onednn_candidates in onednn.c. */
#ifndef LC_BACKENDS_CPU_ONEDNN_H
#define LC_BACKENDS_CPU_ONEDNN_H

#include <lightc/op.h>

/* The most kernels that one call can have. */
#define LC_ONEDNN_MAX_CANDIDATES 4

/* The kernels that can do the call, best first; at most `max`. LC_ERR_MEMORY if there was too little memory to find
 * out. */
lc_status lc__onednn_candidates(const lc_call *call, int max, const lc_kernel **out, int *n);

/* Whether its kernels for bf16 are faster than those of f32 on this machine. vectors_are: whether vectors multiply bf16
 * faster. */
bool lc__onednn_bf16_is_fast(bool vectors_are);

/* "oneDNN 2.6.0"; "no oneDNN" in a build without it. */
void lc__onednn_version(char *text, size_t size);

/* For a prepared call whose kernel is one of these: the implementation that the library chose ("brg:avx512_core"), for
 * plan dumps; "" for every other call. Borrowed until the call is released. */
const char *lc__onednn_impl(const lc_call *call);

#endif
