/* SPDX-License-Identifier: Apache-2.0 */
/* lc_reference_check DIR: compares lightc with recordings from PyTorch and TorchMetrics.
 *
 * DIR holds ops.json with ops.safetensors, optim.json, schedulers.json, metrics.json: lists of cases as data. Each file
 * is a part here; a part missing from DIR is skipped. To add an operator: a line in the table of check_ops.c.
 */
#ifndef REFERENCE_CHECK_H
#define REFERENCE_CHECK_H

#include <cjson/cJSON.h>
#include <lightc/lightc.h>

typedef struct check_result {
    int passed, failed, skipped;
} check_result;

/* One function per part: runs every case of the list. `dir` is the folder. */
void check_ops(const char *dir, const cJSON *cases, check_result *r);
void check_optim(const char *dir, const cJSON *cases, check_result *r);
void check_schedulers(const char *dir, const cJSON *cases, check_result *r);
void check_metrics(const char *dir, const cJSON *cases, check_result *r);

/* Counts a case; a failure prints its name and the reason. */
void check_pass(check_result *r);
void check_fail(check_result *r, const char *part, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- reading JSON ---- */
const char *json_text(const cJSON *object, const char *key, const char *otherwise);
bool json_has(const cJSON *object, const char *key);                        /* false also if it is null */
double json_number(const cJSON *object, const char *key, double otherwise); /* true is 1; "inf", "-inf", "nan" */
double json_value(const cJSON *item);
/* Reads a number or a list of numbers, at most `max`; returns how many. */
int json_ints(const cJSON *object, const char *key, int max, int64_t *out);

#endif
