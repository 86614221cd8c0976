/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer of a world (trainer_world.h), with its options, its callbacks and a logger that keeps rows in memory. */
#ifndef TRAINER_SETTING_H
#define TRAINER_SETTING_H

#include "trainer_world.h"

typedef struct setting {
    char dir[256];
    world m;
    memory_logger rows;
    lc_logger logger;
    lc_callback cb[8];
    lc_trainer_options o;
    lc_trainer *t;
} setting;

static inline void begin(setting *s, int64_t n_train, int64_t n_val)
{
    memset(s, 0, sizeof *s);
    CHECK(world_dir(s->dir, sizeof s->dir));
    world_init(&s->m, n_val ? &world_ops : &world_ops_without_val, n_train, n_val);
    s->o = world_options(s->dir);
    s->logger = (lc_logger){&memory_ops, &s->rows};
    s->o.loggers = &s->logger;
    s->o.n_loggers = 1;
    s->o.callbacks = s->cb;
}

static inline void end(setting *s)
{
    lc_trainer_free(s->t);
    world_release(&s->m);
    world_remove(s->dir);
}

static inline lc_status fit(setting *s)
{
    lc_status status = lc_trainer_new(&s->o, &s->t);
    return status < 0 ? status : lc_trainer_fit(s->t, &s->m.base);
}

#endif
