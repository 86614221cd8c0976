/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and the message that goes with them.
 *
 * Every fallible function returns an lc_status. LC_OK is 0; LC_STOP and LC_SKIP are positive requests that hooks may
 * return; errors are negative. An error carries a complete sentence, which says what was wrong and, if known, what to
 * do; it is kept per thread until the next error of that thread. The library never exits, aborts or prints. */
#ifndef LIGHTC_STATUS_H
#define LIGHTC_STATUS_H

#include <lightc/base.h>

/* X(identifier, value, short text) */
#define LC_STATUS_LIST(X)                                                                                              \
    X(LC_OK, 0, "ok")                                                                                                  \
    X(LC_STOP, 1, "stop after this step")                                                                              \
    X(LC_SKIP, 2, "skip")                                                                                              \
    X(LC_ERR_ARGUMENT, -1, "invalid argument")                                                                         \
    X(LC_ERR_CONFIG, -2, "invalid configuration")                                                                      \
    X(LC_ERR_SHAPE, -3, "shapes do not match")                                                                         \
    X(LC_ERR_DTYPE, -4, "data types do not match")                                                                     \
    X(LC_ERR_DEVICE, -5, "devices do not match")                                                                       \
    X(LC_ERR_MEMORY, -6, "out of memory")                                                                              \
    X(LC_ERR_IO, -7, "input or output failed")                                                                         \
    X(LC_ERR_FORMAT, -8, "malformed data")                                                                             \
    X(LC_ERR_NOT_FOUND, -9, "not found")                                                                               \
    X(LC_ERR_STATE, -10, "not allowed in this state")                                                                  \
    X(LC_ERR_UNSUPPORTED, -11, "not supported")                                                                        \
    X(LC_ERR_USER, -12, "reported by user code")                                                                       \
    X(LC_ERR_INTERRUPTED, -13, "interrupted")                                                                          \
    X(LC_ERR_PEER, -14, "another rank was lost")                                                                       \
    X(LC_ERR_NUMERIC, -15, "not a finite number")                                                                      \
    X(LC_ERR_INTERNAL, -16, "defect in lightc")

typedef enum lc_status {
#define LC_STATUS_ENUM(id, value, text) id = value,
    LC_STATUS_LIST(LC_STATUS_ENUM)
#undef LC_STATUS_ENUM
} lc_status;

/* How important a message is to the user. */
typedef enum lc_level { LC_INFO = 0, LC_WARNING, LC_ERROR } lc_level;

LC_BEGIN_DECLS

/* The short text of a code. Static. */
LC_API const char *lc_status_text(lc_status status);
/* "info", "warning", "error"; NULL for an unknown level. */
LC_API const char *lc_level_name(lc_level level);

/* The message of this thread's last error; "" if there was none. Borrowed until this thread's next error. */
LC_API const char *lc_error_message(void);

/* Sets this thread's error message and returns `status`, so that `return lc_fail(LC_ERR_USER, "...")` is the idiom.
 * The message is a sentence without a final newline. Control characters in arguments become \xNN, as lc_printable has
 * it; newlines only stay if the format has some. */
LC_API lc_status lc_fail(lc_status status, const char *format, ...) LC_PRINTF(2, 3);

/* Puts "text: " in front of the current message, to say what was being done; returns `status`. */
LC_API lc_status lc_fail_context(lc_status status, const char *format, ...) LC_PRINTF(2, 3);

/* Makes a text from elsewhere (a file, another host, a server) safe to show on a terminal: control characters, and
 * bytes that are not UTF-8, become \xNN; with `lines`, newlines and tabs stay. Writes at most `size` bytes, with a NUL,
 * and returns `text`. */
LC_API const char *lc_printable(const char *from, bool lines, char *text, size_t size);

/* The exit status for `status`: 0 without an error, 128 plus the signal's number after SIGINT, SIGTERM or SIGHUP (130
 * after Ctrl-C), else 1. Call it only when the program exits: one of several ranks ends the whole run with the current
 * message. */
LC_API int lc_exit_status(lc_status status);

/* Whether the current message need not be printed here: it ended a run of several ranks, and the process that started
 * them, or rank 0 of the run, prints it for all. In the process that started them: the ranks have printed why they
 * ended. */
LC_API bool lc_error_is_reported(void);

/* Flushes standard output: for the end of a main whose output is its result, since stdio itself does not report a full
 * disk. LC_ERR_IO if any output so far has been lost. */
LC_API lc_status lc_stdout_flush(void) LC_MUST_USE;

LC_END_DECLS

/* Return from the enclosing function if `expr` is an error. */
#define LC_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        lc_status lc_try_status_ = (expr);                                                                             \
        if (lc_try_status_ < 0) return lc_try_status_;                                                                 \
    } while (0)

/* In functions that hold resources: keep the error in `status` and go to the one clean-up label. */
#define LC_TRY_GOTO(status, label, expr)                                                                               \
    do {                                                                                                               \
        (status) = (expr);                                                                                             \
        if ((status) < 0) goto label;                                                                                  \
    } while (0)

/* In main(): return lc_exit_status, and print the message to stderr, unless lc_error_is_reported. Needs <stdio.h>. */
#define LC_MAIN_TRY(expr)                                                                                              \
    do {                                                                                                               \
        lc_status lc_try_status_ = (expr);                                                                             \
        if (lc_try_status_ == LC_STOP) return 0;                                                                       \
        if (lc_try_status_ < 0) {                                                                                      \
            int lc_try_exit_ = lc_exit_status(lc_try_status_);                                                         \
            if (!lc_error_is_reported()) fprintf(stderr, "error: %s\n", lc_error_message());                           \
            return lc_try_exit_;                                                                                       \
        }                                                                                                              \
    } while (0)

#endif
