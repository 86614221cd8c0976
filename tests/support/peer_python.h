/* SPDX-License-Identifier: Apache-2.0 */
/* A Python with the packages of other projects, for tests that compare with them. LIGHTC_LOGGERS_PYTHON, or else
 * LIGHTC_PEERS_PYTHON, names it; a test is skipped if it lacks the package. */
#ifndef LC_PEER_PYTHON_H
#define LC_PEER_PYTHON_H

#include "test.h"
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

static inline const char *test_source_dir(void)
{
    const char *dir = getenv("LIGHTC_TEST_SOURCE");
    return dir ? dir : ".";
}

#endif
