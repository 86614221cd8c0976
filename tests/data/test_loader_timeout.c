/* SPDX-License-Identifier: Apache-2.0 */
/* The timeout of the loader: a worker that hangs is an error, and stops neither the program nor the loader's end. Run
 * under ThreadSanitizer too. */
#include "test.h"

#include <lightc/data.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- a dataset that hangs at sample 4 until it is let go ---- */

typedef struct gate {
    atomic_bool open;
    atomic_int freed, made; /* made: samples before it */
} gate;

static int64_t gate_length(void *self)
{
    (void)self;
    return 10;
}
static lc_status gate_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){.n = 1, .fields = {{.name = "index", .dtype = LC_I64}}};
    return LC_OK;
}
static lc_status gate_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    gate *g = self;
    (void)key, (void)scratch;
    while (index == 4 && !g->open) usleep(1000);
    *(int64_t *)out[0] = index;
    if (index < 4) g->made++;
    return LC_OK;
}
static void gate_free(void *self)
{
    ((gate *)self)->freed++;
}
static const lc_dataset_ops gate_ops = {LC_DATASET_OPS_INIT,       .name = "gate",  .length = gate_length,
                                        .describe = gate_describe, .get = gate_get, .free = gate_free};

static lc_dataloader *hanging(gate *g, int workers)
{
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *batch;
    g->open = false;
    g->made = 0;
    CHECK_OK(lc_dataset_new(&gate_ops, g, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 2, .num_workers = workers, .timeout = 2));
    lc_dataset_unref(d);
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    while (g->made < 4) usleep(1000); /* on a busy machine that may take longer */
    for (int b = 0; b < 2; b++) CHECK_OK(lc_dataloader_next(l, &batch));
    CHECK_STATUS(lc_dataloader_next(l, &batch), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "batch 2: no worker has made it within 2 s (timeout)");
    lc_dataloader_end(l);
    CHECK_CONTAINS(lc_error_message(), "batch 2: no worker has made it within 2 s (timeout)");
    return l;
}

TEST(a_batch_that_is_late_is_an_error)
{
    static gate g;
    for (int round = 0; round < 2; round++) {
        lc_dataloader *l = hanging(&g, 1 + 2 * round);
        lc_batch *batch;
        CHECK_STATUS(lc_dataloader_begin(l, 0, 0), LC_ERR_STATE);
        CHECK_CONTAINS(lc_error_message(), "not there in time");
        CHECK_STATUS(lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2}), LC_ERR_STATE);
        lc_dataloader_observe(l, NULL, NULL);
        g.open = true;
        while (lc_dataloader_begin(l, 1, 0) < 0) usleep(1000);
        for (int b = 0; b < 5; b++) {
            int64_t index[2];
            CHECK_OK(lc_dataloader_next(l, &batch));
            CHECK_OK(lc_tensor_read(batch->x, index, sizeof index));
            CHECK(index[0] == 2 * b && index[1] == 2 * b + 1);
        }
        lc_dataloader_free(l);
        CHECK_EQ(g.freed, round + 1);
    }
}

TEST(a_late_worker_outlives_its_loader)
{
    static gate g;
    for (int round = 0; round < 2; round++) {
        lc_dataloader_free(hanging(&g, 1 + 2 * round));
        CHECK_EQ(g.freed, round);
        g.open = true;
        for (int i = 0; i < 20000 && g.freed == round; i++) usleep(1000);
        CHECK_EQ(g.freed, round + 1);
    }
}

TEST_MAIN
