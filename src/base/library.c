/* SPDX-License-Identifier: Apache-2.0 */
#include "base/library.h"

#include <lightc/base.h>

#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>

lc_status lc__library_open(const char *path, int flags, void **out)
{
    struct stat st;
    *out = NULL;
    if (strchr(path, '/') && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return lc_fail(LC_ERR_FORMAT, "%s is not a file", path);
    if ((*out = dlopen(path, flags))) return LC_OK;
    const char *why = dlerror();
    return lc_fail(LC_ERR_NOT_FOUND, "%s", why ? why : path);
}
