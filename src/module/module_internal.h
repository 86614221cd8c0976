/* SPDX-License-Identifier: Apache-2.0 */
/* What layers, optimizers and the trainer need of modules beyond the public header. */
#ifndef LC_MODULE_MODULE_INTERNAL_H
#define LC_MODULE_MODULE_INTERNAL_H

#include <lightc/module.h>

/* The path of m (or of the tensor `name` in it) from the root, allocated; NULL if out of memory. "" for the root. */
char *lc__module_path(const lc_module *m, const char *name);

#endif
