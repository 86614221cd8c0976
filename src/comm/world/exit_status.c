/* SPDX-License-Identifier: Apache-2.0 */
/* How a program ends. A failure on one rank ends the run. It is printed once, by the process that reports errors for
 * all ranks. */
#include "comm/world/world.h"
#include "base/io.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>

int lc_exit_status(lc_status status)
{
    if (status >= 0) return 0;
    int stopped = status == LC_ERR_INTERRUPTED ? lc__noted_signal() : 0;
    if (stopped) lc__world_stopped(stopped);
    if (status != LC_ERR_INTERRUPTED && !lc_error_is_reported()) lc__world_last_words(status);
    return stopped ? 128 + stopped : 1;
}

lc_status lc_stdout_flush(void)
{
    bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !lost) return LC_OK;
    return lc__io_fail(errno ? errno : EIO, "write", "standard output");
}
