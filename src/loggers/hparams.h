/* SPDX-License-Identifier: Apache-2.0 */
/* The hyperparameters of a run as a logger's thread keeps them, and hparams.yaml. */
#ifndef LC_LOGGERS_HPARAMS_H
#define LC_LOGGERS_HPARAMS_H

#include "base/json.h"
#include "loggers/writer.h"

/* Sorted by name; the later of two equal names wins. All zero: none. */
typedef struct lc__hparams {
    lc_hparam *p; /* name and text are copies */
    int n, capacity;
} lc__hparams;

lc_status lc__hparams_merge(lc__hparams *h, lc__log_record *record);
void lc__hparams_release(lc__hparams *h);

/* Writes hparams.yaml as Lightning does; "{}" if there are none. Replaces the file atomically. */
lc_status lc__hparams_write_yaml(const lc__hparams *h, const char *path);

/* The value as text ("True", "3", "1e-05", ...), NULL if it is not set. `number` is room for it. */
const char *lc__hparam_text(const lc_hparam *p, char number[LC__DOUBLE_SIZE]);

#endif
