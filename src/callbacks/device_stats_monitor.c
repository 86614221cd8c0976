/* SPDX-License-Identifier: Apache-2.0 */
/* DeviceStatsMonitor: what the process uses of the machine, at the start and end of batches whose rows are logged.
 *
 * To add a number: a line in `keys` and its value in look(). Nothing is allocated at a batch. */
#include "core/logging/logging.h"
#include "callbacks/callbacks.h"
#include "base/handle.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    CPU_PERCENT, /* of all threads of the process, since the last look; 100 is one core */
    CPU_VM_PERCENT,
    CPU_SWAP_PERCENT,
    RSS_BYTES,
    RSS_PEAK_BYTES,
    USER_SECONDS,
    SYSTEM_SECONDS,
    MAJOR_FAULTS,
    INVOLUNTARY_SWITCHES,
    PLANNED_BYTES,
    SCRATCH_BYTES,
    KEYS,
};
static const char *const keys[KEYS] = {"cpu_percent",    "cpu_vm_percent",    "cpu_swap_percent",
                                       "rss_bytes",      "rss_peak_bytes",    "user_seconds",
                                       "system_seconds", "major_page_faults", "involuntary_context_switches",
                                       "planned_bytes",  "scratch_bytes"};
enum { TRAIN_START, TRAIN_END, VAL_START, VAL_END, TEST_START, TEST_END, HOOKS };
static const char *const hooks[HOOKS] = {"on_train_batch_start",    "on_train_batch_end",  "on_validation_batch_start",
                                         "on_validation_batch_end", "on_test_batch_start", "on_test_batch_end"};

typedef struct device_stats {
    lc_device_stats_monitor_args a;
    bool hidden[KEYS];
    char names[HOOKS][KEYS][80];
    int meminfo, statm; /* files of /proc, kept open: opening them costs as much as reading */
    double cpu_seconds; /* at the last look */
    int64_t looked_ns;
} device_stats;

/* Reads a whole file of /proc again; false if there is none. */
static bool read_again(int fd, char *text, size_t size)
{
    ssize_t n = fd < 0 ? -1 : pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* "MemTotal:  123 kB" -> 123 */
static double field(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtod(at + strlen(name), NULL) : 0;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static double seconds(struct timeval v)
{
    return (double)v.tv_sec + (double)v.tv_usec * 1e-6;
}

static void look(device_stats *d, const lc_trainer *t, double values[KEYS])
{
    char text[4096];
    struct rusage u;
    lc_graph_stats g;
    memset(values, 0, KEYS * sizeof *values);
    if (read_again(d->meminfo, text, sizeof text)) {
        double total = field(text, "MemTotal:"), swap = field(text, "SwapTotal:");
        values[CPU_VM_PERCENT] = percent(total - field(text, "MemAvailable:"), total);
        values[CPU_SWAP_PERCENT] = percent(swap - field(text, "SwapFree:"), swap);
    }
    if (read_again(d->statm, text, sizeof text)) {
        const char *resident = strchr(text, ' ');
        values[RSS_BYTES] = (resident ? strtod(resident, NULL) : 0) * (double)sysconf(_SC_PAGESIZE);
    }
    if (getrusage(RUSAGE_SELF, &u) == 0) {
        int64_t now = lc__now_ns();
        double used = seconds(u.ru_utime) + seconds(u.ru_stime), wall = (double)(now - d->looked_ns) * 1e-9;
        values[CPU_PERCENT] = d->looked_ns ? percent(used - d->cpu_seconds, wall) : 0;
        d->cpu_seconds = used;
        d->looked_ns = now;
        values[RSS_PEAK_BYTES] = (double)u.ru_maxrss * 1024;
        values[USER_SECONDS] = seconds(u.ru_utime);
        values[SYSTEM_SECONDS] = seconds(u.ru_stime);
        values[MAJOR_FAULTS] = (double)u.ru_majflt;
        values[INVOLUNTARY_SWITCHES] = (double)u.ru_nivcsw;
    }
    lc_graph_get_stats(t->graph, &g);
    values[PLANNED_BYTES] = (double)g.planned_bytes;
    values[SCRATCH_BYTES] = (double)g.scratch_bytes;
}

static lc_status send(device_stats *d, lc_trainer *t, int hook)
{
    double values[KEYS];
    lc_metric_value row[KEYS];
    int n = 0;
    if (t->sanity || t->opt.fast_dev_run || !lc__should_log(t)) return LC_OK;
    look(d, t, values);
    for (int k = 0; k < KEYS; k++)
        if (!d->hidden[k]) row[n++] = (lc_metric_value){d->names[hook][k], values[k]};
    return lc_trainer_log_row(t, row, n, t->batches_that_stepped, -1);
}

/* ---- hooks ---- */

static lc_status ds_setup(void *self, lc_trainer *t, lc_stage stage)
{
    (void)self;
    return stage == LC_STAGE_FIT ? lc__needs_logger(t, "DeviceStatsMonitor") : LC_OK;
}

static lc_status ds_train_start(void *self, lc_trainer *t, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    return send(self, t, TRAIN_START);
}

static lc_status ds_train_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    return send(self, t, TRAIN_END);
}

static lc_status ds_eval_start(void *self, lc_trainer *t, const lc_batch *b, int64_t i, int loader)
{
    (void)b, (void)i, (void)loader;
    return send(self, t, t->stage == LC_STAGE_TEST ? TEST_START : VAL_START);
}

static lc_status ds_eval_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i, int loader)
{
    (void)o, (void)b, (void)i, (void)loader;
    return send(self, t, t->stage == LC_STAGE_TEST ? TEST_END : VAL_END);
}

static void ds_release(void *self)
{
    device_stats *d = self;
    if (d->meminfo >= 0) close(d->meminfo);
    if (d->statm >= 0) close(d->statm);
}

static const lc_callback_ops device_stats_ops = {
    LC_CALLBACK_OPS_INIT("DeviceStatsMonitor"),
    .no_vote = true,
    .setup = ds_setup,
    .on_train_batch_start = ds_train_start,
    .on_train_batch_end = ds_train_end,
    .on_validation_batch_start = ds_eval_start,
    .on_validation_batch_end = ds_eval_end,
    .on_test_batch_start = ds_eval_start,
    .on_test_batch_end = ds_eval_end,
    .free = lc__owned_free,
};

lc_status lc_device_stats_monitor_new(const lc_device_stats_monitor_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_device_stats_monitor, given);
    LC_TRY(lc__list_check("filter_keys", args->n_filter_keys, args->filter_keys));
    for (int i = 0; i < args->n_filter_keys; i++)
        if (!args->filter_keys[i]) return lc_fail(LC_ERR_ARGUMENT, "DeviceStatsMonitor: filter_keys[%d] is NULL", i);
    device_stats *d = lc__owned_new(sizeof *d, ds_release);
    if (!d) return lc_fail(LC_ERR_MEMORY, "out of memory: DeviceStatsMonitor");
    d->a = *args;
    d->meminfo = d->statm = -1;
    for (int i = 0; i < d->a.n_filter_keys; i++) {
        int k = 0;
        while (k < KEYS && strcmp(keys[k], d->a.filter_keys[i]) != 0) k++;
        if (k == KEYS) {
            lc_status s =
                lc_fail(LC_ERR_CONFIG, "DeviceStatsMonitor: filter_keys names \"%.40s\", which is not measured",
                        d->a.filter_keys[i]);
            lc__owned_free(d);
            return s;
        }
        d->hidden[k] = true;
    }
    for (int h = 0; h < HOOKS; h++)
        for (int k = 0; k < KEYS; k++)
            snprintf(d->names[h][k], sizeof d->names[h][k], "DeviceStatsMonitor.%s/%s", hooks[h], keys[k]);
    d->meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    d->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    *out = (lc_callback){&device_stats_ops, d};
    return LC_OK;
}
