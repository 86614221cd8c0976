/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of a graph (record/peer.h) and macros: when each slot is called, how its answer is used, and that passes run in
 * the order of their phases. The peers of this test only record their calls. */
#include "test.h"

#include <lightc/lightc.h>
#include "engine/plan/passes.h"
#include "engine/plan/plan_impl.h"

typedef struct scribe {
    lc_peer peer; /* must be first */
    char calls[512];
    lc_status fails; /* returned by poll; OK: it succeeds */
    bool refuses, records;
    int64_t bytes;
    int polls, left;
} scribe;

static scribe *first; /* passes write to this one */

static void hear(scribe *s, const char *what)
{
    size_t n = strlen(s->calls);
    snprintf(s->calls + n, sizeof s->calls - n, "%s%s", n ? " " : "", what);
}

static lc_status check_write(const lc_peer *p, const lc_op *op, lc_tensor *const *in)
{
    (void)in;
    if (!((const scribe *)p)->refuses || !(op->flags & LC_OP_MUTATES)) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED, "the scribe wants no writes");
}

static bool backward(lc_peer *p, lc_tensor *loss, lc_site site)
{
    (void)loss, (void)site;
    if (((scribe *)p)->records) hear((scribe *)p, "backward");
    return ((scribe *)p)->records;
}

static void before_backward(lc_peer *p)
{
    hear((scribe *)p, "before");
}

static void zeroed(lc_peer *p)
{
    hear((scribe *)p, "zeroed");
}

static lc_status settle(lc_peer *p)
{
    hear((scribe *)p, "settle");
    return LC_OK;
}

static int64_t bytes(const lc_peer *p)
{
    return ((const scribe *)p)->bytes;
}

static lc_status poll(lc_peer *p)
{
    scribe *s = (scribe *)p;
    s->polls++;
    return s->fails < 0 ? lc_fail(s->fails, "the scribe has no ink") : LC_OK;
}

static void ended(lc_peer *p, const lc_plan *plan, lc_status status, const char *why)
{
    scribe *s = (scribe *)p;
    CHECK(plan->n_calls > 0);
    CHECK_EQ(status < 0, why != NULL);
    hear(s, why ? "failed" : "ended");
    if (why) CHECK_CONTAINS(why, "no ink");
}

static void leave(lc_peer *p)
{
    ((scribe *)p)->left++;
}

static lc_status recorded(lc_build *b)
{
    CHECK(!b->nodes);
    hear(first, "recorded");
    return LC_OK;
}

static lc_status fused(lc_build *b)
{
    CHECK(b->n_nodes > 0);
    hear(first, "fused");
    return LC_OK;
}

static lc_status placed(lc_build *b)
{
    CHECK(b->n_nodes > 0 && !b->n_calls);
    hear(first, "placed");
    return LC_OK;
}

static lc_status lowered(lc_build *b)
{
    CHECK(b->n_calls > 0);
    hear(first, "lowered");
    return LC_OK;
}

static const lc_pass passes[] = {
    {LC_PHASE_LOWER, lowered}, {LC_PHASE_PLACE, placed}, {LC_PHASE_RECORDED, recorded},
    {LC_PHASE_FUSE, fused},    {LC_PHASES, NULL},
};

static const lc_peer_ops scribe_ops = {.check_write = check_write,
                                       .backward = backward,
                                       .before_backward = before_backward,
                                       .zeroed = zeroed,
                                       .settle = settle,
                                       .passes = passes,
                                       .bytes = bytes,
                                       .poll = poll,
                                       .ended = ended,
                                       .free = leave};

static lc_graph *graph_with(scribe *s, int64_t max_bytes)
{
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .seed = 3, .max_bytes = max_bytes));
    lc__peer_join(&s->peer, &scribe_ops, g);
    first = s;
    return g;
}

static lc_tensor *parameter(void)
{
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){3}, &t));
    CHECK_OK(lc_tensor_write(t, (float[]){1, 2, 3}, 3 * sizeof(float)));
    lc_tensor_set_requires_grad(t, true);
    return t;
}

static lc_status step(lc_graph *g, lc_tensor *x)
{
    static uint64_t number;
    CHECK_OK(lc_step_begin(g, number++, 0));
    lc_zero_grad(g);
    lc_backward(lc_keep(lc_sum(lc_mul(x, x))));
    lc_status s = lc_step_run(g);
    (void)!lc_step_end(g);
    return s;
}

/* Passes run when a plan is made, by phase and not in the order of the list; the other slots are called in every step.
 */
TEST(each_slot_is_called_in_order)
{
    scribe s = {.fails = LC_OK};
    lc_graph *g = graph_with(&s, 0);
    lc_tensor *x = parameter();
    g->plan_off = false;
    CHECK_OK(step(g, x));
    CHECK_STR(s.calls, "zeroed before recorded fused placed lowered settle ended settle");
    CHECK_EQ(s.polls, g->last->n_calls);
    *s.calls = 0;
    CHECK_OK(step(g, x));
    CHECK_STR(s.calls, "zeroed before settle ended settle");
    lc_graph_free(g);
    CHECK_EQ(s.left, 1);
    lc_tensor_unref(x);
}

TEST(without_optimization_nothing_fuses)
{
    scribe s = {.fails = LC_OK};
    lc_graph *g = graph_with(&s, 0);
    lc_tensor *x = parameter();
    g->plan_off = true;
    CHECK_OK(step(g, x));
    CHECK_STR(s.calls, "zeroed before recorded placed lowered settle ended settle");
    lc_graph_free(g);
    lc_tensor_unref(x);
}

TEST(a_peer_may_refuse_and_fail)
{
    scribe s = {.fails = LC_OK, .refuses = true};
    lc_graph *g = graph_with(&s, 0);
    lc_tensor *x = parameter();
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_assign(x, lc_full(1, LC_F32, 3));
    CHECK_STATUS(lc_step_run(g), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "wants no writes");
    CHECK(lc_step_end(g) < 0);
    s.refuses = false;
    *s.calls = 0;
    s.fails = LC_ERR_IO;
    CHECK_STATUS(step(g, x), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "no ink");
    CHECK_CONTAINS(s.calls, " failed");
    CHECK_EQ(s.polls, 1); /* nothing runs after it */
    s.fails = LC_OK;
    CHECK_OK(step(g, x));
    lc_graph_free(g);
    lc_tensor_unref(x);
}

/* If a peer records backward passes itself, the graph does not. */
TEST(a_peer_may_record_the_backward_pass)
{
    scribe s = {.fails = LC_OK, .records = true};
    lc_graph *g = graph_with(&s, 0);
    lc_tensor *x = parameter();
    CHECK_OK(step(g, x));
    CHECK_CONTAINS(s.calls, "zeroed backward");
    CHECK(!strstr(s.calls, "before"));
    CHECK_EQ(g->backwards, 0);
    lc_graph_free(g);
    lc_tensor_unref(x);
}

/* Memory held by peers is not available to steps. */
TEST(bytes_of_peers_are_counted)
{
    scribe s = {.fails = LC_OK};
    lc_graph *g = graph_with(&s, 1 << 20);
    lc_tensor *x = parameter();
    CHECK_OK(step(g, x));
    s.bytes = 1 << 20;
    s.peer.key = 1; /* another key, another plan */
    CHECK_STATUS(step(g, x), LC_ERR_MEMORY);
    lc_graph_free(g);
    lc_tensor_unref(x);
}

TEST(plans_belong_to_the_peers_they_were_made_with)
{
    scribe s = {.fails = LC_OK};
    lc_graph *g = graph_with(&s, 0);
    lc_tensor *x = parameter();
    lc_graph_stats stats;
    for (uint64_t key = 0; key < 3; key++) {
        s.peer.key = key;
        CHECK_OK(step(g, x));
        CHECK_OK(step(g, x));
        lc_graph_get_stats(g, &stats);
        CHECK_EQ(stats.misses, (int64_t)key + 1);
    }
    lc_graph_free(g);
    lc_tensor_unref(x);
}

/* Like the collectives of a plan, which join while it is made. */
TEST(a_peer_without_a_key_changes_no_plan)
{
    static const lc_peer_ops others_ops = {.before_backward = before_backward};
    scribe s = {.fails = LC_OK}, other = {.fails = LC_OK};
    lc_graph *g = graph_with(&s, 0);
    lc_tensor *x = parameter();
    lc_graph_stats stats;
    s.peer.key = 1;
    CHECK_OK(step(g, x));
    lc__peer_join(&other.peer, &others_ops, g);
    CHECK_OK(step(g, x));
    lc_graph_get_stats(g, &stats);
    CHECK_EQ(stats.misses, 1);
    s.peer.key = 31; /* a peer that joined later, like the reducer of a later fit */
    CHECK_OK(step(g, x));
    lc__peer_leave(&other.peer);
    CHECK_OK(step(g, x));
    s.peer.key = 31 * 31;
    CHECK_OK(step(g, x));
    lc_graph_get_stats(g, &stats);
    CHECK_EQ(stats.misses, 3);
    lc_graph_free(g);
    lc_tensor_unref(x);
}

TEST(a_graph_has_at_most_one_peer_of_a_kind)
{
    static const lc_peer_ops others_ops = {.before_backward = before_backward};
    scribe a = {.fails = LC_OK}, b = {.fails = LC_OK}, other = {.fails = LC_OK};
    lc_graph *g = graph_with(&a, 0);
    lc__peer_join(&other.peer, &others_ops, g);
    CHECK(lc__peer_of(g, &scribe_ops) == &a.peer && lc__peer_of(g, &others_ops) == &other.peer);
    lc__peer_join(&b.peer, &scribe_ops, g);
    CHECK(lc__peer_of(g, &scribe_ops) == &b.peer && g->peers == &other.peer);
    lc__peer_leave(&a.peer); /* has left */
    lc__peers_before_backward(g);
    CHECK_STR(a.calls, "");
    CHECK_STR(b.calls, "before");
    CHECK_STR(other.calls, "before");
    lc__peer_leave(&other.peer);
    CHECK(g->peers == &b.peer && !b.peer.next);
    lc_graph_free(g);
    CHECK_EQ(a.left, 0);
    CHECK_EQ(b.left, 1);
}

/* ---- a macro of the test's own ---- */

static lc_status infer_three(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

/* x * x + x */
static lc_status expand_polynomial(lc_build *b, const lc_node *n)
{
    lc_tensor *x = b->g->values[b->g->tape.in[n->in_at]];
    lc_add(lc_mul(x, x), x);
    lc__expand_produce(b->g, n->first_out);
    return b->g->status;
}

TEST(a_macro_expands_itself)
{
    static const lc_macro polynomial = {{.name = "polynomial", .flags = LC__OP_MACRO, .n_out = 1, .infer = infer_three},
                                        expand_polynomial};
    lc_graph *g;
    lc_tensor *x = parameter();
    double y = 0;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK(lc__is_macro(&polynomial.op));
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_OK(lc_step_begin(g, i, 0));
        lc_tensor *sum = lc_keep(lc_sum(lc_op_call(&polynomial.op, 1, &x, 0, NULL, 0, NULL, LC_HERE)));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_item(sum, &y));
        CHECK_NEAR(y, 20, 1e-6);
        CHECK_OK(lc_step_end(g));
    }
    lc_graph_free(g);
    lc_tensor_unref(x);
}

TEST_MAIN
