/* SPDX-License-Identifier: Apache-2.0 */
/* A zero that a caller writes is a zero: every argument with a default that is another number is given as 0, and has to
 * arrive as 0 or be refused with a message that names it. Compiles as C and as C++ (test_headers.c does both). */
#include "test.h"

#include <lightc/lightc.h>

/* ---- optimizers and schedules, whose numbers can be asked for by name ---- */

#define OPTIMIZER_ARGS(X)                                                                                              \
    X(lc_sgd, lr)                                                                                                      \
    X(lc_adam, lr)                                                                                                     \
    X(lc_adam, beta1)                                                                                                  \
    X(lc_adam, beta2)                                                                                                  \
    X(lc_adam, eps)                                                                                                    \
    X(lc_adamw, lr)                                                                                                    \
    X(lc_adamw, weight_decay)                                                                                          \
    X(lc_adamw, beta1)                                                                                                 \
    X(lc_adamw, beta2)                                                                                                 \
    X(lc_adamw, eps)                                                                                                   \
    X(lc_rmsprop, lr)                                                                                                  \
    X(lc_rmsprop, alpha)                                                                                               \
    X(lc_rmsprop, eps)                                                                                                 \
    X(lc_adagrad, lr)                                                                                                  \
    X(lc_adagrad, eps)                                                                                                 \
    X(lc_adadelta, lr)                                                                                                 \
    X(lc_adadelta, rho)                                                                                                \
    X(lc_adadelta, eps)                                                                                                \
    X(lc_adamax, lr)                                                                                                   \
    X(lc_adamax, beta1)                                                                                                \
    X(lc_adamax, beta2)                                                                                                \
    X(lc_adamax, eps)                                                                                                  \
    X(lc_nadam, lr)                                                                                                    \
    X(lc_nadam, beta1)                                                                                                 \
    X(lc_nadam, beta2)                                                                                                 \
    X(lc_nadam, eps)                                                                                                   \
    X(lc_nadam, momentum_decay)                                                                                        \
    X(lc_radam, lr)                                                                                                    \
    X(lc_radam, beta1)                                                                                                 \
    X(lc_radam, beta2)                                                                                                 \
    X(lc_radam, eps)                                                                                                   \
    X(lc_rprop, lr)                                                                                                    \
    X(lc_rprop, eta_minus)                                                                                             \
    X(lc_rprop, eta_plus)                                                                                              \
    X(lc_rprop, step_size_min)                                                                                         \
    X(lc_rprop, step_size_max)                                                                                         \
    X(lc_lbfgs, lr)                                                                                                    \
    X(lc_lbfgs, max_iter)                                                                                              \
    X(lc_lbfgs, tolerance_grad)                                                                                        \
    X(lc_lbfgs, tolerance_change)                                                                                      \
    X(lc_lbfgs, history_size)                                                                                          \
    X(lc_muon, lr)                                                                                                     \
    X(lc_muon, weight_decay)                                                                                           \
    X(lc_muon, momentum)                                                                                               \
    X(lc_muon, eps)                                                                                                    \
    X(lc_muon, ns_steps)

#define SCHEDULE_ARGS(X)                                                                                               \
    X(lc_step_lr, gamma, .step_size = 2)                                                                               \
    X(lc_multi_step_lr, gamma, )                                                                                       \
    X(lc_exponential_lr, gamma, )                                                                                      \
    X(lc_constant_lr, factor, )                                                                                        \
    X(lc_constant_lr, total_iters, )                                                                                   \
    X(lc_linear_lr, start_factor, )                                                                                    \
    X(lc_linear_lr, end_factor, )                                                                                      \
    X(lc_linear_lr, total_iters, )                                                                                     \
    X(lc_cosine_annealing_warm_restarts, T_mult, .T_0 = 2)                                                             \
    X(lc_polynomial_lr, total_iters, )                                                                                 \
    X(lc_polynomial_lr, power, )                                                                                       \
    X(lc_one_cycle_lr, max_lr, .total_steps = 9)                                                                       \
    X(lc_one_cycle_lr, pct_start, .max_lr = 1, .total_steps = 9)                                                       \
    X(lc_one_cycle_lr, base_momentum, .max_lr = 1, .total_steps = 9)                                                   \
    X(lc_one_cycle_lr, max_momentum, .max_lr = 1, .total_steps = 9)                                                    \
    X(lc_one_cycle_lr, div_factor, .max_lr = 1, .total_steps = 9)                                                      \
    X(lc_one_cycle_lr, final_div_factor, .max_lr = 1, .total_steps = 9)                                                \
    X(lc_cyclic_lr, base_lr, .max_lr = 1)                                                                              \
    X(lc_cyclic_lr, max_lr, .base_lr = 1)                                                                              \
    X(lc_cyclic_lr, step_size_up, .base_lr = 1, .max_lr = 2)                                                           \
    X(lc_cyclic_lr, step_size_down, .base_lr = 1, .max_lr = 2)                                                         \
    X(lc_cyclic_lr, gamma, .base_lr = 1, .max_lr = 2)                                                                  \
    X(lc_cyclic_lr, base_momentum, .base_lr = 1, .max_lr = 2)                                                          \
    X(lc_cyclic_lr, max_momentum, .base_lr = 1, .max_lr = 2)                                                           \
    X(lc_reduce_lr_on_plateau, factor, )                                                                               \
    X(lc_reduce_lr_on_plateau, patience, )                                                                             \
    X(lc_reduce_lr_on_plateau, threshold, )                                                                            \
    X(lc_reduce_lr_on_plateau, eps, )                                                                                  \
    X(lc_swa_lr, swa_lr, )                                                                                             \
    X(lc_swa_lr, anneal_epochs, )

#define OPTIMIZER_WITH_ZERO(make, argument)                                                                            \
    static lc_optimizer *make##_##argument(lc_module *m)                                                               \
    {                                                                                                                  \
        return make(m, .argument = 0);                                                                                 \
    }
OPTIMIZER_ARGS(OPTIMIZER_WITH_ZERO)

#define SCHEDULE_WITH_ZERO(make, argument, ...)                                                                        \
    static lc_scheduler *make##_##argument(lc_optimizer *opt)                                                          \
    {                                                                                                                  \
        return make(opt, __VA_ARGS__, .argument = 0);                                                                  \
    }
SCHEDULE_ARGS(SCHEDULE_WITH_ZERO)

static void module_new(lc_module *m)
{
    const int64_t shape[] = {2, 3};
    lc_init zeros;
    memset(&zeros, 0, sizeof zeros);
    lc_module_init(m, NULL, 1);
    lc_module_add_parameter(m, "weight", LC_F32, LC_ROW_MAJOR, 2, shape, zeros);
}

static void check_optimizer(const char *name, lc_optimizer *(*make)(lc_module *m), const char *argument)
{
    lc_module m;
    double value = -1;
    module_new(&m);
    lc_optimizer *opt = make(&m);
    if (!opt && !strstr(lc_error_message(), argument)) TEST_FAIL("%s: %s: %s", name, argument, lc_error_message());
    if (opt) CHECK_OK(lc_optimizer_get(opt, 0, argument, &value));
    if (opt && value != 0) TEST_FAIL("%s: %s is %g, not 0", name, argument, value);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

TEST(optimizers)
{
#define CHECK_OPTIMIZER(make, argument) check_optimizer(#make, make##_##argument, #argument);
    OPTIMIZER_ARGS(CHECK_OPTIMIZER)
}

static double argument_of(const lc_scheduler *s, const char *argument)
{
    for (int i = 0; s->ops->args[i]; i++)
        if (!strcmp(s->ops->args[i], argument)) return s->args[i];
    TEST_FAIL("%s has no argument %s", s->ops->name, argument);
}

static void check_schedule(const char *name, lc_scheduler *(*make)(lc_optimizer *opt), const char *argument)
{
    lc_module m;
    module_new(&m);
    lc_optimizer *opt = lc_sgd(&m, .momentum = 0.5);
    CHECK(opt != NULL);
    lc_scheduler *s = make(opt);
    if (!s && !strstr(lc_error_message(), argument)) TEST_FAIL("%s: %s: %s", name, argument, lc_error_message());
    if (s && argument_of(s, argument) != 0) TEST_FAIL("%s: %s is %g, not 0", name, argument, argument_of(s, argument));
    lc_scheduler_free(s);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

TEST(schedules)
{
#define CHECK_SCHEDULE(make, argument, ...) check_schedule(#make, make##_##argument, #argument);
    SCHEDULE_ARGS(CHECK_SCHEDULE)
}

/* ---- the defaults of constructors are those of the same class by its name ---- */

#define OPTIMIZERS(X)                                                                                                  \
    X(lc_sgd, "SGD")                                                                                                   \
    X(lc_adam, "Adam")                                                                                                 \
    X(lc_adamw, "AdamW")                                                                                               \
    X(lc_rmsprop, "RMSprop")                                                                                           \
    X(lc_adagrad, "Adagrad")                                                                                           \
    X(lc_adadelta, "Adadelta")                                                                                         \
    X(lc_adamax, "Adamax")                                                                                             \
    X(lc_nadam, "NAdam")                                                                                               \
    X(lc_radam, "RAdam")                                                                                               \
    X(lc_rprop, "Rprop")                                                                                               \
    X(lc_lbfgs, "LBFGS")                                                                                               \
    X(lc_muon, "Muon")

static void same_hyperparameters(lc_module *m, lc_optimizer *a, const char *name)
{
    lc_optimizer *b = NULL;
    CHECK_OK(lc_optimizer_by_name(name, m, NULL, 0, &b));
    for (int i = 0; a->ops->hyper_names[i]; i++)
        if (a->groups[0].hyper[i] != b->groups[0].hyper[i])
            TEST_FAIL("%s: %s is %g, and %g by name", name, a->ops->hyper_names[i], a->groups[0].hyper[i],
                      b->groups[0].hyper[i]);
    CHECK_EQ(a->flags, b->flags);
    lc_optimizer_free(a);
    lc_optimizer_free(b);
}

TEST(defaults_of_optimizers)
{
    lc_module m;
    module_new(&m);
#define SAME_OPTIMIZER(make, name) same_hyperparameters(&m, make(&m), name);
    OPTIMIZERS(SAME_OPTIMIZER)
    lc_module_release(&m);
}

static void same_arguments(lc_scheduler *s)
{
    CHECK(s != NULL);
    for (int i = 0; s->ops->args[i]; i++)
        if (!isnan(s->ops->defaults[i]) && s->args[i] != s->ops->defaults[i])
            TEST_FAIL("%s: %s is %g, and %g by name", s->ops->name, s->ops->args[i], s->args[i], s->ops->defaults[i]);
    lc_scheduler_free(s);
}

TEST(defaults_of_schedules)
{
    lc_module m;
    module_new(&m);
    lc_optimizer *opt = lc_sgd(&m, .momentum = 0.5);
    same_arguments(lc_step_lr(opt, .step_size = 2));
    same_arguments(lc_multi_step_lr(opt));
    same_arguments(lc_exponential_lr(opt, .gamma = 1));
    same_arguments(lc_constant_lr(opt));
    same_arguments(lc_linear_lr(opt));
    same_arguments(lc_cosine_annealing_lr(opt, .T_max = 2));
    same_arguments(lc_cosine_annealing_warm_restarts(opt, .T_0 = 2));
    same_arguments(lc_polynomial_lr(opt));
    same_arguments(lc_one_cycle_lr(opt, .max_lr = 1, .total_steps = 9));
    same_arguments(lc_cyclic_lr(opt, .base_lr = 1, .max_lr = 2));
    same_arguments(lc_reduce_lr_on_plateau(opt));
    same_arguments(lc_swa_lr(opt));
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* ---- a number that must be given ---- */

TEST(numbers_that_must_be_given)
{
    lc_module m;
    module_new(&m);
    lc_optimizer *opt = lc_sgd(&m, .momentum = 0.5);
    CHECK(!lc_exponential_lr(opt));
    CHECK_CONTAINS(lc_error_message(), "gamma");
    CHECK(!lc_one_cycle_lr(opt, .total_steps = 9));
    CHECK_CONTAINS(lc_error_message(), "max_lr");
    CHECK(!lc_cyclic_lr(opt, .max_lr = 1));
    CHECK_CONTAINS(lc_error_message(), "base_lr");
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* ---- structs that a program fills ---- */

TEST(a_struct_begins_with_the_defaults)
{
    lc_module m;
    lc_adam_args a = lc_adam_defaults();
    double value;
    module_new(&m);
    a.module = &m;
    a.beta1 = 0;
    lc_optimizer *opt = lc_adam_with(&a);
    CHECK(opt != NULL);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta1", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta2", &value));
    CHECK_NEAR(value, 0.999, 0);
    lc_optimizer_free(opt);
    memset(&a, 0, sizeof a);
    a.module = &m;
    CHECK(!lc_adam_with(&a));
    CHECK_CONTAINS(lc_error_message(), "lc_adam_defaults()");
    CHECK(!lc_adam_with(NULL));
    lc_module_release(&m);
}

/* A program that was compiled when the struct ended with beta1. */
TEST(members_beyond_the_size_have_their_defaults)
{
    lc_module m;
    lc_adam_args a;
    double value;
    module_new(&m);
    memset(&a, 0, sizeof a);
    a.size = offsetof(lc_adam_args, beta2);
    a.module = &m;
    a.lr = 0.5;
    lc_optimizer *opt = lc_adam_with(&a);
    CHECK(opt != NULL);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta1", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta2", &value));
    CHECK_NEAR(value, 0.999, 0);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

TEST_MAIN
