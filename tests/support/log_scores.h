/* SPDX-License-Identifier: Apache-2.0 */
/* What an evaluation step of a classifier logs. */
#ifndef LC_TESTS_LOG_SCORES_H
#define LC_TESTS_LOG_SCORES_H

#include <lightc/lightc.h>

#include <stdio.h>

/* PREFIX_loss, the cross entropy, and PREFIX_acc, over the whole epoch. */
static inline lc_status log_scores(lc_module *self, const char *prefix, lc_tensor *logits, lc_tensor *y,
                                   lc_metric *accuracy)
{
    char name[32];
    snprintf(name, sizeof name, "%s_loss", prefix);
    lc_log(self, name, lc_cross_entropy(logits, y));
    LC_TRY(lc_metric_update_tensor(accuracy, logits, y));
    snprintf(name, sizeof name, "%s_acc", prefix);
    lc_log_metric(self, name, accuracy);
    return LC_OK;
}

#endif
