/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of a simulated device: lists of work. The thread that waits for the device runs it, in the order of its
 * stream, or the thread that enqueues more (sim.h, LIGHTC_SIM). */
#include "backends/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum work_kind { COPY, FILL, LAUNCH, GRAPH, WAIT } work_kind;

/* Where a stream was: the number of pieces enqueued before it. */
typedef struct sim_event {
    sim_stream *stream;
    uint64_t upto;
} sim_event;

struct sim_work {
    work_kind kind;
    void *to;
    const void *from;
    size_t bytes;
    unsigned char byte;
    const sim_work *graph;
    sim_event event;         /* WAIT: for that */
    const lc_kernel *kernel; /* runs `call` */
    lc_call call;
    sim_work *next;
    lc_view views[]; /* the call's; its integers follow */
};

/* ---- running ---- */

static void run_call(const sim_device *d, const sim_work *w)
{
    if (w->call.op->flags & LC_OP_MUTATES && sim_host->has_bad_index(&w->call)) return;
    lc_view views[64];
    int n = w->call.n_in + w->call.n_out;
    lc_view *v = n <= 64 ? views : malloc((size_t)n * sizeof *v);
    if (!v) abort();
    memcpy(v, w->views, (size_t)n * sizeof *v);
    for (int i = 0; i < n; i++) v[i].data = sim_translate(d, v[i].data);
    lc_call c = w->call;
    c.in = v;
    c.out = v + c.n_in;
    c.floats = sim_translate(d, c.floats);
    c.rng = sim_translate(d, c.rng);
    c.scratch = sim_translate(d, c.scratch);
    w->kernel->run(&c);
    if (v != views) free(v);
}

static void run_upto(sim_stream *s, uint64_t upto);

static void run_one(sim_device *d, const sim_work *w)
{
    switch (w->kind) {
    case COPY:
        memmove(sim_translate(d, w->to), sim_translate(d, w->from), w->bytes);
        break;
    case FILL:
        memset(sim_translate(d, w->to), w->byte, w->bytes);
        break;
    case LAUNCH:
        run_call(d, w);
        break;
    case GRAPH:
        for (const sim_work *part = w->graph; part; part = part->next) run_one(d, part);
        break;
    case WAIT:
        run_upto(w->event.stream, w->event.upto);
        break;
    }
}

static void run_upto(sim_stream *s, uint64_t upto)
{
    while (s->first && s->done < upto) {
        sim_work *w = s->first;
        s->first = w->next;
        if (!s->first) s->last = &s->first;
        s->done++;
        run_one(s->device, w);
        free(w);
    }
}

void sim_run_all(sim_device *d)
{
    for (int i = 0; i < d->n_streams; i++) run_upto(&d->streams[i], UINT64_MAX);
}

/* ---- enqueuing ---- */

static uint64_t next_random(sim_device *d)
{
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    return d->random >> 33;
}

static void schedule(sim_device *d)
{
    uint64_t left = 0;
    if (d->schedule == SIM_EAGER) sim_run_all(d);
    if (d->schedule != SIM_RANDOM) return;
    for (int i = 0; i < d->n_streams; i++) left += d->streams[i].enqueued - d->streams[i].done;
    for (uint64_t n = next_random(d) % (left + 1); n; n--) {
        sim_stream *s = &d->streams[next_random(d) % (uint64_t)d->n_streams];
        run_upto(s, s->done + 1);
    }
}

static void enqueue(sim_stream *s, sim_work *w)
{
    sim_device *d = s->device;
    sim_work ***end = d->into ? &d->into : &s->last;
    **end = w;
    *end = &w->next;
    if (d->into) return;
    s->enqueued++;
    schedule(d);
}

/* more: bytes after it */
static sim_work *new_work(sim_device *d, work_kind kind, size_t more)
{
    sim_work *w = calloc(1, sizeof *w + more);
    if (w) w->kind = kind;
    if (!w) sim_fail(d, "out of memory");
    return w;
}

/* Enters the device; fails if it has failed. */
static int enter(sim_device *d)
{
    pthread_mutex_lock(&d->lock);
    return *d->error != 0;
}

/* The same to enqueue something on a stream. */
static int enter_stream(const sim_stream *s)
{
    sim_device *d = s->device;
    int error = enter(d);
    if (error || !d->into || d->capturing == s) return error;
    return sim_fail(d, "sim:%d: work for another stream while a program is captured", d->index);
}

static int leave(sim_device *d, int error)
{
    pthread_mutex_unlock(&d->lock);
    return error;
}

static int check_copy(sim_device *d, const void *to, const void *from, size_t bytes)
{
    if (sim_fails_now(&d->fail_copy)) return sim_fail(d, "sim:%d: a copy fails, as asked for", d->index);
    bool in = sim_is_device(d, to, bytes), out = sim_is_device(d, from, bytes);
    if (!in && !out) return sim_fail(d, "sim:%d: neither end of a copy is the device's memory", d->index);
    if (in && !out) d->counters.bytes_in += (int64_t)bytes;
    bool registered;
    if (in && !out && sim_pinned(from, bytes, &registered) && registered)
        d->counters.bytes_registered += (int64_t)bytes;
    if (out && !in) d->counters.bytes_out += (int64_t)bytes;
    return 0;
}

static int copy_async(void *context, void *to, const void *from, size_t bytes, void *stream)
{
    sim_device *d = context;
    int error = enter_stream(stream);
    if (!error) error = check_copy(d, to, from, bytes);
    const void *host = sim_is_device(d, to, bytes) ? from : to;
    bool registered;
    if (!error && !sim_is_device(d, host, bytes) && !sim_pinned(host, bytes, &registered))
        error = sim_fail(d, "sim:%d: an asynchronous copy uses host memory that the device does not know", d->index);
    sim_work *w = error ? NULL : new_work(d, COPY, 0);
    if (!w) return leave(d, 1);
    if (stream != d->streams) d->counters.bytes_ahead += (int64_t)bytes;
    w->to = to;
    w->from = from;
    w->bytes = bytes;
    enqueue(stream, w);
    return leave(d, 0);
}

static bool is_device(void *context, const void *at)
{
    sim_device *d = context;
    pthread_mutex_lock(&d->lock);
    bool is = sim_is_device(d, at, 0);
    pthread_mutex_unlock(&d->lock);
    return is;
}

static int fill_async(void *context, void *to, unsigned char byte, size_t bytes, void *stream)
{
    sim_device *d = context;
    int error = enter_stream(stream);
    if (!error && sim_fails_now(&d->fail_fill)) error = sim_fail(d, "sim:%d: a fill fails, as asked for", d->index);
    if (!error && !sim_is_device(d, to, bytes)) error = sim_fail(d, "sim:%d: memory of the host is filled", d->index);
    sim_work *w = error ? NULL : new_work(d, FILL, 0);
    if (!w) return leave(d, 1);
    w->to = to;
    w->byte = byte;
    w->bytes = bytes;
    enqueue(stream, w);
    return leave(d, 0);
}

static int copy_now(void *context, void *to, const void *from, size_t bytes)
{
    sim_device *d = context;
    int error = enter(d);
    if (!error && d->into) error = sim_fail(d, "sim:%d: a copy at once while a program is captured", d->index);
    if (!error) error = check_copy(d, to, from, bytes);
    if (!error) memmove(sim_translate(d, to), sim_translate(d, from), bytes);
    return leave(d, error);
}

static int check_operands(sim_device *d, const lc_call *c)
{
    if (sim_fails_now(&d->fail_launch)) return sim_fail(d, "sim:%d: %s fails, as asked for", d->index, c->op->name);
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const lc_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        if (v->ndim < 0 || !v->data || sim_is_device(d, v->data, 0)) continue;
        return sim_fail(d, "sim:%d: %s %d of %s is not in the device's memory", d->index,
                        i < c->n_in ? "input" : "result", i < c->n_in ? i : i - c->n_in, c->op->name);
    }
    if (c->scratch_bytes && !sim_is_device(d, c->scratch, c->scratch_bytes))
        return sim_fail(d, "sim:%d: the scratch memory of %s is not in the device's memory", d->index, c->op->name);
    bool state = sim_is_device(d, c->floats, 0) && sim_is_device(d, c->rng, 0);
    return state ? 0 : sim_fail(d, "sim:%d: the numbers of %s are not in the device's memory", d->index, c->op->name);
}

/* The function is a kernel; its one parameter is the call. */
static int launch(void *context, const void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                  void *stream, void **parameters)
{
    sim_device *d = context;
    const lc_call *c = parameters[0];
    (void)grid, (void)block, (void)shared;
    int error = enter_stream(stream);
    if (!error) error = check_operands(d, c);
    size_t n_views = (size_t)(c->n_in + c->n_out), n_ints = (size_t)c->n_int;
    sim_work *w = error ? NULL : new_work(d, LAUNCH, n_views * sizeof w->views[0] + n_ints * sizeof *c->ints);
    if (!w) return leave(d, 1);
    d->counters.launches++;
    w->kernel = function;
    w->call = *c;
    w->call.origin = c;
    if (c->n_in) memcpy(w->views, c->in, (size_t)c->n_in * sizeof *c->in);
    if (c->n_out) memcpy(w->views + c->n_in, c->out, (size_t)c->n_out * sizeof *c->out);
    if (n_ints) w->call.ints = memcpy(w->views + n_views, c->ints, n_ints * sizeof *c->ints);
    enqueue(stream, w);
    return leave(d, 0);
}

/* ---- waiting ---- */

/* Enters the device to create a stream or an event. */
static int enter_create(sim_device *d)
{
    int error = enter(d);
    if (error || !sim_fails_now(&d->fail_create)) return error;
    return sim_fail(d, "sim:%d: a creation fails, as asked for", d->index);
}

static int stream_create(void *context, void **stream)
{
    sim_device *d = context;
    int error = enter_create(d);
    if (!error && d->n_streams == SIM_STREAMS) error = sim_fail(d, "sim:%d: too many streams", d->index);
    if (error) return leave(d, error);
    sim_stream *s = &d->streams[d->n_streams++];
    *s = (sim_stream){.device = d, .last = &s->first};
    *stream = s;
    return leave(d, 0);
}

/* The newest of them. */
static int stream_destroy(void *context, void *stream)
{
    sim_device *d = context;
    (void)enter(d);
    if (stream != &d->streams[d->n_streams - 1])
        return leave(d, sim_fail(d, "sim:%d: a stream is destroyed before a newer one", d->index));
    run_upto(stream, UINT64_MAX);
    d->n_streams--;
    return leave(d, 0);
}

/* In the device, which it leaves. */
static int wait_for(sim_device *d, int error, sim_stream *s, uint64_t upto)
{
    if (!error && d->into) error = sim_fail(d, "sim:%d: the host waits while a program is captured", d->index);
    d->counters.waits++;
    run_upto(s, upto);
    return leave(d, error);
}

static int stream_synchronize(void *context, void *stream)
{
    sim_device *d = context;
    return wait_for(d, enter(d), stream, UINT64_MAX);
}

static int event_create(void *context, void **event)
{
    sim_device *d = context;
    int error = enter_create(d);
    sim_event *e = error ? NULL : calloc(1, sizeof *e);
    if (!error && !e) error = sim_fail(d, "out of memory");
    if (error) return leave(d, error);
    e->stream = d->streams;
    d->n_events++;
    *event = e;
    return leave(d, 0);
}

static int event_destroy(void *context, void *event)
{
    sim_device *d = context;
    (void)enter(d);
    free(event);
    d->n_events--;
    return leave(d, 0);
}

static int event_record(void *context, void *event, void *stream)
{
    sim_device *d = context;
    sim_stream *s = stream;
    int error = enter(d);
    if (!error && d->into && d->capturing == s)
        error = sim_fail(d, "sim:%d: an event is recorded into a program", d->index);
    *(sim_event *)event = (sim_event){s, s->enqueued};
    return leave(d, error);
}

static int stream_wait(void *context, void *stream, void *event)
{
    sim_device *d = context;
    int error = enter_stream(stream);
    if (!error && d->into) error = sim_fail(d, "sim:%d: a program waits for an event from outside", d->index);
    sim_work *w = error ? NULL : new_work(d, WAIT, 0);
    if (!w) return leave(d, 1);
    w->event = *(const sim_event *)event;
    enqueue(stream, w);
    return leave(d, 0);
}

static int event_synchronize(void *context, void *event)
{
    sim_device *d = context;
    int error = enter(d);
    const sim_event *e = event;
    return wait_for(d, error, e->stream, e->upto);
}

static int event_query(void *context, void *event, bool *reached)
{
    sim_device *d = context;
    int error = enter(d);
    if (!error && d->into) error = sim_fail(d, "sim:%d: an event is asked for while a program is captured", d->index);
    const sim_event *e = event;
    *reached = e->stream->done >= e->upto;
    return leave(d, error);
}

/* ---- programs ---- */

static int capture_begin(void *context, void *stream)
{
    sim_device *d = context;
    int error = enter(d);
    if (!error && d->into) error = sim_fail(d, "sim:%d: a program is captured already", d->index);
    d->captured = NULL;
    d->into = &d->captured;
    d->capturing = stream;
    return leave(d, error);
}

static int capture_end(void *context, void *stream, void **program)
{
    sim_device *d = context;
    (void)stream;
    int error = enter(d);
    sim_work *graph = error ? NULL : new_work(d, GRAPH, 0);
    d->into = NULL;
    *program = graph;
    if (!graph) return leave(d, 1);
    graph->graph = d->captured;
    return leave(d, 0);
}

static int graph_launch(void *context, void *program, void *stream)
{
    sim_device *d = context;
    int error = enter_stream(stream);
    if (!error && d->into) error = sim_fail(d, "sim:%d: a program is started while one is captured", d->index);
    if (!error && sim_fails_now(&d->fail_launch))
        error = sim_fail(d, "sim:%d: the start of a program fails, as asked for", d->index);
    sim_work *w = error ? NULL : new_work(d, GRAPH, 0);
    if (!w) return leave(d, 1);
    w->graph = ((const sim_work *)program)->graph;
    d->counters.programs++;
    enqueue(stream, w);
    return leave(d, 0);
}

static int graph_free(void *context, void *program)
{
    sim_device *d = context;
    sim_work *graph = program;
    pthread_mutex_lock(&d->lock);
    if (d->into) return leave(d, sim_fail(d, "sim:%d: a program is freed while one is captured", d->index));
    sim_run_all(d);
    for (sim_work *w = (sim_work *)(uintptr_t)graph->graph, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(graph);
    return leave(d, 0);
}

static int context_create(int index, void **context)
{
    *context = sim_open(index);
    return *context == NULL;
}

static const char *error_text(void *context, int error)
{
    const sim_device *d = context;
    (void)error;
    return d && *d->error ? d->error : "out of memory";
}

const lc__driver sim_driver = {
    .context_create = context_create,
    .error_text = error_text,
    .address_reserve = sim_address_reserve,
    .address_free = sim_address_free,
    .map = sim_map,
    .unmap = sim_unmap,
    .alloc = sim_alloc,
    .free = sim_free,
    .memory_info = sim_memory_info,
    .host_alloc = sim_host_alloc,
    .host_free = sim_host_free,
    .host_register = sim_host_register,
    .host_unregister = sim_host_unregister,
    .copy = copy_now,
    .is_device = is_device,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_synchronize = stream_synchronize,
    .copy_async = copy_async,
    .fill_async = fill_async,
    .launch = launch,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_synchronize = event_synchronize,
    .event_query = event_query,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_free = graph_free,
};
