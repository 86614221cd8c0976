/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows. */
#include "base/c_locale.h"
#include "base/str.h"
#include "base/grow.h"
#include "base/printable.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool reserve(lc__str *t, size_t more)
{
    if (!t->failed && (__builtin_add_overflow(more, 1, &more) || lc__grow(&t->s, &t->cap, t->n, more, "a text") < 0))
        t->failed = true;
    return !t->failed;
}

void lc__str_add_bytes(lc__str *t, const char *bytes, size_t n)
{
    if (!reserve(t, n)) return;
    memcpy(t->s + t->n, bytes, n);
    t->n += n;
    t->s[t->n] = 0;
}

static void add_list(lc__str *t, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    locale_t before = lc__c_locale_begin();
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && reserve(t, (size_t)n)) {
        vsnprintf(t->s + t->n, (size_t)n + 1, format, again);
        t->n += (size_t)n;
    }
    lc__c_locale_end(before);
    va_end(again);
}

void lc__str_add(lc__str *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_list(t, format, args);
    va_end(args);
}

void lc__str_add_printable(lc__str *t, const char *from, bool lines)
{
    size_t n = strlen(from), most;
    if (__builtin_mul_overflow(n, (size_t)4, &most) || !reserve(t, most)) {
        t->failed = true;
        return;
    }
    t->n += lc__printable(from, n, lines, t->s + t->n, most + 1);
}

void lc__str_clear(lc__str *t)
{
    t->n = 0;
    t->failed = false;
    if (t->s) t->s[0] = 0;
}

void lc__str_free(lc__str *t)
{
    free(t->s);
    memset(t, 0, sizeof *t);
}

static bool write_all(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t done = write(fd, s, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (done <= 0) return false;
        s += done;
        n -= (size_t)done;
    }
    return true;
}

bool lc__show(int fd, const char *s, size_t n)
{
    sigset_t pipe, pending, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    bool shown = write_all(fd, s, n);
    int error = errno;
    if (!shown && error == EPIPE && !sigismember(&pending, SIGPIPE)) sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return shown;
}

void lc__show_line(int fd, const char *format, ...)
{
    lc__str line = {0}, text = {0};
    va_list args;
    va_start(args, format);
    add_list(&line, format, args);
    va_end(args);
    lc__str_add_printable(&text, line.s ? line.s : "", lc__format_has_lines(format));
    lc__str_add_bytes(&text, "\n", 1);
    if (!line.failed && !text.failed) lc__show(fd, text.s, text.n);
    lc__str_free(&line);
    lc__str_free(&text);
}

void lc__say(void *ctx, const char *text)
{
    (void)ctx;
    lc__show_line(2, "%s", text);
}

lc_status lc__copy_text(const char *s, char **out)
{
    size_t n = strlen(s) + 1;
    char *copy = malloc(n);
    if (!copy) return lc_fail(LC_ERR_MEMORY, "out of memory: a text of %zu bytes", n);
    memcpy(copy, s, n);
    *out = copy;
    return LC_OK;
}
