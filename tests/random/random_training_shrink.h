/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a failing training of random_training.h smaller while it still fails: fewer layers, schedules, groups, options
 * and steps. */
#ifndef LC_TESTS_RANDOM_TRAINING_SHRINK_H
#define LC_TESTS_RANDOM_TRAINING_SHRINK_H

#include "random_training_run.h"

typedef bool fails_fn(void *ctx, const training *t);

typedef struct shrinking {
    training *t;
    fails_fn *fails;
    void *ctx;
    bool changed;
} shrinking;

/* Takes `less` if it can still be trained and still fails. */
static inline bool take(shrinking *s, const training *less)
{
    static trace unused;
    if (!memcmp(less, s->t, sizeof *less) || !can_train(less, &unused) || !s->fails(s->ctx, less)) return false;
    *s->t = *less;
    return s->changed = true;
}

/* t without layer `at` and everything that refers to it. */
static inline void without_layer(const training *t, int at, training *out)
{
    int place[MAX_LAYERS];
    *out = *t;
    out->n_layers = 0;
    for (int k = 0; k < t->n_layers; k++) {
        layer l = t->layers[k];
        bool refers = l.op == L_again || l.op == L_tied, gone = k == at || (refers && place[l.i[0]] < 0);
        if (refers && !gone) l.i[0] = place[l.i[0]];
        place[k] = gone ? -1 : out->n_layers;
        if (!gone) out->layers[out->n_layers++] = l;
    }
}

static inline void shrink_options(shrinking *s, size_t offset)
{
    static training less;
    for (int k = ((options *)((char *)s->t + offset))->n - 1; k >= 0; k--) {
        less = *s->t;
        options *o = (options *)((char *)&less + offset);
        memmove(&o->v[k], &o->v[k + 1], (size_t)(o->n - 1 - k) * sizeof *o->v);
        memset(&o->v[--o->n], 0, sizeof *o->v);
        take(s, &less);
    }
}

static inline void shrink_layers(shrinking *s)
{
    static training less;
    for (int at = s->t->n_layers - 1; at >= 0; at--) {
        without_layer(s->t, at, &less);
        if (take(s, &less)) continue;
        less = *s->t, less.layers[at].residual = less.layers[at].frozen = false;
        take(s, &less);
        if (s->t->layers[at].op >= L_again) continue;
        less = *s->t;
        if (less.layers[at].op != L_dropout) less.layers[at].f[0] = 0;
        take(s, &less);
        less = *s->t, less.layers[at].op = L_linear, less.layers[at].i[0] = 2, less.layers[at].i[1] = 1;
        take(s, &less);
    }
}

static inline void shrink_numbers(shrinking *s)
{
    static training less;
#define TRY(change)                                                                                                    \
    do {                                                                                                               \
        less = *s->t;                                                                                                  \
        change;                                                                                                        \
        take(s, &less);                                                                                                \
    } while (0)
    TRY(less.clip = NULL);
    TRY(less.accumulate = 1);
    TRY(less.by_name = false);
    TRY(less.leave_out = 0);
    TRY((less.n_groups = 1, memset(less.groups, 0, sizeof less.groups)));
    TRY(less.n_schedulers = 0);
    if (s->t->n_schedulers == 2) TRY(less.schedulers[0] = less.schedulers[--less.n_schedulers]);
    TRY((less.loss = LOSS_mse, less.sum = less.ignore = less.weighted = false, less.loss_f = 0));
    TRY(less.sum = less.weighted = false);
    TRY(less.samples = less.batch);
    TRY(less.epochs = 1);
    for (int64_t n = 1; n < 6; n++) TRY(less.max_steps = less.max_steps < 0 || less.max_steps > n ? n : less.max_steps);
#undef TRY
}

static inline void shrink(training *t, fails_fn *fails, void *ctx)
{
    shrinking s = {.t = t, .fails = fails, .ctx = ctx, .changed = true};
    for (int round = 0; s.changed && round < 8; round++) {
        s.changed = false;
        shrink_numbers(&s);
        shrink_layers(&s);
        shrink_options(&s, offsetof(training, options));
        for (int g = 0; g < t->n_groups; g++)
            shrink_options(&s, offsetof(training, groups) + (size_t)g * sizeof(options));
    }
}

/* Shrinks a failing training and prints it, with the verdict on it, which is in `ctx`. */
static inline void show_shrunk(training *t, fails_fn *fails, fails_fn *fails_alike, void *ctx, const char *verdict)
{
    shrink(t, fails_alike, ctx);
    bool still = fails(ctx, t);
    printf("  shrunk%s: %s\n", still ? "" : " (and passes now)", verdict);
    print_training(stdout, t);
}

#endif
