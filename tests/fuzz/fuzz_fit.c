/* SPDX-License-Identifier: Apache-2.0 */
/* A whole training that goes on from a checkpoint whose state somebody has changed: it is refused, or trains and saves.
 * The input says which members of state.json change, and into what; the manifest and all checksums fit again. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "scratch.h"
#include "trainer_world.h"
#include "core/checkpoint.h"

#include <lightc/callbacks.h>
#include <lightc/safetensors.h>

#include <fcntl.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_LEAVES = 4096, CHANGE_BYTES = 11 };

static char dir[256], good[300], bad[300];

/* ---- the state of a checkpoint, changed ---- */

typedef struct leaf {
    lc_state *object;
    const char *key;
} leaf;

static void collect(lc_state *object, leaf *leaves, int *n)
{
    for (int64_t i = 0; i < lc_state_length(object) && *n < MOST_LEAVES; i++) {
        lc_state *member = (lc_state *)(uintptr_t)lc_state_at(object, i);
        lc_state_kind kind = lc_state_kind_of(member);
        const char *key = lc_state_kind_of(object) == LC_STATE_OBJECT ? lc_state_key_at(object, i) : NULL;
        if (key) leaves[(*n)++] = (leaf){object, key};
        if (kind == LC_STATE_OBJECT || kind == LC_STATE_ARRAY) collect(member, leaves, n);
    }
}

static lc_status change(const leaf *l, uint8_t how, const uint8_t bytes[8])
{
    static const int64_t ints[] = {0, 1, -1, 2, 1000000, INT32_MAX, INT32_MIN, (int64_t)1 << 53, INT64_MAX, INT64_MIN};
    static const double doubles[] = {0, -0.0, 1e-300, 1e300, -1e300, NAN, INFINITY, -INFINITY, 0.5, 9.3e18};
    static const char *const texts[] = {"",         "/",    "..",        "../../x",   "a\nb\x1b[31m",
                                        "val_loss", "%s%n", "/dev/zero", "best.ckpt", "last"};
    int64_t raw;
    memcpy(&raw, bytes, sizeof raw);
    switch (how % 6) {
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

static lc_status write_changed(const uint8_t *data, size_t size)
{
    static leaf leaves[MOST_LEAVES];
    lc_checkpoint *c = NULL;
    lc_ckpt_writer *w = NULL;
    lc_status s;
    LC_TRY(lc_checkpoint_open(good, &c));
    LC_TRY_GOTO(s, done, lc_ckpt_writer_new(&w));
    LC_TRY_GOTO(s, done, lc_ckpt_begin(w, bad));
    const lc_state *root = lc_checkpoint_state(c);
    for (int64_t i = 0; i < lc_state_length(root); i++) {
        lc_state *copy;
        LC_TRY_GOTO(s, done, lc_state_copy(lc_state_at(root, i), &copy));
        LC_TRY_GOTO(s, done, lc_state_set_tree(lc_ckpt_state(w), lc_state_key_at(root, i), copy));
    }
    for (; size >= CHANGE_BYTES; data += CHANGE_BYTES, size -= CHANGE_BYTES) {
        int n = 0; /* again after each change, which may have freed what others point to */
        collect(lc_ckpt_state(w), leaves, &n);
        if (n) (void)change(&leaves[(data[0] | data[1] << 8) % n], data[2], data + 3);
    }
    for (int k = 0; k < LC_CKPT_PARTS; k++) {
        lc_safetensors *f = lc_checkpoint_part(c, (lc_ckpt_part)k);
        for (int64_t i = 0; f && i < lc_safetensors_count(f); i++)
            LC_TRY_GOTO(s, done, lc_ckpt_add_stored(w, (lc_ckpt_part)k, f, i));
    }
    s = lc_ckpt_commit(w, true);
done:
    lc_ckpt_writer_free(w);
    lc_checkpoint_close(c);
    return s;
}

/* ---- the training ---- */

static lc_status train(const char *from, const char *save)
{
    world w;
    lc_trainer *t;
    lc_callback callbacks[4];
    static const lc_accumulation factors[] = {{0, 1}};
    if (lc_early_stopping_new(&(lc_early_stopping_args){.monitor = "val_loss", .patience = 9}, &callbacks[0]) < 0 ||
        lc_ema_weight_averaging_new(NULL, &callbacks[1]) < 0 ||
        lc_model_checkpoint_new(&(lc_model_checkpoint_args){.monitor = "val_loss"}, &callbacks[2]) < 0 ||
        lc_gradient_accumulation_scheduler_new(
            &(lc_gradient_accumulation_scheduler_args){.scheduling = factors, .n_scheduling = 1}, &callbacks[3]) < 0)
        abort();
    world_init(&w, &world_ops, 3, 1);
    lc_trainer_options o = world_options(dir);
    o.callbacks = callbacks, o.n_callbacks = 4;
    o.max_epochs = save ? 1 : 3;
    o.max_steps = 20; /* whatever epoch it takes itself to be in */
    o.handle_signals = false;
    o.ckpt_path = from;
    if (lc_trainer_new(&o, &t) < 0) abort();
    lc_status s = lc_trainer_fit(t, &w.base, NULL);
    if (s >= 0 && save) s = lc_trainer_save_checkpoint(t, save, false);
    if (s < 0 && !lc_error_message()[0]) abort(); /* refused without a word */
    lc_trainer_free(t);
    world_release(&w);
    return s;
}

static void begin(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (!world_dir(dir, sizeof dir)) abort();
    snprintf(good, sizeof good, "%s/good.ckpt", dir);
    snprintf(bad, sizeof bad, "%s/bad.ckpt", dir);
    if (train(NULL, good) < 0) abort();
    if (null >= 0) (void)dup2(null, 1), close(null); /* warnings of each training */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*dir) begin();
    if (write_changed(data, size) >= 0) (void)train(bad, NULL);
    return 0;
}
