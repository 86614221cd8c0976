/* SPDX-License-Identifier: Apache-2.0 */
/* An MPI program outside the tree that uses lightc's collectives. */
#include <lightc/comm_mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    lc_comm *comm = NULL;
    int32_t sum = 1;
    int size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    LC_MAIN_TRY(lc_comm_from_mpi(MPI_COMM_WORLD, &comm));
    LC_MAIN_TRY(lc_comm_all_reduce(comm, &sum, &sum, 1, LC_I32, LC_COMM_SUM, NULL));
    lc_comm_free(comm);
    MPI_Finalize();
    return sum == size ? 0 : 1;
}
