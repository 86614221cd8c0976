/* SPDX-License-Identifier: Apache-2.0 */
/* One schedule of each kind, with numbers that have an effect within a few epochs. The file that includes this defines
 * ONE_CYCLE_STEPS, the length of OneCycleLR. A further kind is a line here. */
#ifndef LC_TESTS_EVERY_SCHEDULE_H
#define LC_TESTS_EVERY_SCHEDULE_H

#include <lightc/optim.h>

typedef lc_scheduler *make_scheduler(lc_optimizer *opt);

#define SCHEDULER(name, ...)                                                                                           \
    static lc_scheduler *name(lc_optimizer *opt)                                                                       \
    {                                                                                                                  \
        return lc_##name(opt, __VA_ARGS__);                                                                            \
    }
static const int64_t two_milestones[] = {2, 5}, one_milestone[] = {3};
static double halves(void *ctx, int64_t epoch)
{
    (void)ctx;
    return 1.0 / (double)(1 + epoch);
}
SCHEDULER(step_lr, .step_size = 2, .gamma = 0.5)
SCHEDULER(multi_step_lr, .milestones = two_milestones, .n_milestones = 2)
SCHEDULER(exponential_lr, .gamma = 0.9)
SCHEDULER(constant_lr, .total_iters = 4)
SCHEDULER(linear_lr, .total_iters = 4)
SCHEDULER(cosine_annealing_lr, .T_max = 5)
SCHEDULER(cosine_annealing_warm_restarts, .T_0 = 2, .T_mult = 2)
SCHEDULER(polynomial_lr, .total_iters = 6, .power = 2)
SCHEDULER(one_cycle_lr, .max_lr = 0.05, .total_steps = ONE_CYCLE_STEPS)
SCHEDULER(cyclic_lr, .base_lr = 0.005, .max_lr = 0.05, .step_size_up = 3, .mode = LC_TRIANGULAR2)
SCHEDULER(reduce_lr_on_plateau, .patience = 0, .factor = 0.5, .threshold = 0.5)
SCHEDULER(lambda_lr, .fn = halves)
SCHEDULER(swa_lr, .swa_lr = 0.02, .anneal_epochs = 4)
static lc_scheduler *sequential_lr(lc_optimizer *opt)
{
    lc_scheduler *parts[] = {lc_constant_lr(opt, .total_iters = 2), lc_exponential_lr(opt, .gamma = 0.8)};
    return lc_sequential_lr(opt, .schedulers = parts, .n_schedulers = 2, .milestones = one_milestone);
}
static lc_scheduler *chained_scheduler(lc_optimizer *opt)
{
    lc_scheduler *parts[] = {lc_linear_lr(opt, .total_iters = 3), lc_step_lr(opt, .step_size = 2)};
    return lc_chained_scheduler(opt, .schedulers = parts, .n_schedulers = 2);
}

static const struct {
    const char *name;
    make_scheduler *make;
} schedulers[] = {{"StepLR", step_lr},
                  {"MultiStepLR", multi_step_lr},
                  {"ExponentialLR", exponential_lr},
                  {"ConstantLR", constant_lr},
                  {"LinearLR", linear_lr},
                  {"CosineAnnealingLR", cosine_annealing_lr},
                  {"CosineAnnealingWarmRestarts", cosine_annealing_warm_restarts},
                  {"PolynomialLR", polynomial_lr},
                  {"OneCycleLR", one_cycle_lr},
                  {"CyclicLR", cyclic_lr},
                  {"ReduceLROnPlateau", reduce_lr_on_plateau},
                  {"SequentialLR", sequential_lr},
                  {"ChainedScheduler", chained_scheduler},
                  {"LambdaLR", lambda_lr},
                  {"SWALR", swa_lr}};

#endif
