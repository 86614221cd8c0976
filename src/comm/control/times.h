/* SPDX-License-Identifier: Apache-2.0 */
/* How long what waits for what when a rank is lost or fails, in milliseconds. What users set (silence, grace, ...) is
 * in lc__control_times.
 *
 * A rank fails or its process ends; the coordinator learns of it, waits a moment for a better reason, asks all ranks
 * for their last calls, and notifies them. A rank or supervisor that waits for that must wait longer than it takes: the
 * assertions below say who. */
#ifndef LC_COMM_CONTROL_TIMES_H
#define LC_COMM_CONTROL_TIMES_H

enum {
    /* The coordinator waits: */
    LC__LAST_WORDS_MS = 100,  /* for what a process that has ended said itself, which may still be in flight */
    LC__OBITUARY_MS = 300,    /* for whoever watches a process to say how it ended, perhaps from another host */
    LC__COMPLAINT_MS = 200,   /* before it believes one: the cause may be a rank whose end is not seen yet, and others
                               * that share the processors may complain of the same */
    LC__DIFFERENCE_MS = 1000, /* before it believes that two ranks make different calls: mostly their communicator
                               * finds that, and they complain */
    LC__IN_FLIGHT_MS = 1000,  /* for what a rank has sent to others before it left */
    LC__ANSWER_MS = 200,      /* for ranks to report their last calls, when the run is to end */
    LC__SHOWN_MS = 200,       /* for rank 0's process to print why, before the other ranks are notified */
    LC__LOSS_MS = LC__OBITUARY_MS + LC__ANSWER_MS, /* in all, from a loss until the run has ended */

    /* A rank waits: */
    LC__EXPLAINED_MS = 1000,  /* for the reason, when it misses another rank */
    LC__ENDED_MS = 1000,      /* for the end, when it has complained; and to reach a coordinator for that */
    LC__LATE_START_MS = 5000, /* for the end of a start that took too long, which the coordinator decides */
    LC__PRINTED_MS = 1000,    /* to print the end, before its process exits */

    /* A supervisor waits: */
    LC__LOOK_MS = 20,      /* between two looks at its processes */
    LC__VERDICT_MS = 600,  /* for the reason why the run has ended, when all its processes have */
    LC__DECIDED_MS = 1000, /* for whether it has failed at all, when they have ended well */
    LC__NOTIFIED_MS = 500, /* before the grace period of the ranks that are left begins: until they are notified */
    LC__STOPPED_MS = 1000, /* longer than the silence that is allowed, for the coordinator to end the run because of a
                            * rank that is stopped */

    /* Both ends of a connection wait: */
    LC__GOODBYE_MS = 1000, /* for the other end to close it */

    /* Not waits, but how long something counts as: */
    LC__RESUMED_MS = 1000, /* lost because the coordinator's process was stopped, after that has gone on */
    LC__STUCK_MS = 1000,   /* a call that takes a while, and is no more listed as stuck before */

    /* People are notified of ranks that wait for others, at first and then again: */
    LC__FIRST_WORD_MS = 2000,
    LC__NEXT_WORD_MS = 10000,
};

_Static_assert(LC__COMPLAINT_MS > LC__LOOK_MS && LC__OBITUARY_MS > LC__LOOK_MS,
               "a supervisor sees the end of a process before others are blamed for it");
_Static_assert(LC__LOSS_MS > LC__LAST_WORDS_MS + LC__ANSWER_MS && LC__LOSS_MS > LC__COMPLAINT_MS + LC__ANSWER_MS,
               "nothing takes the coordinator longer than a loss that nobody explains");
_Static_assert(LC__DIFFERENCE_MS > LC__COMPLAINT_MS, "ranks that complain go before what the coordinator finds");
_Static_assert(LC__EXPLAINED_MS > LC__LOSS_MS + LC__SHOWN_MS, "a rank hears why another is missing");
_Static_assert(LC__ENDED_MS > LC__COMPLAINT_MS + LC__ANSWER_MS + LC__SHOWN_MS, "a rank hears what its complaint ended");
_Static_assert(LC__LATE_START_MS > LC__ANSWER_MS + LC__SHOWN_MS, "a rank hears who has not come");
_Static_assert(LC__VERDICT_MS > LC__LOSS_MS && LC__DECIDED_MS > LC__LOSS_MS, "a supervisor hears what ended its run");
_Static_assert(LC__NOTIFIED_MS > LC__LAST_WORDS_MS + LC__ANSWER_MS && LC__STOPPED_MS > LC__ANSWER_MS,
               "the coordinator ends a run before the supervisor kills its ranks");

/* In seconds, which clocks count. */
#define LC__SECONDS(ms) ((ms) / 1000.0)

#endif
