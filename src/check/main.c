/* SPDX-License-Identifier: Apache-2.0 */
/* The program lc_backend_check. */
#include "check/check.h"
#include "base/grow.h"
#include "base/str.h"
#include "builtin.h"
#include "device/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ---- */

result *result_of(check *c, const lc_op *op)
{
    static result lost;
    for (int i = 0; i < c->n_results; i++)
        if (c->results[i].op == op) return &c->results[i];
    if (lc__grow(&c->results, &c->cap_results, (uint32_t)c->n_results, 1, "results") < 0) return &lost;
    c->results[c->n_results] = (result){.op = op};
    return &c->results[c->n_results++];
}

static void show_operands(const lc_call *call)
{
    for (int i = 0; i < call->n_in; i++) {
        char text[128];
        const lc_view *v = &call->in[i];
        lc_type type = lc__view_type(v);
        if (v->ndim < 0) continue;
        printf(" %s%s", lc_dtype_name(v->dtype), lc__shape_text(&type, text, sizeof text));
    }
}

void report(check *c, const lc_call *call, const char *format, ...)
{
    va_list args;
    result *r = result_of(c, call->op);
    c->failed++;
    if (r->failures++ >= CHECK_SHOWN) return;
    printf("%s of", call->op->name);
    show_operands(call);
    printf(": ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

/* A set of numbers, in a table that is at most half full. */
static bool grow_seen(check *c)
{
    uint64_t more = c->cap_seen ? 2 * c->cap_seen : 1 << 16, *seen = calloc(more, sizeof *seen);
    if (!seen) return false;
    for (uint64_t i = 0; i < c->cap_seen; i++) {
        uint64_t at = c->seen[i] % more;
        if (!c->seen[i]) continue;
        while (seen[at]) at = (at + 1) % more;
        seen[at] = c->seen[i];
    }
    free(c->seen);
    c->seen = seen;
    c->cap_seen = more;
    return true;
}

bool is_new(check *c, uint64_t hash)
{
    if (2 * c->n_seen >= c->cap_seen && !grow_seen(c)) return false;
    hash += hash == 0;
    uint64_t at = hash % c->cap_seen;
    for (; c->seen[at]; at = (at + 1) % c->cap_seen)
        if (c->seen[at] == hash) return false;
    c->seen[at] = hash;
    c->n_seen++;
    return true;
}

/* ---- the table ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const result *)a)->op->name, ((const result *)b)->op->name);
}

/* Adds rows for operators that the check has not called, except what a backend does not compute: views, macros, what
 * ranks do together, and sums of chunks, which are made of trees of ranks. */
static void list_all(check *c)
{
    for (const lc_op *const *const *list = lc__builtin->operators; *list; list++)
        for (const lc_op *const *op = *list; *op; op++) {
            bool computed = !((*op)->flags & (LC_OP_VIEW | LC_OP_HOST)) && !lc__is_macro(*op);
            if (computed && *op != lc__op_find("combine_grad") && (*op)->kernel) (void)result_of(c, *op);
        }
}

static void show_results(check *c)
{
    list_all(c);
    if (c->n_results) qsort(c->results, (size_t)c->n_results, sizeof *c->results, by_name);
    printf("\n%-32s %10s %10s %10s %10s\n", "operator", "calls", "low", "no kernel", "failures");
    for (int i = 0; i < c->n_results; i++) {
        const result *r = &c->results[i];
        printf("%-32s %10lld %10lld %10lld %10d%s\n", r->op->name, (long long)r->calls, (long long)r->low,
               (long long)r->refused, r->failures,
               r->failures  ? "  FAILED"
               : r->calls   ? ""
               : r->refused ? "  not there"
                            : "  not checked");
    }
}

/* ---- the program ---- */

static lc_status check_kernels(check *c)
{
    LC_TRY(memory_new(c->on, &c->memory));
    LC_TRY(check_math_rows(c));
    LC_TRY(check_nn_rows(c));
    LC_TRY(check_networks(c));
    return check_others(c);
}

static lc_status run(check *c, const char *name)
{
    char shown[LC__DEVICE_NAME], kernels[128] = "";
    LC_TRY(lc__device_find(name, &c->on));
    (void)lc__device_use(lc__host_device());
    LC_TRY(c->on->ops->kernel_set(c->on->context, &c->set));
    if (c->on->ops->describe) c->on->ops->describe(c->set, kernels, sizeof kernels);
    printf("%s: %s\n", lc__device_name(c->on, shown), kernels);
    lc_status status = check_kernels(c);
    char why[1024];
    if (status < 0) lc__copy_message(why, sizeof why);
    show_results(c);
    if (status < 0) return lc_fail(status, "%s", why);
    if (lc__on_host(c->on)) return LC_OK;
    printf("\n");
    check_queue(c);
    return LC_OK;
}

static const char usage[] =
    "usage: lc_backend_check [--exact] NAME | --version | --help\n\n"
    "  Checks the kernels, the memory and the queue of the backend NAME (\"cuda\", \"sim:1\"),\n"
    "  which is in the folder that LIGHTC_BACKEND_PATH names, or where dlopen looks.\n"
    "  Results may differ from those of the reference kernels by what rounding explains;\n"
    "  with --exact, not at all. \"low\" counts calls of f32 whose operands are stored in 16 bits.\n";

int main(int argc, char **argv)
{
    check c = {0};
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return printf("%s", usage) < 0;
    if (argc == 2 && !strcmp(argv[1], "--version")) return printf("lc_backend_check %s\n", lc_version()) < 0;
    c.exact = argc == 3 && !strcmp(argv[1], "--exact");
    if (argc != 2 + c.exact || *argv[argc - 1] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    lc_status status = run(&c, argv[argc - 1]);
    if (status < 0 && c.set) printf("the check ends here: %s\n", lc_error_message());
    if (status < 0 && !c.set) fprintf(stderr, "error: %s\n", lc_error_message());
    if (status >= 0) printf("\n%d failures\n", c.failed);
    memory_free(c.memory);
    free(c.results);
    free(c.seen);
    return status < 0 || c.failed;
}
