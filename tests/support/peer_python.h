/* SPDX-License-Identifier: Apache-2.0 */
/* A Python with the packages of other projects, for tests that compare with them. LIGHTC_LOGGERS_PYTHON, or else
 * LIGHTC_PEERS_PYTHON, names it; a test is skipped if it lacks the package. */
#ifndef LC_PEER_PYTHON_H
#define LC_PEER_PYTHON_H

#include "test.h"

#include <limits.h>
#include <stdarg.h>
#include <unistd.h>

/* NULL if no such Python has the module. */
static inline const char *peer_python(const char *module)
{
    static const char *const names[] = {"LIGHTC_LOGGERS_PYTHON", "LIGHTC_PEERS_PYTHON"};
    for (int i = 0; i < 2; i++) {
        const char *python = getenv(names[i]);
        char command[2048];
        if (!python || access(python, X_OK) < 0) continue;
        snprintf(command, sizeof command, "'%s' -c 'import %s' 2>/dev/null", python, module);
        if (system(command) == 0) return python;
    }
    return NULL;
}

/* Runs a script, which is left in `dir`. */
static inline void run_python(const char *python, const char *dir, const char *format, ...) LC_PRINTF(3, 4);
static inline void run_python(const char *python, const char *dir, const char *format, ...)
{
    char script[PATH_MAX], command[2 * PATH_MAX + 20];
    va_list args;
    snprintf(script, sizeof script, "%s/check.py", dir);
    FILE *f = fopen(script, "w");
    CHECK(f != NULL);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    CHECK(fclose(f) == 0);
    snprintf(command, sizeof command, "'%s' '%s'", python, script);
    CHECK_EQ(system(command), 0);
}

static inline const char *test_source_dir(void)
{
    const char *dir = getenv("LIGHTC_TEST_SOURCE");
    return dir ? dir : ".";
}

#endif
