/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own cost: recording an operation on a plan hit, and replaying a node, without its kernel. */
#include "bench.h"
#include "models.h"

#include <lightc/op.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 11
#define CHAIN  1000

/* An operator whose kernel does nothing, so that only the engine's cost remains. */
static lc_status same_type(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}
static void nothing(const lc_call *call)
{
    (void)call;
}
static const lc_kernel empty_kernel = {.name = "nothing", .layout = LC_WANT_ROW_MAJOR, .run = nothing};
static const lc_op empty_op = {.name = "nothing",
                               .flags = LC_OP_NO_GRAD | LC_OP_SIDE_EFFECT,
                               .n_out = 1,
                               .infer = same_type,
                               .kernel = &empty_kernel};

/* What is recorded: 0 the empty operator, 1 additions, 2 the forward pass of a GPT. */
static void record_chain(int what, lc_tensor *x, model *m)
{
    lc_tensor *t = x;
    if (what == 2) {
        lc_keep(m->kind->logits(m, x));
        return;
    }
    for (int i = 0; i < CHAIN; i++) t = what ? lc_add(t, x) : lc_op_call(&empty_op, 1, &t, 0, NULL, 0, NULL, LC_HERE);
    lc_keep(t);
}

typedef struct cost {
    double record[ROUNDS], run[ROUNDS]; /* ns per operation recorded, per node replayed */
    double recorded, nodes;
} cost;

static lc_status measure(int what, cost *out)
{
    lc_graph_args options = LC_ARGS(lc_graph, .threads = 1);
    lc_graph *g = NULL;
    lc_tensor *x = NULL;
    model *m = what == 2 ? model_new("gpt_small", NULL, 0) : NULL;
    int64_t chain[] = {8}, ids[] = {1, 16};
    int64_t *memory = aligned_alloc(64, 128);
    const int repeats = 300;
    lc_status s;
    if (!memory || (what == 2 && !m)) {
        s = lc_fail(LC_ERR_MEMORY, "out of memory");
        goto done;
    }
    memset(memory, 0, 128);
    LC_TRY_GOTO(s, done, lc_graph_new_with(&g, &options));
    if (what == 2)
        LC_TRY_GOTO(s, done, lc_input_new(LC_I64, 2, ids, LC_ROW_MAJOR, memory, &x));
    else
        LC_TRY_GOTO(s, done, lc_tensor_new(LC_F32, 1, chain, &x));
    for (int k = -1; k < ROUNDS; k++) {
        double recording = 0, running = 0;
        for (int r = 0; r < repeats; r++) {
            double t0 = bench_now();
            LC_TRY_GOTO(s, done, lc_step_begin(g, 0, 0));
            record_chain(what, x, m);
            double t1 = bench_now();
            LC_TRY_GOTO(s, done, lc_step_run(g));
            double t2 = bench_now();
            LC_TRY_GOTO(s, done, lc_step_end(g));
            recording += t1 - t0;
            running += t2 - t1;
        }
        lc_graph_stats stats;
        lc_graph_get_stats(g, &stats);
        out->recorded = (double)stats.recorded;
        out->nodes = (double)stats.nodes;
        if (k < 0) continue;
        out->record[k] = 1e9 * recording / repeats / out->recorded;
        out->run[k] = 1e9 * running / repeats / out->nodes;
    }
    s = LC_OK;
done:
    lc_tensor_unref(x);
    model_free(m);
    lc_graph_free(g);
    free(memory);
    return s;
}

lc_status bench_record(const bench *b)
{
    cost c;
    LC_TRY(measure(1, &c));
    BENCH_EMIT(b, "record_add", bench_median(c.record, ROUNDS), "ns", {"recorded", c.recorded});
    LC_TRY(measure(2, &c));
    BENCH_EMIT(b, "record_gpt", bench_median(c.record, ROUNDS), "ns", {"recorded", c.recorded});
    LC_TRY(measure(0, &c));
    BENCH_EMIT(b, "record_custom", bench_median(c.record, ROUNDS), "ns", {"recorded", c.recorded});
    /* The kernel of these nodes does nothing, so all the time is the replay's. */
    BENCH_EMIT(b, "replay_node", bench_median(c.run, ROUNDS), "ns", {"nodes", c.nodes});
    return LC_OK;
}
