/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks started by a fabric (tests/programs/fabric_program.c), and what its options make it report about the run. */
#define LAUNCHED "fabric_program"
#include "launched.h"

TEST(a_lost_rank_is_named_with_its_step_and_the_rest_continue)
{
    run r;
    CHECK_EQ(launch(&r, "%s kill ddp", program), 0);
    CHECK_CONTAINS(r.err, "rank 1 (host ");
    CHECK_CONTAINS(r.err, "), step 4, its own loop: killed by signal 9 (");
    CHECK_STR(r.out, "steps 2 to 6, ranks 1\n");
}

TEST(each_step_of_the_loop_is_progress)
{
    run r;
    CHECK_EQ(launch(&r, "%s hang sharded", program), 1);
    const char *at = strstr(r.err, ", its own loop: no progress for ");
    CHECK(at && atof(at + strlen(", its own loop: no progress for ")) >
                    1);           /* half of progress_timeout: coordinator/verdict.c */
    CHECK(r.took < patience(10)); /* progress_timeout is 2 s */
}

/* The program prints this after it has freed the fabric. */
TEST(a_run_that_is_called_off_says_so)
{
    run r;
    CHECK_EQ(launch(&r, "%s abort ddp", program), 1);
    const char *at = strstr(r.err, "error: ");
    CHECK(at && !strstr(at + 1, "error: "));
    CHECK_CONTAINS(at, "the loop was called off\n");
    CHECK(!strstr(r.err, "exited with status"));
}

/* Four times the parameters do not fit; they do if gradients and optimizer state are halved. */
TEST(memory_limit_is_checked_at_setup)
{
    run r;
    CHECK_EQ(launch(&r, "%s memory ddp", program), 1);
    CHECK_CONTAINS(r.err, "a rank needs 1.00 MiB (");
    CHECK_CONTAINS(r.err, "memory_limit is 0.88 MiB. --strategy sharded");
    CHECK_EQ(launch(&r, "%s memory sharded_3", program), 0);
    CHECK_STR(r.out, "steps 0 to 6, ranks 2\n");
}

TEST_MAIN
