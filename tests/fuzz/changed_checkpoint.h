/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a checkpoint with changes that the fuzzer's input lists, CHANGE_BYTES each: members of state.json get other
 * values, and bytes of any file other bytes. So mutating the input mutates the checkpoint by its structure. */
#ifndef LC_TESTS_FUZZ_CHANGED_CHECKPOINT_H
#define LC_TESTS_FUZZ_CHANGED_CHECKPOINT_H

#include "base/crc32c.h"
#include "base/io.h"
#include "core/checkpoint/checkpoint.h"

#include <lightc/safetensors.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_LEAVES = 4096, CHANGE_BYTES = 11, STATE_CHANGES = 6, CHANGES = 9 };

typedef struct leaf {
    lc_state *object;
    const char *key;
} leaf;

static inline void collect(lc_state *object, leaf *leaves, int *n)
{
    for (int64_t i = 0; i < lc_state_length(object) && *n < MOST_LEAVES; i++) {
        lc_state *member = (lc_state *)(uintptr_t)lc_state_at(object, i);
        lc_state_kind kind = lc_state_kind_of(member);
        const char *key = lc_state_kind_of(object) == LC_STATE_OBJECT ? lc_state_key_at(object, i) : NULL;
        if (key) leaves[(*n)++] = (leaf){object, key};
        if (kind == LC_STATE_OBJECT || kind == LC_STATE_ARRAY) collect(member, leaves, n);
    }
}

static inline lc_status change_state(const leaf *l, uint8_t how, const uint8_t bytes[8])
{
    static const int64_t ints[] = {0, 1, -1, 2, 1000000, INT32_MAX, INT32_MIN, (int64_t)1 << 53, INT64_MAX, INT64_MIN};
    static const double doubles[] = {0, -0.0, 1e-300, 1e300, -1e300, NAN, INFINITY, -INFINITY, 0.5, 9.3e18};
    static const char *const texts[] = {"",         "/",    "..",        "../../x",   "a\nb\x1b[31m",
                                        "val_loss", "%s%n", "/dev/zero", "best.ckpt", "last"};
    int64_t raw;
    memcpy(&raw, bytes, sizeof raw);
    switch (how) {
    case 0:
        return lc_state_set_int(l->object, l->key, ints[bytes[0] % (sizeof ints / sizeof *ints)]);
    case 1:
        return lc_state_set_int(l->object, l->key, raw);
    case 2:
        return lc_state_set_double(l->object, l->key, doubles[bytes[0] % (sizeof doubles / sizeof *doubles)]);
    case 3:
        return lc_state_set_text(l->object, l->key, texts[bytes[0] % (sizeof texts / sizeof *texts)]);
    case 4:
        return lc_state_set_bool(l->object, l->key, bytes[0] % 2);
    default:
        return lc_state_set_text(l->object, l->key, NULL);
    }
}

/* Applies the changes of state.json. */
static inline lc_status copy_changed(const char *from, const char *to, const uint8_t *data, size_t size)
{
    static leaf leaves[MOST_LEAVES];
    lc_checkpoint *c = NULL;
    lc_ckpt_writer *w = NULL;
    lc_status s;
    LC_TRY(lc_checkpoint_open(from, &c));
    LC_TRY_GOTO(s, done, lc_ckpt_writer_new(&w));
    LC_TRY_GOTO(s, done, lc_ckpt_begin(w, to));
    const lc_state *root = lc_checkpoint_state(c);
    for (int64_t i = 0; i < lc_state_length(root); i++) {
        lc_state *copy;
        LC_TRY_GOTO(s, done, lc_state_copy(lc_state_at(root, i), &copy));
        LC_TRY_GOTO(s, done, lc_state_set_tree(lc_ckpt_state(w), lc_state_key_at(root, i), copy));
    }
    for (; size >= CHANGE_BYTES; data += CHANGE_BYTES, size -= CHANGE_BYTES) {
        if (data[2] % CHANGES >= STATE_CHANGES) continue;
        int n = 0; /* collected again after each change, which may have freed what others point to */
        collect(lc_ckpt_state(w), leaves, &n);
        if (n) (void)change_state(&leaves[(data[0] | data[1] << 8) % n], data[2] % CHANGES, data + 3);
    }
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc_safetensors *f = lc_checkpoint_tensors(c, (lc_ckpt_kind)k);
        for (int64_t i = 0; f && i < lc_safetensors_count(f); i++)
            LC_TRY_GOTO(s, done, lc_ckpt_add_stored(w, (lc_ckpt_kind)k, f, i));
    }
    s = lc_ckpt_commit(w, true);
done:
    lc_ckpt_writer_free(w);
    lc_checkpoint_close(c);
    return s;
}

/* In one file one byte changes, or a few do, or the file ends early. */
static inline void change_file(char *text, size_t *n, const uint8_t *change)
{
    /* The first kilobytes are the header; a position in the whole file would seldom hit it. */
    size_t at = (size_t)(change[0] | change[1] << 8), first = *n < 4096 ? *n : 4096;
    if (!*n) return;
    switch (change[2] % CHANGES) {
    case 6:
        text[at % first] = (char)change[4];
        break;
    case 7:
        for (size_t i = 0; i < 6 && at % first + i < *n; i++) text[at % first + i] = (char)change[5 + i];
        break;
    default:
        *n = at % *n;
    }
}

/* Applies the changes of files. If the last byte of the change is odd, the checksums are corrected. */
static inline lc_status change_files(const char *path, const uint8_t *data, size_t size)
{
    for (; size >= CHANGE_BYTES; data += CHANGE_BYTES, size -= CHANGE_BYTES) {
        if (data[2] % CHANGES < STATE_CHANGES) continue;
        char name[600], *text = NULL;
        size_t n = 0;
        lc__manifest m = {0};
        lc_status s = lc__manifest_read(&lc__io_system, path, &m);
        int i = m.n ? data[3] % (m.n + 1) : 0;
        snprintf(name, sizeof name, "%s/%s", path, s >= 0 && i < m.n ? m.files[i].name : "manifest.json");
        FILE *f = fopen(name, "rb");
        struct stat st;
        if (!f || fstat(fileno(f), &st) < 0 || !(text = malloc((size_t)st.st_size + 1))) abort();
        n = fread(text, 1, (size_t)st.st_size, f);
        fclose(f);
        change_file(text, &n, data);
        if (lc__replace_file(&lc__io_system, name, text, n) < 0) abort();
        if (s >= 0 && i < m.n && data[CHANGE_BYTES - 1] % 2) {
            m.files[i].size = n, m.files[i].crc = lc__crc32c(0, text, n);
            free(text), text = NULL;
            snprintf(name, sizeof name, "%s/manifest.json", path);
            if (lc__manifest_print(&m, &text, &n) < 0 || lc__replace_file(&lc__io_system, name, text, n) < 0) abort();
        }
        free(text);
        lc__manifest_release(&m);
    }
    return LC_OK;
}

static inline lc_status write_changed(const char *from, const char *to, const uint8_t *data, size_t size)
{
    LC_TRY(copy_changed(from, to, data, size));
    return change_files(to, data, size);
}

/* ---- the mutator: inserts whole changes, and mutates the others like libFuzzer ---- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    unsigned int random = seed;
    if (size && rand_r(&random) % 8 == 0) { /* the first byte of fuzz_fit */
        data[0] = (uint8_t)rand_r(&random);
        return size;
    }
    if ((size >= CHANGE_BYTES && rand_r(&random) % 2) || size + CHANGE_BYTES > room)
        return LLVMFuzzerMutate(data, size, room);
    if (!size) data[size++] = (uint8_t)rand_r(&random);
    for (int i = 0; i < CHANGE_BYTES && size < room; i++) data[size++] = (uint8_t)(rand_r(&random) >> 8);
    return size;
}

#endif
