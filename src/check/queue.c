/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, the queue and programs, as include/lightc/backend.h promises them. Each check returns what is wrong, or
 * NULL. */
#include "check/check.h"
#include "ops/kernel.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5000, MANY = 200, PAGES = 1 << 16 };

#define MIB ((size_t)1 << 20)

/* The device that is checked, and memory for it. */
typedef struct world {
    const lc_device *on;
    const lc_backend_ops *ops;
    const void *set; /* of kernels */
    void *device;
    char *a, *b;          /* of the device, N bytes each */
    char *pinned, *other; /* host_alloc, N bytes each */
    char *host, *back;    /* malloc, N bytes each */
    char *pages;          /* whole pages of the host's */
    char text[400];
} world;

static const char *failed(world *w, const char *what)
{
    snprintf(w->text, sizeof w->text, "%s: %.300s", what, lc_error_message());
    return w->text;
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) < 0) return failed(w, #call);                                                                       \
    } while (0)

static bool is_all(const char *p, char value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value) return false;
    return true;
}

/* ---- memory ---- */

static const char *alloc_is_zero(world *w)
{
    for (int round = 0; round < 3; round++) {
        void *p;
        MUST(w->ops->alloc(w->device, N, &p));
        if ((uintptr_t)p % 256) return "memory of alloc is not 256-byte aligned";
        MUST(w->ops->copy(w->device, w->back, p, N));
        bool zero = is_all(w->back, 0, N);
        memset(w->host, 0x5a, N);
        MUST(w->ops->copy(w->device, p, w->host, N));
        w->ops->free(w->device, p, N);
        if (!zero) return round ? "memory of alloc that was used before is not zero" : "memory of alloc is not zero";
    }
    return w->ops->available(w->device) ? NULL : "available says that there is no memory";
}

static const char *arena_grows(world *w)
{
    void *base;
    size_t reserved;
    MUST(w->ops->arena_reserve(w->device, &base, &reserved));
    MUST(w->ops->arena_commit(w->device, base, reserved, MIB));
    memset(w->host, 0x5a, N);
    MUST(w->ops->copy(w->device, (char *)base + MIB - N, w->host, N));
    MUST(w->ops->arena_commit(w->device, base, reserved, 9 * MIB));
    MUST(w->ops->copy(w->device, w->back, (char *)base + MIB - N, N));
    if (!is_all(w->back, 0x5a, N)) return "an arena that grows loses what it has";
    MUST(w->ops->copy(w->device, (char *)base + 9 * MIB - N, w->host, N));
    MUST(w->ops->arena_commit(w->device, base, reserved, MIB)); /* smaller: nothing happens */
    MUST(w->ops->copy(w->device, w->back, (char *)base + 9 * MIB - N, N));
    if (!is_all(w->back, 0x5a, N)) return "an arena has shrunk";
    w->ops->arena_drop(w->device, base, 9 * MIB);
    MUST(w->ops->arena_commit(w->device, base, reserved, 9 * MIB));
    MUST(w->ops->copy(w->device, (char *)base + 9 * MIB - N, w->host, N));
    MUST(w->ops->copy(w->device, w->back, (char *)base + 9 * MIB - N, N));
    if (!is_all(w->back, 0x5a, N)) return "an arena that is committed again after arena_drop cannot be used";
    if (w->ops->arena_commit(w->device, base, reserved, reserved + 1) >= 0)
        return "more of an arena than was reserved can be committed";
    w->ops->arena_release(w->device, base, reserved);
    return NULL;
}

/* ---- copies ---- */

static const char *copies_bytes(world *w)
{
    static const size_t sizes[] = {1, 3, 255, 256, 1021, N - 7};
    char *sources[] = {w->host, w->pinned}, *targets[] = {w->back, w->other};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < 4; k++) {
            char *from = sources[k / 2], *to = targets[k % 2];
            for (int j = 0; j < N; j++) from[j] = (char)(j * 7 + (int)i);
            memset(to, 0, N);
            MUST(w->ops->copy(w->device, w->a + 5, from + 3, sizes[i]));
            MUST(w->ops->copy(w->device, w->b + 2, w->a + 5, sizes[i]));
            MUST(w->ops->copy(w->device, to + 1, w->b + 2, sizes[i]));
            MUST(w->ops->wait(w->device, UINT64_MAX));
            if (memcmp(to + 1, from + 3, sizes[i]) != 0 || to[0] || to[1 + sizes[i]])
                return "bytes that were copied to the device and back differ";
        }
    return NULL;
}

/* Memory of malloc is done with when copy returns. */
static const char *host_memory_is_done_with(world *w)
{
    memset(w->host, 1, N);
    MUST(w->ops->copy(w->device, w->a, w->host, N));
    memset(w->host, 2, N);
    MUST(w->ops->copy(w->device, w->back, w->a, N));
    if (is_all(w->back, 1, N)) return NULL;
    return "copy returns before it is done with memory that is not host_alloc's";
}

/* Pages of the host that are registered, used, and no longer registered. */
static const char *registers_pages(world *w)
{
    const lc_backend_ops *o = w->ops;
    if (!o->host_register) return NULL;
    for (int round = 0; round < 3; round++) {
        memset(w->pages, round, PAGES);
        MUST(o->host_register(w->device, w->pages, PAGES));
        MUST(o->copy(w->device, w->a, w->pages + round, N));
        MUST(o->copy(w->device, w->pages + PAGES - N, w->a, N));
        MUST(o->wait(w->device, UINT64_MAX));
        if (!is_all(w->pages, (char)round, PAGES)) return "bytes of registered memory that were copied differ";
        MUST(o->copy(w->device, w->a, w->pages, N));
        o->host_unregister(w->device, w->pages);
        memset(w->pages, 0x5a, N);
        MUST(o->copy(w->device, w->back, w->a, N));
        if (!is_all(w->back, (char)round, N))
            return "host_unregister returns before the device is done with the memory";
        MUST(o->copy(w->device, w->a, w->pages, N));
        memset(w->pages, 0, N);
        MUST(o->copy(w->device, w->back, w->a, N));
        if (!is_all(w->back, 0x5a, N)) return "copy returns before it is done with memory that is no longer registered";
    }
    return NULL;
}

/* copy_arrived copies the bytes of the copy_ahead before it, not of a later one; and after its mark the host may write
 * the memory that was sent. */
static const char *copies_ahead(world *w)
{
    const lc_backend_ops *o = w->ops;
    const size_t half = N / 2;
    uint64_t first, second;
    if (!o->copy_ahead) return NULL;
    for (int round = 0; round < MANY; round++) {
        memset(w->pinned, round, half);
        memset(w->pinned + half, ~round, half);
        MUST(o->copy_ahead(w->device, w->a, w->pinned, half));
        MUST(o->copy_arrived(w->device, w->b, w->a, half, &first));
        MUST(o->copy_ahead(w->device, w->a, w->pinned + half, half));
        MUST(o->copy_arrived(w->device, w->b + half, w->a, half, &second));
        if (round % 3) MUST(o->wait(w->device, round % 3 == 1 ? first : second));
        if (round % 3) memset(w->pinned, ~round, half);
        MUST(o->copy(w->device, w->other, w->b, N));
        MUST(o->wait(w->device, UINT64_MAX));
        if (!is_all(w->other, (char)round, half) || !is_all(w->other + half, (char)~round, half))
            return "what was sent by copy_ahead is not what arrives";
    }
    return NULL;
}

/* b = -a. *there: the backend has a kernel for that. */
static lc_status negate(world *w, bool *there)
{
    lc_view views[2] = {{.dtype = LC_F32, .ndim = 1, .shape = {N / 8}, .stride = {1}}};
    const lc_kernel *kernel;
    int n;
    views[1] = views[0];
    lc_call call = {.op = &lc__op_neg, .n_in = 1, .n_out = 1, .in = &views[0], .out = &views[1], .threads = 1};
    LC_TRY(lc__find_kernels(w->on, w->set, &call, 1, &kernel, &n));
    *there = n > 0;
    if (!n) return LC_OK;
    views[0].data = w->a;
    views[1].data = w->b;
    call.kernel = kernel;
    call.floats = (const double *)(const void *)w->a;
    call.rng = (const lc_rng_key *)(const void *)w->a;
    call.device = w->device;
    call.queue = w->ops->queue ? w->ops->queue(w->device) : NULL;
    if (kernel->prepare) LC_TRY(kernel->prepare(&call));
    if (!call.scratch_bytes) kernel->run(&call);
    *there = !call.scratch_bytes;
    if (kernel->release) kernel->release(&call);
    return LC_OK;
}

static void set_floats(char *p, float value)
{
    for (int i = 0; i < N / 8; i++) memcpy(p + (size_t)i * sizeof value, &value, sizeof value);
}

static bool are_floats(const char *p, float value)
{
    for (int i = 0; i < N / 8; i++) {
        float at;
        memcpy(&at, p + (size_t)i * sizeof at, sizeof at);
        if (!(at == value)) return false;
    }
    return true;
}

/* A kernel sees the copies before it, and none after it. */
static const char *kernels_keep_order(world *w)
{
    for (int round = 1; round < MANY; round++) {
        bool there;
        set_floats(w->pinned, (float)round);
        set_floats(w->pinned + N / 2, 1000);
        MUST(w->ops->copy(w->device, w->a, w->pinned, N / 2));
        MUST(negate(w, &there));
        if (!there) return NULL;
        MUST(w->ops->copy(w->device, w->a, w->pinned + N / 2, N / 2));
        MUST(w->ops->copy(w->device, w->other, w->b, N / 2));
        MUST(w->ops->wait(w->device, UINT64_MAX));
        if (!are_floats(w->other, -(float)round))
            return "kernels and copies are not done in the order in which they were enqueued";
    }
    return NULL;
}

/* What is enqueued later is seen by nothing before it. */
static const char *keeps_order(world *w)
{
    for (int round = 0; round < MANY; round++) {
        memset(w->pinned, round, N / 2);
        memset(w->pinned + N / 2, ~round, N / 2);
        MUST(w->ops->copy(w->device, w->a, w->pinned, N / 2));
        MUST(w->ops->copy(w->device, w->b, w->a, N / 2));
        MUST(w->ops->copy(w->device, w->a, w->pinned + N / 2, N / 2));
        MUST(w->ops->copy(w->device, w->other, w->b, N / 2));
        MUST(w->ops->copy(w->device, w->other + N / 2, w->a, N / 2));
        MUST(w->ops->wait(w->device, UINT64_MAX));
        if (!is_all(w->other, (char)round, N / 2) || !is_all(w->other + N / 2, (char)~round, N / 2))
            return "copies are not done in the order in which they were enqueued";
    }
    return NULL;
}

static const char *marks_count(world *w)
{
    uint64_t mark, first = 0, before = 0;
    bool reached;
    for (int round = 0; round < MANY; round++) {
        memset(w->pinned, round, N);
        memset(w->other, ~round, N);
        MUST(w->ops->copy(w->device, w->a, w->pinned, N));
        MUST(w->ops->copy(w->device, w->other, w->a, N));
        MUST(w->ops->mark(w->device, &mark));
        if (!mark || mark == UINT64_MAX || mark <= before) return "marks do not count up";
        before = mark;
        if (!first) first = mark;
        MUST(w->ops->reached(w->device, mark, &reached));
        if (reached && !is_all(w->other, (char)round, N)) return "a mark is reached before the device has got to it";
        MUST(w->ops->wait(w->device, mark));
        if (!is_all(w->other, (char)round, N)) return "wait returns before the device has got to the mark";
        MUST(w->ops->reached(w->device, mark, &reached));
        if (!reached) return "a mark that was waited for is not reached";
    }
    MUST(w->ops->wait(w->device, first));
    return NULL;
}

/* ---- programs ---- */

static const char *programs_run(world *w)
{
    const lc_backend_ops *o = w->ops;
    void *program;
    if (!o->program_begin) return NULL;
    memset(w->pinned, 1, N);
    memset(w->other, 9, N);
    MUST(o->program_begin(w->device));
    MUST(o->copy(w->device, w->a, w->pinned, N));
    MUST(o->copy(w->device, w->other, w->a, N));
    MUST(o->program_end(w->device, &program));
    MUST(o->wait(w->device, UINT64_MAX));
    if (!is_all(w->other, 9, N)) return "what becomes a program runs while it is made";
    for (int round = 2; round < 6; round++) {
        memset(w->pinned, round, N);
        MUST(o->program_run(w->device, program));
        MUST(o->wait(w->device, UINT64_MAX));
        if (!is_all(w->other, (char)round, N)) return "a program does not read what its addresses hold when it runs";
    }
    o->program_free(w->device, program);
    return NULL;
}

/* ---- errors. The last check: afterwards the device may have failed. ---- */

static const char *errors_are_kept(world *w)
{
    void *p;
    uint64_t mark;
    if (w->ops->alloc(w->device, SIZE_MAX / 4, &p) >= 0) return "alloc gives more memory than there can be";
    if (!*lc_error_message()) return "alloc fails without a message";
    if (w->ops->wait(w->device, UINT64_MAX) >= 0)
        return NULL; /* not a failure of the device if it has too little memory */
    if (w->ops->copy(w->device, w->back, w->a, N) >= 0 || w->ops->mark(w->device, &mark) >= 0)
        return "after an error, calls succeed";
    return NULL;
}

static const struct {
    const char *name;
    const char *(*run)(world *w);
} checks[] = {
    {"alloc", alloc_is_zero},
    {"arena", arena_grows},
    {"copy", copies_bytes},
    {"host memory", host_memory_is_done_with},
    {"order", keeps_order},
    {"order of kernels", kernels_keep_order},
    {"marks", marks_count},
    {"copies ahead", copies_ahead},
    {"registered memory", registers_pages},
    {"programs", programs_run},
    {"errors", errors_are_kept},
};

static bool make_world(world *w, const lc_device *on, const void *set)
{
    void *p[4] = {NULL};
    *w = (world){.on = on,
                 .ops = on->ops,
                 .set = set,
                 .device = on->context,
                 .host = malloc(N),
                 .back = malloc(N),
                 .pages = aligned_alloc(PAGES, PAGES)};
    bool good = w->host && w->back && w->pages && on->ops->alloc(w->device, N, &p[0]) >= 0 &&
                on->ops->alloc(w->device, N, &p[1]) >= 0 && on->ops->host_alloc(w->device, N, &p[2]) >= 0 &&
                on->ops->host_alloc(w->device, N, &p[3]) >= 0;
    w->a = p[0], w->b = p[1], w->pinned = p[2], w->other = p[3];
    return good;
}

static void show(check *c, const char *name, const char *wrong)
{
    c->failed += wrong != NULL;
    printf("%-32s %s%s\n", name, wrong ? "FAILED: " : "ok", wrong ? wrong : "");
}

void check_queue(check *c)
{
    world w;
    bool made = make_world(&w, c->on, c->set);
    if (!made) show(c, "memory for the checks", failed(&w, "it cannot be had"));
    for (size_t i = 0; i < sizeof checks / sizeof *checks && made; i++) show(c, checks[i].name, checks[i].run(&w));
    free(w.host);
    free(w.back);
    free(w.pages);
}
