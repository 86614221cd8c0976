/* SPDX-License-Identifier: Apache-2.0 */
/* last.ckpt while the writer's thread replaces a checkpoint by a link: for a moment nothing has that name. This file
 * overrides the library's lstat, so that the training looks just before that moment and again during it. */
#include "test.h"
#include "trainer_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static pthread_t training;
static lc_trainer *trainer; /* NULL: delays nothing */
/* In epoch 4 the training has seen the checkpoint; it has looked again after the checkpoint was gone. */
static atomic_bool saw, saw_again, gave_up;

static void wait_for(atomic_bool *event)
{
    for (int i = 0; i < 10000 && !atomic_load(event); i++) usleep(1000);
    if (!atomic_load(event)) atomic_store(&gave_up, true);
}

static int look(const char *path, struct stat *st)
{
    return fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

/* The training has seen the checkpoint: the writer may continue, and removes it. */
static void let_it_be_removed(const char *path)
{
    struct stat now;
    atomic_store(&saw, true);
    for (int i = 0; i < 10000 && look(path, &now) == 0; i++) usleep(1000);
    if (look(path, &now) == 0) atomic_store(&gave_up, true);
}

int lstat(const char *path, struct stat *st)
{
    int result = look(path, st);
    size_t n = strlen(path);
    if (!trainer || n < 10 || strcmp(path + n - 10, "/last.ckpt") != 0) return result;
    bool is_checkpoint = result == 0 && S_ISDIR(st->st_mode);
    if (!pthread_equal(pthread_self(), training)) {
        if (is_checkpoint) wait_for(&saw);                         /* the checkpoint is about to be removed */
        if (result < 0 && atomic_load(&saw)) wait_for(&saw_again); /* the link is about to be made */
    } else if (atomic_load(&saw)) {
        atomic_store(&saw_again, true);
    } else if (is_checkpoint && lc_trainer_current_epoch(trainer) == 4) {
        let_it_be_removed(path);
    }
    return result;
}

/* Epochs 0, 1 and 3 are the best so far: last.ckpt is a link, and a checkpoint of its own after epochs 2 and 4. */
TEST(last_keeps_its_name_while_the_link_is_made)
{
    static const double script[] = {3, 1, 2, 0.5, 4};
    char dir[256], files[512];
    world m;
    CHECK(world_dir(dir, sizeof dir));
    world_init(&m, &world_ops, 2, 1);
    m.val_script = script;
    m.n_script = 5;
    lc_trainer_options o = world_options(dir);
    o.dirpath = dir;
    o.max_epochs = 5;
    o.monitor = "val_loss";
    o.save_last = LC_ON;
    lc_trainer *t = NULL;
    CHECK_OK(lc_trainer_new(&o, &t));
    training = pthread_self();
    trainer = t;
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK(atomic_load(&saw_again) && !atomic_load(&gave_up));
    CHECK_STR(world_list(dir, ".ckpt", files, sizeof files), "epoch=3-step=8.ckpt last.ckpt ");
    lc_trainer_free(t);
    world_release(&m);
    world_remove(dir);
}
TEST_MAIN
