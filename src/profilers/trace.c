/* SPDX-License-Identifier: Apache-2.0 */
/* "trace": every span on one time line, in the Trace Event Format that chrome://tracing and ui.perfetto.dev read:
 * complete events ("ph": "X"), times in microseconds. The training thread shows actions with the operators inside, each
 * thread of a loader its batches. */
#include "base/owned.h"
#include "profilers/profilers.h"
#include "base/grow.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EVENTS 4000000 /* some 500 MB of text; later events are only counted */

typedef struct event {
    const char *name, *owner;
    int64_t start_ns, ns, number;
    double flop, bytes;
    lc_site site;
    int kind, thread;
} event;

typedef struct trace {
    pthread_mutex_t lock;
    event *events;
    size_t n, cap;
    int64_t dropped;
} trace;

static void trace_span(void *self, const lc_span *s)
{
    trace *p = self;
    pthread_mutex_lock(&p->lock);
    if (p->n < MAX_EVENTS && lc__grow(&p->events, &p->cap, p->n, p->n ? 1 : 4096, "a trace") == LC_OK)
        p->events[p->n++] =
            (event){s->name, s->owner,     s->start_ns, s->end_ns - s->start_ns, s->number, s->flop, s->bytes,
                    s->site, (int)s->kind, s->thread};
    else
        p->dropped++;
    pthread_mutex_unlock(&p->lock);
}

static void put_text(FILE *out, const char *s)
{
    char text[256];
    fputc('"', out);
    for (s = lc_printable(s ? s : "", false, text, sizeof text); *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', out);
        fputc(*s, out);
    }
    fputc('"', out);
}

static void put_event(FILE *out, const event *e, int64_t origin)
{
    fprintf(out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", e->thread,
            1e-3 * (double)(e->start_ns - origin), 1e-3 * (double)e->ns);
    put_text(out, e->name);
    switch (e->kind) {
    case LC_SPAN_OP:
        fprintf(out, ",\"cat\":\"op\",\"args\":{\"kernel\":");
        put_text(out, e->owner);
        fprintf(out, ",\"flop\":%.0f,\"bytes\":%.0f,\"file\":", e->flop, e->bytes);
        put_text(out, e->site.file);
        fprintf(out, ",\"line\":%d}}", e->site.line);
        break;
    case LC_SPAN_PLAN:
        fprintf(out, ",\"cat\":\"plan\"}");
        break;
    case LC_SPAN_LOADER:
        fprintf(out, ",\"cat\":\"loader\",\"args\":{\"batch\":%lld}}", (long long)e->number);
        break;
    default:
        fprintf(out, ",\"cat\":\"action\",\"args\":{\"of\":");
        put_text(out, e->owner);
        fprintf(out, "}}");
    }
}

static lc_status trace_report(void *self, const char *stage, double seconds, FILE *out)
{
    trace *p = self;
    int threads = 0;
    int64_t origin = INT64_MAX;
    (void)seconds;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n; i++) {
        if (p->events[i].thread > threads) threads = p->events[i].thread;
        if (p->events[i].start_ns < origin) origin = p->events[i].start_ns;
    }
    fprintf(out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":%lld},\"traceEvents\":[\n",
            (long long)p->dropped);
    fprintf(out, "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"lightc %s\"}}", stage);
    for (int i = 0; i <= threads; i++)
        fprintf(out, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s%.0d\"}}",
                i, i ? "loader thread " : "training", i);
    for (size_t i = 0; i < p->n; i++) put_event(out, &p->events[i], origin);
    fprintf(out, "\n]}\n");
    p->n = 0;
    p->dropped = 0;
    pthread_mutex_unlock(&p->lock);
    return LC_OK;
}

static void trace_release(void *self)
{
    trace *p = self;
    pthread_mutex_destroy(&p->lock);
    free(p->events);
}

static const lc_profiler_ops trace_ops = {
    LC_PROFILER_OPS_INIT("trace"),
    .suffix = "json",
    .wants = LC_SPAN_ACTION | LC_SPAN_OP | LC_SPAN_LOADER | LC_SPAN_PLAN,
    .span = trace_span,
    .report = trace_report,
    .free = lc__owned_free,
};

lc_status lc__trace_profiler_new(lc_profiler *out)
{
    trace *p = lc__owned_new(sizeof *p, trace_release);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory: a profiler");
    pthread_mutex_init(&p->lock, NULL);
    *out = (lc_profiler){&trace_ops, p};
    return LC_OK;
}
