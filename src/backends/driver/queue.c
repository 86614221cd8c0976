/* SPDX-License-Identifier: Apache-2.0 */
/* The memory and the queue of a device, over its driver. */
#include "backends/driver/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { EVENTS = 128 };
#define GRANULE       ((size_t)2 << 20)
#define ARENA_LARGEST ((size_t)1 << 36)

/* Host memory that copies may use while they wait in the queue. */
typedef struct pinned {
    char *at;
    size_t bytes;
    struct pinned *next;
} pinned;

typedef struct queue {
    const lc_backend_host *host;
    const lc__driver *driver;
    void *context, *stream, *ahead; /* ahead: of copy_ahead */
    void *events[EVENTS];           /* event m % EVENTS is recorded for mark m: even ones in `stream`, odd in `ahead` */
    void *taken;                    /* event after the last copy_arrived */
    /* A thread that makes a program has the queue for itself: what others enqueue would become part of the program. */
    pthread_rwlock_t users;
    _Atomic uint64_t maker; /* that thread; 0: no program is being made */
    pthread_mutex_t lock;   /* of the rest */
    uint64_t marks;
    struct queue *next;
} queue;

/* Memory of the host, which all devices of a backend share. Queues are never freed. */
static struct {
    pthread_mutex_t lock;
    queue *queues;
    pinned *pinned;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static lc_status check(const queue *q, int error, const char *what)
{
    if (!error) return LC_OK;
    return q->host->fail(LC_ERR_DEVICE, "%s: %s", what, q->driver->error_text(q->context, error));
}

static uint64_t this_thread(void)
{
    return (uint64_t)pthread_self();
}

/* Waits until the device has done everything. */
static int synchronize(const queue *q)
{
    int error = q->driver->stream_synchronize(q->context, q->stream);
    return error ? error : q->driver->stream_synchronize(q->context, q->ahead);
}

/* Around each use of the driver. */
static void enter(queue *q)
{
    if (q->maker != this_thread()) pthread_rwlock_rdlock(&q->users);
}

static lc_status leave(queue *q, int error, const char *what)
{
    if (q->maker != this_thread()) pthread_rwlock_unlock(&q->users);
    return check(q, error, what);
}

static int create_all(queue *q, int index)
{
    const lc__driver *d = q->driver;
    int error = d->context_create(index, &q->context);
    if (!error) error = d->stream_create(q->context, &q->stream);
    if (!error) error = d->stream_create(q->context, &q->ahead);
    if (!error) error = d->event_create(q->context, &q->taken);
    for (int i = 0; i < EVENTS && !error; i++) error = d->event_create(q->context, &q->events[i]);
    return error;
}

/* Destroys the streams and events that exist; the context is the process's. */
static void destroy_all(const queue *q)
{
    const lc__driver *d = q->driver;
    for (int i = 0; i < EVENTS; i++)
        if (q->events[i]) (void)d->event_destroy(q->context, q->events[i]);
    if (q->taken) (void)d->event_destroy(q->context, q->taken);
    if (q->ahead) (void)d->stream_destroy(q->context, q->ahead);
    if (q->stream) (void)d->stream_destroy(q->context, q->stream);
}

lc_status lc__queue_open(const lc_backend_host *host, const lc__driver *driver, int index, void **device)
{
    queue *q = calloc(1, sizeof *q);
    *device = NULL;
    if (!q) return host->fail(LC_ERR_MEMORY, "out of memory for a device");
    *q =
        (queue){.host = host, .driver = driver, .users = PTHREAD_RWLOCK_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};
    lc_status status = check(q, create_all(q, index), "opening the device");
    if (status < 0) {
        destroy_all(q);
        free(q);
        return status;
    }
    pthread_mutex_lock(&all.lock);
    q->next = all.queues;
    all.queues = q;
    pthread_mutex_unlock(&all.lock);
    *device = q;
    return LC_OK;
}

void lc__queue_launch(const lc_call *call, const void *function, const unsigned grid[3], const unsigned block[3],
                      unsigned shared, void **parameters)
{
    queue *q = call->device;
    enter(q);
    /* An error is returned by the next call that can return one. */
    (void)q->driver->launch(q->context, function, grid, block, shared, q->stream, parameters);
    (void)!leave(q, 0, NULL);
}

/* ---- memory ---- */

lc_status lc__queue_arena_reserve(void *device, void **base, size_t *reserved)
{
    queue *q = device;
    int error = 1;
    enter(q);
    for (*reserved = 2 * ARENA_LARGEST; error && *reserved > GRANULE;)
        error = q->driver->address_reserve(q->context, base, *reserved /= 2);
    return leave(q, error, "reserving addresses of the device");
}

lc_status lc__queue_arena_commit(void *device, void *base, size_t reserved, size_t bytes)
{
    queue *q = device;
    bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    if (bytes > reserved)
        return q->host->fail(LC_ERR_MEMORY, "%zu MiB are needed, but only %zu MiB of addresses could be reserved",
                             bytes >> 20, reserved >> 20);
    enter(q);
    return leave(q, q->driver->map(q->context, base, bytes), "memory of the device");
}

void lc__queue_arena_drop(void *device, void *base, size_t bytes)
{
    queue *q = device;
    enter(q);
    (void)synchronize(q);
    (void)q->driver->unmap(q->context, base, (bytes + GRANULE - 1) / GRANULE * GRANULE);
    (void)!leave(q, 0, NULL);
}

void lc__queue_arena_release(void *device, void *base, size_t reserved)
{
    queue *q = device;
    enter(q);
    (void)synchronize(q);
    (void)q->driver->address_free(q->context, base, reserved);
    (void)!leave(q, 0, NULL);
}

lc_status lc__queue_alloc(void *device, size_t bytes, void **out)
{
    queue *q = device;
    *out = NULL;
    bytes = bytes ? bytes : 1;
    enter(q);
    void *data = NULL;
    int error = q->driver->alloc(q->context, &data, bytes);
    if (!error) {
        error = q->driver->fill_async(q->context, data, 0, bytes, q->stream);
        if (error) (void)q->driver->free(q->context, data, bytes);
    }
    if (!error) *out = data;
    return leave(q, error, "memory of the device");
}

void lc__queue_free(void *device, void *data, size_t bytes)
{
    queue *q = device;
    if (!data) return;
    enter(q);
    (void)synchronize(q);
    (void)q->driver->free(q->context, data, bytes ? bytes : 1);
    (void)!leave(q, 0, NULL);
}

size_t lc__queue_available(void *device)
{
    queue *q = device;
    size_t available = 0;
    enter(q);
    int error = q->driver->memory_info(q->context, &available);
    (void)!leave(q, 0, NULL);
    return error ? 0 : available;
}

/* Host memory of the driver's, or of the program's (*at): copies may use it from now on. */
static lc_status pin(queue *q, int (*by)(void *context, void **at, size_t bytes), void **at, size_t bytes)
{
    pinned *p = malloc(sizeof *p);
    if (!p) return q->host->fail(LC_ERR_MEMORY, "out of memory for copies to the device");
    enter(q);
    int error = by ? by(q->context, at, bytes) : q->driver->host_register(q->context, *at, bytes);
    lc_status status = leave(q, error, "host memory for the device");
    if (status < 0) {
        free(p);
        return status;
    }
    pthread_mutex_lock(&all.lock);
    *p = (pinned){*at, bytes, all.pinned};
    all.pinned = p;
    pthread_mutex_unlock(&all.lock);
    return LC_OK;
}

static queue *first_queue(void)
{
    pthread_mutex_lock(&all.lock);
    queue *q = all.queues;
    pthread_mutex_unlock(&all.lock);
    return q;
}

/* When no device uses it any longer. */
static void unpin(const void *at)
{
    for (queue *q = first_queue(); q; q = q->next) {
        enter(q);
        (void)synchronize(q);
        (void)!leave(q, 0, NULL);
    }
    pthread_mutex_lock(&all.lock);
    for (pinned **p = &all.pinned; *p; p = &(*p)->next) {
        if ((*p)->at != at) continue;
        pinned *gone = *p;
        *p = gone->next;
        free(gone);
        break;
    }
    pthread_mutex_unlock(&all.lock);
}

lc_status lc__queue_host_alloc(void *device, size_t bytes, void **out)
{
    queue *q = device;
    return pin(q, q->driver->host_alloc, out, bytes);
}

void lc__queue_host_free(void *device, void *data, size_t bytes)
{
    queue *q = device;
    unpin(data);
    enter(q);
    (void)q->driver->host_free(q->context, data, bytes);
    (void)!leave(q, 0, NULL);
}

lc_status lc__queue_host_register(void *device, void *data, size_t bytes)
{
    return pin(device, NULL, &data, bytes);
}

void lc__queue_host_unregister(void *device, void *data)
{
    queue *q = device;
    unpin(data);
    enter(q);
    (void)q->driver->host_unregister(q->context, data);
    (void)!leave(q, 0, NULL);
}

static bool is_pinned(const char *at, size_t bytes)
{
    pthread_mutex_lock(&all.lock);
    const pinned *p = all.pinned;
    while (p && !(at >= p->at && at + bytes <= p->at + p->bytes)) p = p->next;
    pthread_mutex_unlock(&all.lock);
    return p != NULL;
}

/* ---- the queue ---- */

/* Whether the queue may use these bytes when it gets there. */
static bool stays(const queue *q, const void *at, size_t bytes)
{
    return q->driver->is_device(q->context, at) || is_pinned(at, bytes);
}

lc_status lc__queue_copy(void *device, void *to, const void *from, size_t bytes)
{
    queue *q = device;
    enter(q);
    if (stays(q, to, bytes) && stays(q, from, bytes))
        return leave(q, q->driver->copy_async(q->context, to, from, bytes, q->stream), "a copy");
    int error = q->driver->stream_synchronize(q->context, q->stream);
    if (!error) error = q->driver->copy(q->context, to, from, bytes);
    return leave(q, error, "a copy");
}

lc_status lc__queue_copy_ahead(void *device, void *to, const void *from, size_t bytes)
{
    queue *q = device;
    enter(q);
    return leave(q, q->driver->copy_async(q->context, to, from, bytes, q->ahead), "a copy");
}

lc_status lc__queue_copy_arrived(void *device, void *to, const void *from, size_t bytes, uint64_t *mark)
{
    queue *q = device;
    const lc__driver *d = q->driver;
    enter(q);
    pthread_mutex_lock(&q->lock);
    *mark = q->marks = (q->marks + 1) | 1;
    void *event = q->events[*mark % EVENTS];
    int error = d->event_record(q->context, event, q->ahead);
    if (!error) error = d->stream_wait(q->context, q->stream, event);
    if (!error) error = d->copy_async(q->context, to, from, bytes, q->stream);
    if (!error) error = d->event_record(q->context, q->taken, q->stream);
    if (!error) error = d->stream_wait(q->context, q->ahead, q->taken);
    pthread_mutex_unlock(&q->lock);
    return leave(q, error, "a copy");
}

void *lc__queue_stream(void *device)
{
    const queue *q = device;
    return q->stream;
}

lc_status lc__queue_mark(void *device, uint64_t *mark)
{
    queue *q = device;
    enter(q);
    pthread_mutex_lock(&q->lock);
    *mark = q->marks = (q->marks | 1) + 1;
    int error = q->driver->event_record(q->context, q->events[*mark % EVENTS], q->stream);
    pthread_mutex_unlock(&q->lock);
    return leave(q, error, "the device");
}

/* An old mark's event has been recorded again since: then this waits for longer than necessary. */
lc_status lc__queue_wait(void *device, uint64_t mark)
{
    queue *q = device;
    enter(q);
    if (mark == UINT64_MAX) return leave(q, synchronize(q), "the device");
    return leave(q, q->driver->event_synchronize(q->context, q->events[mark % EVENTS]), "the device");
}

/* An old mark may be reported as not reached for longer than necessary, as in lc__queue_wait. */
lc_status lc__queue_reached(void *device, uint64_t mark, bool *reached)
{
    queue *q = device;
    enter(q);
    return leave(q, q->driver->event_query(q->context, q->events[mark % EVENTS], reached), "the device");
}

/* ---- programs ---- */

lc_status lc__queue_program_begin(void *device)
{
    queue *q = device;
    pthread_rwlock_wrlock(&q->users);
    q->maker = this_thread();
    lc_status status = check(q, q->driver->capture_begin(q->context, q->stream), "a program of the device");
    if (status >= 0) return status;
    q->maker = 0;
    pthread_rwlock_unlock(&q->users);
    return status;
}

lc_status lc__queue_program_end(void *device, void **program)
{
    queue *q = device;
    int error = q->driver->capture_end(q->context, q->stream, program);
    q->maker = 0;
    return leave(q, error, "a program of the device");
}

lc_status lc__queue_program_run(void *device, void *program)
{
    queue *q = device;
    enter(q);
    return leave(q, q->driver->graph_launch(q->context, program, q->stream), "a program of the device");
}

void lc__queue_program_free(void *device, void *program)
{
    queue *q = device;
    enter(q);
    (void)q->driver->graph_free(q->context, program);
    (void)!leave(q, 0, NULL);
}
