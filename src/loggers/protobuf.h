/* SPDX-License-Identifier: Apache-2.0 */
/* The part of Protocol Buffers' wire format that writing a message needs: a field is a key (number and wire type) and a
 * value; a nested message is its length and its bytes. Callers omit fields with their default values. */
#ifndef LC_LOGGERS_PROTOBUF_H
#define LC_LOGGERS_PROTOBUF_H

#include "base/str.h"

#include <string.h>

enum { LC__PB_VARINT = 0, LC__PB_FIXED64 = 1, LC__PB_BYTES = 2, LC__PB_FIXED32 = 5 };

/* Writes v in 7-bit groups, low ones first; returns their number. */
static inline int lc__pb_encode(char bytes[10], uint64_t v)
{
    int n = 0;
    for (; v >= 0x80; v >>= 7) bytes[n++] = (char)(v | 0x80);
    bytes[n++] = (char)v;
    return n;
}

static inline void lc__pb_varint(lc__str *t, uint64_t v)
{
    char bytes[10];
    lc__str_add_bytes(t, bytes, (size_t)lc__pb_encode(bytes, v));
}

static inline void lc__pb_key(lc__str *t, int field, int type)
{
    lc__pb_varint(t, (uint64_t)field << 3 | (uint64_t)type);
}

/* int32, int64, bool, enum */
static inline void lc__pb_int(lc__str *t, int field, int64_t v)
{
    lc__pb_key(t, field, LC__PB_VARINT);
    lc__pb_varint(t, (uint64_t)v);
}

/* Fixed-size values are little-endian. */
static inline void lc__pb_little(lc__str *t, uint64_t bits, int n)
{
    char bytes[8];
    for (int i = 0; i < n; i++) bytes[i] = (char)(bits >> (8 * i));
    lc__str_add_bytes(t, bytes, (size_t)n);
}

static inline void lc__pb_bare_double(lc__str *t, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, 8);
    lc__pb_little(t, bits, 8);
}

static inline void lc__pb_double(lc__str *t, int field, double v)
{
    lc__pb_key(t, field, LC__PB_FIXED64);
    lc__pb_bare_double(t, v);
}

static inline void lc__pb_float(lc__str *t, int field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    lc__pb_key(t, field, LC__PB_FIXED32);
    lc__pb_little(t, bits, 4);
}

static inline void lc__pb_bytes(lc__str *t, int field, const void *data, size_t n)
{
    lc__pb_key(t, field, LC__PB_BYTES);
    lc__pb_varint(t, n);
    lc__str_add_bytes(t, data, n);
}

static inline void lc__pb_text(lc__str *t, int field, const char *text)
{
    lc__pb_bytes(t, field, text, strlen(text));
}

/* A nested message: its content is added between begin and end. */
static inline size_t lc__pb_begin(lc__str *t, int field)
{
    lc__pb_key(t, field, LC__PB_BYTES);
    return t->n;
}

static inline void lc__pb_end(lc__str *t, size_t begin)
{
    char length[10];
    size_t n = t->n - begin, bytes = (size_t)lc__pb_encode(length, n);
    lc__str_add_bytes(t, length, bytes); /* room */
    if (t->failed) return;
    memmove(t->s + begin + bytes, t->s + begin, n);
    memcpy(t->s + begin, length, bytes);
}

#endif
