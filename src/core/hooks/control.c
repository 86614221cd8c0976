/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on the trainer that every room uses: messages, stopping, options, ranks, the datamodule. */
#include "base/c_locale.h"
#include "base/handle.h"
#include "base/printable.h"
#include "core/hooks/trainer_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const lc_trainer_options *lc_trainer_get_options(const lc_trainer *t)
{
    LC__IS(t, TRAINER, NULL);
    return &t->opt;
}
int lc_trainer_global_rank(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->rank;
}
int lc_trainer_world_size(const lc_trainer *t)
{
    LC__IS(t, TRAINER, 0);
    return t->n_ranks;
}
const lc_datamodule *lc_trainer_datamodule(const lc_trainer *t)
{
    LC__IS(t, TRAINER, NULL);
    return t->datamodule.ops.size ? &t->datamodule.given : NULL;
}

void lc_trainer_stop(lc_trainer *t)
{
    LC__IS(t, TRAINER, );
    if (t->deferred) return; /* a hook that has already failed cannot ask for more */
    if (t->comm)
        t->stop_wish = true; /* becomes user_stop on all ranks with the next sync */
    else
        t->user_stop = true;
}

bool lc__should_stop(const lc_trainer *t)
{
    return t->user_stop || t->soft_stops > 0;
}

bool lc_trainer_should_stop(const lc_trainer *t)
{
    LC__IS(t, TRAINER, false);
    return lc__should_stop(t);
}

void lc__soft_stop(lc_trainer *t, bool *vote, bool stop)
{
    if (*vote == stop) return;
    *vote = stop;
    t->soft_stops += stop ? 1 : -1;
}

void lc_trainer_message(lc_trainer *t, lc_level level, const char *format, ...)
{
    LC__IS(t, TRAINER, );
    LC__NEEDS(format, );
    char raw[1024], text[1024], line[1100];
    va_list args;
    if (!lc_level_name(level)) {
        (void)lc_fail(LC_ERR_ARGUMENT, "lc_trainer_message: there is no level %d", (int)level);
        return;
    }
    if (t->rank != 0 && level != LC_ERROR) return; /* all ranks have the same message: rank 0 prints it */
    va_start(args, format);
    locale_t before = lc__c_locale_begin();
    vsnprintf(raw, sizeof raw, format, args);
    lc__c_locale_end(before);
    va_end(args);
    raw[lc__cut_character(raw, strlen(raw))] = 0;
    lc_printable(raw, lc__format_has_lines(format), text, sizeof text);
    snprintf(line, sizeof line, "%s: %s", lc_level_name(level), text);
    fflush(stdout); /* so that a log of both streams keeps the order */
    /* Without a progress bar, warnings and errors are still printed; information is not. */
    if (!t->message_hooks.n && level != LC_INFO && !t->opt.barebones) lc__show_line(2, "%s", line);
    for (int i = 0; i < t->message_hooks.n; i++) {
        lc__callback *cb = t->message_hooks.e[i];
        cb->ops.on_message(cb->self, t, level, text);
    }
    if (t->log_message) t->log_message(t, level, text);
}
