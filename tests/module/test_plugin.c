/* SPDX-License-Identifier: Apache-2.0 */
/* Shared objects whose module class was compiled with other headers: a shorter class is taken, as lc_module_new takes
 * it; a longer one, and one without a size, is an error. */
#include "sources.h"

#include <lightc/lightc.h>

/* Compiles a shared object with a class that begins with this size, and opens it. */
static lc_status open_class(const char *size)
{
    char work[] = "/tmp/lightc_plugin_XXXXXX", path[100], command[PATH_MAX + 400];
    lc_plugin *plugin;
    CHECK(mkdtemp(work) != NULL);
    snprintf(path, sizeof path, "%s/own.c", work);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f,
            "#include <lightc/plugin.h>\n"
            "static lc_status init(lc_module *m, const void *values, uint64_t seed)\n"
            "{ (void)m, (void)values, (void)seed; return LC_OK; }\n"
            "static const lc_module_class own = {.size = %s, .name = \"own\", .module_size = sizeof(lc_module), .init "
            "= init};\n"
            "LC_PLUGIN(own)\n",
            size);
    CHECK(fclose(f) == 0);
    snprintf(command, sizeof command, "cc -std=c11 -shared -fPIC -I%s/include %s/own.c -o %s/own.so", source_root(),
             work, work);
    CHECK(system(command) == 0);
    snprintf(path, sizeof path, "%s/own.so", work);
    lc_status status = lc_plugin_open(path, &plugin);
    if (status >= 0) CHECK_STR(lc_plugin_class(plugin)->name, "own");
    lc_plugin_close(plugin);
    snprintf(command, sizeof command, "rm -r %s", work);
    CHECK(system(command) == 0);
    return status;
}

TEST(sizes_of_classes)
{
    if (system("command -v cc >/dev/null") != 0) SKIP("there is no compiler");
    CHECK_OK(open_class("sizeof(lc_module_class)"));
    CHECK_OK(open_class("offsetof(lc_module_class, release)"));
    CHECK_STATUS(open_class("sizeof(lc_module_class) + 8"), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "newer");
    CHECK_STATUS(open_class("0"), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "LC_MODULE_CLASS_INIT");
}

TEST_MAIN
