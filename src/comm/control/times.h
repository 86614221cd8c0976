/* SPDX-License-Identifier: Apache-2.0 */
/* How long each side waits when a rank is lost or fails, in milliseconds. Times that users set (silence, grace, ...)
 * are in lc__control_times.
 *
 * A rank fails or its process ends; the coordinator learns of it, waits a moment for a better reason, asks all ranks
 * for their last calls, and notifies them. A rank or supervisor that waits for that must wait longer than it takes: see
 * the assertions below. */
#ifndef LC_COMM_CONTROL_TIMES_H
#define LC_COMM_CONTROL_TIMES_H

enum {
    /* The coordinator waits: */
    LC__LAST_WORDS_MS = 100, /* for the last messages of a process that has ended, which may be in flight */
    LC__OBITUARY_MS = 300,   /* for the watcher of a process to report how it ended, perhaps from another host */
    LC__COMPLAINT_MS = 200,  /* before a rank's complaint ends the run: the cause may be a rank whose end is not noticed
                                yet, and other ranks, which share the processors, may be about to complain of the same */
    LC__DIFFERENCE_MS = 1000, /* before different calls of two ranks end the run: mostly their communicator finds that
                                 first, and they complain */
    LC__IN_FLIGHT_MS = 1000,  /* for messages that a rank sent to others before it left */
    LC__ANSWER_MS = 200,      /* for ranks to report their last calls before the run ends */
    LC__SHOWN_MS = 200,       /* for rank 0's process to print why, before the other ranks are notified */
    LC__LOSS_MS = LC__OBITUARY_MS + LC__ANSWER_MS, /* in total, from a loss until the run has ended */

    /* A rank waits: */
    LC__EXPLAINED_MS = 1000, /* for the reason, when another rank is missing */
    LC__ENDED_MS = 10000,    /* for the end, after a complaint: the coordinator ends every such run, but late if it was
                                stopped, or if its processors are busy. Less if it counts as silent before */
    LC__REACHED_MS = 1000, /* for a coordinator to be there, for a complaint of a rank that has left or never joined */
    LC__LATE_START_MS = 5000, /* for the coordinator to end a start that took too long */
    LC__PRINTED_MS = 1000,    /* to print the end, before its process exits */

    /* A supervisor waits: */
    LC__LOOK_MS = 20,       /* between two looks at its processes */
    LC__VERDICT_MS = 600,   /* for the reason why the run has ended, after the end of its processes */
    LC__DECIDED_MS = 10000, /* the same, if a rank is gone or has failed: the coordinator ends every such run */
    LC__NOTIFIED_MS = 500,  /* for the remaining ranks to be notified, before their grace period begins */
    LC__INSIST_MS = 1000,   /* for ranks to end at a second signal, before it is passed on again */
    LC__STOPPED_MS = 1000,  /* beyond the allowed silence, for the coordinator to end the run of a stopped rank */

    /* Both ends of a connection wait: */
    LC__GOODBYE_MS = 1000, /* for the other end to close it */

    /* Not waits: */
    LC__RESUMED_MS = 1000, /* after the coordinator resumes, its pause counts as the cause of a loss */
    LC__STUCK_MS = 1000,   /* until a running call counts as stuck */

    /* When ranks wait for others, a line is printed, first after this, and then at intervals: */
    LC__FIRST_WORD_MS = 2000,
    LC__NEXT_WORD_MS = 10000,
};

_Static_assert(LC__COMPLAINT_MS > LC__LOOK_MS && LC__OBITUARY_MS > LC__LOOK_MS,
               "a supervisor notices the end of a process before others are blamed for it");
_Static_assert(LC__LOSS_MS > LC__LAST_WORDS_MS + LC__ANSWER_MS && LC__LOSS_MS > LC__COMPLAINT_MS + LC__ANSWER_MS,
               "nothing takes the coordinator longer than a loss that is not explained");
_Static_assert(LC__DIFFERENCE_MS > LC__COMPLAINT_MS,
               "complaints of ranks take precedence over what the coordinator finds");
_Static_assert(LC__EXPLAINED_MS > LC__LOSS_MS + LC__SHOWN_MS, "a rank learns why another is missing");
_Static_assert(LC__ENDED_MS > LC__COMPLAINT_MS + LC__ANSWER_MS + LC__SHOWN_MS,
               "a rank learns that its complaint ended the run");
_Static_assert(LC__LATE_START_MS > LC__ANSWER_MS + LC__SHOWN_MS, "a rank learns which ranks have not joined");
_Static_assert(LC__VERDICT_MS > LC__LOSS_MS && LC__DECIDED_MS > LC__LOSS_MS, "a supervisor learns what ended its run");
_Static_assert(LC__NOTIFIED_MS > LC__LAST_WORDS_MS + LC__ANSWER_MS && LC__STOPPED_MS > LC__ANSWER_MS,
               "the coordinator ends a run before the supervisor kills its ranks");

/* In seconds, as clocks count. */
#define LC__SECONDS(ms) ((ms) / 1000.0)

#endif
