/* SPDX-License-Identifier: Apache-2.0 */
/* A locale whose numbers have a decimal comma, made if the system has none but can make it. */
#ifndef LC_TESTS_COMMA_LOCALE_H
#define LC_TESTS_COMMA_LOCALE_H

#include "scratch.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* Takes effect for the rest of the test, which ends with setlocale(LC_ALL, "C"). */
static inline bool use_decimal_comma(void)
{
    if (setlocale(LC_ALL, "de_DE.UTF-8")) return true;
    char command[700];
    const char *dir = fresh_dir("locale");
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", dir);
    if (system(command) < 0 || setenv("LOCPATH", dir, 1) != 0) return false;
    return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

#endif
