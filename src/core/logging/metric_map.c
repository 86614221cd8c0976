/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of named values: the logged values that callbacks, the progress bar and users see. */
#include "core/logging/arrivals.h"
#include "core/hooks/trainer_internal.h"
#include "base/grow.h"
#include "base/handle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lc__map_find(const lc__metric_map *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->v[i].name, name)) return i;
    return -1;
}

const char *lc__map_names(const lc__metric_map *m, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < m->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s`%s`", i ? ", " : "", m->v[i].name);
    return text;
}

int lc__map_slot(lc__metric_map *m, const char *name)
{
    int at = lc__map_find(m, name);
    if (at >= 0) return at;
    if (lc__grow(&m->v, &m->cap, m->n, 1, "names of metrics") < 0) return -1;
    char *copy = strdup(name);
    if (!copy) return -1;
    m->v[m->n] = (lc_metric_value){copy, NAN};
    return m->n++;
}

void lc__map_clear(lc__metric_map *m)
{
    for (int i = 0; i < m->n; i++) free((char *)m->v[i].name);
    m->n = 0;
}

void lc__map_free(lc__metric_map *m)
{
    lc__map_clear(m);
    free(m->v);
    *m = (lc__metric_map){0};
}

lc__metric_map *lc__metrics(lc_trainer *t, lc_metric_set set)
{
    lc__arrivals_settle_in_hook(t);
    return &t->logging->metrics[set];
}

/* ---- for users ---- */

static const lc__metric_map *map_of(lc_trainer *t, lc_metric_set set)
{
    static const lc__metric_map none;
    return (unsigned)set < sizeof t->logging->metrics / sizeof *t->logging->metrics ? lc__metrics(t, set) : &none;
}

int lc_trainer_metric_count(lc_trainer *t, lc_metric_set set)
{
    LC__IS(t, TRAINER, 0);
    return map_of(t, set)->n;
}

lc_metric_value lc_trainer_metric_at(lc_trainer *t, lc_metric_set set, int i)
{
    LC__IS(t, TRAINER, (lc_metric_value){0});
    const lc__metric_map *m = map_of(t, set);
    return i >= 0 && i < m->n ? m->v[i] : (lc_metric_value){NULL, NAN};
}

lc_status lc_trainer_metric(lc_trainer *t, const char *name, double *out)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
    char known[512];
    int at = lc__map_find(m, name);
    if (at < 0)
        return lc_fail(LC_ERR_NOT_FOUND, "unknown metric `%s`; available: %s", name,
                       m->n ? lc__map_names(m, known, sizeof known) : "none yet");
    *out = m->v[at].value;
    return LC_OK;
}
