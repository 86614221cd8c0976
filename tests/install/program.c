/* SPDX-License-Identifier: Apache-2.0 */
/* A program outside the tree: one recorded step with the installed library. */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    lc_graph *g = NULL;
    lc_tensor *x = NULL;
    float data[] = {1, 2, 3};
    double sum = 0;
    if (strcmp(lc_version(), LC_VERSION_STRING) != 0) return 1;
    LC_MAIN_TRY(lc_graph_new(&g));
    LC_MAIN_TRY(lc_input_new(LC_F32, 1, (int64_t[]){3}, LC_ROW_MAJOR, data, &x));
    LC_MAIN_TRY(lc_step_begin(g, 0, 0));
    lc_tensor *y = lc_keep(lc_sum(lc_square(x)));
    LC_MAIN_TRY(lc_step_run(g));
    LC_MAIN_TRY(lc_item(y, &sum));
    LC_MAIN_TRY(lc_step_end(g));
    lc_tensor_unref(x);
    lc_graph_free(g);
    return fabs(sum - 14) < 1e-5 ? 0 : 1;
}
