// SPDX-License-Identifier: Apache-2.0
// The headers are C++17 too.
#include <lightc/lightc.h>
#include <cstdio>

int main()
{
    lc_graph *g = nullptr;
    LC_MAIN_TRY(lc_graph_new(&g));
    lc_graph_free(g);
    return 0;
}
