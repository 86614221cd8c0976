/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of a trainer in each hook, as recorded from Lightning. */
#include "test.h"
#include "trainer_world.h"

/* "where:what runs,batches of training,of validation,of the sanity check" */
typedef struct properties {
    char text[1024];
} properties;

static lc_status note(properties *p, lc_trainer *t, const char *where)
{
    size_t n = strlen(p->text);
    snprintf(p->text + n, sizeof p->text - n, "%s:%s%s%s,%lld,%lld,%lld ", where, lc_trainer_training(t) ? "t" : "",
             lc_trainer_validating(t) ? "v" : "", lc_trainer_sanity_checking(t) ? "s" : "",
             (long long)lc_trainer_num_training_batches(t), (long long)lc_trainer_num_val_batches(t, 0),
             (long long)lc_trainer_num_sanity_val_batches(t, 0));
    return LC_OK;
}

#define NOTE(hook)                                                                                                     \
    static lc_status note_##hook(void *self, lc_trainer *t)                                                            \
    {                                                                                                                  \
        return note(self, t, #hook);                                                                                   \
    }
NOTE(on_fit_start)
NOTE(on_sanity_check_start)
NOTE(on_sanity_check_end)
NOTE(on_train_start)
NOTE(on_validation_start)
NOTE(on_train_end)

static const lc_callback_ops noting = {
    LC_CALLBACK_OPS_INIT("Noting"),
    .on_fit_start = note_on_fit_start,
    .on_sanity_check_start = note_on_sanity_check_start,
    .on_sanity_check_end = note_on_sanity_check_end,
    .on_train_start = note_on_train_start,
    .on_validation_start = note_on_validation_start,
    .on_train_end = note_on_train_end,
};

TEST(a_fit)
{
    char dir[256];
    properties p = {""};
    lc_callback cb = {&noting, &p};
    lc_module_ops ops = world_ops;
    world m;
    lc_trainer *t;
    if (!world_dir(dir, sizeof dir)) return;
    world_init(&m, &ops, 4, 3);
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb;
    o.n_callbacks = 1;
    o.max_epochs = 1;
    o.num_sanity_val_steps = 2;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    /* Batches are unknown (-1) before the loader is made. */
    CHECK_STR(p.text, "on_fit_start:t,-1,0,0 on_sanity_check_start:s,-1,0,0 on_validation_start:s,-1,3,2 "
                      "on_sanity_check_end:s,-1,3,2 on_train_start:t,4,3,2 on_validation_start:v,4,3,2 "
                      "on_train_end:t,4,3,2 ");
    lc_trainer_free(t);
    world_release(&m);
    world_remove(dir);
}

TEST_MAIN
