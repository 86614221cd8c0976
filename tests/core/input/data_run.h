/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the world of trainer_world.h in a directory of its own, for tests of a run's data. */
#ifndef TEST_DATA_RUN_H
#define TEST_DATA_RUN_H

#include "test.h"
#include "trainer_world.h"
#include "core/hooks/trainer_internal.h"

typedef struct setting {
    char dir[256];
    world m;
    lc_trainer_options o;
    lc_callback cb[4];
    lc_trainer *t;
} setting;

static inline void begin(setting *s, const lc_module_ops *ops, int64_t n_train, int64_t n_val)
{
    memset(s, 0, sizeof *s);
    CHECK(world_dir(s->dir, sizeof s->dir));
    world_init(&s->m, ops, n_train, n_val);
    s->o = world_options(s->dir);
    s->o.callbacks = s->cb;
    s->o.max_epochs = 1;
    s->o.enable_checkpointing = LC_OFF;
}

static inline void end(setting *s)
{
    lc_trainer_free(s->t);
    world_release(&s->m);
    world_remove(s->dir);
}

/* The given words of the trace only, without counters. */
static inline const char *only(const trace *tr, const char *words, char *out, size_t size)
{
    size_t n = 0;
    for (const char *p = tr->text; p && *p;) {
        size_t length = strcspn(p, ":");
        char word[128];
        snprintf(word, sizeof word, " %.*s ", (int)length, p);
        if (strstr(words, word)) n += (size_t)snprintf(out + n, size - n, "%s", word + 1);
        p += strcspn(p, " ") + 1;
    }
    out[n] = 0;
    return out;
}

#endif
