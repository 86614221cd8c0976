/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading 25 million parameters with Adam's state: 4 linear layers of 2500 x 2500. "save_fsync" ends when
 * the checkpoint is durable, read back and has its name; "stall" is how long training pauses when a thread does that;
 * "load" verifies every byte and leaves all tensors in memory, as the peer's load does. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LAYERS 4
#define WIDTH  2500
#define ROUNDS 5

typedef struct net {
    lc_module base;
    lc_linear layers[LAYERS];
} net;

static lc_status add_model(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    return lc_ckpt_add_tensor(ctx, LC_CKPT_MODEL, path, t->tensor);
}

/* Copies of the optimizer's state in memory of this program, from which the writer copies. */
typedef struct adder {
    lc_ckpt_writer *w;
    float *memory, *at;
    double steps[64];
    int n;
} adder;

static lc_status add_state(void *ctx, const char *state, const char *path, lc_tensor *parameter, lc_tensor *flat,
                           int64_t offset, int64_t count)
{
    (void)flat, (void)offset;
    adder *a = ctx;
    char name[256];
    snprintf(name, sizeof name, "%s.%s", path, state);
    if (strcmp(state, "step") == 0) {
        lc_type one = {.dtype = LC_F64};
        return lc_ckpt_add_data(a->w, LC_CKPT_OPTIMIZER, name, &one, &a->steps[a->n++ % 64]);
    }
    float *data = a->at;
    a->at += count;
    return lc_ckpt_add_data(a->w, LC_CKPT_OPTIMIZER, name, lc_tensor_type(parameter), data);
}

static lc_status save(lc_ckpt_writer *w, net *m, lc_optimizer *opt, adder *a, const char *path, bool wait)
{
    a->at = a->memory;
    a->n = 0;
    LC_TRY(lc_ckpt_begin(w, path));
    LC_TRY(lc_module_visit(&m->base, add_model, w));
    LC_TRY(lc_optimizer_visit_state(opt, add_state, a));
    return lc_ckpt_commit(w, wait);
}

/* The destination of loaded tensors: existing memory, like a module's parameters and an optimizer's state. */
typedef struct places {
    void *memory[4 * 2 * LAYERS * 2];
    int n;
} places;

static lc_status load(const char *path, places *to, double *bytes)
{
    lc_checkpoint *c = NULL;
    LC_TRY(lc_checkpoint_open(path, &c));
    lc_status s = LC_OK;
    int n = 0, room = (int)(sizeof to->memory / sizeof to->memory[0]);
    *bytes = 0;
    for (int part = LC_CKPT_MODEL; s == LC_OK && part <= LC_CKPT_OPTIMIZER; part++) {
        lc_safetensors *f = lc_checkpoint_tensors(c, (lc_ckpt_kind)part);
        for (int64_t i = 0; f && s == LC_OK && i < lc_safetensors_count(f); i++, n++) {
            size_t size = (size_t)lc_safetensors_info(f, i)->bytes;
            if (n < room && n >= to->n) {
                to->memory[n] = malloc(size);
                to->n = n + 1;
            }
            if (n >= room || !to->memory[n]) {
                s = lc_fail(LC_ERR_MEMORY, "out of memory: a tensor of the checkpoint");
                break;
            }
            *bytes += (double)size;
            s = lc_safetensors_read(f, i, to->memory[n], size);
        }
    }
    lc_checkpoint_close(c);
    return s;
}

/* Runs one step, so that gradients and state exist. */
static lc_status train(lc_graph *g, net *m, lc_optimizer *opt)
{
    int64_t shape[] = {4, WIDTH};
    float *data = aligned_alloc(64, 4 * WIDTH * sizeof *data);
    lc_tensor *x = NULL;
    lc_status s;
    if (!data) return lc_fail(LC_ERR_MEMORY, "out of memory: a batch");
    for (int i = 0; i < 4 * WIDTH; i++) data[i] = (float)lc_random_normal(1, (uint64_t)i);
    LC_TRY_GOTO(s, done, lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, data, &x));
    LC_TRY_GOTO(s, done, lc_step_begin(g, 0, 0));
    lc_tensor *y = x;
    for (int i = 0; i < LAYERS; i++) y = lc_linear_forward(&m->layers[i], y);
    lc_backward(lc_sum(y));
    lc_optimizer_step(opt);
    LC_TRY_GOTO(s, done, lc_step_run(g));
    s = lc_step_end(g);
done:
    lc_tensor_unref(x);
    free(data);
    return s;
}

lc_status bench_ckpt(const bench *b)
{
    const int64_t parameters = LAYERS * (int64_t)(WIDTH * WIDTH + WIDTH);
    static const char *const names[LAYERS] = {"0", "1", "2", "3"};
    char folder[256] = "", path[300];
    net m;
    lc_graph *g = NULL;
    lc_optimizer *opt = NULL;
    lc_ckpt_writer *w = NULL;
    places loaded = {.n = 0};
    adder a = {.memory = malloc((size_t)(2 * parameters) * sizeof(float))};
    double durable[ROUNDS], stall[ROUNDS], loading[ROUNDS], copy[ROUNDS], spread[3][ROUNDS], bytes = 0;
    lc_graph_args options = LC_ARGS(lc_graph, .threads = (int)b->threads);
    lc_status s;
    lc_module_init(&m.base, NULL, 0);
    for (int i = 0; i < LAYERS; i++) lc_linear_init(&m.layers[i], &m, names[i], WIDTH, WIDTH);
    if (!a.memory) {
        s = lc_fail(LC_ERR_MEMORY, "out of memory: the optimizer's state");
        goto done;
    }
    for (int64_t i = 0; i < 2 * parameters; i++) a.memory[i] = (float)(i & 1023) * 1e-3f;
    LC_TRY_GOTO(s, done, lc_module_status(&m.base));
    LC_TRY_GOTO(s, done, bench_folder(folder, sizeof folder));
    LC_TRY_GOTO(s, done, lc_graph_new_with(&g, &options));
    opt = lc_adam(&m, .lr = 1e-3);
    LC_TRY_GOTO(s, done, lc_module_status(&m.base));
    LC_TRY_GOTO(s, done, train(g, &m, opt));
    LC_TRY_GOTO(s, done, lc_ckpt_writer_new(&w));
    a.w = w;
    snprintf(path, sizeof path, "%s/bench.ckpt", folder);
    for (int r = 0; r < ROUNDS; r++) {
        double start = bench_now();
        LC_TRY_GOTO(s, done, save(w, &m, opt, &a, path, true));
        durable[r] = bench_now() - start;
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* training continues, the old one is removed */
        start = bench_now();
        LC_TRY_GOTO(s, done, save(w, &m, opt, &a, path, false));
        stall[r] = bench_now() - start;
        LC_TRY_GOTO(s, done, lc_ckpt_wait(w));
        start = bench_now();
        LC_TRY_GOTO(s, done, load(path, &loaded, &bytes));
        loading[r] = bench_now() - start;
        /* The time to copy the same number of bytes into memory that has been touched before. */
        start = bench_now();
        memmove(a.memory, a.memory + parameters, (size_t)parameters * sizeof(float));
        copy[r] = 3 * (bench_now() - start);
    }
    memcpy(spread[0], durable, sizeof durable);
    memcpy(spread[1], stall, sizeof stall);
    memcpy(spread[2], loading, sizeof loading);
    BENCH_EMIT(b, "save_fsync", bench_median(durable, ROUNDS), "s", {"bytes", bytes},
               {"spread", .list = spread[0], .n = ROUNDS});
    BENCH_EMIT(b, "stall", bench_median(stall, ROUNDS), "s", {"bytes", bytes}, {"copy_s", bench_median(copy, ROUNDS)},
               {"spread", .list = spread[1], .n = ROUNDS});
    BENCH_EMIT(b, "load", bench_median(loading, ROUNDS), "s", {"bytes", bytes},
               {"spread", .list = spread[2], .n = ROUNDS});
done:
    lc_ckpt_writer_free(w);
    lc_optimizer_free(opt);
    lc_graph_free(g);
    lc_module_release(&m.base);
    free(a.memory);
    for (int i = 0; i < loaded.n; i++) free(loaded.memory[i]);
    if (folder[0]) bench_folder_remove(folder);
    return s;
}
