/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products inside other kernels: gemm of f32, gemm_f64 of f64 (gemm.inl). */
#ifndef LC_BACKENDS_CPU_ISA_GEMM_H
#define LC_BACKENDS_CPU_ISA_GEMM_H

#include "backends/cpu/isa/vec_f64.h"

#include <stdbool.h>

#define GEMM_ROWS 6
#if VW == 16
#define GEMM_VECTORS 4 /* 24 sums and their operands in 32 registers */
#else
#define GEMM_VECTORS 2 /* 12 in 16 */
#endif

#ifdef GEMM_OF_F64
#define GEMM(name) gemm_f64_##name
#define NUMBER     double
#define VECTOR     vd
#define LANES      VD
#define LOAD       vdload
#define STORE      vdstore
#include "backends/cpu/isa/gemm.inl"
#define gemm_f64 gemm_f64_gemm
#else
#define GEMM(name) gemm_f32_##name
#define NUMBER     float
#define VECTOR     vf
#define LANES      VW
#define LOAD       vload
#define STORE      vstore
#include "backends/cpu/isa/gemm.inl"
#define gemm gemm_f32_gemm
#endif

#endif
