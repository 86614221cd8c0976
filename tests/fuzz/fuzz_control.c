/* SPDX-License-Identifier: Apache-2.0 */
/* Input of the control channel: messages are parsed from any bytes as they were sent, in pieces of any size, never with
 * more data than was received or is allowed; texts are terminated. */
#include "comm/control/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LIMIT = 512 };
    lc__wire w;
    lc__frame f;
    char text[64];
    lc__wire_init(&w, -1, LIMIT);
    /* All at once, as the bytes of a connection are in memory. */
    w.in.data = malloc(size + 1);
    if (!w.in.data) return 0;
    if (size) memcpy(w.in.data, data, size);
    w.in.n = w.in.cap = size;
    size_t at = 0;
    int got;
    while ((got = lc__wire_next(&w, &f)) > 0) {
        if (f.n > LIMIT || f.data < w.in.data + at || f.data + f.n > w.in.data + size) abort();
        if (f.kind < LC__FRAME_HELLO || f.kind >= LC__FRAME_KINDS) abort();
        at = w.in.at;
        lc__frame_text(f.data, f.n, text, sizeof text);
        if (strlen(text) >= sizeof text) abort();
        for (const char *c = text; *c; c++)
            if ((*c >= 0 && *c < ' ') || *c == 127) abort();
        lc__frame_lines(f.data, f.n, text, sizeof text);
        for (const char *c = text; *c; c++)
            if ((*c >= 0 && *c < ' ' && *c != '\n' && *c != '\t') || *c == 127) abort();
        /* One byte less is not enough. */
        lc__frame less;
        if (lc__frame_parse(f.data - LC__FRAME_HEAD, LC__FRAME_HEAD + f.n - 1, LIMIT, &less) > 0) abort();
    }
    if (got == 0 && size - at >= LC__FRAME_HEAD + LIMIT) abort(); /* no more bytes are waited for */
    lc__wire_release(&w);
    return 0;
}
