/* SPDX-License-Identifier: Apache-2.0 */
/* State trees from hostile text; a tree that is accepted must print, and the printed text must read back as the same
 * text. */
#include <lightc/state.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lc_state *s, *again;
    char *a, *b;
    size_t n, m;
    if (lc_state_parse((const char *)data, size, &s) < 0) return 0;
    if (lc_state_print(s, &a, &n) < 0) abort();
    if (lc_state_parse(a, n, &again) < 0) abort();
    if (lc_state_print(again, &b, &m) < 0 || n != m || memcmp(a, b, n)) abort();
    free(a);
    free(b);
    lc_state_free(s);
    lc_state_free(again);
    return 0;
}
