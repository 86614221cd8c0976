/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a simulated device. */
#define _GNU_SOURCE
#include "backends/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 1 << 16 };       /* no system has larger ones */
#define SIZE ((size_t)1 << 36) /* several devices fit into what ThreadSanitizer leaves */

static struct {
    pthread_mutex_t lock;
    sim_device *list[LC_SIM_DEVICES];
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Memory of the host that all devices know. */
static struct {
    pthread_mutex_t lock;
    sim_block *first;
} pinned = {.lock = PTHREAD_MUTEX_INITIALIZER};

int sim_fail(sim_device *d, const char *format, ...)
{
    va_list args;
    if (*d->error) return 1;
    va_start(args, format);
    vsnprintf(d->error, sizeof d->error, format, args);
    va_end(args);
    return 1;
}

bool sim_fails_now(int64_t *left)
{
    return *left == 0 || (*left > 0 && --*left == 0);
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* ---- opening ---- */

static void read_schedule(sim_device *d)
{
    const char *text = getenv("LIGHTC_SIM");
    d->schedule = SIM_LAZY;
    if (text && !strcmp(text, "eager")) d->schedule = SIM_EAGER;
    if (text && !strncmp(text, "random", 6)) {
        d->schedule = SIM_RANDOM;
        d->random = text[6] ? strtoull(text + 7, NULL, 10) : 1;
    }
}

static void read_failure(sim_device *d)
{
    const char *text = getenv("LIGHTC_SIM_FAIL"), *colon = text ? strchr(text, ':') : NULL;
    d->fail_launch = d->fail_alloc = d->fail_copy = d->fail_fill = d->fail_create = -1;
    if (!colon) return;
    int64_t n = strtoll(colon + 1, NULL, 10);
    size_t length = (size_t)(colon - text);
    if (length == 6 && !strncmp(text, "launch", 6)) d->fail_launch = n;
    if (length == 5 && !strncmp(text, "alloc", 5)) d->fail_alloc = n;
    if (length == 4 && !strncmp(text, "copy", 4)) d->fail_copy = n;
    if (length == 4 && !strncmp(text, "fill", 4)) d->fail_fill = n;
    if (length == 6 && !strncmp(text, "create", 6)) d->fail_create = n;
}

static sim_device *open_new(int index)
{
    sim_device *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->size = SIZE;
    d->memory = mmap(NULL, 2 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d->memory == MAP_FAILED) {
        free(d);
        return NULL;
    }
    d->index = index;
    pthread_mutex_init(&d->lock, NULL);
    read_schedule(d);
    read_failure(d);
    return d;
}

sim_device *sim_open(int index)
{
    pthread_mutex_lock(&devices.lock);
    if (!devices.list[index]) devices.list[index] = open_new(index);
    sim_device *d = devices.list[index];
    pthread_mutex_unlock(&devices.lock);
    return d;
}

/* ---- addresses ---- */

bool sim_is_device(const sim_device *d, const void *at, size_t bytes)
{
    const char *first = d->memory + d->size, *p = at;
    return p >= first && p + bytes <= first + d->size;
}

bool sim_pinned(const void *at, size_t bytes, bool *registered)
{
    pthread_mutex_lock(&pinned.lock);
    const sim_block *b = pinned.first;
    while (b && !((const char *)at >= b->at && (const char *)at + bytes <= b->at + b->bytes)) b = b->next;
    *registered = b && b->registered;
    pthread_mutex_unlock(&pinned.lock);
    return b != NULL;
}

void *sim_translate(const sim_device *d, const void *at)
{
    const char *p = at;
    return (void *)(uintptr_t)(sim_is_device(d, at, 0) ? p - d->size : p);
}

/* Takes a range of the same size that was freed, or new addresses. */
static char *take_addresses(sim_device *d, size_t bytes)
{
    for (sim_block *b = d->blocks; b; b = b->next) {
        if (b->used || b->bytes != bytes) continue;
        b->used = true;
        return b->at;
    }
    sim_block *b = d->end + bytes + PAGE <= d->size ? malloc(sizeof *b) : NULL;
    if (!b) return NULL;
    *b = (sim_block){.at = d->memory + d->size + d->end, .bytes = bytes, .used = true, .next = d->blocks};
    d->blocks = b;
    d->end += bytes + PAGE; /* each is followed by a page that nobody has */
    return b->at;
}

static sim_block *block_of(const sim_device *d, const char *at)
{
    sim_block *b = d->blocks;
    while (b && !(b->used && at == b->at)) b = b->next;
    return b;
}

static int enter(sim_device *d, const char *what)
{
    pthread_mutex_lock(&d->lock);
    if (d->into) return sim_fail(d, "sim:%d: %s while a program is captured", d->index, what);
    return *d->error != 0;
}

/* Enters to free something, which also a device that has failed does. */
static int enter_free(sim_device *d, const char *what)
{
    pthread_mutex_lock(&d->lock);
    return d->into ? sim_fail(d, "sim:%d: %s while a program is captured", d->index, what) : 0;
}

static int leave(sim_device *d, int error)
{
    pthread_mutex_unlock(&d->lock);
    return error;
}

/* Makes memory usable, full of poison. */
static int make_usable(sim_device *d, char *at, size_t bytes)
{
    char *p = sim_translate(d, at);
    if (sim_fails_now(&d->fail_alloc)) return sim_fail(d, "sim:%d: out of memory, as asked for", d->index);
    if (mprotect(p, pages(bytes), PROT_READ | PROT_WRITE) != 0) return sim_fail(d, "sim:%d: out of memory", d->index);
    d->counters.allocations++;
    memset(p, LC_SIM_POISON, pages(bytes));
    return 0;
}

/* Gives memory back to the system. */
static int make_unusable(sim_device *d, char *at, size_t bytes)
{
    char *p = sim_translate(d, at);
    madvise(p, pages(bytes), MADV_DONTNEED);
    return mprotect(p, pages(bytes), PROT_NONE) == 0 ? 0 : sim_fail(d, "sim:%d: too many pieces of memory", d->index);
}

static void fill_with_poison(void *at, size_t bytes)
{
    volatile unsigned char *byte = at; /* a compiler leaves out what is written before free */
    for (size_t i = 0; i < bytes; i++) byte[i] = LC_SIM_POISON;
}

/* ---- the driver's functions ---- */

int sim_address_reserve(void *context, void **at, size_t bytes)
{
    sim_device *d = context;
    int error = enter(d, "addresses are reserved");
    if (!error) *at = bytes > d->size / 64 ? NULL : take_addresses(d, pages(bytes));
    return leave(d, error || !*at);
}

int sim_map(void *context, void *at, size_t bytes)
{
    sim_device *d = context;
    int error = enter(d, "memory is mapped");
    sim_block *b = block_of(d, at);
    if (!error && !b) error = sim_fail(d, "sim:%d: memory is mapped at addresses that were not reserved", d->index);
    if (!error && b->mapped < bytes) error = make_usable(d, b->at + b->mapped, bytes - b->mapped);
    if (!error && b->mapped < bytes) b->mapped = pages(bytes);
    return leave(d, error);
}

int sim_unmap(void *context, void *at, size_t bytes)
{
    sim_device *d = context;
    int error = enter(d, "memory is unmapped");
    sim_block *b = block_of(d, at);
    (void)bytes;
    if (!error && !b) error = sim_fail(d, "sim:%d: memory is unmapped that was not reserved", d->index);
    if (!error) error = make_unusable(d, at, b->mapped);
    if (!error) b->mapped = 0;
    return leave(d, error);
}

static int give_back(sim_device *d, void *at, size_t bytes)
{
    sim_block *b = block_of(d, at);
    if (!b) return sim_fail(d, "sim:%d: memory is freed that was not allocated", d->index);
    b->used = false;
    b->mapped = 0;
    return make_unusable(d, at, bytes);
}

int sim_address_free(void *context, void *at, size_t bytes)
{
    sim_device *d = context;
    int error = enter_free(d, "addresses are freed");
    return leave(d, error ? error : give_back(d, at, bytes));
}

int sim_alloc(void *context, void **at, size_t bytes)
{
    sim_device *d = context;
    int error = enter(d, "memory is allocated");
    *at = error ? NULL : take_addresses(d, pages(bytes));
    if (!error && !*at) error = sim_fail(d, "sim:%d: out of addresses", d->index);
    if (!error && make_usable(d, *at, bytes)) {
        block_of(d, *at)->used = false;
        *at = NULL;
        error = 1;
    }
    return leave(d, error);
}

int sim_free(void *context, void *at, size_t bytes)
{
    sim_device *d = context;
    int error = enter_free(d, "memory is freed");
    if (!error) sim_run_all(d);
    return leave(d, error ? error : give_back(d, at, pages(bytes)));
}

int sim_memory_info(void *context, size_t *available)
{
    (void)context;
    *available = (size_t)8 << 30;
    return 0;
}

static int pin(sim_device *d, sim_block block)
{
    sim_block *b = malloc(sizeof *b);
    if (!b) return sim_fail(d, "out of memory");
    *b = block;
    b->used = true;
    pthread_mutex_lock(&pinned.lock);
    b->next = pinned.first;
    pinned.first = b;
    pthread_mutex_unlock(&pinned.lock);
    d->counters.allocations++;
    return 0;
}

/* Whether there was such memory, which is poisoned. */
static bool unpin(void *at, bool registered)
{
    pthread_mutex_lock(&pinned.lock);
    sim_block **p = &pinned.first;
    while (*p && !((*p)->at == at && (*p)->registered == registered)) p = &(*p)->next;
    sim_block *gone = *p;
    if (gone) *p = gone->next;
    pthread_mutex_unlock(&pinned.lock);
    if (!gone) return false;
    fill_with_poison(at, gone->bytes);
    free(gone);
    return true;
}

int sim_host_alloc(void *context, void **at, size_t bytes)
{
    sim_device *d = context;
    int error = enter(d, "host memory is allocated");
    if (!error && sim_fails_now(&d->fail_alloc)) error = sim_fail(d, "sim:%d: out of memory, as asked for", d->index);
    *at = error ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!error && !*at) error = sim_fail(d, "out of memory");
    if (!error) error = pin(d, (sim_block){.at = *at, .bytes = bytes});
    if (error) free(*at);
    return leave(d, error);
}

int sim_host_free(void *context, void *at, size_t bytes)
{
    sim_device *d = context;
    int error = enter_free(d, "host memory is freed");
    (void)bytes;
    if (!error && unpin(at, false)) free(at);
    return leave(d, error);
}

static bool overlaps_pinned(const char *at, size_t bytes)
{
    pthread_mutex_lock(&pinned.lock);
    const sim_block *b = pinned.first;
    while (b && !(at < b->at + b->bytes && b->at < at + bytes)) b = b->next;
    pthread_mutex_unlock(&pinned.lock);
    return b != NULL;
}

int sim_host_register(void *context, void *at, size_t bytes)
{
    sim_device *d = context;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int error = enter(d, "host memory is registered");
    if (!error && (!bytes || bytes % page || (uintptr_t)at % page))
        error = sim_fail(d, "sim:%d: host memory is registered that does not consist of whole pages", d->index);
    if (!error && overlaps_pinned(at, bytes)) error = sim_fail(d, "sim:%d: host memory is registered twice", d->index);
    if (!error) error = pin(d, (sim_block){.at = at, .bytes = bytes, .registered = true});
    return leave(d, error);
}

int sim_host_unregister(void *context, void *at)
{
    sim_device *d = context;
    int error = enter(d, "host memory is unregistered");
    if (!unpin(at, true) && !error)
        error = sim_fail(d, "sim:%d: host memory is unregistered that was not registered", d->index);
    return leave(d, error);
}
