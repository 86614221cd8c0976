/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/control/wire.h"
#include "comm/net/socket.h"
#include "base/printable.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC UINT32_C(0x6c636374) /* "lcct" */

void lc__put_u32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(v >> 8 * i);
}

void lc__put_u64(uint8_t *at, uint64_t v)
{
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(v >> 8 * i);
}

uint32_t lc__get_u32(const uint8_t *at)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) v |= (uint32_t)at[i] << 8 * i;
    return v;
}

uint64_t lc__get_u64(const uint8_t *at)
{
    return lc__get_u32(at) | (uint64_t)lc__get_u32(at + 4) << 32;
}

void lc__frame_text(const uint8_t *data, size_t n, char *text, size_t size)
{
    lc__printable((const char *)data, n, false, text, size);
}

void lc__frame_lines(const uint8_t *data, size_t n, char *text, size_t size)
{
    lc__printable((const char *)data, n, true, text, size);
}

int64_t lc__frame_parse(const uint8_t *bytes, size_t n, size_t limit, lc__frame *out)
{
    if (n < LC__FRAME_HEAD) return 0;
    uint32_t kind = lc__get_u32(bytes + 4), length = lc__get_u32(bytes + 8);
    if (lc__get_u32(bytes) != MAGIC || kind < LC__FRAME_HELLO || kind >= LC__FRAME_KINDS || length > limit) return -1;
    if (n - LC__FRAME_HEAD < length) return 0;
    *out = (lc__frame){(lc__frame_kind)kind, bytes + LC__FRAME_HEAD, length};
    return LC__FRAME_HEAD + (int64_t)length;
}

/* ---- bytes ---- */

/* Makes room for n more bytes at the end. */
static bool reserve(lc__bytes *b, size_t n)
{
    if (b->at) {
        if (b->n > b->at) memmove(b->data, b->data + b->at, b->n - b->at);
        b->n -= b->at;
        b->at = 0;
    }
    return lc__grow(&b->data, &b->cap, b->n, n, "messages of the control channel") >= 0;
}

static void append(lc__bytes *b, const void *data, size_t n)
{
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

/* ---- the connection ---- */

void lc__wire_init(lc__wire *w, int fd, size_t limit)
{
    *w = (lc__wire){.fd = fd, .limit = limit};
}

void lc__wire_release(lc__wire *w)
{
    if (w->fd >= 0) close(w->fd);
    free(w->in.data);
    free(w->out.data);
    lc__seal_free(w->sends);
    lc__seal_free(w->takes);
    *w = (lc__wire){.fd = -1};
}

static lc_status seal_of(const void *secret, size_t secret_bytes, const lc__proof_ask *ask, lc__proof_role role,
                         bool opens, lc__seal **out)
{
    lc__proof_ask of_key = *ask;
    uint8_t key[LC__PROOF];
    of_key.role = role;
    LC_TRY(lc__proof_make(secret, secret_bytes, &of_key, key));
    return lc__seal_new(key, opens, true, out);
}

lc_status lc__wire_seal(lc__wire *w, const void *secret, size_t secret_bytes, const lc__proof_ask *ask, bool connected)
{
    if (lc__proof_reveals()) return LC_OK;
    LC_TRY(seal_of(secret, secret_bytes, ask, connected ? LC__PROOF_KEY_THERE : LC__PROOF_KEY_BACK, false, &w->sends));
    return seal_of(secret, secret_bytes, ask, connected ? LC__PROOF_KEY_BACK : LC__PROOF_KEY_THERE, true, &w->takes);
}

bool lc__wire_put(lc__wire *w, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data, size_t n)
{
    uint8_t h[LC__FRAME_HEAD], tag[LC__SEAL_TAG];
    size_t more = w->sends ? sizeof tag : 0;
    if (head_bytes + n > UINT32_MAX - more || !reserve(&w->out, sizeof h + head_bytes + n + more)) return false;
    size_t before = w->out.n;
    lc__put_u32(h, MAGIC);
    lc__put_u32(h + 4, (uint32_t)kind);
    lc__put_u32(h + 8, (uint32_t)(head_bytes + n + more));
    append(&w->out, h, sizeof h);
    append(&w->out, head, head_bytes);
    append(&w->out, data, n);
    if (!more) return true;
    if (!lc__seal_close(w->sends, h, sizeof h, w->out.data + before + sizeof h, head_bytes + n, tag)) {
        w->out.n = before;
        return false;
    }
    append(&w->out, tag, sizeof tag);
    return true;
}

bool lc__wire_pending(const lc__wire *w)
{
    return w->out.n > w->out.at;
}

bool lc__wire_flush(lc__wire *w)
{
    while (lc__wire_pending(w)) {
        ssize_t k = lc__socket_send(w->fd, w->out.data + w->out.at, w->out.n - w->out.at);
        if (k <= 0) return k == 0;
        w->out.at += (size_t)k;
    }
    return true;
}

bool lc__wire_fill(lc__wire *w)
{
    enum { PIECE = 4096 };
    if (!reserve(&w->in, PIECE)) return false;
    ssize_t k = lc__socket_recv(w->fd, w->in.data + w->in.n, w->in.cap - w->in.n);
    if (k > 0) w->in.n += (size_t)k;
    return k >= 0;
}

/* Opens a sealed message in place. */
static bool open_sealed(lc__wire *w, lc__frame *f)
{
    uint8_t *head = w->in.data + w->in.at, *data = head + LC__FRAME_HEAD;
    w->tampered = f->n < LC__SEAL_TAG ||
                  !lc__seal_open(w->takes, head, LC__FRAME_HEAD, data, f->n - LC__SEAL_TAG, data + f->n - LC__SEAL_TAG);
    if (!w->tampered) f->n -= LC__SEAL_TAG;
    return !w->tampered;
}

int lc__wire_next(lc__wire *w, lc__frame *out)
{
    if (w->in.n == w->in.at) return 0;
    size_t limit = w->limit + (w->takes ? LC__SEAL_TAG : 0);
    int64_t k = lc__frame_parse(w->in.data + w->in.at, w->in.n - w->in.at, limit, out);
    if (k < 0 && w->takes) w->tampered = true; /* the other end sends only messages */
    if (k > 0 && w->takes && !open_sealed(w, out)) return -1;
    if (k > 0) w->in.at += (size_t)k;
    return k > 0 ? 1 : (int)k;
}
