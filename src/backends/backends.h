/* SPDX-License-Identifier: Apache-2.0 */
/* The backends, for src/builtin.c. */
#ifndef LC_BACKENDS_BACKENDS_H
#define LC_BACKENDS_BACKENDS_H

#include <lightc/backend.h>

extern const lc_backend_ops lc__cpu_backend;

#endif
