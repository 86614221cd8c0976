/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers have a decimal point, whatever locale the program has set: options, names and files mean the same to every
 * program. */
#ifndef LC_BASE_C_LOCALE_H
#define LC_BASE_C_LOCALE_H

#include <lightc/status.h>

#include <locale.h>
#include <stddef.h>

/* Between these two calls the C library formats and reads numbers of this thread as in the C locale. */
locale_t lc__c_locale_begin(void);
void lc__c_locale_end(locale_t before);

/* strtod and snprintf in the C locale. */
double lc__strtod(const char *text, char **end);
int lc__snprintf(char *text, size_t size, const char *format, ...) LC_PRINTF(3, 4);

#endif
