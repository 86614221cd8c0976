/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of kernels of one instruction set, one per file. To add a file: a line here. */
#ifndef LC_BACKENDS_CPU_ISA_LISTS_H
#define LC_BACKENDS_CPU_ISA_LISTS_H

#include "backends/cpu/isa.h"

#define LC_ISA_STRING_(isa)  #isa
#define LC_ISA_STRING__(isa) LC_ISA_STRING_(isa)
#define LC_ISA_STRING        LC_ISA_STRING__(LC_ISA)

/* X(name): file name.c exports lc__name_kernels. The files of LC_ISA_LISTS_PAIRS are compiled for the sets that
 * multiply numbers of bf16 in pairs, too, or only for one of them (conv_units*, attention_pairs). Those of
 * LC_ISA_LISTS_ROUNDS, most of whose time rounding to bf16 may take, are compiled for avx512_bf16, too, which has an
 * instruction for it, and amx has their kernels. Kernels of both come before those of avx512. */
#if defined(LC_ISA_AMX)
#define LC_ISA_LISTS_PAIRS(X)                                                                                          \
    X(conv_units)                                                                                                      \
    X(conv_units_grad)                                                                                                 \
    X(product)                                                                                                         \
    X(conv_low)
#elif defined(LC_ISA_PAIRS)
#define LC_ISA_LISTS_PAIRS(X)                                                                                          \
    X(product)                                                                                                         \
    X(winograd_input_grad)                                                                                             \
    X(winograd)                                                                                                        \
    X(conv_low)                                                                                                        \
    X(attention_pairs)
#endif

#define LC_ISA_LISTS_ROUNDS(X)                                                                                         \
    X(fused)                                                                                                           \
    X(gelu)                                                                                                            \
    X(batch_norm_pool)                                                                                                 \
    X(batch_norm_pool_backward)                                                                                        \
    X(batch_norm)                                                                                                      \
    X(row_norm)

#define LC_ISA_LISTS(X)                                                                                                \
    X(fused)                                                                                                           \
    X(fused_f64)                                                                                                       \
    X(gelu)                                                                                                            \
    X(batch_norm_pool)                                                                                                 \
    X(batch_norm_pool_backward)                                                                                        \
    X(batch_norm)                                                                                                      \
    X(batch_norm_f64)                                                                                                  \
    X(pool)                                                                                                            \
    X(pool_f64)                                                                                                        \
    X(softmax)                                                                                                         \
    X(softmax_f64)                                                                                                     \
    X(reduce)                                                                                                          \
    X(reduce_f64)                                                                                                      \
    X(cross_entropy)                                                                                                   \
    X(cross_entropy_f64)                                                                                               \
    X(update)                                                                                                          \
    X(copy)                                                                                                            \
    X(row_norm)                                                                                                        \
    X(row_norm_f64)                                                                                                    \
    X(group_norm)                                                                                                      \
    X(gradient)                                                                                                        \
    X(attention)                                                                                                       \
    X(attention_f64)                                                                                                   \
    X(embedding)                                                                                                       \
    X(embedding_f64)                                                                                                   \
    X(dropout)                                                                                                         \
    X(product)                                                                                                         \
    X(matmul_f64)                                                                                                      \
    X(conv_f64)                                                                                                        \
    X(rnn)                                                                                                             \
    X(winograd_input_grad)                                                                                             \
    X(winograd)                                                                                                        \
    X(conv_few)                                                                                                        \
    X(conv_low)

#define LC_ISA_DECLARE_LIST(name) extern const lc__kernel_entry LC_ISA_NAME(lc__##name##_kernels)[];
#if defined(LC_ISA_PAIRS)
#define LC_ISA_AVX512_LIST(name)         lc__##name##_kernels_avx512
#define LC_ISA_ROUNDS_LIST(name)         lc__##name##_kernels_avx512_bf16
#define LC_ISA_DECLARE_AVX512_LIST(name) extern const lc__kernel_entry LC_ISA_AVX512_LIST(name)[];
#define LC_ISA_DECLARE_ROUNDS_LIST(name) extern const lc__kernel_entry LC_ISA_ROUNDS_LIST(name)[];
LC_ISA_LISTS_PAIRS(LC_ISA_DECLARE_LIST)
LC_ISA_LISTS_ROUNDS(LC_ISA_DECLARE_ROUNDS_LIST)
LC_ISA_LISTS(LC_ISA_DECLARE_AVX512_LIST)
#undef LC_ISA_DECLARE_AVX512_LIST
#undef LC_ISA_DECLARE_ROUNDS_LIST
#else
LC_ISA_LISTS(LC_ISA_DECLARE_LIST)
#endif
#undef LC_ISA_DECLARE_LIST

#endif
