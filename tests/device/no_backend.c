/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object that is not a backend, for test_backend_plugin.c. */
extern const int lc_no_backend;
const int lc_no_backend = 1;
