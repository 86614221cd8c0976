/* SPDX-License-Identifier: Apache-2.0 */
/* The random trainings of test_random_trainings.c in mixed and true 16-bit precision. A training run twice has the same
 * bits, and so has a deterministic one on two devices; the unplanned run and the reference kernels drop the same
 * numbers; and parameters and buffers after each step are those of the same training in f64, within what noise of the
 * size of a rounding does to it. A training that differs is tried with other numbers, since some optimizers make much
 * of the sign of a gradient, which rounding may turn if it is nearly 0.
 *
 *   test_random_training_precision --rounds 1000            as many, from seed 1 on
 *   test_random_training_precision --seed 3 --round 51      that one again */
#include "random_training_compare.h"
#include "random_training_draw.h"
#include "random_training_shrink.h"

static struct {
    uint64_t seed;
    int64_t first, rounds;
} chosen = {1, 0, ROUNDS(40, 8)};

typedef struct precision {
    const char *name;
    double roundoff, scale;
} precision;

static const precision precisions[] = {
    {"bf16-mixed", 0x1p-8, 0}, {"16-mixed", 0x1p-11, 1024}, {"bf16-true", 0x1p-8, 0}, {"16-true", 0x1p-11, 0}};

typedef struct court {
    const precision *in;
    int64_t refused, skipped, judged, unbounded;
    char verdict[600], first[600];
} court;

static trace planned, again, unplanned, reference, chunks, devices, truth, noisy;

static run_mode mode_of(const court *c)
{
    return (run_mode){.precision = c->in->scale > 0 ? NULL : c->in->name, .scale = c->in->scale};
}

static bool differ(court *c, const char *how)
{
    snprintf(c->verdict, sizeof c->verdict, "differs: %s", how);
    return true;
}

static bool same_run(const trace *a, const trace *b)
{
    return a->n_losses == b->n_losses && !memcmp(a->losses, b->losses, (size_t)a->n_losses * sizeof *a->losses) &&
           same_masks(a, b) && same_bits(a, b);
}

static bool fails_devices(court *c, const training *t)
{
    run_mode one = mode_of(c), two = mode_of(c);
    one.deterministic = two.deterministic = true;
    two.devices = "2";
    run_training(t, &one, &chunks);
    run_training(t, &two, &devices);
    if (chunks.error[0] || devices.error[0]) return differ(c, "a deterministic run is refused");
    if (!same_masks(&chunks, &devices) || !same_bits(&chunks, &devices))
        return differ(c, "deterministic, two devices have other bits than one");
    return false;
}

/* ---- against f64 ---- */

static double may[MAX_STEPS][MAX_STATE];

/* How far noise of the size of a rounding moves each number; false: it changes what can be compared. */
static bool bounds(const training *t, double u)
{
    memset(may, 0, sizeof may);
    for (int k = 0; k < 6; k++) {
        run_mode h = {.unplanned = true, .reference = true, .dtype = LC_F64, .noise = u, .phase = k < 3 ? 1.7 * k : -1};
        run_training(t, &h, &noisy);
        if (noisy.error[0] || noisy.n_steps != truth.n_steps) return false;
        for (int s = 0; s < truth.n_steps; s++)
            for (int64_t i = 0; i < truth.n_state; i++) {
                double off = fabs(noisy.states[s][i] - truth.states[s][i]);
                may[s][i] = isnan(off) ? INFINITY : fmax(may[s][i], 20 * off);
            }
    }
    return true;
}

static bool explained(court *c, const char *name, const trace *r)
{
    const double u = c->in->roundoff;
    for (int s = 0; s < truth.n_steps; s++) {
        double mean = 0;
        for (int64_t i = 0; i < truth.n_state; i++) mean += may[s][i] / (double)truth.n_state;
        for (int64_t i = 0; i < truth.n_state; i++) {
            double a = r->states[s][i], b = truth.states[s][i];
            double bound = fmax(fmax(may[s][i], mean), 4 * u * (3 + s) * (fabs(b) + 0.1));
            if (!isfinite(bound) || !isfinite(b) || fabs(b) > 1e3 || (!isfinite(a) && u == 0x1p-11)) continue;
            c->judged++;
            if (fabs(a - b) <= bound) continue;
            snprintf(c->verdict, sizeof c->verdict,
                     "differs: %s, number %lld after step %d is %.12g, in f64 %.12g (+- %.3g)", name, (long long)i, s,
                     a, b, bound);
            return false;
        }
    }
    return true;
}

/* A line search makes much of a small difference, and so does a step by the sign of a gradient. Gradients that f16 is
 * too small for are wrong, of which all except SGD make steps as large as of others. */
static bool judgeable(const court *c, const training *t)
{
    if (c->in->roundoff == 0x1p-11) return !strcmp(t->optimizer, "SGD");
    return strcmp(t->optimizer, "LBFGS") != 0 && strcmp(t->optimizer, "Rprop") != 0;
}

/* Planned, unplanned and on the reference kernels. */
static void run_each_way(const court *c, const training *t)
{
    run_mode h = mode_of(c);
    run_training(t, &h, &planned);
    h.unplanned = true;
    run_training(t, &h, &unplanned);
    h.unplanned = false, h.reference = true;
    run_training(t, &h, &reference);
}

/* Judges the results of run_each_way by those in f64. */
static bool differs_from_f64(court *c, const training *t)
{
    run_training(t, &(run_mode){.unplanned = true, .reference = true, .dtype = LC_F64}, &truth);
    if (truth.error[0] || truth.n_steps != planned.n_steps) return differ(c, "in f64 it has other steps");
    if (c->in->scale > 0 && planned.scale != c->in->scale) return c->skipped++, false; /* updates, for an overflow */
    if (!bounds(t, c->in->roundoff)) return c->unbounded++, false;
    return !explained(c, "planned", &planned) || !explained(c, "unplanned", &unplanned) ||
           !explained(c, "reference", &reference);
}

static bool fails(void *ctx, const training *t)
{
    court *c = ctx;
    run_mode h = mode_of(c);
    run_each_way(c, t);
    run_training(t, &h, &again);
    if (strcmp(planned.error, again.error) || strcmp(planned.error, unplanned.error) ||
        strcmp(planned.error, reference.error)) {
        snprintf(c->verdict, sizeof c->verdict,
                 "differs: \"%.130s\", again \"%.130s\", unplanned \"%.130s\", reference \"%.130s\"", planned.error,
                 again.error, unplanned.error, reference.error);
        return true;
    }
    if (planned.error[0]) return c->refused++, false;
    if (!same_run(&planned, &again)) return differ(c, "the same training has other bits");
    if (!same_masks(&planned, &unplanned) || !same_masks(&planned, &reference))
        return differ(c, "unplanned, or reference kernels, drop other numbers");
    if (can_be_cut(t) && fails_devices(c, t)) return true;
    if (!judgeable(c, t) || !differs_from_f64(c, t)) return false;
    static training other;
    other = *t;
    for (int k = 0; k < 3; k++) {
        other.key += 1ull << 40;
        run_each_way(c, &other);
        if (!differs_from_f64(c, &other)) return false;
    }
    return true;
}

static bool fails_alike(void *ctx, const training *t)
{
    court *c = ctx;
    return fails(c, t) && !strncmp(c->verdict, c->first, 16);
}

TEST(in_every_precision)
{
    static training t;
    static court c;
    int64_t failed = 0;
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("LIGHTC_PLAN or LIGHTC_KERNELS is set");
    for (int64_t round = chosen.first; round < chosen.first + chosen.rounds; round++) {
        draw_training(chosen.seed << 32 | (uint64_t)round, &t);
        t.dtype = LC_F32;
        c.in = &precisions[round % 4];
        if (chosen.rounds == 1) print_training(stdout, &t);
        if (!fails(&c, &t)) continue;
        printf("  --seed %llu --round %lld (%s): %s\n", (unsigned long long)chosen.seed, (long long)round, c.in->name,
               c.verdict);
        if (failed++ >= 20) continue;
        memcpy(c.first, c.verdict, sizeof c.first);
        show_shrunk(&t, fails, fails_alike, &c, c.verdict);
    }
    printf("  %lld refused, %lld with skipped updates, %lld that noise cannot judge, %lld numbers against f64\n",
           (long long)c.refused, (long long)c.skipped, (long long)c.unbounded, (long long)c.judged);
    if (failed) TEST_FAIL("%lld of %lld trainings differ", (long long)failed, (long long)chosen.rounds);
}

#define ROUNDS_OF chosen
#include "random_rounds.h"
