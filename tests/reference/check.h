/* SPDX-License-Identifier: Apache-2.0 */
/* lc_reference_check [--accelerator NAME] [--precision NAME] DIR: compares lightc with recordings from PyTorch and
 * TorchMetrics.
 *
 * DIR holds ops.json with ops.safetensors, optim.json, schedulers.json, metrics.json: lists of cases as data. Each file
 * is a part here; a part missing from DIR is skipped. To add an operator: a line in the table of check_ops.c.
 */
#ifndef REFERENCE_CHECK_H
#define REFERENCE_CHECK_H

#include <cjson/cJSON.h>
#include <lightc/lightc.h>

typedef struct check_result {
    const char *precision; /* NULL: 32-true */
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

/* ---- precision.c: the precision that cases run with ---- */
typedef struct check_precision {
    const lc_precision_ops *ops;
    void *self;
    lc_graph_args graph; /* as the precision configures it */
} check_precision;

lc_status check_precision_begin(const char *name, check_precision *p);
void check_precision_end(check_precision *p);
lc_status check_convert(check_precision *p, lc_module *m);
lc_tensor *check_scale(const check_precision *p, lc_tensor *loss);
/* The type of 16 bits to which it rounds; 0 if there is none. */
lc_dtype check_low_type(const check_precision *p);
double check_rounded(lc_dtype dtype, double x);

/* ---- reading JSON ---- */
const char *json_text(const cJSON *object, const char *key, const char *otherwise);
bool json_has(const cJSON *object, const char *key);                        /* false also if it is null */
double json_number(const cJSON *object, const char *key, double otherwise); /* true is 1; "inf", "-inf", "nan" */
double json_value(const cJSON *item);
/* Reads a number or a list of numbers, at most `max`; returns how many. */
int json_ints(const cJSON *object, const char *key, int max, int64_t *out);

#endif
