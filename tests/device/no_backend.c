/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object that is no backend, for test_plugin.c. */
extern const int lc_no_backend;
const int lc_no_backend = 1;
