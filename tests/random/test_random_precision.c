/* SPDX-License-Identifier: Apache-2.0 */
/* The random programs of test_random_programs.c in every precision: mixed in bf16 and f16 with regions that turn it
 * off, regions that turn it on, everything stored in bf16, f16 or f64, and leaves of 16 bits. Roundings are part of
 * what a program means, so numbers are the same, planned and unplanned, within rounding of f32. What products round is
 * what the type holds. Against the same program in f64, on the reference kernels, all numbers are within what noise of
 * the size of a rounding does to it; a program that is not is tried with other numbers, since rounding can make two of
 * them equal.
 *
 *   test_random_precision --rounds 10000           as many, from seed 1 on
 *   test_random_precision --seed 3 --round 51      that one again */
#include "random_program_draw.h"
#include "random_program_shrink.h"

static struct {
    uint64_t seed;
    int64_t first, rounds;
} options = {1, 0, ROUNDS(400, 80)};

typedef struct court {
    char verdict[600], first[600];
    int64_t refused, unbounded, judged;
} court;

static record planned, unplanned, reference, truth, noisy;

/* ---- precisions ---- */

typedef enum mode { MIXED_BF16, MIXED_F16, REGIONS, ALL_BF16, ALL_F16, ALL_F64, HALF_LEAVES, HALF_MIXED, N_MODES } mode;
static const char *const mode_names[] = {
    "autocast bf16", "autocast f16", "regions of bf16",   "storage bf16",
    "storage f16",   "storage f64",  "leaves of 16 bits", "leaves of 16 bits, autocast"};

static void draw_precision(program *p, mode m, uint64_t key)
{
    uint64_t n = 0;
    p->dtype = LC_F32;
    p->autocast = m == MIXED_BF16 ? LC_BF16 : m == MIXED_F16 ? LC_F16 : m == HALF_MIXED ? LC_BF16 : 0;
    p->storage = m == ALL_BF16 ? LC_BF16 : m == ALL_F16 ? LC_F16 : m == ALL_F64 ? LC_F64 : 0;
    uint64_t one_in = m == REGIONS ? 2 : 6;
    for (int k = 0; k < p->n; k++)
        p->code[k].turns_autocast = p->code[k].op != OP_leaf && lc_random_below(key + 3, n++, one_in) == 0;
    for (int k = 0; k < p->n_leaves && m >= HALF_LEAVES; k++)
        if (p->leaves[k].kind <= INPUT && lc_random_below(key + 3, n++, 3))
            p->leaves[k].low = lc_random_below(key + 3, n++, 4) ? LC_BF16 : LC_F16;
}

static double roundoff(const program *p)
{
    if (p->storage == LC_F64) return 0x1p-24; /* buffers, and what is read as f32 */
    if (p->storage == LC_F16 || (p->autocast == LC_F16 && !p->storage)) return 0x1p-11;
    return 0x1p-8;
}

/* ---- comparisons ---- */

static bool is_gradient(const note *o)
{
    return strstr(o->name, ".grad") != NULL;
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Within rounding of f32, gradients of parameters that are stored in 16 bits within that of their type. */
static bool equals(const program *p, const record *a, const record *b, char *verdict, size_t size)
{
    if (a->n != b->n || a->used != b->used) {
        snprintf(verdict, size, "differs: %d and %d tensors", a->n, b->n);
        return false;
    }
    double u = p->storage ? roundoff(p) : 0x1p-24;
    for (int k = 0; k < a->n; k++) {
        const note *o = &a->notes[k];
        double scale = 0;
        for (int64_t i = o->at; i < o->at + o->n; i++)
            if (isfinite(b->numbers[i])) scale = fmax(scale, fabs(b->numbers[i]));
        for (int64_t i = o->at; i < o->at + o->n; i++) {
            double x = a->numbers[i], y = b->numbers[i];
            if (same(x, y) || fabs(x - y) <= (is_gradient(o) ? 16 * u : 0x1p-20) * (scale + 0.3)) continue;
            snprintf(verdict, size, "differs: %s[%lld] is %.12g planned, %.12g unplanned", o->name,
                     (long long)(i - o->at), x, y);
            return false;
        }
    }
    return true;
}

/* Whether the numbers of kept products are of the type. */
static bool holds(const program *p, const record *r, char *verdict, size_t size)
{
    for (int k = 0; k < r->n; k++) {
        const note *o = &r->notes[k];
        const char *kept = strstr(o->name, ".keep");
        if (!kept) continue;
        const instr *c = &p->code[p->code[atoi(kept + 5)].in[0]];
        bool product = c->op >= OP_matmul && c->op <= OP_conv_transpose3d, on = p->autocast != 0;
        if (!product || p->storage == LC_F64 || (!p->storage && on == c->turns_autocast)) continue;
        lc_dtype low = p->storage ? p->storage : p->autocast ? p->autocast : LC_BF16;
        for (int64_t i = o->at; i < o->at + o->n; i++) {
            char bytes[8];
            lc__store_number(bytes, low, r->numbers[i]);
            if (same(lc__load_number(bytes, low), r->numbers[i])) continue;
            snprintf(verdict, size, "differs: %s[%lld] is %.12g, which is not of %s", o->name, (long long)(i - o->at),
                     r->numbers[i], lc_dtype_name(low));
            return false;
        }
    }
    return true;
}

/* How far rounding may move each number, by the effect of noise on the program in f64. */
static bool bounds(const program *p, double u, double *may)
{
    memset(may, 0, sizeof *may * MAX_NUMBERS);
    for (int k = 0; k < 6; k++) {
        run_mode h = {.unplanned = true,
                      .reference = true,
                      .rounds_leaves = true,
                      .dtype = LC_F64,
                      .noise = u,
                      .phase = k >= 4 ? -1 : 1.7 * k};
        run_program(p, &h, &noisy);
        if (noisy.error[0] || noisy.used != truth.used) return false;
        for (int64_t i = 0; i < truth.used; i++) {
            double off = fabs(noisy.numbers[i] - truth.numbers[i]);
            may[i] = isnan(off) ? INFINITY : fmax(may[i], 12 * off);
        }
    }
    return true;
}

/* A product may also multiply padding by what is not finite. */
static bool is_finite(const record *r)
{
    for (int64_t i = 0; i < r->used; i++)
        if (!isfinite(r->numbers[i])) return false;
    return true;
}

static bool explained(court *c, const program *p, const record *r, const double *may)
{
    bool finite = is_finite(&truth);
    double u = roundoff(p), most = u == 0x1p-11 ? 3e3 : 1e18;
    for (int k = 0; k < r->n; k++) {
        const note *o = &r->notes[k];
        double scale, mean;
        size_of_note(o, &truth, may, &scale, &mean);
        for (int64_t i = o->at; i < o->at + o->n; i++) {
            double a = r->numbers[i], b = truth.numbers[i];
            double bound = fmax(fmax(may[i], mean), 16 * u * (scale + 0.3));
            if (same(a, b) || !isfinite(bound) || fabs(b) > most || (isnan(a) && !finite)) continue;
            c->judged++;
            if (fabs(a - b) <= bound) continue;
            snprintf(c->verdict, sizeof c->verdict, "differs: %s[%lld] is %.12g, in f64 %.12g (+- %.3g)", o->name,
                     (long long)(i - o->at), a, b, bound);
            return false;
        }
    }
    return true;
}

/* Numbers beyond the range of f16, which f64 has, are not judged. */
static bool overflows(const program *p)
{
    if (roundoff(p) != 0x1p-11 && !p->leaves[0].low) return false;
    return !is_finite(&planned);
}

/* Whether the run in f64 can judge the numbers. The gradient of a cosine is a difference of large terms within the
 * operator, a drawn 0 or 1 depends on the last bit of a probability, and whether a number is 0 on its last bit. A view
 * of a parameter that is stored in another type has the value from before a write, which f64's has not. */
static bool judgeable(const program *p)
{
    bool assigned = false, view = false;
    for (int k = 0; k < p->n; k++) {
        const instr *c = &p->code[k];
        assigned |= c->op == OP_assign && p->leaves[p->code[c->in[0]].i[0]].kind == PARAMETER;
        view |= is_view(c);
        bool logical = c->op >= OP_logical_and && c->op <= OP_logical_xor;
        if (logical || c->op == OP_cosine_similarity || c->op == OP_bernoulli) return false;
    }
    return !(p->storage && assigned && view);
}

static bool differs_from_f64(court *c, const program *p)
{
    static double may[MAX_NUMBERS];
    run_program(p, &(run_mode){0}, &planned);
    run_program(p, &(run_mode){.reference = true}, &reference);
    run_program(p, &(run_mode){.unplanned = true, .reference = true, .dtype = LC_F64}, &truth);
    if (planned.error[0] || truth.error[0] || truth.used != planned.used || overflows(p)) return false;
    if (!bounds(p, roundoff(p), may)) return c->unbounded++, false;
    return !explained(c, p, &planned, may) || !explained(c, p, &reference, may);
}

static bool fails(void *ctx, const program *p)
{
    static program other;
    court *c = ctx;
    run_program(p, &(run_mode){0}, &planned);
    run_program(p, &(run_mode){.unplanned = true}, &unplanned);
    run_program(p, &(run_mode){.reference = true}, &reference);
    if (planned.error[0] || unplanned.error[0] || reference.error[0]) {
        c->refused++;
        if (!strcmp(planned.error, unplanned.error) && !strcmp(planned.error, reference.error)) return false;
        snprintf(c->verdict, sizeof c->verdict,
                 "differs: planned \"%.150s\", unplanned \"%.150s\", reference \"%.150s\"", planned.error,
                 unplanned.error, reference.error);
        return true;
    }
    if (!equals(p, &planned, &unplanned, c->verdict, sizeof c->verdict)) return true;
    if (!holds(p, &planned, c->verdict, sizeof c->verdict)) return true;
    if (!judgeable(p) || !differs_from_f64(c, p)) return false;
    for (uint64_t k = 1; k < 4; k++) {
        other = *p;
        for (int l = 0; l < p->n_leaves; l++)
            for (int64_t i = 0; p->leaves[l].kind <= INPUT && i < leaf_numel(&p->leaves[l]); i++)
                other.leaves[l].values[i] *= 1 + 0.1 * lc_random_normal(p->seed + k, (uint64_t)(l * MAX_LEAF + i));
        if (!differs_from_f64(c, &other)) return false;
    }
    return true;
}

/* Fails in the same way. */
static bool fails_alike(void *ctx, const program *p)
{
    court *c = ctx;
    return fails(c, p) && !strstr(c->verdict, "planned \"") == !strstr(c->first, "planned \"") &&
           !strstr(c->verdict, "unplanned") == !strstr(c->first, "unplanned") &&
           !strstr(c->verdict, "in f64") == !strstr(c->first, "in f64");
}

TEST(in_every_precision)
{
    static program p;
    static court c;
    int64_t failed = 0, shown = 0;
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("LIGHTC_PLAN or LIGHTC_KERNELS is set");
    for (int64_t round = options.first; round < options.first + options.rounds; round++) {
        uint64_t key = options.seed << 32 | (uint64_t)round;
        draw_program(key, &p);
        mode m = (mode)(round % N_MODES);
        draw_precision(&p, m, key);
        if (!fails(&c, &p)) continue;
        failed++;
        printf("  --seed %llu --round %lld (%s): %s\n", (unsigned long long)options.seed, (long long)round,
               mode_names[m], c.verdict);
        if (shown++ >= 40) continue;
        memcpy(c.first, c.verdict, sizeof c.first);
        shrink(&p, fails_alike, &c);
        bool still = fails(&c, &p);
        printf("  shrunk%s: %s\n", still ? "" : " (and passes now)", c.verdict);
        print_program(stdout, &p, false);
    }
    printf("  %lld refused, %lld that noise cannot judge, %lld numbers against f64\n", (long long)c.refused,
           (long long)c.unbounded, (long long)c.judged);
    if (failed) TEST_FAIL("%lld of %lld programs differ", (long long)failed, (long long)options.rounds);
}

#define ROUNDS_OF options
#include "random_rounds.h"
