/* SPDX-License-Identifier: Apache-2.0 */
/* Opening modules in shared objects (plugin.h). */
#include <lightc/plugin.h>
#include "base/handle.h"
#include "base/library.h"
#include "module/module_class.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lc_plugin {
    lc__mark mark;
    void *library;
    const lc_module_class *module;
};

static lc_status check(const lc_plugin_info *info, const char *path)
{
    if (info->magic != LC_PLUGIN_MAGIC)
        return lc_fail(LC_ERR_FORMAT, "%s exports %s, but it is not an lc_plugin_info", path, LC_PLUGIN_SYMBOL);
    if (info->abi != LC_PLUGIN_ABI)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "%s was built with the headers of lightc %.20s, but this is lightc %s; "
                       "recompile it",
                       path, info->version ? info->version : "?", LC_VERSION_STRING);
    /* Within a release structures do not change; between two development builds they may. */
    if (info->module_size != sizeof(lc_module) || info->batch_size != sizeof(lc_batch) ||
        info->ops_size > sizeof(lc_module_ops))
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "%s was built with headers whose structures differ in size from this library's (both have "
                       "version %s); recompile it",
                       path, LC_VERSION_STRING);
    return lc__module_class_check(info->module) < 0 ? lc_fail_context(LC_ERR_FORMAT, "%s", path) : LC_OK;
}

lc_status lc_plugin_open(const char *path, lc_plugin **out)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc_status status = LC_OK;
    *out = NULL;
    lc_plugin *p = calloc(1, sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory: a plugin");
    p->mark = LC__MARK_OF(PLUGIN);
    if ((status = lc__library_open(path, RTLD_NOW | RTLD_LOCAL, &p->library)) < 0) {
        status = lc_fail(status, "cannot open the module: %s%s", lc_error_message(),
                         access(path, F_OK) == 0 ? ""
                                                 : "; compile it with: cc -shared -fPIC NAME.c -o NAME.so "
                                                   "$(pkg-config --cflags --libs lightc)");
        goto done;
    }
    const lc_plugin_info *info = dlsym(p->library, LC_PLUGIN_SYMBOL);
    if (!info) {
        status =
            lc_fail(LC_ERR_FORMAT, "%s is a shared object, but not a lightc module: it lacks LC_PLUGIN(class)", path);
        goto done;
    }
    LC_TRY_GOTO(status, done, check(info, path));
    p->module = info->module;
    *out = p;
    p = NULL;
done:
    lc_plugin_close(p);
    return status;
}

const lc_module_class *lc_plugin_class(const lc_plugin *p)
{
    LC__IS(p, PLUGIN, NULL);
    return p->module;
}

void lc_plugin_close(lc_plugin *p)
{
    if (!p) return;
    LC__IS_OR_NULL(p, PLUGIN, );
    if (p->library) dlclose(p->library);
    lc__mark_clear(&p->mark);
    free(p);
}
