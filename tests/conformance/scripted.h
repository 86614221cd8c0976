/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted runs: reading a case, and what is observed when lightc runs it. */
#ifndef LC_TESTS_SCRIPTED_H
#define LC_TESTS_SCRIPTED_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer_world.h"

/* ---- reading a case ---- */
int64_t get_int(const lc_state *s, const char *key, int64_t otherwise);
double get_double(const lc_state *s, const char *key, double otherwise);
bool get_bool(const lc_state *s, const char *key, bool otherwise);
const char *get_text(const lc_state *s, const char *key, const char *otherwise);
const lc_state *get(const lc_state *s, const char *key);

/* ---- texts ---- */
void add(char *text, size_t size, const char *format, ...) LC_PRINTF(3, 4);
void add_number(char *text, size_t size, double v); /* six decimals, as in the recordings */

/* Settings for cases that Lightning interprets in another way (rules.c says which cases and why). */
typedef struct run_settings {
    bool divide_by_k;         /* a short accumulation window is divided by accumulate_grad_batches */
    bool callbacks_at_epochs; /* checkpoints and early stopping are evaluated at the end of the epoch */
} run_settings;

/* The record of one side. Texts are normalized, so that equal texts are equal records. */
typedef struct outcome {
    bool failed;
    lc_status status;  /* lightc */
    const char *error; /* Lightning: the name of the exception */
    char message[1024];
    trace tr;         /* "who.hook:epoch,step " */
    char rows[32768]; /* "step=1 epoch=0 a=1 b=2|" */
    bool ran;         /* the fields below were observed */
    int64_t global_step, current_epoch;
    bool should_stop;
    char weight[64], metrics[4096], early[512], checkpoints[1024], files[16384], result[1024];
} outcome;

/* Runs a case, and its resumed part, in a directory of its own. False: it could not be run at all. */
bool scripted_run(const lc_state *c, const run_settings *how, outcome *out);

#endif
