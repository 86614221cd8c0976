/* SPDX-License-Identifier: Apache-2.0 */
/* The constructors of src/profilers, for src/builtin.c. */
#ifndef LC_PROFILERS_PROFILERS_H
#define LC_PROFILERS_PROFILERS_H

#include <lightc/profiler.h>

lc_status lc__simple_profiler_new(lc_profiler *out) LC_MUST_USE;
lc_status lc__ops_profiler_new(lc_profiler *out) LC_MUST_USE;
lc_status lc__trace_profiler_new(lc_profiler *out) LC_MUST_USE;

#endif
