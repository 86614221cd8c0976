/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator of the library. */
#ifndef LIGHTC_OPS_H
#define LIGHTC_OPS_H

#include <lightc/ops_comm.h>
#include <lightc/ops_math.h>
#include <lightc/ops_nn.h>

#endif
