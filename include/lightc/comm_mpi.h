/* SPDX-License-Identifier: Apache-2.0 */
/* lightc's collectives over MPI, for programs that are MPI programs themselves. Needs mpi.h, and -llightc_mpi in
 * addition to -llightc (CMake: find_package(lightc COMPONENTS mpi) and lightc::mpi). Programs that do not know MPI use
 * lc_comm_mpi (comm.h), which opens the same library when it is called.
 *
 *   - All calls into MPI are made by the thread that makes the communicator: the one that initialized MPI, unless MPI
 *     offers MPI_THREAD_SERIALIZED. Only lc_comm_abort may come from other threads; the next poll carries it out.
 *   - Errors of MPI become an lc_status with MPI's text. MPI_Abort is never called.
 *   - After an error MPI may still hold memory of calls that were not done: it must stay until the program ends. */
#ifndef LIGHTC_COMM_MPI_H
#define LIGHTC_COMM_MPI_H

#include <lightc/comm.h>
#include <mpi.h>

LC_BEGIN_DECLS

/* The ranks of `parent`, in its order. Uses a duplicate, so that messages of the program on `parent` and those of
 * lightc never mix, and the error handler of `parent` stays as it is. Collective; MPI must be initialized, and is not
 * finalized by lightc. Free it before MPI_Finalize. */
LC_API lc_status lc_comm_from_mpi(MPI_Comm parent, lc_comm **out) LC_MUST_USE;

/* All processes that mpirun started. Initializes MPI (MPI_THREAD_FUNNELED) if the program has not; it is then finalized
 * when the program ends, unless a communicator of lightc has failed: then the process exits without finalizing, which
 * makes mpirun end the others. Collective. */
LC_API lc_status lc_comm_mpi_world(lc_comm **out) LC_MUST_USE;

/* LC_VERSION_STRING of the headers that the library was built with. */
LC_API extern const char lc_comm_mpi_version[];

LC_END_DECLS
#endif
