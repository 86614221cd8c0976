/* SPDX-License-Identifier: Apache-2.0 */
/* A module that claims to be built for another version. */
#include <lightc/lightc.h>

LC_API extern const lc_plugin_info lc_plugin_entry;
const lc_plugin_info lc_plugin_entry = {.magic = LC_PLUGIN_MAGIC, .abi = LC_PLUGIN_ABI + 1, .version = "0.2.7"};
