/* SPDX-License-Identifier: Apache-2.0 */
/* Law 3 for checkpoints that ranks write in parts: a run resumed from one equals the run that did not stop
 * (test_resume_ranks.c resumes any strategy from any other). */
#include "ddp_run.h"

#include <dirent.h>

/* Each rank writes a part. The resumed run equals one resumed from a whole checkpoint and one that did not stop, bit
 * for bit with the same number of ranks. */
TEST(a_run_resumes_from_sharded_checkpoints)
{
    static ranks_job whole[5], r;
    job all[5];
    for (int n = 1; n <= 4; n++) {
        all[n] = job_of("whole");
        all[n].accumulate = 3;
        whole[n].j = &all[n];
        CHECK_RANKS("threads", n, run_rank, &whole[n]);
    }
    for (int from = 1; from <= 4; from++)
        for (int to = 1; to <= 4; to++) {
            char ckpt[512], part[700];
            job j = job_of("part");
            j.accumulate = 3;
            j.state_dict_type = "sharded";
            bool inside = (from + to) % 2; /* an epoch and an accumulation window */
            if (inside) j.save_after = (from + to) % 3 + 2;
            snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
            if (!inside) j.max_epochs = 2;
            memset(&r, 0, sizeof r);
            r.j = &j;
            CHECK_RANKS("threads", from, run_rank, &r);
            snprintf(ckpt, sizeof ckpt, "%s/lightning_logs/version_0/checkpoints/last.ckpt", j.root);
            if (inside) snprintf(ckpt, sizeof ckpt, "%s", j.saved);
            snprintf(part, sizeof part, "%s/model-%05d-of-%05d.safetensors", ckpt, from, from);
            CHECK(!access(part, F_OK));
            j.save_after = -1;
            j.max_epochs = 3;
            j.ckpt_path = ckpt;
            j.state_dict_type = to % 2 ? "full" : "sharded";
            CHECK_RANKS("threads", to, run_rank, &r);
            for (int i = 0; i < to; i++) {
                compare(&whole[to].o[i], &r.o[i]);
                if (from == to) same(&whole[to].o[i], &r.o[i]);
            }
            /* As many are kept as there would be whole ones, and no unfinished ones. */
            snprintf(ckpt, sizeof ckpt, "%s/lightning_logs/version_0/checkpoints", j.root);
            int n = 0;
            DIR *d = opendir(ckpt);
            CHECK(d);
            for (struct dirent *e; (e = readdir(d));) {
                if (e->d_name[0] == '.') CHECK(!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."));
                n += e->d_name[0] != '.';
            }
            closedir(d);
            CHECK(n <= 3);
        }
}

/* Inside a window, between two of its syncs; also resumed on another number of ranks. */
TEST(a_manual_window_resumes_from_a_checkpoint)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "ddp"};
    for (int from = 1; from <= 3; from++) {
        static ranks_job r;
        outcome whole;
        job all = job_of("manual_whole"), j = job_of("manual_part");
        manually_accumulating(&all), manually_accumulating(&j);
        j.save_after = 4;
        j.strategy = strategies[from - 1];
        snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
        CHECK_OK(run(&all, NULL, &whole));
        r.j = &j;
        CHECK_RANKS("threads", from, run_rank, &r);
        for (int i = 0; i < from; i++) compare(&whole, &r.o[i]); /* saving changes no result */
        j.save_after = -1;
        j.ckpt_path = j.saved;
        CHECK_RANKS("threads", 4 - from, run_rank, &r);
        for (int i = 0; i < 4 - from; i++) compare(&whole, &r.o[i]);
    }
}

/* Between a backward pass and the step for it. */
TEST(a_late_step_resumes_from_a_checkpoint)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    for (int s = 0; s < 4; s++)
        for (int from = 1; from <= 3; from++)
            for (int to = 1; to <= 3; to++) {
                static ranks_job r;
                outcome whole;
                job all = job_of("late_whole"), j = job_of("late_part");
                all.late = j.late = LATE + (s + from + to) % 3;
                j.save_after = 4;
                j.strategy = strategies[s];
                snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
                CHECK_OK(run(&all, NULL, &whole));
                r.j = &j;
                CHECK_RANKS("threads", from, run_rank, &r);
                for (int i = 0; i < from; i++) compare(&whole, &r.o[i]);
                j.save_after = -1;
                j.ckpt_path = j.saved;
                j.strategy = strategies[(s + to) % 4];
                CHECK_RANKS("threads", to, run_rank, &r);
                for (int i = 0; i < to; i++) compare(&whole, &r.o[i]);
            }
}

/* ---- only rank 0 decides ---- */

/* The last rank resumes in another directory: it sees none of the checkpoints, or saves elsewhere. */
typedef struct apart_job {
    const char *root; /* the working directory of the other ranks */
    int64_t max_epochs;
    bool resumes, elsewhere;
} apart_job;

static lc_status resume_apart(lc_comm *comm, void *ctx)
{
    const apart_job *j = ctx;
    bool apart = j->resumes && lc_comm_rank(comm) == 1;
    char ckpt[400];
    small_net m = {0};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_callback best;
    lc_trainer_options opt = quiet_options(comm);
    if (chdir(apart && !j->elsewhere ? "/" : j->root) != 0) return lc_fail(LC_ERR_IO, "%s: not there", j->root);
    snprintf(ckpt, sizeof ckpt, "%s/kept/last.ckpt", j->root);
    opt.strategy = "ddp";
    opt.max_epochs = j->max_epochs;
    opt.default_root_dir = j->root;
    opt.enable_checkpointing = LC_ON;
    opt.ckpt_path = j->resumes ? ckpt : NULL;
    opt.callbacks = &best;
    opt.n_callbacks = 1;
    /* With mode max and a falling loss the first ones are kept. */
    LC_TRY(lc_model_checkpoint(&best, .dirpath = apart && j->elsewhere ? "other" : "kept", .monitor = "val_loss",
                               .mode = "max", .save_top_k = 2, .save_last = LC_ON));
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, 4, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

TEST(rank_0_decides_which_checkpoints_are_kept)
{
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        char root[320];
        snprintf(root, sizeof root, "%s", fresh_dir("apart"));
        apart_job first = {.root = root, .max_epochs = 2};
        apart_job then = {.root = root, .max_epochs = 4, .resumes = true, .elsewhere = elsewhere};
        CHECK_RANKS("shm", 2, resume_apart, &first);
        CHECK_RANKS("shm", 2, resume_apart, &then);
    }
}

/* A checkpoint of copies has each slice once, though every rank has written a part: it equals ddp's, whether that is in
 * parts or not. */
TEST(checkpoints_of_copies_have_each_slice_once)
{
    static ranks_job r;
    job ddp = job_of("ddp_checkpoint"), j = job_of("hybrid_checkpoint");
    ddp.save_after = j.save_after = 3;
    ddp.bucket_cap_mb = j.bucket_cap_mb = small_buckets;
    snprintf(ddp.saved, sizeof ddp.saved, "%s/inside.ckpt", ddp.root);
    r.j = &ddp;
    CHECK_RANKS("threads", 4, run_rank, &r);
    j.strategy = "sharded_hybrid";
    for (int full = 0; full < 2; full++) {
        lc_checkpoint *a, *b;
        char part[500];
        snprintf(j.saved, sizeof j.saved, "%s/inside-%d.ckpt", j.root, full);
        j.shard_size = 2 - full;
        j.state_dict_type = full ? "full" : NULL;
        r.j = &j;
        CHECK_RANKS("threads", 4, run_rank, &r);
        /* Both ranks of a node write some of it, except when it is so small that the first rank has all. */
        for (int i = 0; i < 4; i += 2) {
            snprintf(part, sizeof part, "%s/optimizer-%05d-of-00004.safetensors", j.saved, i + 1);
            CHECK_EQ(access(part, F_OK), full ? -1 : 0);
        }
        CHECK_OK(lc_checkpoint_open(ddp.saved, &a));
        CHECK_OK(lc_checkpoint_open(j.saved, &b));
        for (int k = 0; k < 2; k++) {
            lc_ckpt_kind which = k ? LC_CKPT_OPTIMIZER : LC_CKPT_MODEL;
            lc_safetensors *x = lc_checkpoint_tensors(a, which), *y = lc_checkpoint_tensors(b, which);
            CHECK_EQ(lc_safetensors_count(x), 4);
            CHECK_EQ(lc_safetensors_count(y), 4);
            for (int64_t i = 0; i < 4; i++) {
                float left[64], right[64];
                const lc_safetensor_info *info = lc_safetensors_info(x, i);
                int64_t at = lc_safetensors_find(y, info->name);
                CHECK(at >= 0 && info->bytes <= sizeof left);
                CHECK_OK(lc_safetensors_read(x, i, left, info->bytes));
                CHECK_OK(lc_safetensors_read(y, at, right, info->bytes));
                CHECK(!memcmp(left, right, info->bytes));
            }
        }
        lc_checkpoint_close(a);
        lc_checkpoint_close(b);
    }
}

TEST_MAIN
