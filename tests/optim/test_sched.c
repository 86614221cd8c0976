/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules compared with closed forms, and with PyTorch's recordings if they are available; saved state.
 */
#include "recording.h"

#include <lightc/lightc.h>

typedef struct fixture {
    lc_module root;
    lc_optimizer *opt;
} fixture;

static void setup(fixture *f, double lr)
{
    lc_module_init(&f->root, NULL, 1);
    lc_module_add_parameter(&f->root, "w", 0, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    f->opt = lc_sgd(&f->root, .lr = lr, .momentum = 0.9);
    CHECK_OK(lc_module_status(&f->root));
}

static void teardown(fixture *f, lc_scheduler *s)
{
    lc_scheduler_free(s);
    lc_optimizer_free(f->opt);
    lc_module_release(&f->root);
}

static double lr(fixture *f)
{
    return f->opt->groups[0].hyper[0];
}

TEST(step_lr)
{
    fixture f;
    setup(&f, 0.1);
    lc_scheduler *s = lc_step_lr(f.opt, .step_size = 3, .gamma = 0.5);
    for (int t = 0; t < 10; t++) {
        CHECK_NEAR(lr(&f), 0.1 * pow(0.5, t / 3), 1e-15);
        CHECK_OK(lc_scheduler_step(s));
    }
    teardown(&f, s);
}

TEST(cosine_rises_again_after_its_bottom)
{
    fixture f;
    setup(&f, 0.1);
    lc_scheduler *s = lc_cosine_annealing_lr(f.opt, .T_max = 5, .eta_min = 0.01);
    for (int t = 0; t <= 20; t++) {
        CHECK_NEAR(lr(&f), 0.01 + 0.09 * (1 + cos(3.14159265358979323846 * t / 5)) / 2, 1e-12);
        CHECK_OK(lc_scheduler_step(s));
    }
    teardown(&f, s);
}

/* Values from torch.optim.swa_utils.SWALR. */
TEST(swa_lr_goes_from_the_rate_to_its_own)
{
    static const struct {
        int64_t epochs;
        bool linear;
        double want[6];
    } cases[] = {{4, false, {0.2, 0.17803300858899107, 0.125, 0.07196699141100894, 0.05, 0.05}},
                 {3, true, {0.2, 0.15, 0.1, 0.05, 0.05, 0.05}},
                 {0, false, {0.05, 0.05, 0.05, 0.05, 0.05, 0.05}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        setup(&f, 0.2);
        lc_scheduler *s = lc_swa_lr(f.opt, .swa_lr = 0.05, .anneal_epochs = cases[i].epochs, .linear = cases[i].linear);
        for (int t = 0; t < 6; t++) {
            CHECK_NEAR(lr(&f), cases[i].want[t], 1e-15);
            CHECK_OK(lc_scheduler_step(s));
        }
        teardown(&f, s);
    }
}

/* A group that is added to the optimizer is scheduled as well, starting from its own rate. */
TEST(a_schedule_follows_groups_that_are_added)
{
    fixture f;
    lc_module_init(&f.root, NULL, 1);
    lc_tensor *a = lc_module_add_parameter(&f.root, "a", 0, LC_ROW_MAJOR, 0, NULL, (lc_init){0});
    lc_tensor *b = lc_module_add_parameter(&f.root, "b", 0, LC_ROW_MAJOR, 0, NULL, (lc_init){0});
    f.opt = lc_sgd(&f.root, .no_parameters = true, .lr = 1);
    CHECK_EQ(lc_optimizer_add_group(f.opt, "a", &a, 1), 0);
    lc_scheduler *s = lc_exponential_lr(f.opt, .gamma = 0.5);
    CHECK_EQ(lc_optimizer_add_group(f.opt, "b", &b, 1), 1);
    CHECK_OK(lc_optimizer_set(f.opt, 1, "lr", 10));
    CHECK_OK(lc_scheduler_step(s));
    CHECK_NEAR(f.opt->groups[0].hyper[0], 0.5, 1e-15);
    CHECK_NEAR(f.opt->groups[1].hyper[0], 5, 1e-15);
    teardown(&f, s);
}

/* The recursive form keeps a rate that was changed by hand. */
TEST(a_rate_changed_by_hand_stays_changed)
{
    fixture f;
    setup(&f, 0.1);
    lc_scheduler *s = lc_exponential_lr(f.opt, .gamma = 0.5);
    CHECK_OK(lc_scheduler_step(s));
    CHECK_OK(lc_optimizer_set(f.opt, -1, "lr", 8));
    CHECK_OK(lc_scheduler_step(s));
    CHECK_NEAR(lr(&f), 4, 1e-15);
    teardown(&f, s);
}

static double warmup(void *ctx, int64_t epoch)
{
    return (double)(epoch + 1) / *(int *)ctx;
}

TEST(lambda_lr)
{
    fixture f;
    int n = 4;
    setup(&f, 2);
    lc_scheduler *s = lc_lambda_lr(f.opt, .fn = warmup, .ctx = &n);
    CHECK_NEAR(lr(&f), 0.5, 1e-15);
    CHECK_OK(lc_scheduler_step(s));
    CHECK_NEAR(lr(&f), 1, 1e-15);
    teardown(&f, s);
}

TEST(every_group_moves_from_its_own_base)
{
    fixture f;
    lc_module_init(&f.root, NULL, 1);
    lc_tensor *a = lc_module_add_parameter(&f.root, "a", 0, LC_ROW_MAJOR, 0, NULL, (lc_init){0});
    lc_tensor *b = lc_module_add_parameter(&f.root, "b", 0, LC_ROW_MAJOR, 0, NULL, (lc_init){0});
    f.opt = lc_adam(&f.root, .no_parameters = true, .lr = 1);
    CHECK_EQ(lc_optimizer_add_group(f.opt, "a", &a, 1), 0);
    CHECK_EQ(lc_optimizer_add_group(f.opt, "b", &b, 1), 1);
    CHECK_OK(lc_optimizer_set(f.opt, 1, "lr", 10));
    lc_scheduler *s = lc_linear_lr(f.opt, .start_factor = 0.5, .total_iters = 2);
    CHECK_NEAR(f.opt->groups[0].hyper[0], 0.5, 1e-15);
    CHECK_NEAR(f.opt->groups[1].hyper[0], 5, 1e-15);
    CHECK_OK(lc_scheduler_step(s));
    CHECK_NEAR(f.opt->groups[1].hyper[0], 7.5, 1e-15);
    teardown(&f, s);
}

TEST(plateau_needs_a_metric_and_waits)
{
    fixture f;
    setup(&f, 1);
    lc_scheduler *s = lc_reduce_lr_on_plateau(f.opt, .patience = 1, .cooldown = 1, .max = true, .min_lr = 0.05);
    CHECK(lc_scheduler_needs_metric(s));
    CHECK_STATUS(lc_scheduler_step(s), LC_ERR_ARGUMENT);
    static const double metric[] = {5, 5, NAN, 4, 4, 4, 4, 4, 6, 6};
    static const double want[] = {1, 1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05};
    for (int i = 0; i < 10; i++) {
        CHECK_OK(lc_scheduler_step_metric(s, metric[i]));
        CHECK_NEAR(lr(&f), want[i], 1e-12);
    }
    teardown(&f, s);
}

TEST(one_cycle_moves_beta1_and_ends)
{
    fixture f;
    lc_module_init(&f.root, NULL, 1);
    lc_module_add_parameter(&f.root, "w", 0, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    f.opt = lc_adam(&f.root);
    lc_scheduler *s = lc_one_cycle_lr(f.opt, .max_lr = 1, .total_steps = 10, .linear = true);
    double beta1;
    CHECK_NEAR(lr(&f), 1.0 / 25, 1e-15);
    for (int i = 0; i < 2; i++) CHECK_OK(lc_scheduler_step(s));
    CHECK_OK(lc_optimizer_get(f.opt, 0, "beta1", &beta1));
    CHECK_NEAR(lr(&f), 1, 1e-12);
    CHECK_NEAR(beta1, 0.85, 1e-12);
    for (int i = 0; i < 8; i++) CHECK_OK(lc_scheduler_step(s));
    CHECK_STATUS(lc_scheduler_step(s), LC_ERR_STATE);
    teardown(&f, s);
}

/* A group that joins later begins with the constructor's momentum, as in PyTorch: a resumed run, whose schedule has not
 * moved yet when the group is added again, could not know another. */
TEST(a_cycled_momentum_is_not_that_of_later_groups)
{
    fixture f;
    double momentum;
    setup(&f, 0.1);
    lc_scheduler *s = lc_one_cycle_lr(f.opt, .max_lr = 1, .total_steps = 10);
    CHECK_NEAR(f.opt->groups[0].hyper[2], 0.95, 1e-15);
    lc_tensor *later = lc_module_add_parameter(&f.root, "later", 0, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    CHECK_EQ(lc_optimizer_add_group(f.opt, NULL, &later, 1), 1);
    CHECK_OK(lc_optimizer_get(f.opt, 1, "momentum", &momentum));
    CHECK_NEAR(momentum, 0.9, 0);
    CHECK_OK(lc_scheduler_step(s));
    CHECK_OK(lc_optimizer_get(f.opt, 1, "momentum", &momentum));
    CHECK_NEAR(momentum, f.opt->groups[0].hyper[2], 0);
    teardown(&f, s);
}

/* A cycled momentum needs a buffer, which plain SGD does not have. */
TEST(cycling_the_momentum_of_plain_sgd)
{
    fixture f;
    lc_module_init(&f.root, NULL, 1);
    lc_module_add_parameter(&f.root, "w", 0, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    f.opt = lc_sgd(&f.root, .lr = 0.1);
    CHECK(f.opt->ops->state_names[0] == NULL);
    lc_scheduler *s = lc_one_cycle_lr(f.opt, .max_lr = 1, .total_steps = 10);
    CHECK_OK(lc_module_status(&f.root));
    CHECK_STR(f.opt->ops->state_names[0], "momentum_buffer");
    CHECK_NEAR(f.opt->groups[0].hyper[2], 0.95, 1e-15);
    teardown(&f, s);
    lc_module_init(&f.root, NULL, 1);
    lc_module_add_parameter(&f.root, "w", 0, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    f.opt = lc_adagrad(&f.root);
    CHECK(lc_one_cycle_lr(f.opt, .max_lr = 1, .total_steps = 10) == NULL);
    CHECK_STATUS(lc_module_status(&f.root), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "no_cycle_momentum");
    teardown(&f, NULL);
}

static lc_scheduler *warm_cosine(lc_optimizer *opt)
{
    lc_scheduler *parts[] = {lc_linear_lr(opt, .start_factor = 0.1, .total_iters = 5),
                             lc_cosine_annealing_warm_restarts(opt, .T_0 = 3, .T_mult = 2),
                             lc_polynomial_lr(opt, .total_iters = 10, .power = 2)};
    static const int64_t milestones[] = {5, 12};
    return lc_sequential_lr(opt, .schedulers = parts, .n_schedulers = 3, .milestones = milestones);
}

TEST(sequential_hands_over)
{
    fixture f;
    setup(&f, 1);
    lc_scheduler *s = warm_cosine(f.opt);
    CHECK_OK(lc_module_status(&f.root));
    for (int t = 0; t < 20; t++) {
        double want, c = 3.14159265358979323846;
        if (t < 5)
            want = 0.1 + 0.9 * t / 5;
        else if (t < 8)
            want = (1 + cos(c * (t - 5) / 3)) / 2;
        else if (t < 12)
            want = (1 + cos(c * (t - 8) / 6)) / 2;
        else
            want = pow(1 - (t - 12) / 10.0, 2);
        CHECK_NEAR(lr(&f), want, 1e-12);
        CHECK_OK(lc_scheduler_step(s));
    }
    teardown(&f, s);
}

typedef struct saved {
    char names[64][48];
    double values[64];
    int n;
} saved;

static lc_status save(void *ctx, const char *name, double *value)
{
    saved *s = ctx;
    snprintf(s->names[s->n], sizeof s->names[0], "%s", name);
    s->values[s->n++] = *value;
    return LC_OK;
}

static lc_status load(void *ctx, const char *name, double *value)
{
    const saved *s = ctx;
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->names[i], name)) continue;
        *value = s->values[i];
        return LC_OK;
    }
    return lc_fail(LC_ERR_NOT_FOUND, "no %s", name);
}

/* Values from PyTorch. The rate with which a group began stays the one that other schedules compute with. */
TEST(a_cycle_among_other_schedules)
{
    static const double after_warmup[] = {0.01, 0.04, 0.07, 0.02, 0.06, 0.1, 0.06, 0.02};
    static const double chained[] = {0.1, 0.06, 0.1, 0.06, 0.02, 0.06};
    fixture f;
    setup(&f, 0.1);
    lc_scheduler *parts[2] = {lc_linear_lr(f.opt, .start_factor = 0.1, .total_iters = 3),
                              lc_cyclic_lr(f.opt, .base_lr = 0.02, .max_lr = 0.1, .step_size_up = 2)};
    lc_scheduler *s = lc_sequential_lr(f.opt, .schedulers = parts, .n_schedulers = 2, .milestones = (int64_t[]){3});
    for (int t = 0; t < 8; t++) {
        CHECK_NEAR(lr(&f), after_warmup[t], 1e-12);
        CHECK_OK(lc_scheduler_step(s));
    }
    teardown(&f, s);
    setup(&f, 0.1);
    parts[0] = lc_exponential_lr(f.opt, .gamma = 0.5);
    parts[1] = lc_cyclic_lr(f.opt, .base_lr = 0.02, .max_lr = 0.1, .step_size_up = 2);
    s = lc_chained_scheduler(f.opt, .schedulers = parts, .n_schedulers = 2);
    for (int t = 0; t < 6; t++) {
        CHECK_NEAR(lr(&f), chained[t], 1e-12);
        CHECK_OK(lc_scheduler_step(s));
    }
    teardown(&f, s);
}

/* Values from PyTorch. */
TEST(a_sequence_may_begin_with_its_second_schedule)
{
    static const double want[] = {0.01, 0.04, 0.07, 0.1, 0.1, 0.1, 0.05, 0.025};
    static const int64_t milestones[] = {0, 5};
    fixture f;
    setup(&f, 0.1);
    lc_scheduler *parts[3] = {lc_constant_lr(f.opt, .factor = 0.5, .total_iters = 2),
                              lc_linear_lr(f.opt, .start_factor = 0.1, .total_iters = 3),
                              lc_exponential_lr(f.opt, .gamma = 0.5)};
    lc_scheduler *s = lc_sequential_lr(f.opt, .schedulers = parts, .n_schedulers = 3, .milestones = milestones);
    for (int t = 0; t < 8; t++) {
        CHECK_NEAR(lr(&f), want[t], 1e-12);
        CHECK_OK(lc_scheduler_step(s));
    }
    teardown(&f, s);
}

TEST(state_can_be_saved_at_any_step)
{
    fixture a, b;
    for (int k = 0; k < 18; k++) {
        saved state = {.n = 0};
        setup(&a, 1);
        setup(&b, 1);
        lc_scheduler *s = warm_cosine(a.opt), *r = warm_cosine(b.opt);
        for (int t = 0; t < k; t++) CHECK_OK(lc_scheduler_step(s));
        CHECK_OK(lc_scheduler_visit_state(s, save, &state));
        CHECK_STR(state.names[0], "last_epoch");
        CHECK_OK(lc_scheduler_visit_state(r, load, &state));
        b.opt->groups[0].hyper[0] = lr(&a);
        for (int t = k; t < 20; t++) {
            CHECK_OK(lc_scheduler_step(s));
            CHECK_OK(lc_scheduler_step(r));
            CHECK(lr(&a) == lr(&b));
        }
        teardown(&a, s);
        teardown(&b, r);
    }
}

TEST(errors_name_the_wrong_argument)
{
    fixture f;
    lc_scheduler *s = NULL;
    setup(&f, 1);
    CHECK_STATUS(lc_scheduler_by_name("StepLR", f.opt, NULL, 0, NULL, 0, NULL, 0, &s), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "step_size");
    CHECK_STATUS(lc_scheduler_by_name("StepLr", f.opt, NULL, 0, NULL, 0, NULL, 0, &s), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "CosineAnnealingLR");
    lc_named_number wrong = {"gama", 1};
    CHECK_STATUS(lc_scheduler_by_name("ExponentialLR", f.opt, &wrong, 1, NULL, 0, NULL, 0, &s), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "gamma");
    CHECK_OK(lc_module_status(&f.root));
    CHECK(lc_cosine_annealing_lr(f.opt) == NULL);
    CHECK_STATUS(lc_module_status(&f.root), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "T_max");
    teardown(&f, NULL);
}

TEST(a_schedule_cannot_be_twice_in_a_list)
{
    fixture f;
    setup(&f, 1);
    lc_scheduler *one = lc_step_lr(f.opt, .step_size = 1), *parts[] = {one, one};
    CHECK(lc_sequential_lr(f.opt, .schedulers = parts, .n_schedulers = 2, .milestones = (int64_t[]){1}) == NULL);
    CHECK_STATUS(lc_module_status(&f.root), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "schedule 1 is in the list twice");
    teardown(&f, NULL);
}

TEST(a_schedule_belongs_to_one_other)
{
    fixture f;
    setup(&f, 1);
    lc_optimizers list = {0};
    lc_scheduler *one = lc_step_lr(f.opt, .step_size = 1), *parts[] = {one};
    lc_scheduler *all = lc_chained_scheduler(f.opt, .schedulers = parts, .n_schedulers = 1);
    CHECK(all != NULL);
    CHECK(lc_chained_scheduler(f.opt, .schedulers = parts, .n_schedulers = 1) == NULL);
    CHECK_CONTAINS(lc_error_message(), "the schedule StepLR belongs to a ChainedScheduler; make another");
    CHECK_STATUS(lc_optimizers_add_scheduler(&list, (lc_scheduler_config){.scheduler = one}), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "the schedule StepLR belongs to a ChainedScheduler");
    lc_scheduler_free(one); /* of no effect */
    parts[0] = (lc_scheduler *)f.opt;
    CHECK(lc_chained_scheduler(f.opt, .schedulers = parts, .n_schedulers = 1) == NULL);
    CHECK_CONTAINS(lc_error_message(), "this is not a schedule");
    CHECK_OK(lc_scheduler_step(all));
    teardown(&f, all);
}

/* ---- PyTorch's recordings ---- */

static lc_scheduler *from_json(lc_optimizer *opt, const cJSON *spec)
{
    lc_named_number args[16];
    int64_t milestones[16];
    lc_scheduler *children[8], *s = NULL;
    int n_args = 0, n_milestones = 0, n_children = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(spec, "args"))
    {
        if (cJSON_IsArray(item)) {
            const cJSON *m;
            cJSON_ArrayForEach(m, item) milestones[n_milestones++] = (int64_t)m->valuedouble;
        } else {
            args[n_args++] =
                (lc_named_number){item->string, cJSON_IsBool(item) ? cJSON_IsTrue(item) : item->valuedouble};
        }
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(spec, "milestones")) milestones[n_milestones++] =
        (int64_t)item->valuedouble;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(spec, "of")) children[n_children++] = from_json(opt, item);
    CHECK_OK(lc_scheduler_by_name(cJSON_GetObjectItem(spec, "class")->valuestring, opt, args, n_args, milestones,
                                  n_milestones, children, n_children, &s));
    return s;
}

static void check_value(const cJSON *c, const char *list, int t, double got)
{
    const cJSON *values = cJSON_GetObjectItem(c, list);
    if (!values) return;
    double want = cJSON_GetArrayItem(values, t)->valuedouble;
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        TEST_FAIL("%s, %s at step %d: %.17g, PyTorch has %.17g", cJSON_GetObjectItem(c, "name")->valuestring, list, t,
                  got, want);
    }
}

TEST(recordings_of_pytorch)
{
    cJSON *json = read_recording("schedulers.json");
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(json, "cases"))
    {
        fixture f;
        const cJSON *start = cJSON_GetObjectItem(c, "lr"), *metric = cJSON_GetObjectItem(c, "metric");
        setup(&f, start ? start->valuedouble : 0.1);
        lc_scheduler *s = from_json(f.opt, c);
        int n = cJSON_GetArraySize(cJSON_GetObjectItem(c, "lrs"));
        CHECK(n > 1);
        for (int t = 0; t < n; t++) {
            check_value(c, "lrs", t, lr(&f));
            check_value(c, "momentum", t, f.opt->groups[0].hyper[2]);
            if (t + 1 == n) break;
            if (metric)
                CHECK_OK(lc_scheduler_step_metric(s, cJSON_GetArrayItem(metric, t)->valuedouble));
            else
                CHECK_OK(lc_scheduler_step(s));
        }
        teardown(&f, s);
    }
    cJSON_Delete(json);
}

TEST_MAIN
