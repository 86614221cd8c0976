/* SPDX-License-Identifier: Apache-2.0 */
/* The results as tables and sentences. */
#include "bench_devices.h"

#include <stdio.h>

static const char *const titles[KINDS] = {"training", "inference"};
static const char *const places[PLACES] = {"data", "recording", "computing", "waiting"};

static void print_speeds(const results *all, int k)
{
    printf("\n%s: samples a second (and their standard deviation), and how many times those of one device\n\n"
           "| batch |",
           titles[k]);
    for (int i = 0; i < all->n_setups; i++) printf(" %s, %d |", all->setups[i].strategy, all->setups[i].devices);
    printf("\n|---|");
    for (int i = 0; i < all->n_setups; i++) printf("---|");
    for (int j = 0; j < all->n_sizes; j++) {
        printf("\n| %lld |", (long long)all->sizes[j]);
        for (int i = 0; i < all->n_setups; i++) {
            const result *r = &all->of[k][i][j], *one = &all->of[k][0][j];
            if (r->n == 0) {
                printf(" - |");
                continue;
            }
            printf(" %.0f", r->mean);
            if (r->n > 1) printf(" (%.0f)", r->deviation);
            if (one->n) printf(", %.2fx", r->mean / one->mean);
            printf(" |");
        }
    }
    printf("\n");
}

/* Ideally N devices need 1/N of the time of one device. The excess, in seconds per batch: */
typedef struct losses {
    double total, ideal; /* the time of a batch; 1/N of one device's */
    double preparing;    /* gathering batches and recording steps, done once for all devices of a process */
    double waiting;      /* for gradients in flight, and for the slowest rank */
    double computing;    /* the rest: kernels are less efficient on fewer samples, devices share caches and memory, and
                            gradients are summed */
} losses;

static losses losses_of(const result *r, const result *one, int devices)
{
    losses l = {.waiting = r->place[WAIT]};
    double first = 0;
    for (int p = 0; p < PLACES; p++) l.total += r->place[p], first += one->place[p];
    l.ideal = first / devices;
    l.preparing = r->place[DATA] + r->place[RECORD] - (one->place[DATA] + one->place[RECORD]) / devices;
    l.computing = l.total - l.ideal - l.preparing - l.waiting;
    return l;
}

static void print_losses(const results *all, int k)
{
    printf("\n%s: where the time of a batch goes, in ms, with 1/N of one device's time (ideal) and the losses\n\n"
           "| batch | devices |",
           titles[k]);
    for (int p = 0; p < PLACES; p++) printf(" %s |", places[p]);
    printf(" ideal | lost: data, recording | lost: waiting | lost: computing |\n"
           "|---|---|---|---|---|---|---|---|---|---|\n");
    for (int j = 0; j < all->n_sizes; j++)
        for (int i = 0; i < all->n_setups; i++) {
            const result *r = &all->of[k][i][j], *one = &all->of[k][0][j];
            if (r->n == 0 || one->n == 0) continue;
            losses l = losses_of(r, one, all->setups[i].devices);
            printf("| %lld | %s, %d |", (long long)all->sizes[j], all->setups[i].strategy, all->setups[i].devices);
            for (int p = 0; p < PLACES; p++) printf(" %.3f |", 1e3 * r->place[p]);
            printf(" %.3f | %.3f | %.3f | %.3f |\n", 1e3 * l.ideal, 1e3 * l.preparing, 1e3 * l.waiting,
                   1e3 * l.computing);
        }
    printf("\nComputing is forward%s, and summing over the devices of one process. Waiting is for other processes:\n"
           "devices of one process wait for each other within computing.\n",
           k == TRAINING ? ", backward and update" : "");
}

/* Prints from which batch size on more devices are faster than one by more than both deviations. */
static void print_answer(const results *all, int k, int i)
{
    int64_t from = -1;
    bool any = false;
    for (int j = 0; j < all->n_sizes; j++) {
        const result *r = &all->of[k][i][j], *one = &all->of[k][0][j];
        if (r->n < 2 || one->n < 2) continue;
        any = true;
        bool pays = r->mean - r->deviation > one->mean + one->deviation;
        from = !pays ? -1 : from < 0 ? all->sizes[j] : from;
    }
    printf("%s on %d devices, %s: ", all->setups[i].strategy, all->setups[i].devices, titles[k]);
    if (!any)
        printf("not measured, since none of these batches can be divided by %d", all->setups[i].devices);
    else if (from < 0)
        printf("does not pay with any of these batches");
    else
        printf("pays from a batch of %lld on", (long long)from);
}

/* Prints why the speed-up with the largest batch is not N. */
static void print_reason(const results *all, int k, int i)
{
    int j = all->n_sizes - 1, n = all->setups[i].devices;
    while (j >= 0 && (all->of[k][i][j].n == 0 || all->of[k][0][j].n == 0)) j--;
    if (j < 0) return;
    const result *r = &all->of[k][i][j], *one = &all->of[k][0][j];
    losses l = losses_of(r, one, n);
    printf(". With %lld: %.2fx in place of %dx; of %.3f ms a batch %.3f are 1/N of one device's, %.3f go to data "
           "and recording, %.3f to waiting, %.3f to computing",
           (long long)all->sizes[j], r->mean / one->mean, n, 1e3 * l.total, 1e3 * l.ideal, 1e3 * l.preparing,
           1e3 * l.waiting, 1e3 * l.computing);
}

void print_tables(const results *all, int k)
{
    print_speeds(all, k);
    print_losses(all, k);
    printf("\n");
    for (int i = 1; i < all->n_setups; i++) {
        print_answer(all, k, i);
        print_reason(all, k, i);
        printf("\n");
    }
}
