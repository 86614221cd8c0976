/* SPDX-License-Identifier: Apache-2.0 */
#include "module/module_class.h"

#include "base/args.h"

lc_status lc__module_class_check(const lc_module_class *c)
{
    LC_TRY(lc__ops_check(sizeof *c, c, offsetof(lc_module_class, release), "a module class",
                         "LC_MODULE_CLASS_INIT(\"name\")"));
    if (c->name && c->init && c->module_size >= sizeof(lc_module)) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "a module class must start with LC_MODULE_CLASS_INIT(name), and have an init and "
                                    "the size of a struct that begins with an lc_module");
}
