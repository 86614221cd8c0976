/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of the control channel, and a connection that they go over.
 *
 * A message is a head of LC__FRAME_HEAD bytes (magic, kind, length) and that many bytes of data. Numbers are little
 * endian. From some message on they are sealed: the data is then encrypted, and a tag of LC__SEAL_TAG bytes follows it,
 * which counts as data. Nothing that arrives is trusted: a length is compared with the connection's limit before it is
 * used, and memory grows with the bytes that have arrived, not with those that are announced. */
#ifndef LC_COMM_CONTROL_WIRE_H
#define LC_COMM_CONTROL_WIRE_H

#include "comm/net/proof.h"
#include "comm/net/seal.h"

#include <lightc/comm.h>

enum {
    LC__FRAME_HEAD = 12,
    LC__MEETING_BYTES = 64 << 10,
    LC__END_TEXT = 1024,
    LC__HOST_TEXT = 64,
    LC__LAST_TEXT = 640,
    LC__CALLS_HEAD = 32,
    LC__CALLS_TEXT = LC__LAST_TEXT + 32 + LC_COMM_CALL_TEXT + 2
};

typedef enum lc__frame_kind {
    LC__FRAME_HELLO = 1, /* rank: u32 version, rank, size, how many ranks (1), u64 process, identity (control.h), host
                            [LC__HOST_TEXT]; its number, its proof */
    LC__FRAME_REFUSED,   /* coordinator: why */
    LC__FRAME_WELCOME,   /* coordinator: its proof */
    LC__FRAME_WAITING,   /* coordinator: the ranks awaited and, on the next line, a rejected connection */
    LC__FRAME_READY,     /* coordinator: u32 rank of the process that hosts it (or all ones), host */
    LC__FRAME_BEAT,      /* coordinator: nothing; rank: u64 reports so far, step, u32 whether it is in a trainer's run,
                          * then where it is */
    LC__FRAME_GATHER,    /* rank: u64 number, its data */
    LC__FRAME_GATHERED,  /* coordinator: u64 number, the data of all */
    LC__FRAME_FAIL, /* rank: u32 whether it is a matter of its own (an option, a file, memory), u32 the rank on which it
                     * happened, or all ones: this one; why */
    LC__FRAME_END,  /* coordinator: why the run ends */
    LC__FRAME_BYE,  /* both; rank: u32 signal, if all have stopped together because of one */
    LC__FRAME_ASK,  /* coordinator: the run is ending; asks for the rank's last calls */
    LC__FRAME_CALLS, /* rank: u32 whether it answers ASK, u32 whether it waits in a call, u64 activity; of the oldest
                        call that has not ended: u64 number, u64 number among collectives, a line with its group, a line
                        with the call (history.h); its last calls, a line each */
    LC__FRAME_CHALLENGE, /* coordinator, first of all: u32 version, u32 whether proofs are the secret, its nonce */
    LC__FRAME_ENDED,     /* launcher: u32 rank, how its process ended */
    LC__FRAME_REACHED,   /* rank: u64 calls of all ranks begun, u64 done, u32 the other side of a send or receive under
                          * way, or all ones */
    LC__FRAME_LEAVE, /* rank: it makes no calls beyond those reported, and waits for the others to report the same */
    LC__FRAME_TERMS, /* rank: u32 terms (control.h) on which the run may go on without ranks */
    LC__FRAME_WATCH, /* launcher: as HELLO, for the first of the ranks that it starts */
    LC__FRAME_KINDS
} lc__frame_kind;

typedef struct lc__frame {
    lc__frame_kind kind;
    const uint8_t *data;
    size_t n;
} lc__frame;

/* Parses the message at the beginning of n bytes. Returns its whole length; 0 if more bytes are needed; -1 if it is
 * invalid or has more than `limit` bytes of data. */
int64_t lc__frame_parse(const uint8_t *bytes, size_t n, size_t limit, lc__frame *out);

void lc__put_u32(uint8_t *at, uint32_t v);
void lc__put_u64(uint8_t *at, uint64_t v);
uint32_t lc__get_u32(const uint8_t *at);
uint64_t lc__get_u64(const uint8_t *at);
/* Copies text that came over the network: up to a NUL, as much as fits, made safe to show (lc_printable). */
void lc__frame_text(const uint8_t *data, size_t n, char *text, size_t size);
/* The same for text of several lines, as ranks and their coordinator send it. */
void lc__frame_lines(const uint8_t *data, size_t n, char *text, size_t size);

typedef struct lc__bytes {
    uint8_t *data;
    size_t at, n, cap; /* the pending bytes are [at, n) */
} lc__bytes;

typedef struct lc__wire {
    int fd; /* -1: none */
    size_t limit;
    lc__bytes in, out;
    lc__seal *sends, *takes; /* NULL: messages are not sealed */
    bool tampered;           /* what arrived was not what the other end has sent */
} lc__wire;

void lc__wire_init(lc__wire *w, int fd, size_t limit); /* takes ownership of fd */
void lc__wire_release(lc__wire *w);                    /* closes; more than once is fine */
/* From the next message on, in both directions, messages are sealed with keys made of `secret` and what both ends have
 * sent (`ask`; its role does not matter). `connected`: this end made the connection. Without OpenSSL they stay as they
 * are. */
lc_status lc__wire_seal(lc__wire *w, const void *secret, size_t secret_bytes, const lc__proof_ask *ask,
                        bool connected) LC_MUST_USE;
/* Queues a message whose data is two parts, either of which may be empty; false if there is no memory. */
bool lc__wire_put(lc__wire *w, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data, size_t n);
bool lc__wire_pending(const lc__wire *w);
bool lc__wire_flush(lc__wire *w); /* sends what can be sent now; false if the connection is gone */
bool lc__wire_fill(lc__wire *w);  /* reads what has arrived; false if the connection is gone */
/* 1: a message, whose data is valid until the next fill; 0: none yet; -1: it is invalid, or not from the other end. */
int lc__wire_next(lc__wire *w, lc__frame *out);

#endif
