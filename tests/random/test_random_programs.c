/* SPDX-License-Identifier: Apache-2.0 */
/* Random programs: broadcasts, views of views, fan-out, sizes 0 and 1, assignments (also to tensors with views), host
 * reads, several backward passes, random numbers, regions without gradients and recomputed regions, in f32 and f64.
 * Each runs planned, unplanned and on the reference kernels, and is judged in f64 by PyTorch if that is installed
 * (LIGHTC_PEERS_PYTHON), otherwise by its own run in f64 on the reference kernels, and its gradients by differences of
 * its losses.
 *
 *   test_random_programs --rounds 10000            as many, from seed 1 on
 *   test_random_programs --seed 3 --round 51       that one again
 *
 * A failing program is shrunk and printed: as data (random_program.h says how to read it), and as a test in
 * C. Random numbers within a program (dropout and the like) depend on the line of the call, so they differ there. */
#include "random_program_draw.h"
#include "random_program_shrink.h"
#include "random_program_slope.h"
#include "random_program_source.h"
#include "torch_judge.h"

static struct {
    uint64_t seed;
    int64_t first, rounds;
} options = {1, 0, ROUNDS(250, 60)};

typedef struct court {
    torch_judge torch;
    bool has_torch;
    int64_t slopes; /* directions along which gradients were judged */
    int64_t stale;  /* programs whose gradients are refused because of later writes */
    char verdict[600], first[600];
} court;

/* Prints the failed program as a test of its own. */
static void print_failed(const program *p, long long round)
{
    char name[64];
    print_program(stdout, p, false);
    snprintf(name, sizeof name, "program_%llu_%lld", (unsigned long long)options.seed, round);
    print_source_start(stdout);
    print_source(stdout, p, name);
    printf("\nTEST_MAIN\n");
}

static record planned, unplanned, reference, truth, noisy;

static bool close_to(const record *a, const record *b, double bound)
{
    if (a->n != b->n || a->used != b->used) return false;
    for (int k = 0; k < a->n; k++) {
        const note *x = &a->notes[k];
        double scale = 0;
        for (int64_t i = x->at; i < x->at + x->n; i++)
            if (isfinite(b->numbers[i])) scale = fmax(scale, fabs(b->numbers[i]));
        for (int64_t i = x->at; i < x->at + x->n; i++) {
            double p = a->numbers[i], q = b->numbers[i];
            if (p == q || (isnan(p) && isnan(q))) continue;
            if (!(fabs(p - q) <= bound * (scale + 0.03))) return false;
        }
    }
    return true;
}

static void send_record(FILE *f, const char *name, const record *r)
{
    if (r->error[0]) {
        fprintf(f, "refused %s\n", r->error);
        return;
    }
    fprintf(f, "record %s\n", name);
    for (int k = 0; k < r->n; k++) {
        const note *o = &r->notes[k];
        fprintf(f, "=%s", o->name);
        for (int i = 0; i < o->ndim; i++) fprintf(f, " %lld", (long long)o->shape[i]);
        fprintf(f, " :");
        for (int64_t i = 0; i < o->n; i++) fprintf(f, " %.17g", r->numbers[o->at + i]);
        fprintf(f, "\n");
    }
}

/* Whether rounding may have moved number i this far, judged by the effect of noise on the same program in f64. */
static bool explained(const program *p, const record *r, char *verdict, size_t size)
{
    static double may[MAX_NUMBERS];
    bool single = p->dtype == LC_F32;
    memset(may, 0, sizeof may);
    for (int k = 0; k < 4; k++) {
        run_mode h = {.unplanned = true,
                      .reference = true,
                      .dtype = LC_F64,
                      .noise = single ? 1e-6 : 1e-13,
                      .phase = single && k == 3 ? -1 : 1.7 * k};
        run_program(p, &h, &noisy);
        if (noisy.error[0] || noisy.used != truth.used) return true;
        for (int64_t i = 0; i < truth.used; i++) {
            double off = fabs(noisy.numbers[i] - truth.numbers[i]);
            may[i] = isnan(off) ? INFINITY : fmax(may[i], 60 * off);
        }
    }
    for (int k = 0; k < r->n; k++) {
        const note *o = &r->notes[k];
        double scale, mean;
        size_of_note(o, &truth, may, &scale, &mean);
        for (int64_t i = o->at; i < o->at + o->n; i++) {
            double a = r->numbers[i], b = truth.numbers[i];
            double bound = fmax(fmax(may[i], mean), (single ? 1e-4 : 1e-9) * (scale + (single ? 0.3 : 0.03)));
            if (a == b || (isnan(a) && isnan(b)) || !isfinite(bound) || fabs(b) > 1e18) continue;
            if (!(fabs(a - b) <= bound)) {
                snprintf(verdict, size, "differs: %s[%lld] is %.12g, in f64 %.12g", o->name, (long long)(i - o->at), a,
                         b);
                return false;
            }
        }
    }
    return true;
}

static bool fails(void *ctx, const program *p)
{
    court *c = ctx;
    bool single = p->dtype == LC_F32;
    run_program(p, &(run_mode){0}, &planned);
    run_program(p, &(run_mode){.unplanned = true}, &unplanned);
    run_program(p, &(run_mode){.reference = true}, &reference);
    if (planned.error[0] || unplanned.error[0] || reference.error[0]) {
        if (strcmp(planned.error, unplanned.error) || strcmp(planned.error, reference.error)) {
            snprintf(c->verdict, sizeof c->verdict,
                     "differs: planned \"%.150s\", unplanned \"%.150s\", reference \"%.150s\"", planned.error,
                     unplanned.error, reference.error);
            return true;
        }
        /* Gradients of overwritten values are refused, whatever PyTorch does: it does not copy them either. */
        if (strstr(planned.error, "has written that tensor since")) return c->stale++, false;
    }
    double bound = single ? 1e-6 : 1e-12;
    if (c->has_torch) {
        FILE *f = c->torch.to;
        fprintf(f, "judge\n");
        print_program(f, p, true);
        send_record(f, "planned", &planned);
        if (!planned.error[0] && !close_to(&planned, &unplanned, bound)) send_record(f, "unplanned", &unplanned);
        if (!planned.error[0] && !close_to(&planned, &reference, bound)) send_record(f, "reference", &reference);
        fprintf(f, "end\n");
        judge_answer(&c->torch, c->verdict, sizeof c->verdict);
        return !strncmp(c->verdict, "differs", 7);
    }
    if (planned.error[0]) {
        snprintf(c->verdict, sizeof c->verdict, "differs: refused: %s", planned.error);
        return true;
    }
    run_program(p, &(run_mode){.unplanned = true, .reference = true, .dtype = LC_F64}, &truth);
    if (truth.error[0]) return false; /* in f64 a cast to f64 copies nothing, so a gradient may be refused only there */
    const record *all[] = {&planned, &unplanned, &reference};
    for (int k = 0; k < 3; k++)
        if (!close_to(all[k], &truth, single ? 3e-5 : 1e-10) && !explained(p, all[k], c->verdict, sizeof c->verdict))
            return true;
    return !slopes_agree(p, &c->slopes, c->verdict, sizeof c->verdict);
}

/* Fails in the same way: with a refusal, or with different numbers. */
static bool fails_alike(void *ctx, const program *p)
{
    court *c = ctx;
    if (!fails(c, p) || !strstr(c->verdict, "refuse") != !strstr(c->first, "refuse")) return false;
    return !strstr(c->first, "refuse") || !strncmp(c->verdict, c->first, 60);
}

static void programs(bool with_torch)
{
    static program p;
    static court c;
    int64_t failed = 0, shown = 0;
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("LIGHTC_PLAN or LIGHTC_KERNELS is set");
    memset(&c, 0, sizeof c);
    if (with_torch && !(c.has_torch = judge_start(&c.torch, "judge.py"))) SKIP("no Python here has torch");
    for (int64_t round = options.first; round < options.first + options.rounds; round++) {
        draw_program(options.seed << 32 | (uint64_t)round, &p);
        if (!fails(&c, &p)) continue;
        failed++;
        printf("  --seed %llu --round %lld: %s\n", (unsigned long long)options.seed, (long long)round, c.verdict);
        if (shown++ >= 40) continue;
        memcpy(c.first, c.verdict, sizeof c.first);
        shrink(&p, fails_alike, &c);
        bool still = fails(&c, &p);
        printf("  shrunk%s: %s\n", still ? "" : " (and passes now)", c.verdict);
        print_failed(&p, (long long)round);
    }
    if (c.has_torch) {
        fprintf(c.torch.to, "totals\n");
        judge_answer(&c.torch, c.verdict, sizeof c.verdict);
        judge_end(&c.torch);
        printf("  %lld refused because of writes before backward; drawn: %s\n", (long long)c.stale, c.verdict);
        if (strncmp(c.verdict, "ok", 2)) failed++;
    }
    if (!with_torch && options.rounds >= 50 && c.slopes < options.rounds / 4)
        TEST_FAIL("slopes along %lld directions are too few", (long long)c.slopes);
    if (failed) TEST_FAIL("%lld of %lld programs differ", (long long)failed, (long long)options.rounds);
}

TEST(against_torch)
{
    programs(true);
}

TEST(against_reference_kernels)
{
    programs(false);
}

#define ROUNDS_OF options
#include "random_rounds.h"
