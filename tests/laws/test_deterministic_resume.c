/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2, bit for bit, for runs that are saved inside an epoch and go on with other ranks or devices. */
#include "deterministic_run.h"

/* Saved inside an epoch and a window. */
TEST(a_run_in_mixed_precision_resumes_on_other_ranks)
{
    static const char *const names[] = {"bf16-mixed", "16-mixed"};
    for (int p = 0; p < 2; p++)
        for (int k = p; k < KINDS; k += takes_all() ? 2 : KINDS) {
            job j = job_of("resume", (net_kind)k, 16, 0);
            j.precision = names[p];
            j.accumulate = 4;
            run_alone(&j);
            for (int s = k % 2; s < STRATEGIES; s += 2) {
                snprintf(j.root, sizeof j.root, "%s", fresh_dir("part"));
                j.ckpt_path = NULL;
                j.strategy = strategies[s];
                j.save_after = 1 + s % 3;
                snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
                run_on(&j, "a run that saves", 2);
                j.save_after = -1;
                j.ckpt_path = j.saved;
                run_on(&j, "a run that goes on", k % 2 ? 4 : 1);
            }
        }
}

/* Saved by `from` ranks inside an epoch and an accumulation window, in one file or in parts, and resumed under any
 * strategy. */
TEST(a_run_resumes_on_other_ranks)
{
    int n = 0;
    for (int from = 1; from <= 4; from *= 2)
        for (int to = 1; to <= 4; to *= 2)
            for (int64_t accumulate = 1; accumulate <= 4; accumulate += 3) {
                job whole = job_of("whole", (net_kind)((from + to) % KINDS), 16, 0), j = whole;
                whole.accumulate = j.accumulate = accumulate;
                run_alone(&whole);
                for (int s = n / 2 % 2; s < STRATEGIES; s += takes_all() ? 2 : 4, n++) {
                    snprintf(j.root, sizeof j.root, "%s", fresh_dir("part"));
                    j.ckpt_path = NULL;
                    j.strategy = strategies[s];
                    j.state_dict_type = (n + n / 8) % 2 ? "sharded" : "full";
                    j.save_after = (from + to) % 3 + (to > 1); /* after 1 to 3 batches of a window, or after none */
                    snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
                    run_on(&j, "a run that saves", from);
                    j.save_after = -1;
                    j.ckpt_path = j.saved;
                    j.strategy = strategies[(s + n / 4) % STRATEGIES];
                    run_on(&j, "a run that goes on", to);
                }
            }
}

TEST(a_run_resumes_on_devices)
{
    job j = job_of("devices", NORM, 16, 0);
    j.accumulate = 4;
    run_alone(&j);
    snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
    for (int back = 0; back < 2; back++) {
        j.ckpt_path = NULL;
        for (int part = 0; part < 2; part++) {
            j.save_after = part ? -1 : 2; /* after three batches of a window */
            j.devices = part == back ? NULL : "2";
            j.strategy = j.devices ? "data_parallel" : "sharded_2";
            memset(&ranks, 0, sizeof ranks);
            if (j.devices) {
                CHECK_OK(run(&j, NULL, &ranks.o[0]));
                compare(&one, &ranks.o[0], "two devices");
            } else {
                run_on(&j, "two ranks", 2);
            }
            j.ckpt_path = j.saved;
        }
    }
}

TEST_MAIN
