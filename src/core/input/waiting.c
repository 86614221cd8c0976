/* SPDX-License-Identifier: Apache-2.0 */
/* Whether training waited for its data, and what would help: at the end of fit, for the user and the profilers. */
#include "core/hooks/profiling.h"
#include "core/input/input.h"
#include "base/clock.h"
#include "data/workers.h"

#include <stdio.h>

/* The user gets a message if the training waited for this long, and for this share of its time. */
static const double LEAST_SECONDS = 1, LEAST_SHARE = 0.1;

void lc__waiting_begin(lc_trainer *t)
{
    lc__waiting *w = &t->input->waiting;
    *w = (lc__waiting){.loader = t->input->train.loader, .start_ns = lc__now_ns()};
    if (w->loader) lc_dataloader_times(w->loader, &w->before);
}

/* The part of making batches that takes most, and how to make it cheaper. */
static const char *largest_part(const lc_loader_times *d, const char **help)
{
    const double rest = d->gathered - d->read - d->decoded - d->transformed;
    if (rest > d->read && rest > d->decoded && rest > d->transformed) {
        *help = "fewer transforms, or a dataset whose get does less";
        return "making samples";
    }
    if (d->decoded >= d->read && d->decoded >= d->transformed) {
        *help = "smaller pictures, or .fast_scale of the dataset (JPEG)";
        return "decoding";
    }
    if (d->transformed >= d->read) {
        *help = "smaller pictures, or fewer transforms";
        return "transforming";
    }
    *help = "a faster disk, less compression, or for pictures shards (lightc data pack) or .cache_bytes";
    return "reading files";
}

static void advise(lc_trainer *t, const lc_loader_times *d, double seconds)
{
    char workers[64] = "";
    const char *help, *part = largest_part(d, &help);
    const int room = lc__workers_auto();
    if (room > d->workers) snprintf(workers, sizeof workers, "num_workers %d instead of %d, or ", room, d->workers);
    lc_trainer_message(t, LC_INFO,
                       "the training waited %.0f %% of its time for data (%.3g of %.3g s): %s takes most; use %s%s",
                       100 * d->waited / seconds, d->waited, seconds, part, workers, help);
}

static void profile(lc_trainer *t, const lc_loader_times *d)
{
    lc__profile_loader(t, "read", d->read, d->batches);
    lc__profile_loader(t, "decode", d->decoded, d->batches);
    lc__profile_loader(t, "transform", d->transformed, d->batches);
    lc__profile_loader(t, "copy", d->gathered - d->read - d->decoded - d->transformed, d->batches);
    lc__profile_loader(t, "wait", d->waited, d->batches);
}

void lc__waiting_end(lc_trainer *t)
{
    lc__waiting *w = &t->input->waiting;
    lc_loader_times now;
    if (!w->loader || w->loader != t->input->train.loader) return; /* none, or the run has another one now */
    lc_dataloader_times(w->loader, &now);
    const lc_loader_times d = {.waited = now.waited - w->before.waited,
                               .gathered = now.gathered - w->before.gathered,
                               .read = now.read - w->before.read,
                               .decoded = now.decoded - w->before.decoded,
                               .transformed = now.transformed - w->before.transformed,
                               .batches = now.batches - w->before.batches,
                               .workers = now.workers};
    const double seconds = 1e-9 * (double)(lc__now_ns() - w->start_ns);
    if (t->profiling) profile(t, &d);
    if (d.waited >= LEAST_SECONDS && d.waited >= LEAST_SHARE * seconds && !t->opt.barebones) advise(t, &d, seconds);
}
