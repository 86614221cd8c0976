/* SPDX-License-Identifier: Apache-2.0 */
/* Logs one of everything that a logger can get, for tests that check what it made of it. */
#ifndef LC_LOG_EVERYTHING_H
#define LC_LOG_EVERYTHING_H

#include "test.h"
#include <lightc/logger.h>

#define EVERYTHING_NS 1700000000250000000LL

static const lc_hparam everything_hparams[] = {
    {"lr", LC_HPARAM_FLOAT, .number = 1e-3},
    {"layers", LC_HPARAM_INT, .integer = 4},
    {"bias", LC_HPARAM_BOOL, .integer = 1},
    {"name", LC_HPARAM_TEXT, .text = "r\xc3\xa9snet"},
    {"clip", LC_HPARAM_NONE},
};

/* Missing slots are skipped, as by the trainer. */
static inline void log_everything(lc_logger l)
{
    const lc_logger_ops *o = l.ops;
    lc_metric_value v[] = {{"train_loss", 0.5}, {"val/acc", 1}};
    const double edges[] = {-2, 0, 1, 3}, counts[] = {1, 2, 3};
    const int64_t t = EVERYTHING_NS, second = 1000000000;
    uint8_t pixels[18];
    for (int i = 0; i < 18; i++) pixels[i] = (uint8_t)(i * 13);
    if (o->log_hyperparameters) CHECK_OK(o->log_hyperparameters(l.self, everything_hparams, 5));
    CHECK_OK(o->log_row(l.self, &(lc_log_row){v, 2, 0, 0, t}));
    v[0].value = 0.25;
    CHECK_OK(o->log_row(l.self, &(lc_log_row){v, 1, 1, 0, t + second}));
    CHECK_OK(o->flush(l.self));
    v[0].value = (double)NAN;
    CHECK_OK(o->log_row(l.self, &(lc_log_row){v, 1, (int64_t)1 << 40, -1, t + 2 * second}));
    if (o->log_histogram)
        CHECK_OK(o->log_histogram(l.self, &(lc_log_histogram){"weights", 7, t, 3, edges, counts, -2, 3, 6, 4, 14.5}));
    if (o->log_image) {
        CHECK_OK(o->log_image(l.self, &(lc_log_image){"picture", 8, t, 3, 2, 3, pixels}));
        CHECK_OK(o->log_image(l.self, &(lc_log_image){"gray", 8, t, 2, 1, 1, (const uint8_t[]){0, 255}}));
    }
    if (o->log_text)
        CHECK_OK(o->log_text(l.self, &(lc_log_text){"note", 9, t,
                                                    "**gr\xc3\xb6\xc3\x9f"
                                                    "er** than\nthis"}));
}

#endif
