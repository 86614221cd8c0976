/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees a trainer's logging state. */
#include "core/logging/logging.h"

#include <stdlib.h>

void lc__logging_init(lc_trainer *t)
{
    t->logging->train_results.training = true;
    t->logging->version = -1;
}

void lc__logging_free(lc_trainer *t)
{
    lc__logging *l = t->logging;
    lc__results_free(&l->train_results);
    lc__results_free(&l->eval_results);
    for (size_t i = 0; i < sizeof l->metrics / sizeof *l->metrics; i++) lc__map_free(&l->metrics[i]);
    for (int i = 0; i < LC_MAX_LOADERS; i++) free(l->result_values[i]);
    free(l->row);
    lc__media_free(l->media);
    free(l->run_id);
}
