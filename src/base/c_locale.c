/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/c_locale.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

locale_t lc__c_locale_begin(void)
{
    /* The C library has this locale already. If it has not, and there is no memory, nothing changes. */
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

void lc__c_locale_end(locale_t before)
{
    locale_t own = uselocale(before);
    if (own != before) freelocale(own);
}

double lc__strtod(const char *text, char **end)
{
    locale_t before = lc__c_locale_begin();
    double value = strtod(text, end);
    lc__c_locale_end(before);
    return value;
}

int lc__snprintf(char *text, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    locale_t before = lc__c_locale_begin();
    int n = vsnprintf(text, size, format, args);
    lc__c_locale_end(before);
    va_end(args);
    return n;
}
