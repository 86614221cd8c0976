/* SPDX-License-Identifier: Apache-2.0 */
/* Logged values that a device still has to copy to the host.
 *
 * If the host cannot reach the memory, reading a value of a step would wait for the step. So each value is copied to a
 * ring of host memory when the device gets there, and the steps that follow are enqueued meanwhile. What is done with
 * a value waits for it in one queue, also what needs no copy: numbers, and the publication of a step's values. So all
 * happens in the order, and with the numbers, that memory of the host gives. It happens once the copy has been made, or
 * when somebody asks: a progress bar that is redrawn, a row, a callback that reads metrics, the end of an epoch.
 *
 * If the host reaches the device's memory, there is no queue. */
#ifndef LC_CORE_LOGGING_ARRIVALS_H
#define LC_CORE_LOGGING_ARRIVALS_H

#include "core/logging/logging.h"

/* When a value was computed. */
typedef struct lc__moment {
    int64_t step, epoch, batch;
} lc__moment;

typedef void lc__arrived_fn(void *ctx, double value, lc__moment at);

/* At the begin of a run whose graph has been made; at its end, which forgets what has not been settled. */
lc_status lc__arrivals_begin(lc_trainer *t) LC_MUST_USE;
void lc__arrivals_end(lc_trainer *t);

/* The following need the queue: t->logging->arrivals is not NULL. */
/* Adds a logged value when it arrives. */
lc_status lc__arrivals_add(lc_trainer *t, const lc__note *note, lc_tensor *tensor) LC_MUST_USE;
/* The same for a number, after those in the queue. */
lc_status lc__arrivals_add_number(lc_trainer *t, const lc__note *note, double value) LC_MUST_USE;
/* Calls fn when the value arrives. */
lc_status lc__arrivals_call(lc_trainer *t, lc_tensor *tensor, lc__arrived_fn *fn, void *ctx) LC_MUST_USE;
/* Publishes the values of a step when they have arrived. Then as lc__arrivals_look. */
lc_status lc__arrivals_publish(lc_trainer *t, lc__results *r) LC_MUST_USE;
/* Does what has arrived, without waiting. Between two steps this or the last function is called. */
lc_status lc__arrivals_look(lc_trainer *t) LC_MUST_USE;

/* Waits for all that is in the queue, and does it. */
lc_status lc__arrivals_settle(lc_trainer *t) LC_MUST_USE;
/* Waits for what was in the queue when lc__arrivals_number returned `number`, and does it. */
lc_status lc__arrivals_settle_to(lc_trainer *t, uint64_t number) LC_MUST_USE;
uint64_t lc__arrivals_number(const lc_trainer *t);
/* As lc__arrivals_settle where no error can be returned: the running hook fails. */
void lc__arrivals_settle_in_hook(lc_trainer *t);

#endif
