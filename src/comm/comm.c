/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions: arguments are checked here, once for all backends; requests are kept and counted; the last
 * calls are remembered for the message of a run that fails. */
#include "base/args.h"
#include "comm/call.h"
#include "base/handle.h"
#include "comm/comm_internal.h"
#include "comm/history.h"
#include "comm/progress_thread.h"
#include "base/at_fork.h"
#include "base/clock.h"
#include "base/status.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lc_request {
    lc__mark mark; /* set while the caller owns it */
    lc_comm *comm;
    lc_request *next; /* in the list of free requests */
    lc_request *made; /* in the list of all: some may still run when the communicator is freed */
    uint64_t number;
    bool direct;         /* a send or a receive */
    max_align_t state[]; /* the backend's */
};

struct lc_comm {
    lc__mark mark;
    lc_comm_ops ops;
    void *self;
    int rank, size;
    uint64_t number;                 /* how many calls so far */
    atomic_ullong begun, done;       /* how many collectives */
    int64_t own_sends, own_receives; /* how many from this rank to itself */
    int running;
    lc_request *unused, *made;
    lc__history history;
    lc_comm_stats stats;
    int announcer;        /* the rank that announces calls (comm_internal.h); -1: none */
    pthread_mutex_t lock; /* guards the groups split from this one, which an abort from another thread visits */
    lc_comm *parent, *groups, *next;
    bool aborted;        /* with the lock; groups that are split from now on are aborted, too */
    char reason[1024];   /* why it was aborted */
    bool carried;        /* calls are driven by a thread (progress_thread.h) */
    int splits;          /* how often it was split */
    char name[32];       /* of a group: "1.0" is color 0 of the first split, "1.0/2.1" a group of that */
    bool shortened;      /* `name` was cut, and other groups may have the same */
    atomic_ullong waits; /* how often the rank has begun or ended to wait: odd while it waits */
    atomic_bool over;    /* `failed` is set */
    lc__at_fork forked;
    bool in_child;         /* in a forked child of the rank, where every call fails */
    void (*on_free)(void); /* called by lc_comm_free instead of freeing; NULL: it frees */
    lc__comm_memory *memories;
    lc_status (*explain)(void *ctx, lc_status loss);
    void *explain_ctx;
    lc_status failed; /* the first error, which stays */
    char message[1024];
};

/* ---- making one ---- */

/* Runs in a forked child: its memory is still shared with the parent and its peers, and it has no other threads. */
static void mark_child(void *self)
{
    lc_comm *c = self;
    pthread_mutex_init(&c->lock, NULL);
    c->in_child = true;
    c->failed = LC_ERR_STATE;
    snprintf(c->message, sizeof c->message, "this process was forked from rank %d and cannot communicate in its place",
             c->rank);
}

lc_status lc__comm_check_ranks(int rank, int size)
{
    if (size < 1) return lc_fail(LC_ERR_ARGUMENT, "%d ranks; there must be at least 1", size);
    if (rank >= 0 && rank < size) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "there is no rank %d of %d; there are 0 to %d", rank, size, size - 1);
}

lc_status lc__comm_take_meeting(int rank, int size, const lc_meeting *given, lc_meeting *out)
{
    *out = (lc_meeting){0};
    LC_TRY(lc__comm_check_ranks(rank, size));
    if (size == 1) return LC_OK;
    if (given)
        LC_TRY(lc__ops_take(out, sizeof *out, given, offsetof(lc_meeting, check), "a meeting", "LC_MEETING_INIT"));
    if (out->all_gather) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%d ranks need an lc_meeting with all_gather to find each other; none was given",
                   size);
}

static lc_status check_new(const lc_comm_ops *ops, int rank, int size)
{
    if (!ops->name || !ops->start || !ops->poll || !ops->free)
        return lc_fail(LC_ERR_ARGUMENT,
                       "a backend of a communicator needs a name, start, poll and free; %s lacks at least one",
                       ops->name ? ops->name : "without a name");
    return lc__comm_check_ranks(rank, size);
}

lc_status lc_comm_new(const lc_comm_ops *given, void *self, int rank, int size, lc_comm **out)
{
    lc_comm_ops ops = {0};
    if (out) *out = NULL;
    if (!given) return lc_fail(LC_ERR_ARGUMENT, "the backend of a communicator is NULL");
    LC_TRY(lc__ops_take(&ops, sizeof ops, given, offsetof(lc_comm_ops, name) + sizeof(char *), "a communicator",
                        "LC_COMM_OPS_INIT(\"name\")"));
    lc_status s = out ? check_new(&ops, rank, size) : lc__is_null(__func__, "out");
    lc_comm *c = s >= 0 ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        if (s >= 0) s = lc_fail(LC_ERR_MEMORY, "out of memory: a communicator");
        if (ops.free) ops.free(self);
        return s;
    }
    c->mark = LC__MARK_OF(COMM);
    c->ops = ops;
    c->carried = c->ops.sleep != NULL;
    if (c->ops.sleep) s = lc__progress_thread_new(&c->ops, &self);
    if (s < 0) {
        free(c);
        return s;
    }
    c->self = self;
    c->rank = rank;
    c->size = size;
    c->announcer = -1;
    pthread_mutex_init(&c->lock, NULL);
    c->forked = (lc__at_fork){.in_child = mark_child, .self = c};
    lc__at_fork_add(&c->forked);
    *out = c;
    return LC_OK;
}

void lc__comm_on_free(lc_comm *c, void (*on_free)(void))
{
    c->on_free = on_free;
}

void lc__comm_explained_by(lc_comm *c, lc_status (*explain)(void *ctx, lc_status loss), void *ctx)
{
    c->explain = explain;
    c->explain_ctx = ctx;
}

bool lc__comm_is_explained(const lc_comm *c)
{
    return c->explain;
}

/* Its groups become its parent's, whose abort must still reach them. */
static void leave_parent(lc_comm *c)
{
    lc_comm *p = c->parent, **at = &c->groups;
    if (p) pthread_mutex_lock(&p->lock);
    for (; *at; at = &(*at)->next) (*at)->parent = p;
    if (!p) return;
    *at = p->groups;
    p->groups = c->groups;
    for (at = &p->groups; *at != c;) at = &(*at)->next;
    *at = c->next;
    pthread_mutex_unlock(&p->lock);
}

void lc_comm_free(lc_comm *c)
{
    if (!c) return;
    LC__IS_OR_NULL(c, COMM, );
    if (c->on_free) {
        c->on_free();
        return;
    }
    if (c->in_child) return;
    leave_parent(c);
    lc__at_fork_remove(&c->forked);
    c->ops.free(c->self); /* until then its thread may use that memory */
    lc__comm_memory_release(c->memories);
    pthread_mutex_destroy(&c->lock);
    for (lc_request *r = c->made, *next; r; r = next) {
        next = r->made;
        lc__mark_clear(&r->mark);
        free(r);
    }
    lc__mark_clear(&c->mark);
    free(c);
}

int lc_comm_rank(const lc_comm *c)
{
    LC__IS(c, COMM, 0);
    return c->rank;
}

int lc_comm_size(const lc_comm *c)
{
    LC__IS(c, COMM, 0);
    return c->size;
}

const char *lc_comm_name(const lc_comm *c)
{
    LC__IS(c, COMM, "");
    return c->ops.name;
}

void lc_comm_get_stats(const lc_comm *c, lc_comm_stats *out)
{
    LC__IS(c, COMM, );
    LC__NEEDS(out, );
    *out = c->stats;
    if (c->ops.stats) c->ops.stats(c->self, out);
}

void lc__comm_total(lc_comm *c, lc_comm_stats *out)
{
    lc_comm_get_stats(c, out);
    pthread_mutex_lock(&c->lock);
    for (lc_comm *g = c->groups; g; g = g->next) {
        lc_comm_stats more;
        lc__comm_total(g, &more);
        for (int i = 0; i < LC_COLLECTIVES; i++) out->calls[i] += more.calls[i], out->bytes[i] += more.bytes[i];
        out->sent += more.sent;
        out->sent_across += more.sent_across;
        out->waited_ns += more.waited_ns;
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- errors ---- */

void lc__comm_give_up(lc_comm *c, const char *why)
{
    if (!c || c->in_child) return;
    if (c->ops.abort) c->ops.abort(c->self, why);
    atomic_store(&c->over, true);
    if (c->failed >= 0) {
        c->failed = LC_ERR_PEER;
        snprintf(c->message, sizeof c->message, "%s", why);
    }
    if (c->carried) lc__progress_thread_drop(c->self);
    pthread_mutex_lock(&c->lock);
    for (lc_comm *g = c->groups; g; g = g->next) lc__comm_give_up(g, why);
    pthread_mutex_unlock(&c->lock);
}

/* Keeps the first error, and returns it from then on. Gives up the groups too: this rank makes no more calls, for which
 * other ranks would wait, also in groups that the rank at fault does not belong to. */
static lc_status fail(lc_comm *c, lc_status s)
{
    if (c->failed >= 0) {
        char why[sizeof c->message + 32];
        c->failed = s == LC_ERR_PEER && c->explain ? c->explain(c->explain_ctx, s) : s;
        lc__copy_message(c->message, sizeof c->message);
        snprintf(why, sizeof why, "rank %d failed: %s", c->rank, c->message);
        lc__comm_give_up(c, c->failed == LC_ERR_PEER ? c->message : why);
    }
    return lc_fail(c->failed, "%s", c->message);
}

int lc_comm_history(const lc_comm *c, char *text, size_t size)
{
    LC__IS(c, COMM, 0);
    LC__NEEDS(text, 0);
    size_t n = 0;
    if (size) *text = 0;
    for (int i = 1; i <= LC__HISTORY; i++) {
        lc__call_record r;
        char what[LC_COMM_CALL_TEXT];
        if (!lc__history_get(&c->history, (int)((c->number + (uint64_t)i) % LC__HISTORY), &r)) continue;
        lc_comm_call_text(&r.call, what, sizeof what);
        int k = snprintf(n < size ? text + n : NULL, n < size ? size - n : 0, "%llu %s: %s\n",
                         (unsigned long long)r.number, what, r.done ? "done" : "running");
        if (k > 0) n += (size_t)k;
    }
    return (int)n;
}

lc__comm_reach lc__comm_reached(const lc_comm *c)
{
    lc__comm_reach r = {.done = atomic_load(&c->done), .peer = -1};
    lc__call_record oldest = {0}, one;
    r.begun = atomic_load(&c->begun); /* read after `done`, so that it is not less */
    for (int i = 0; i < LC__HISTORY; i++) {
        if (!lc__history_get(&c->history, i, &one) || one.done || !lc__call_is_direct(one.call.op)) continue;
        if (!oldest.number || one.begun < oldest.begun) oldest = one;
    }
    if (oldest.number) r.peer = oldest.call.peer;
    return r;
}

void lc__comm_look(lc_comm *c)
{
    (void)!c->ops.poll(c->self, NULL, NULL);
}

void lc__comm_standing(lc_comm *c, lc__standing *s)
{
    unsigned long long waits = atomic_load_explicit(&c->waits, memory_order_acquire);
    lc__last_calls_add(&s->last, &c->history, c->name);
    s->activity += waits + lc__history_activity(&c->history) + (c->ops.moved ? c->ops.moved(c->self) : 0);
    if (!c->shortened && !atomic_load(&c->over)) lc__history_oldest(&c->history, c->name, &s->under_way);
    s->waits |= waits % 2 && c->ops.moved;
    pthread_mutex_lock(&c->lock);
    for (lc_comm *g = c->groups; g; g = g->next) lc__comm_standing(g, s);
    pthread_mutex_unlock(&c->lock);
}

/* Called when a rank begins to wait, and when it has waited. Only its own thread writes. */
static void note_wait(lc_comm *c)
{
    unsigned long long n = atomic_load_explicit(&c->waits, memory_order_relaxed);
    atomic_store_explicit(&c->waits, n + 1, memory_order_release);
}

void lc_comm_abort(lc_comm *c, const char *why)
{
    LC__IS(c, COMM, );
    if (!c || c->in_child) return;
    if (!why || !*why) why = "it was aborted without a reason";
    if (c->ops.abort) c->ops.abort(c->self, why);
    pthread_mutex_lock(&c->lock);
    if (!c->aborted) snprintf(c->reason, sizeof c->reason, "%s", why);
    c->aborted = true;
    for (lc_comm *g = c->groups; g; g = g->next) lc_comm_abort(g, why);
    pthread_mutex_unlock(&c->lock);
}

/* ---- calls ---- */

/* A rank that waits for its own send or receive before it has started the other half would wait forever. */
static lc_status check_own(const lc_comm *c, const lc_comm_call *call)
{
    bool sends = call->op == LC_COMM_SEND;
    if (!lc__call_is_direct(call->op) || call->peer != c->rank) return LC_OK;
    if (sends ? c->own_receives > c->own_sends : c->own_sends > c->own_receives) return LC_OK;
    return lc_fail(LC_ERR_STATE, "%s: rank %d would wait for itself forever; start the %s first, with a request",
                   lc_collective_name(call->op), c->rank, lc_collective_name(sends ? LC_COMM_RECV : LC_COMM_SEND));
}

static lc_request *take(lc_comm *c)
{
    lc_request *r = c->unused;
    size_t bytes = sizeof *r + c->ops.state_bytes;
    if (r) {
        c->unused = r->next;
    } else {
        r = malloc(bytes);
        if (!r) return NULL;
        r->made = c->made;
        c->made = r;
    }
    lc_request *made = r->made;
    memset(r, 0, bytes);
    r->mark = LC__MARK_OF(REQUEST);
    r->made = made;
    r->comm = c;
    return r;
}

static void give_back(lc_request *r)
{
    lc_comm *c = r->comm;
    r->mark = 0;
    r->next = c->unused;
    c->unused = r;
    c->running--;
}

/* An announced call. op 0: there are no more. */
typedef struct announcement {
    int64_t op, reduce, dtype, peer, count;
} announcement;

static lc_status announce(lc_comm *c, announcement *a)
{
    int leader = c->announcer;
    c->announcer = -1; /* the broadcast itself is not announced */
    lc_status s = lc_comm_broadcast(c, a, sizeof *a, LC_U8, leader, NULL);
    c->announcer = leader;
    return s;
}

lc_status lc_comm_start(lc_comm *c, const lc_comm_call *call, lc_request **request)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    LC__NEEDS(call, LC_ERR_ARGUMENT);
    if (request) *request = NULL;
    if (c->failed < 0) return fail(c, c->failed);
    LC_TRY(lc__reserved_check(call->reserved, "lc_comm_call"));
    LC_TRY(lc__call_check(call, c->rank, c->size));
    if (!request) LC_TRY(check_own(c, call));
    if (c->announcer >= 0)
        LC_TRY(announce(c, &(announcement){call->op, call->reduce, call->dtype, call->peer, call->count}));
    lc_comm_call kept = *call;
    if (call->op == LC_COMM_BARRIER) kept.dtype = LC_U8, kept.count = 0;
    if (!lc__call_has_peer(call->op)) kept.peer = -1;
    lc_request *r = take(c);
    if (!r) return fail(c, lc_fail(LC_ERR_MEMORY, "out of memory: a call of %s", lc_collective_name(call->op)));
    r->number = ++c->number;
    r->direct = lc__call_is_direct(kept.op);
    if (!r->direct) atomic_fetch_add(&c->begun, 1);
    c->own_sends += kept.op == LC_COMM_SEND && kept.peer == c->rank;
    c->own_receives += kept.op == LC_COMM_RECV && kept.peer == c->rank;
    c->running++;
    lc__history_begin(&c->history, r->number, &kept);
    c->stats.calls[kept.op]++;
    c->stats.bytes[kept.op] += kept.count * (int64_t)lc_dtype_size(kept.dtype);
    c->stats.sent += lc__call_to_send(&kept, c->rank, c->size);
    lc_status s = c->ops.start(c->self, &kept, r->state);
    if (s < 0) {
        give_back(r);
        return fail(c, s);
    }
    if (!request) return lc_comm_wait(r);
    *request = r;
    return LC_OK;
}

lc_status lc_comm_poll(lc_request *r, bool *done)
{
    LC__IS(r, REQUEST, LC_ERR_ARGUMENT);
    LC__NEEDS(done, LC_ERR_ARGUMENT);
    lc_comm *c = r->comm;
    *done = false;
    lc_status s = c->failed < 0 ? c->failed : c->ops.poll(c->self, r->state, done);
    if (s < 0) {
        give_back(r);
        return fail(c, s);
    }
    if (!*done) return LC_OK;
    lc__history_done(&c->history, r->number);
    if (!r->direct) atomic_fetch_add(&c->done, 1);
    give_back(r);
    return LC_OK;
}

lc_status lc_comm_progress(lc_comm *c)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    if (c->failed < 0) return fail(c, c->failed);
    lc_status s = c->running ? c->ops.poll(c->self, NULL, NULL) : LC_OK;
    return s < 0 ? fail(c, s) : LC_OK;
}

/* Makes progress on `at` and the groups split from it, except `c`: a rank that waits in one group must not hold up
 * ranks that wait for it in another. Returns whether anything ran. If a call fails here, its error is returned when it
 * is waited for. */
static bool move_others(lc_comm *at, const lc_comm *c)
{
    bool any = at != c && at->running && at->failed >= 0;
    if (any) (void)!lc_comm_progress(at);
    for (lc_comm *g = at->groups; g; g = g->next) any |= move_others(g, c);
    return any;
}

lc_status lc__comm_wait_with(lc_request *r, lc_comm *const *others, int n)
{
    enum { NAP_US = 200, NAP_OTHERS_US = 20 }; /* bytes of other groups do not wake a rank that sleeps here */
    lc_comm *c = r->comm, *whole = c;
    int64_t start = lc__now_ns();
    while (whole->parent) whole = whole->parent;
    lc_status status = LC_OK;
    note_wait(c);
    for (bool done = false;;) {
        int nap = NAP_US;
        LC_TRY_GOTO(status, done, lc_comm_poll(r, &done));
        if (done) break;
        if (move_others(whole, c)) nap = NAP_OTHERS_US;
        for (int i = 0; i < n; i++) {
            if (!others[i] || others[i]->failed >= 0) continue;
            lc__comm_give_up(c, others[i]->message); /* the caller's memory ends with this call */
            give_back(r);
            LC_TRY_GOTO(status, done, fail(others[i], others[i]->failed));
        }
        if (c->ops.idle)
            c->ops.idle(c->self, nap);
        else
            sched_yield();
    }
    c->stats.waited_ns += lc__now_ns() - start;
done:
    note_wait(c);
    return status;
}

bool lc__comm_can_expose(const lc_comm *c)
{
    return c->size > 1 && c->ops.expose && c->ops.conceal;
}

lc_status lc__comm_expose(lc_comm *c, void *data, size_t bytes, int fd)
{
    if (c->failed < 0) return fail(c, c->failed);
    lc_status s = c->ops.expose(c->self, data, bytes, fd);
    return s < 0 ? fail(c, s) : LC_OK;
}

void lc__comm_conceal(lc_comm *c, const void *data)
{
    c->ops.conceal(c->self, data);
}

lc__comm_memory **lc__comm_memories(lc_comm *c)
{
    return &c->memories;
}

lc_status lc_comm_wait(lc_request *r)
{
    LC__IS(r, REQUEST, LC_ERR_ARGUMENT);
    return lc__comm_wait_with(r, NULL, 0);
}

lc_status lc_comm_split(lc_comm *c, int color, int key, lc_comm **out)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    int rank = 0, size = 0;
    void *self = NULL;
    *out = NULL;
    if (c->failed < 0) return fail(c, c->failed);
    if (!c->ops.split)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "a communicator over \"%s\" cannot be split: the members of the groups are unknown; make a "
                       "communicator of the group's size instead",
                       c->ops.name);
    if (c->running)
        return lc_fail(LC_ERR_STATE, "cannot split a communicator while %d calls are running on it", c->running);
    atomic_fetch_add(&c->begun, 1);
    lc_status s = c->ops.split(c->self, color, key, &rank, &size, &self);
    if (s < 0) return fail(c, s);
    atomic_fetch_add(&c->done, 1);
    c->splits++;
    if (!self) return LC_OK;
    LC_TRY(lc_comm_new(&c->ops, self, rank, size, out));
    (*out)->carried = c->carried;
    lc__comm_explained_by(*out, c->explain, c->explain_ctx);
    int length =
        snprintf((*out)->name, sizeof(*out)->name, "%.20s%s%d.%d", c->name, *c->name ? "/" : "", c->splits, color);
    (*out)->shortened = c->shortened || strlen(c->name) > 20 || length >= (int)sizeof(*out)->name;
    pthread_mutex_lock(&c->lock);
    (*out)->parent = c;
    (*out)->next = c->groups;
    c->groups = *out;
    if (c->aborted) lc_comm_abort(*out, c->reason); /* the abort came while the group was made */
    pthread_mutex_unlock(&c->lock);
    return LC_OK;
}

/* ---- ranks that have nothing to contribute ---- */

void lc__comm_announce(lc_comm *c, int leader)
{
    c->announcer = leader;
}

lc_status lc__comm_announce_end(lc_comm *c)
{
    announcement none = {0};
    lc_status s = announce(c, &none);
    c->announcer = -1;
    return s;
}

lc_status lc__comm_follow(lc_comm *c, int leader)
{
    for (announcement a;;) {
        LC_TRY(lc_comm_broadcast(c, &a, sizeof a, LC_U8, leader, NULL));
        if (!a.op) return LC_OK;
        lc_comm_call call = {.op = (lc_collective)a.op,
                             .reduce = (lc_reduce_op)a.reduce,
                             .dtype = (lc_dtype)a.dtype,
                             .peer = (int)a.peer,
                             .count = a.count};
        size_t parts = (size_t)a.count * (size_t)c->size;
        char *zeros = calloc(2 * parts + 1, lc_dtype_size(call.dtype));
        if (!zeros)
            return fail(c, lc_fail(LC_ERR_MEMORY, "out of memory: %s from other ranks", lc_collective_name(call.op)));
        call.in = zeros;
        call.out = call.op == LC_COMM_BROADCAST ? zeros : zeros + parts * lc_dtype_size(call.dtype);
        lc_status s = lc_comm_start(c, &call, NULL);
        free(zeros);
        LC_TRY(s);
    }
}
