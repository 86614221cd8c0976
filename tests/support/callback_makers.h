/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks with which more than one test trains the network of callback_net.h. Those of test_torch_callbacks.c have
 * the arguments of tests/torch/callbacks.py. */
#ifndef LC_TESTS_CALLBACK_MAKERS_H
#define LC_TESTS_CALLBACK_MAKERS_H

#include "callback_net.h"

static inline lc_status make_swa(lc_callback *out)
{
    static const double lr = 0.05;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(2),
                                          .annealing_epochs = 3);
}
static inline lc_status make_mean(lc_callback *out)
{
    return lc_weight_averaging_new(NULL, out);
}
static inline lc_status make_accumulation(lc_callback *out)
{
    static const lc_accumulation list[] = {{1, 2}, {3, 3}};
    return lc_gradient_accumulation_scheduler(out, .scheduling = list, .n_scheduling = 2);
}
static inline lc_status freeze_all_but_head(void *context, lc_module *m)
{
    (void)context;
    lc_finetuning_freeze(m->children[0], false);
    return LC_OK;
}
/* context: whether batch norms are included */
static inline lc_status unfreeze_at_2(void *context, lc_module *m, int64_t epoch, lc_optimizer *opt)
{
    return epoch == 2
               ? lc_finetuning_unfreeze(m->children[0], opt, .initial_denom_lr = 4, .train_bn = *(const bool *)context)
               : LC_OK;
}
static inline lc_status make_finetuning_with(bool *train_bn, lc_callback *out)
{
    return lc_finetuning(out, .context = train_bn, .freeze_before_training = freeze_all_but_head,
                         .finetune_function = unfreeze_at_2);
}
static inline lc_status make_pruning(lc_callback *out)
{
    return lc_model_pruning(out, .pruning_fn = "l1_unstructured", .amount = 0.3);
}
static inline lc_status make_structured_pruning(lc_callback *out)
{
    static const char *const paths[] = {"backbone.l1.weight"};
    return lc_model_pruning(out, .pruning_fn = "ln_structured", .pruning_norm = 2, .amount = 0.25,
                            .parameters_to_prune = paths, .n_parameters_to_prune = 1,
                            .use_lottery_ticket_hypothesis = LC_OFF);
}

#endif
