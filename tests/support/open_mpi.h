/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a test can go through mpirun, with options to run as root and with more ranks than cores. */
#ifndef LC_TESTS_OPEN_MPI_H
#define LC_TESTS_OPEN_MPI_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool has_mpirun(void)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    return system("command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'") == 0;
}

#endif
