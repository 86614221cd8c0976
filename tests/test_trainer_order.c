/* SPDX-License-Identifier: Apache-2.0 */
/* The order of hooks, counters and rows of runs, against orders written down here. */
#include "test.h"
#include "trainer_world.h"

TEST(first_run)
{
    static const lc_callback cb = {&traced_ops, NULL};
    char dir[256];
    world m;
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    world_init(&m, &world_ops, 2, 2);
    lc_trainer_options o = world_options(dir);
    lc_callback mine = {cb.ops, &m.tr};
    o.callbacks = &mine;
    o.n_callbacks = 1;
    o.max_epochs = 1;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, NULL));
    printf("%s\n", m.tr.text);
    lc_trainer_free(t);
    world_release(&m);
    world_remove(dir);
}

TEST_MAIN
