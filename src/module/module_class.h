/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of modules (hyperparameters.h), which programs and shared objects bring. */
#ifndef LC_MODULE_MODULE_CLASS_H
#define LC_MODULE_MODULE_CLASS_H

#include <lightc/hyperparameters.h>

/* LC_OK if a module can be made from the class. It may be shorter than the library's. */
lc_status lc__module_class_check(const lc_module_class *c) LC_MUST_USE;

#endif
