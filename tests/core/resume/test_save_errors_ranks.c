/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is full for one rank: all ranks continue, remember the same checkpoints, and end alike. */
#include "ddp_run.h"
#include "base/status.h"
#include "comm/agree.h"
#include "core/hooks/trainer_internal.h"
#include "full_disk.h"

#include <lightc/callbacks.h>

static char dirpath[400];
static _Thread_local char best[512]; /* this rank's, at the end of its training */

static lc_status note_best(void *self, lc_trainer *t)
{
    lc_model_checkpoint_info info;
    lc_callback mc = lc_trainer_checkpoint_callback(t, 0);
    (void)self;
    LC_TRY(lc_model_checkpoint_get(&mc, &info));
    snprintf(best, sizeof best, "%s", info.best_model_path);
    /* All ranks must have rank 0's. */
    char of_zero[512];
    memcpy(of_zero, best, sizeof best);
    LC_TRY(lc__from_rank_zero(t->comm, of_zero, sizeof of_zero));
    return strcmp(best, of_zero) ? lc_fail(LC_ERR_INTERNAL, "rank %d remembers %s, rank 0 %s", t->rank, best, of_zero)
                                 : LC_OK;
}

static lc_status make(lc_callback *out)
{
    static const lc_callback_ops ops = {LC_CALLBACK_OPS_INIT("Disk"), .on_fit_start = disk_fit_start,
                                        .on_message = disk_message, .on_fit_end = note_best};
    *out = (lc_callback){&ops, NULL};
    return LC_OK;
}

static void plan(ranks_job *r, job *j, const char *type, const char *strategy)
{
    *j = job_of("full");
    disk_reset();
    j->strategy = strategy;
    j->state_dict_type = type;
    j->callback = make;
    memset(r, 0, sizeof *r);
    r->j = j;
    snprintf(dirpath, sizeof dirpath, "%s/lightning_logs/version_0/checkpoints", j->root);
}

static const struct {
    const char *type, *strategy, *file;
} cases[] = {{"full", "ddp", ""},
             {"sharded", "ddp", "model-00002"},
             {"sharded", "sharded", "model-00001"},
             {"full", "sharded", ""},
             {"sharded", "ddp", "model-00001"}};

TEST(all_ranks_continue)
{
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        static ranks_job r;
        job j;
        plan(&r, &j, cases[k].type, cases[k].strategy);
        /* Each file of that part, or every file of rank 0, of the first checkpoint only. */
        disk.no_room_for[0] = *cases[k].file ? cases[k].file : ".tmp-";
        disk.at_most = 1;
        CHECK_RANKS("threads", 2, run_rank, &r);
        for (int i = 0; i < 2; i++) CHECK_OK(r.o[i].status);
        CHECK_EQ(disk.refused, 1);
        CHECK_CONTAINS(disk.errors, "was not saved");
        CHECK_CONTAINS(disk.errors, "No space left on device");
        char found[512];
        CHECK_OK(lc_checkpoint_find_last_good(dirpath, found, sizeof found));
    }
}

static int errors_of[2]; /* [rank] the rank on which its error happened; -1: on itself */

static lc_status run_to_the_error(lc_comm *comm, void *ctx)
{
    lc_status status = run_rank(comm, ctx);
    errors_of[lc_comm_rank(comm)] = lc__error_rank();
    return status;
}

TEST(all_ranks_end_alike)
{
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        static ranks_job r;
        job j;
        plan(&r, &j, cases[k].type, cases[k].strategy);
        disk.no_room_for[0] = *cases[k].file ? cases[k].file : ".tmp-";
        int full = strcmp(cases[k].file, "model-00002") == 0;
        world *w = world_run("threads", 2, run_to_the_error, &r);
        for (int i = 0; i < 2; i++) {
            CHECK_STATUS(r.o[i].status, LC_ERR_IO);
            CHECK_CONTAINS(w->ranks[i].message, "its last checkpoint was not saved");
            if (errors_of[i] != (i == full ? -1 : full))
                TEST_FAIL("case %zu: rank %d has an error of rank %d: %s", k, i, errors_of[i], w->ranks[i].message);
        }
        world_free(w);
        char found[512];
        CHECK_STATUS(lc_checkpoint_find_last_good(dirpath, found, sizeof found), LC_ERR_NOT_FOUND);
    }
}

TEST_MAIN
