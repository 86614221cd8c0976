/* SPDX-License-Identifier: Apache-2.0 */
/* Random trainings: small nets of all layers, with every optimizer that PyTorch has as well, groups, schedules,
 * clipping and accumulation, trained by lc_trainer_fit in f32 and f64. Each runs planned, unplanned and on the
 * reference kernels, in chunks (`deterministic`, with which two devices give the bits of one), and on two devices; and
 * is judged after every step by PyTorch in f64 if that is installed (LIGHTC_PEERS_PYTHON), otherwise by its own run in
 * f64 on the reference kernels. In any case updates must follow the formulas of their optimizers. Dropout masks are
 * read from lightc's results, or made again from the random streams that an LSTM, GRU or attention used: PyTorch gets
 * them, planned and unplanned steps and all kernels must have the same ones, and the number of dropped elements is
 * tested separately. LBFGS draws new masks for each evaluation of a loss, as PyTorch does.
 *
 *   test_random_trainings --rounds 1000            as many, from seed 1 on
 *   test_random_trainings --seed 3 --round 51      that one again
 *
 * A failing training is shrunk and printed (random_training.h says how to read it). */
#include "random_training_compare.h"
#include "random_training_draw.h"
#include "random_training_formulas.h"
#include "random_training_shrink.h"
#include "torch_judge.h"

static struct {
    uint64_t seed;
    int64_t first, rounds;
} chosen = {1, 0, ROUNDS(20, 6)};

typedef struct court {
    torch_judge torch;
    bool has_torch;
    int64_t exact, noisy, loose, refused;
    double dropped, expected, variance; /* of all masks of lightc's own runs */
    char verdict[900], first[900];
} court;

static trace planned, unplanned, reference, chunks, devices, truth, noisy, watched, alone;

/* ---- PyTorch ---- */

static void send_numbers(FILE *f, const char *name, const double *v, int64_t n)
{
    fprintf(f, "%s", name);
    for (int64_t i = 0; i < n; i++) fprintf(f, " %.17g", v[i]);
    fprintf(f, "\n");
}

static void print_groups(FILE *f, const training *t, const trace *r)
{
    for (int g = 0; g < t->n_groups; g++) {
        fprintf(f, "group");
        print_options(f, &t->groups[g]);
        fprintf(f, " :");
        for (int k = 0; k < r->n_tensors; k++)
            if (r->group_of[k] == g) fprintf(f, " %s", r->names[k]);
        fprintf(f, "\n");
    }
}

static void send_data(FILE *f, const training *t)
{
    shape ins[MAX_LAYERS + 1];
    shapes_of(t, ins);
    const shape *out = &ins[t->n_layers];
    for (int a = 0; a < 2; a++) {
        const shape *s = a ? out : &t->input;
        bool ids = a ? has_classes(t) : t->vocabulary > 0;
        fprintf(f, "%s %s %lld", a ? "y" : "x", ids ? "ids" : "numbers", (long long)t->samples);
        for (int k = 0; k < s->ndim - (a && ids); k++) fprintf(f, " %lld", (long long)s->n[k]);
        fprintf(f, " :");
        int64_t n = a ? target_numel(t, out) : numel(s);
        for (int64_t k = 0; k < t->samples * n; k++)
            fprintf(f, " %.17g", a ? target_value(t, out, k / n, k % n) : input_value(t, k / n, k % n));
        fprintf(f, "\n");
    }
}

static void send_start(FILE *f, const trace *r)
{
    int64_t at = 0;
    for (int k = 0; k < r->n_tensors; k++) {
        const lc_type *type = &r->types[k];
        fprintf(f, "tensor %s", r->names[k]);
        for (int i = 0; i < type->ndim; i++) fprintf(f, " %lld", (long long)type->shape[i]);
        send_numbers(f, " :", r->start + at, type_numel(type));
        at += type_numel(type);
    }
}

static void send_trace(FILE *f, const training *t, const char *name, const trace *r)
{
    fprintf(f, "record %s\n", name);
    if (r != &chunks && r != &alone) send_numbers(f, "losses", r->losses, r->n_losses);
    const char *mask = r->masks;
    for (int d = 0; d < r->n_draws && r->n_masks; d++) {
        fprintf(f, "masks %d", r->draws[d].batch);
        for (int k = 0; k < count_dropouts(t); k++) {
            fprintf(f, " ");
            for (int64_t i = 0; i < r->draws[d].numel[k]; i++) fputc('0' + *mask++, f);
        }
        fprintf(f, "\n");
    }
    for (int s = 0; s < r->n_steps; s++) {
        send_numbers(f, "rates", r->rates[s], r->n_groups);
        send_numbers(f, "state", r->states[s], r->n_state);
    }
}

static bool fails_torch(court *c, const training *t, bool cut)
{
    bool single = t->dtype == LC_F32;
    FILE *f = c->torch.to;
    fprintf(f, "judge\n");
    print_training(f, t);
    print_groups(f, t, &planned);
    send_data(f, t);
    send_start(f, &planned);
    if (planned.error[0])
        fprintf(f, "refused %s\n", planned.error);
    else
        send_trace(f, t, "planned", &planned);
    if (!planned.error[0] && !close_to(&unplanned, &planned, single)) send_trace(f, t, "unplanned", &unplanned);
    if (!planned.error[0] && !close_to(&reference, &planned, single)) send_trace(f, t, "reference kernels", &reference);
    if (cut && !close_to(&chunks, &planned, single)) send_trace(f, t, "deterministic", &chunks);
    if (cut && !close_to(&alone, &planned, single)) send_trace(f, t, "two devices", &alone);
    fprintf(f, "end\n");
    judge_answer(&c->torch, c->verdict, sizeof c->verdict);
    return !strncmp(c->verdict, "differs", 7);
}

/* ---- without PyTorch: the run in f64, and the effect of rounding ---- */

static bool fails_truth(court *c, const training *t, bool cut)
{
    static double may[MAX_STEPS][MAX_STATE];
    bool single = t->dtype == LC_F32;
    const trace *all[] = {&planned, &unplanned, &reference, &chunks, &alone};
    int n_all = cut && !count_dropouts(t) ? 5 : 3; /* chunks and devices draw masks of their own */
    if (planned.error[0]) {
        snprintf(c->verdict, sizeof c->verdict, "differs: refused: %.600s", planned.error);
        return true;
    }
    run_training(t, &(run_mode){.unplanned = true, .reference = true, .dtype = LC_F64}, &truth);
    if (!truth.error[0] && !same_masks(&truth, &planned)) {
        snprintf(c->verdict, sizeof c->verdict, "differs: in f64 other numbers are dropped");
        return true;
    }
    snprintf(c->verdict, sizeof c->verdict, "ok");
    bool near = !truth.error[0];
    for (int k = 0; k < n_all; k++) near = near && close_to(all[k], &truth, single);
    if (near) return false;
    snprintf(c->verdict, sizeof c->verdict, "ok within noise 0");
    memset(may, 0, sizeof may);
    for (int k = 0; k < 4; k++) {
        run_mode h = {.unplanned = true,
                      .reference = true,
                      .dtype = LC_F64,
                      .noise = single ? 2.4e-7 : 5e-16,
                      .phase = k < 3 ? 1.7 * k : -1};
        run_training(t, &h, &noisy);
        if (noisy.error[0] || noisy.n_steps != truth.n_steps) return false;
        for (int s = 0; s < truth.n_steps; s++)
            for (int64_t i = 0; i < truth.n_state; i++)
                may[s][i] = fmax(may[s][i], 50 * fabs(noisy.states[s][i] - truth.states[s][i]));
    }
    for (int k = 0; k < n_all; k++) {
        for (int s = 0; s < truth.n_steps; s++) {
            double mean = 0;
            for (int64_t i = 0; i < truth.n_state; i++) mean += may[s][i] / (double)truth.n_state;
            for (int64_t i = 0; i < truth.n_state; i++) {
                double a = all[k]->states[s][i], b = truth.states[s][i];
                double tight = (single ? 2e-6 : 1e-12) * (3 + s) * (fabs(b) + 1);
                if (fabs(a - b) <= fmax(fmax(may[s][i], mean), tight) || (isnan(a) && isnan(b))) continue;
                snprintf(c->verdict, sizeof c->verdict, "differs: number %lld after step %d is %.12g, in f64 %.12g",
                         (long long)i, s, a, b);
                return true;
            }
        }
    }
    return false;
}

/* ---- the verdict ---- */

/* With `deterministic` two devices have the bits of one. */
static bool fails_devices(court *c, const training *t)
{
    run_training(t, &(run_mode){.deterministic = true}, &chunks);
    run_training(t, &(run_mode){.deterministic = true, .devices = "2"}, &devices);
    run_training(t, &(run_mode){.devices = "2"}, &alone);
    if (chunks.error[0] || devices.error[0] || alone.error[0])
        snprintf(c->verdict, sizeof c->verdict,
                 "differs: deterministic \"%.200s\", on two devices \"%.200s\", without it \"%.200s\"", chunks.error,
                 devices.error, alone.error);
    else if (!same_masks(&chunks, &devices) || !same_bits(&chunks, &devices))
        snprintf(c->verdict, sizeof c->verdict, "differs: deterministic, two devices have other bits than one");
    else
        return false;
    return true;
}

static bool fails(void *ctx, const training *t)
{
    court *c = ctx;
    run_training(t, &(run_mode){0}, &planned);
    run_training(t, &(run_mode){.unplanned = true}, &unplanned);
    run_training(t, &(run_mode){.reference = true}, &reference);
    if (strcmp(planned.error, unplanned.error) || strcmp(planned.error, reference.error)) {
        snprintf(c->verdict, sizeof c->verdict,
                 "differs: planned \"%.150s\", unplanned \"%.150s\", reference \"%.150s\"", planned.error,
                 unplanned.error, reference.error);
        return true;
    }
    if (!planned.error[0] && (!same_masks(&planned, &unplanned) || !same_masks(&planned, &reference))) {
        snprintf(c->verdict, sizeof c->verdict, "differs: planned, unplanned and reference kernels drop other numbers");
        return true;
    }
    if (!planned.error[0]) {
        static evaluations evaluated;
        evaluated.n = 0;
        run_training(t, &(run_mode){.gradients = true, .evaluations = &evaluated, .dtype = LC_F64}, &watched);
        if (watched.error[0]) snprintf(c->verdict, sizeof c->verdict, "differs: watched \"%.300s\"", watched.error);
        if (watched.error[0] || !formulas_agree(t, &watched, &evaluated, c->verdict, sizeof c->verdict)) return true;
    }
    bool cut = !planned.error[0] && can_be_cut(t);
    if (cut && fails_devices(c, t)) return true;
    return c->has_torch ? fails_torch(c, t, cut) : fails_truth(c, t, cut);
}

/* Fails in the same way: with a refusal, or with different numbers. */
static bool fails_alike(void *ctx, const training *t)
{
    court *c = ctx;
    if (!fails(c, t) || !strstr(c->verdict, "refuse") != !strstr(c->first, "refuse")) return false;
    return !strstr(c->first, "refuse") || !strncmp(c->verdict, c->first, 60);
}

/* The number of dropped elements, and the expected number. */
static void count_dropped(court *c, const training *t, const trace *r)
{
    const char *mask = r->masks;
    for (int d = 0; d < r->n_draws && r->n_masks; d++)
        for (int k = 0, at = 0; at < t->n_layers; at++) {
            double p;
            for (int left = dropouts_of(t, at, &p); left > 0; left--) {
                int64_t n = r->draws[d].numel[k++];
                for (int64_t i = 0; i < n; i++) c->dropped += !*mask++;
                c->expected += p * (double)n;
                c->variance += p * (1 - p) * (double)n;
            }
        }
}

static void count(court *c)
{
    if (!strncmp(c->verdict, "refused", 7))
        c->refused++;
    else if (!strcmp(c->verdict, "ok"))
        c->exact++;
    else if (!strncmp(c->verdict, "ok within noise", 15) && atof(c->verdict + 15) > 1e-2)
        c->loose++;
    else
        c->noisy++;
}

static void trainings(bool with_torch)
{
    static training t;
    static court c;
    int64_t failed = 0;
    if (getenv("LIGHTC_PLAN") || getenv("LIGHTC_KERNELS")) SKIP("LIGHTC_PLAN or LIGHTC_KERNELS is set");
    memset(&c, 0, sizeof c);
    if (with_torch && !(c.has_torch = judge_start(&c.torch, "trainings.py"))) SKIP("no Python here has torch");
    for (int64_t round = chosen.first; round < chosen.first + chosen.rounds; round++) {
        draw_training(chosen.seed << 32 | (uint64_t)round, &t);
        if (chosen.rounds == 1) print_training(stdout, &t);
        if (!fails(&c, &t)) {
            count(&c);
            count_dropped(&c, &t, &planned);
            continue;
        }
        printf("  --seed %llu --round %lld: %s\n", (unsigned long long)chosen.seed, (long long)round, c.verdict);
        if (failed++ >= 20) continue;
        memcpy(c.first, c.verdict, sizeof c.first);
        show_shrunk(&t, fails, fails_alike, &c, c.verdict);
        print_groups(stdout, &t, &planned);
    }
    if (c.has_torch) judge_end(&c.torch);
    printf("  %lld trainings: %lld within rounding, %lld within the effect of noise, %lld of those by more than 1%%, "
           "%lld refused by both\n",
           (long long)chosen.rounds, (long long)c.exact, (long long)(c.noisy + c.loose), (long long)c.loose,
           (long long)c.refused);
    double off = c.variance > 0 ? (c.dropped - c.expected) / sqrt(c.variance) : 0;
    printf("  %.0f numbers were dropped, %.2f standard deviations off\n", c.dropped, off);
    if (fabs(off) > 5) TEST_FAIL("%.0f numbers were dropped in place of %.0f", c.dropped, c.expected);
    if (failed) TEST_FAIL("%lld of %lld trainings differ", (long long)failed, (long long)chosen.rounds);
}

TEST(against_torch)
{
    trainings(true);
}

TEST(against_reference_kernels)
{
    trainings(false);
}

#define ROUNDS_OF chosen
#include "random_rounds.h"
