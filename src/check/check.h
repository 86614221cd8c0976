/* SPDX-License-Identifier: Apache-2.0 */
/* lc_backend_check: whether a backend computes what the reference kernels do, and whether its memory and its queue are
 * what include/lightc/backend.h says.
 *
 * math_rows.c and nn_rows.c run the rows of rows_math.h and rows_nn.h, in other types and sizes too (form.c), and
 * networks.c trains networks, others.c calls what is left, all on the host with reference kernels. step.c passes every
 * call that they make to check_call (calls.c), which asks the backend for kernels and runs each of them on copies of
 * the operands (values.c) in several layouts (layouts.c), and also as mixed precision stores them (stored.c). queue.c
 * checks the rest. */
#ifndef LC_CHECK_CHECK_H
#define LC_CHECK_CHECK_H

#include "record/graph_impl.h"

#include <lightc/lightc.h>

enum { CHECK_SHOWN = 3 }; /* failures of an operator that are printed */

typedef struct check check;

/* ---- main.c ---- */
struct check {
    const lc_device *on;
    const void *set; /* of kernels */
    struct memory *memory;
    struct result *results; /* by operator */
    int n_results;
    uint32_t cap_results;
    uint64_t *seen; /* the calls that were checked, as hashes */
    uint64_t n_seen, cap_seen;
    int failed;
    bool exact;       /* no result may differ at all */
    bool random;      /* parameters of 16 bits are rounded at random */
    lc_status status; /* what ended the check */
};

typedef struct result {
    const lc_op *op;
    int64_t calls, low, refused; /* low: of f32, stored in 16 bits; refused: the backend has no kernel for them */
    int failures;
} result;

result *result_of(check *c, const lc_op *op);
/* Prints what is wrong, unless there has been much of that operator. */
void report(check *c, const lc_call *call, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Whether it is the first time. */
bool is_new(check *c, uint64_t hash);

/* ---- math_rows.c, nn_rows.c, networks.c, others.c: LC_OK unless the check itself fails ---- */
lc_status check_math_rows(check *c) LC_MUST_USE;
lc_status check_nn_rows(check *c) LC_MUST_USE;
lc_status check_networks(check *c) LC_MUST_USE;
lc_status check_others(check *c) LC_MUST_USE;

/* ---- step.c ---- */
/* Plans what was recorded on the host, and checks its calls one after the other. The step then has run. Its tensors are
 * persistent. */
lc_status check_step(check *c, lc_graph *g) LC_MUST_USE;

/* ---- calls.c ---- */
/* Runs the call, a reference kernel's of the host, and compares the backend's kernels with it. */
lc_status check_call(check *c, lc_graph *g, lc_call *call) LC_MUST_USE;

/* ---- layouts.c ---- */
typedef enum check_layout {
    AS_PLANNED,
    ROW_MAJOR,
    CHANNELS_LAST,
    PADDED_ROWS,
    TRANSPOSED,
    SPREAD,
    LAYOUTS
} check_layout;
extern const char *const layout_names[LAYOUTS];
/* The strides of a view of that shape; false: it has none of its own. */
bool layout_of(const lc_view *v, check_layout layout, int64_t *stride);
/* Whether the planner may give a kernel these operands. */
bool kernel_takes(const lc_kernel *kernel, const lc_call *call);

/* ---- memory.c: operands of a call on the device ---- */
typedef struct memory memory;
lc_status memory_new(const lc_device *on, memory **out) LC_MUST_USE;
void memory_free(memory *m);
void memory_reset(memory *m);
/* Adds a place for `bytes`, filled from `data` unless that is NULL. *at: where, on the host and on the device. */
lc_status memory_add(memory *m, const void *data, size_t bytes, size_t *at) LC_MUST_USE;
void *memory_device(const memory *m, size_t at);
void *memory_host(const memory *m, size_t at);
/* Copies all that was added to the device, and back. */
lc_status memory_send(memory *m) LC_MUST_USE;
lc_status memory_fetch(memory *m) LC_MUST_USE;

/* ---- queue.c ---- */
void check_queue(check *c);

#endif
