/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the network of callback_net.h with callbacks and keeps the rows. */
#ifndef LC_TESTS_CALLBACK_RUN_H
#define LC_TESTS_CALLBACK_RUN_H

#include "callback_net.h"

typedef struct run {
    char dir[256];
    net m;
    memory_logger rows;
    lc_logger logger;
    lc_trainer_options o;
    lc_trainer *t;
} run;

static inline void run_init(run *r)
{
    CHECK(world_dir(r->dir, sizeof r->dir));
    net_init(&r->m);
    memset(&r->rows, 0, sizeof r->rows);
    r->logger = (lc_logger){&memory_ops, &r->rows};
    r->o = world_options(r->dir);
    r->o.enable_checkpointing = LC_OFF;
    r->o.max_epochs = 2;
    r->o.log_every_n_steps = 1;
    r->o.loggers = &r->logger;
    r->o.n_loggers = 1;
    r->t = NULL;
}

static inline lc_status run_fit(run *r, lc_callback *callbacks, int n)
{
    r->o.callbacks = callbacks;
    r->o.n_callbacks = n;
    CHECK_OK(lc_trainer_new(&r->o, &r->t));
    return lc_trainer_fit(r->t, &r->m.base);
}

static inline void run_release(run *r)
{
    lc_trainer_free(r->t);
    net_release(&r->m);
    world_remove(r->dir);
}

/* The number after the nth " NAME="; NaN if there is none. */
static inline double logged(const run *r, const char *name, int nth)
{
    char key[128];
    snprintf(key, sizeof key, " %s=", name);
    const char *at = r->rows.text;
    while ((at = strstr(at, key)) && nth-- > 0) at++;
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static inline char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = calloc(1, 1 << 20);
    *n = f ? fread(data, 1, (1 << 20) - 1, f) : 0;
    if (f) fclose(f);
    return data;
}

#endif
