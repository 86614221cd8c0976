/* SPDX-License-Identifier: Apache-2.0 */
/* Registration, for what clears a part of a model before lc_module_init_child does. */
#ifndef LC_MODULE_REGISTER_H
#define LC_MODULE_REGISTER_H

#include <lightc/module.h>

/* Whether m, which is to become the part `name` of `parent`, is the root or a part of that model already. The root
 * keeps the error then, and m must stay as it is. m need not be initialized. */
bool lc__module_in_use(const lc_module *m, void *parent, const char *name);

#endif
