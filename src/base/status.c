/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the per-thread error message. */
#include <lightc/status.h>
#include "base/status.h"

#include "base/c_locale.h"
#include "base/printable.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_SIZE = 1024 };

/* One object, so that a thread has only one hidden state; the count is separate, where it is cheap to read. The text is
 * allocated by a thread's first error: what is thread-local must be small (-ftls-model=initial-exec in CMakeLists.txt).
 */
static _Thread_local struct {
    char *text;
    lc_status last;
    int signal;        /* the last that ended a run */
    uint64_t reported; /* a hash of the message that another process prints; 0: none */
    uint64_t theirs;   /* a hash of the message of an error of `rank`; 0: none */
    int rank;
} error;

_Thread_local unsigned lc__errors;

const char *lc_version(void)
{
    return LC_VERSION_STRING;
}

const char *lc_status_text(lc_status status)
{
    switch (status) {
#define LC_STATUS_CASE(id, value, text)                                                                                \
    case id:                                                                                                           \
        return text;
        LC_STATUS_LIST(LC_STATUS_CASE)
#undef LC_STATUS_CASE
    }
    return "unknown status";
}

const char *lc_level_name(lc_level level)
{
    static const char *const names[] = {"info", "warning", "error"};
    return (unsigned)level < sizeof names / sizeof *names ? names[level] : NULL;
}

const char *lc_error_message(void)
{
    if (error.text) return error.text;
    return lc__errors ? "out of memory" : ""; /* no error yet, or not even memory for its text */
}

static struct {
    pthread_once_t once;
    pthread_key_t key; /* frees the text of a thread that ends */
    bool failed;
} texts = {.once = PTHREAD_ONCE_INIT};

static void free_text(void *text)
{
    error.text = NULL;
    free(text);
}

static void make_key(void)
{
    texts.failed = pthread_key_create(&texts.key, free_text) != 0;
}

/* NULL: there is no memory for it. */
static char *own_text(void)
{
    if (error.text) return error.text;
    pthread_once(&texts.once, make_key);
    char *text = texts.failed ? NULL : calloc(1, MESSAGE_SIZE);
    if (text && pthread_setspecific(texts.key, text)) {
        free(text);
        text = NULL;
    }
    return error.text = text;
}

/* The arguments may point into the current message. Returns the length. */
static size_t compose(char text[MESSAGE_SIZE], const char *format, va_list args)
{
    locale_t before = lc__c_locale_begin();
    int n = vsnprintf(text, MESSAGE_SIZE, format, args);
    lc__c_locale_end(before);
    if (n < 0) text[0] = 0;
    if (n < MESSAGE_SIZE) return n < 0 ? 0 : (size_t)n;
    return lc__cut_character(text, MESSAGE_SIZE - 1);
}

lc_status lc_fail(lc_status status, const char *format, ...)
{
    if (!format) format = "no message was given";
    char text[MESSAGE_SIZE], *message = own_text();
    va_list args;
    va_start(args, format);
    size_t n = compose(text, format, args);
    va_end(args);
    if (message) lc__printable(text, n, lc__format_has_lines(format), message, MESSAGE_SIZE);
    lc__errors++;
    error.last = status;
    return status;
}

static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

void lc__note_reported(void)
{
    error.reported = hash(lc_error_message());
}

bool lc_error_is_reported(void)
{
    return error.reported && error.reported == hash(lc_error_message());
}

void lc__note_rank(int rank)
{
    error.theirs = rank < 0 ? 0 : hash(lc_error_message());
    error.rank = rank;
}

int lc__error_rank(void)
{
    return error.theirs && error.theirs == hash(lc_error_message()) ? error.rank : -1;
}

void lc__note_signal(int signal)
{
    error.signal = signal;
}

int lc__noted_signal(void)
{
    return error.signal;
}

lc_status lc__last_error(void)
{
    return error.last;
}

lc_status lc_fail_context(lc_status status, const char *format, ...)
{
    if (!format) format = "no message was given";
    char text[MESSAGE_SIZE], context[MESSAGE_SIZE], *message = own_text();
    va_list args;
    va_start(args, format);
    size_t n = compose(text, format, args);
    va_end(args);
    n = lc__printable(text, n, lc__format_has_lines(format), context, sizeof context);
    if (n + 3 < sizeof context) {
        snprintf(context + n, sizeof context - n, ": %.*s", (int)(sizeof context - n - 3), lc_error_message());
        context[lc__cut_character(context, strlen(context))] = 0;
    }
    int rank = lc__error_rank();
    if (message) memcpy(message, context, sizeof context);
    if (rank >= 0) lc__note_rank(rank);
    return status;
}

static lc_status with_message(lc_status failed, unsigned before, const char *who)
{
    if (lc__errors != before && *lc_error_message()) return failed;
    return lc_fail(failed, "%s returned an error (%s) without a message; lc_fail(status, \"what is wrong\") gives one",
                   who, lc_status_text(failed));
}

lc_status lc__with_message(lc_status failed, unsigned before)
{
    return with_message(failed, before, "it");
}

lc_status lc__no_answer(lc_status s, unsigned before, const char *function, const char *whose)
{
    if (s < 0) return with_message(s, before, function);
    return lc_fail(LC_ERR_USER, "%s returned \"%s\", which %s cannot return", function, lc_status_text(s), whose);
}

void lc__copy_message(char *text, size_t size)
{
    snprintf(text, size, "%s", lc_error_message());
}

lc__site_text lc__at_site(lc_site site)
{
    lc__site_text p = {""};
    const char *file = site.file ? strrchr(site.file, '/') : NULL;
    if (site.file) snprintf(p.text, sizeof p.text, " at %s:%d", file ? file + 1 : site.file, site.line);
    return p;
}

void lc__first_error_note(lc__first_error *e, lc_status s)
{
    if (s >= 0 || e->status < 0) return;
    e->status = s;
    e->rank = lc__error_rank();
    lc__copy_message(e->text, sizeof e->text);
}

lc_status lc__first_error_status(const lc__first_error *e)
{
    if (e->status >= 0) return LC_OK;
    lc_fail(e->status, "%s", e->text);
    lc__note_rank(e->rank);
    return e->status;
}
