/* SPDX-License-Identifier: Apache-2.0 */
/* comm_security as an option: training works with it over connections, and if it is not available it is an error. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "rank_program"
#include "launched.h"

#include "comm/net/proof.h"

static int train(run *r, const char *over, const char *security)
{
    setenv("LIGHTC_COMM", over, 1);
    return launch(r, "%s launch -np 2 %s --act train --use_distributed_sampler false --comm_security %s", lightc,
                  program, security);
}

TEST(training_goes_on_over_sealed_connections)
{
    static const char *const modes[] = {"none", "auth", "encrypt"};
    run r;
    if (lc__proof_reveals()) SKIP(lc__proof_why_not());
    for (int m = 0; m < 3; m++) {
        int status = train(&r, m == 2 ? "shm+tcp" : "tcp", modes[m]);
        if (status) TEST_FAIL("%s: %d, %s", modes[m], status, r.err);
    }
    if (train(&r, "shm", "encrypt")) TEST_FAIL("memory: %s", r.err); /* nothing leaves the host */
}

TEST(connections_that_cannot_be_sealed_are_an_error)
{
    run r;
    CHECK(train(&r, "mpi", "auth") != 0);
    CHECK_CONTAINS(r.err, "comm_security=auth: MPI makes its own connections, which lightc cannot seal");
    CHECK(train(&r, "tcp", "tls") != 0);
    CHECK_CONTAINS(r.err, "comm_security is \"tls\"; it must be none, auth or encrypt");
    if (lc__proof_reveals()) {
        CHECK(train(&r, "tcp", "encrypt") != 0);
        CHECK_CONTAINS(r.err, "comm_security=encrypt: connections cannot be sealed, because ");
    }
}

TEST_MAIN
