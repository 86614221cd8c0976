/* SPDX-License-Identifier: Apache-2.0 */
/* Options that exclude each other are refused when the trainer is made, before any hook runs. */
#include "quiet_options.h"
#include "test.h"

TEST(a_share_of_an_epoch_without_epochs)
{
    static const struct {
        lc_duration interval;
        int64_t every;
        bool fits;
    } rows[] = {{LC_FRACTION(1), LC_UNSET, false},
                {LC_FRACTION(0.5), LC_UNSET, false},
                {LC_FRACTION(0.5), 1, true},
                {LC_BATCHES(10), LC_UNSET, true},
                {{0}, LC_UNSET, true},
                {LC_SECONDS(5), LC_UNSET, true}};
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        lc_trainer_options o = quiet_options(NULL);
        lc_trainer *t = NULL;
        o.val_check_interval = rows[i].interval;
        o.check_val_every_n_epoch = rows[i].every;
        lc_status s = lc_trainer_new(&o, &t);
        if (rows[i].fits) CHECK_OK(s);
        if (!rows[i].fits) CHECK_STATUS(s, LC_ERR_CONFIG);
        if (!rows[i].fits) CHECK_CONTAINS(lc_error_message(), "val_check_interval must be a number of batches");
        lc_trainer_free(t);
    }
}
TEST_MAIN
