/* SPDX-License-Identifier: Apache-2.0 */
/* A job that each of several ranks runs: CHECK_RANKS(..., run_rank, &ranks_job). Included after a test's own `job`,
 * `outcome` and run(job *, lc_comm *, outcome *). */
typedef struct ranks_job {
    job *j;
    outcome o[WORLD_RANKS];
} ranks_job;

static inline lc_status run_rank(lc_comm *comm, void *ctx)
{
    ranks_job *r = ctx;
    return run(r->j, comm, &r->o[lc_comm_rank(comm)]);
}
