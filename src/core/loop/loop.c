/* SPDX-License-Identifier: Apache-2.0 */
/* Frees the state of the loops. */
#include "core/loop/loop.h"

#include <stdlib.h>

void lc__loop_free(lc_trainer *t)
{
    lc__forget_predictions(t);
    for (int i = 0; i < LC_MAX_LOADERS; i++) free(t->loop->predictions[i].t);
    free(t->loop->modes);
    free(t->loop->toggled);
    lc__unused_free(t);
}
