/* SPDX-License-Identifier: Apache-2.0 */
/* Starting MPI if the program has not, and leaving it. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* on_exit */
#endif
#include "backend.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

const char lc_comm_mpi_version[] = LC_VERSION_STRING;

static atomic_bool some_failed;

void lc__mpi_note_failure(void)
{
    atomic_store(&some_failed, true);
}

/* MPI_Finalize waits for all ranks, and after a failure some may never come. */
static void finalize(int exit_status, void *process)
{
    int gone = 1;
    if ((intptr_t)process != getpid()) return; /* a forked child inherits this call, but has no part in MPI */
    MPI_Finalized(&gone);
    if (!gone && !exit_status && !atomic_load(&some_failed)) MPI_Finalize();
}

static lc_status initialize(void)
{
    int is = 0, gone = 0, level = 0;
    MPI_Initialized(&is);
    MPI_Finalized(&gone);
    if (gone) return lc_fail(LC_ERR_STATE, "MPI was finalized and cannot be initialized again in this process");
    if (is) return LC_OK;
    LC_TRY(lc__mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread"));
    if (on_exit(finalize, (void *)(intptr_t)getpid())) return lc_fail(LC_ERR_MEMORY, "out of memory: an exit handler");
    return LC_OK;
}

static lc_status check_thread(void)
{
    int level = 0, is_main = 0;
    LC_TRY(lc__mpi_check(MPI_Query_thread(&level), "MPI_Query_thread"));
    LC_TRY(lc__mpi_check(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main"));
    if (is_main || level >= MPI_THREAD_SERIALIZED) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED, "this thread may not call MPI: make the communicator in the thread that "
                                       "initialized MPI, or initialize it with MPI_THREAD_SERIALIZED");
}

lc_status lc_comm_from_mpi(MPI_Comm parent, lc_comm **out)
{
    int is = 0, gone = 0;
    backend *x = NULL;
    MPI_Comm own = MPI_COMM_NULL;
    *out = NULL;
    MPI_Initialized(&is);
    MPI_Finalized(&gone);
    if (!is || gone)
        return lc_fail(LC_ERR_STATE, "MPI %s", gone ? "was finalized" : "is not initialized: call MPI_Init");
    if (parent == MPI_COMM_NULL) return lc_fail(LC_ERR_ARGUMENT, "the communicator is MPI_COMM_NULL");
    LC_TRY(check_thread());
    LC_TRY(lc__mpi_check(MPI_Comm_dup(parent, &own), "MPI_Comm_dup"));
    LC_TRY(lc__mpi_backend_new(own, &x));
    return lc_comm_new(&lc__mpi_ops, x, x->rank, x->size, out);
}

lc_status lc_comm_mpi_world(lc_comm **out)
{
    *out = NULL;
    LC_TRY(initialize());
    return lc_comm_from_mpi(MPI_COMM_WORLD, out);
}
