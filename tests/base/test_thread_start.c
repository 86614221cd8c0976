/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that cannot start gives the same error everywhere: out of memory, with the thread's purpose and the reason.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* the default attributes of threads */
#endif
#include "comm/control/control.h"
#include "launch/launch.h"
#include "loggers/writer.h"
#include "parallel/devices/team.h"

#include "quiet_options.h"
#include "small_net.h"
#include "test.h"

#include <pthread.h>

/* No system gives a thread a stack of 64 TiB. */
static void refuse_threads(bool on)
{
    static pthread_attr_t usual;
    static bool known;
    pthread_attr_t huge;
    if (!known) known = pthread_getattr_default_np(&usual) == 0;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 46);
    pthread_setattr_default_np(on ? &huge : &usual);
    pthread_attr_destroy(&huge);
}

static lc_status fit(lc_trainer_options opt)
{
    small_net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    LC_TRY(loader_of(0, 8, 4, false, &train));
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    opt.max_epochs = 1;
    lc_status s = lc_trainer_new(&opt, &t);
    if (s >= 0) {
        s = lc_trainer_fit(t, &m.base, .train_dataloader = train);
        lc_trainer_free(t);
    }
    lc_dataloader_free(train);
    small_net_release(&m);
    return s;
}

static lc_status loader_worker(void)
{
    static const float x[4];
    lc_array array = {.field = {.name = "x", .dtype = LC_F32}, .data = x};
    lc_dataset *d;
    lc_dataloader *l;
    LC_TRY(lc_array_dataset_new(4, 1, &array, &d));
    lc_status s = lc_dataloader_new(&l, .dataset = d, .batch_size = 2, .num_workers = 2);
    lc_dataset_unref(d);
    return s;
}

static lc_status device(void)
{
    lc__team *team;
    return lc__team_new(2, &team);
}

static lc_status no_sink(void *self, const lc__log_batch *batch)
{
    return (void)self, (void)batch, LC_OK;
}

static lc_status log_writer(void)
{
    lc__log_writer *w;
    return lc__log_writer_new("nowhere", no_sink, NULL, 1000, &w);
}

static lc_status coordinator(void)
{
    lc__coordinator *c;
    int port = 0;
    return lc__coordinator_start(NULL, &port, 1, "the secret of a test", NULL, &c);
}

static lc_status output_of_ranks(void)
{
    lc__gather *g;
    int files[1] = {-1}, fd;
    return lc__gather_start("", "mark", files, 1, &fd, &g);
}

static lc_status signals(void)
{
    lc_trainer_options opt = quiet_options(NULL);
    opt.handle_signals = true;
    return fit(opt);
}

static lc_status notifier(void)
{
    lc_callback callback;
    lc_trainer_options opt = quiet_options(NULL);
    LC_TRY(lc_notifier(&callback, .url = "http://127.0.0.1:9/"));
    opt.callbacks = &callback;
    opt.n_callbacks = 1;
    return fit(opt);
}

TEST(one_error_for_all_threads)
{
    static const struct {
        lc_status (*start)(void);
        const char *message;
    } threads[] = {
        {loader_worker, "cannot start a thread for worker 1 of 2 of the loader: "},
        {device, "cannot start a thread for device 2 of 2: "},
        {log_writer, "cannot start a thread for logger nowhere: "},
        {coordinator, "cannot start a thread for coordinating the run: "},
        {output_of_ranks, "cannot start a thread for the output of ranks: "},
        {signals, "cannot start a thread for signals: "},
        {notifier, "cannot start a thread for Notifier: "},
    };
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        refuse_threads(true);
        lc_status s = threads[i].start();
        refuse_threads(false);
        CHECK_STATUS(s, LC_ERR_MEMORY);
        CHECK_CONTAINS(lc_error_message(), threads[i].message);
    }
}

TEST_MAIN
