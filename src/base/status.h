/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, inside the library. */
#ifndef LC_BASE_STATUS_H
#define LC_BASE_STATUS_H

#include <lightc/status.h>

/* How many errors this thread has reported so far, to know whether one happened in a function that cannot return it. */
extern _Thread_local unsigned lc__errors;
static inline unsigned lc__error_count(void)
{
    return lc__errors;
}
/* The code of this thread's newest error; LC_OK: there was none. */
lc_status lc__last_error(void);
/* The error that this thread has reported since their count was `before`; LC_OK: none. A lookup that found nothing is
 * an answer, not a failure. */
static inline lc_status lc__error_since(unsigned before)
{
    lc_status last = lc__last_error();
    if (lc__errors == before || last == LC_ERR_NOT_FOUND) return LC_OK;
    return last < 0 ? last : LC_ERR_USER;
}

/* Returns s, which a function of the program returned. If it is an error and this thread has reported none since their
 * count was `before`, the message, which would be that of an earlier error, becomes one that says so. */
lc_status lc__with_message(lc_status failed, unsigned before);
static inline lc_status lc__said(lc_status s, unsigned before)
{
    return s >= 0 ? s : lc__with_message(s, before);
}

/* The same for `function` of `whose` ("a dataset"), which cannot make a request (stop, skip): one becomes an error. */
lc_status lc__no_answer(lc_status s, unsigned before, const char *function, const char *whose);
static inline lc_status lc__answered(lc_status s, unsigned before, const char *function, const char *whose)
{
    return s == LC_OK ? s : lc__no_answer(s, before, function, whose);
}

/* Copies this thread's message, which other errors would replace. */
void lc__copy_message(char *text, size_t size);

/* " at file:line" of a call, with the last part of the file's path; "" if it is unknown. */
typedef struct lc__site_text {
    char text[200];
} lc__site_text;
lc__site_text lc__at_site(lc_site site);

/* The signal that this thread's LC_ERR_INTERRUPTED is about. */
void lc__note_signal(int signal);
int lc__noted_signal(void); /* 0: none */

/* Notes that the supervisor of this run, or its rank 0, prints this thread's newest error, wherever it is passed on
 * to. */
void lc__note_reported(void);

/* Notes that this thread's newest error happened on another rank. It stays that rank's wherever its message is passed
 * on to, also under an lc_fail_context. */
void lc__note_rank(int rank);
int lc__error_rank(void); /* of the newest error; -1: this rank's own */

/* The first of several errors, for work that goes on after an error. {0}: none yet. */
typedef struct lc__first_error {
    lc_status status;
    int rank; /* as lc__error_rank */
    char text[1024];
} lc__first_error;

/* Keeps `s` and this thread's message, if it is an error and the first. */
void lc__first_error_note(lc__first_error *e, lc_status s);
/* LC_OK, or the error, reported again. */
lc_status lc__first_error_status(const lc__first_error *e) LC_MUST_USE;

#endif
