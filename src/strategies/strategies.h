/* SPDX-License-Identifier: Apache-2.0 */
/* The strategies, for src/builtin.c. */
#ifndef LC_STRATEGIES_STRATEGIES_H
#define LC_STRATEGIES_STRATEGIES_H

#include <lightc/strategy.h>

extern const lc_strategy_ops lc__strategy_single, lc__strategy_ddp, lc__strategy_sharded, lc__strategy_sharded_1,
    lc__strategy_sharded_2, lc__strategy_sharded_3, lc__strategy_sharded_hybrid, lc__strategy_data_parallel,
    lc__strategy_central_storage;

#endif
