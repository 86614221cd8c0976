/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the per-thread error message. */
#include <lightc/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

const char *lc_version(void)
{
    return LC_VERSION_STRING;
}

const char *lc_status_text(lc_status status)
{
    switch (status) {
#define LC_STATUS_CASE(id, value, text)                                                                              \
    case id: return text;
        LC_STATUS_LIST(LC_STATUS_CASE)
#undef LC_STATUS_CASE
    }
    return "unknown status";
}

const char *lc_error_message(void)
{
    return message;
}

lc_status lc_fail(lc_status status, const char *format, ...)
{
    /* The arguments may point into the current message. */
    char text[sizeof message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, sizeof message);
    return status;
}

lc_status lc_fail_context(lc_status status, const char *format, ...)
{
    char text[sizeof message];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof text) snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)(sizeof text - (size_t)n - 3), message);
    memcpy(message, text, sizeof message);
    return status;
}
