/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions in files and in functions of the program. */
#include "callback_run.h"

TEST(predictions_are_written)
{
    run r;
    lc_callback cb[2];
    char npy[300], st[300];
    float kept[NET_SAMPLES], *rows;
    size_t n;
    run_init(&r);
    snprintf(npy, sizeof npy, "%s/out.npy", r.dir);
    snprintf(st, sizeof st, "%s/out.safetensors", r.dir);
    CHECK_OK(lc_prediction_writer(&cb[0], .path = npy));
    CHECK_OK(lc_prediction_writer(&cb[1], .path = st));
    r.o.callbacks = cb;
    r.o.n_callbacks = 2;
    CHECK_OK(lc_trainer_new(&r.o, &r.t));
    CHECK_OK(lc_trainer_predict(r.t, &r.m.base));
    int64_t at = 0;
    for (int64_t i = 0; i < lc_trainer_prediction_count(r.t, 0); i++) {
        lc_tensor *x = lc_trainer_prediction(r.t, 0, i);
        CHECK_OK(lc_tensor_read(x, kept + at, (size_t)lc_tensor_numel(x) * sizeof(float)));
        at += lc_tensor_numel(x);
    }
    CHECK_EQ(at, NET_SAMPLES);
    char *file = slurp(npy, &n);
    CHECK(memcmp(file, "\x93NUMPY\x01\x00", 8) == 0);
    size_t header = 10 + (unsigned char)file[8] + 256u * (unsigned char)file[9];
    CHECK_EQ(header % 64, 0);
    CHECK_CONTAINS(file + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (22,), }");
    CHECK_EQ(n, header + sizeof kept);
    rows = (float *)(void *)(file + header);
    CHECK(memcmp(rows, kept, sizeof kept) == 0);
    free(file);
    lc_safetensors *f;
    lc_tensor *x;
    CHECK_OK(lc_safetensors_open(st, &f));
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){NET_SAMPLES}, &x));
    CHECK_OK(lc_safetensors_load(f, "predictions", x));
    float loaded[NET_SAMPLES];
    CHECK_OK(lc_tensor_read(x, loaded, sizeof loaded));
    CHECK(memcmp(loaded, kept, sizeof kept) == 0);
    lc_tensor_unref(x);
    lc_safetensors_close(f);
    char list[512];
    CHECK_STR(world_list(r.dir, ".part", list, sizeof list), "");
    run_release(&r);
}

static lc_status count_kept(void *context, lc_trainer *t)
{
    *(int64_t *)context = lc_trainer_prediction_count(t, 0);
    return LC_OK;
}

/* As in Lightning, a writer at the end of the epoch gets predictions that predict does not return. */
TEST(discarded_predictions_are_written)
{
    run r;
    lc_callback cb[2];
    char st[300];
    int64_t kept = 0;
    run_init(&r);
    snprintf(st, sizeof st, "%s/out.safetensors", r.dir);
    CHECK_OK(lc_prediction_writer(&cb[0], .path = st));
    CHECK_OK(lc_prediction_writer(&cb[1], .write_on_epoch_end = count_kept, .context = &kept));
    r.o.callbacks = cb;
    r.o.n_callbacks = 2;
    CHECK_OK(lc_trainer_new(&r.o, &r.t));
    CHECK_OK(lc_trainer_predict(r.t, &r.m.base, .discard_predictions = true));
    CHECK_EQ(kept, NET_BATCHES);
    CHECK_EQ(lc_trainer_prediction_count(r.t, 0), 0);
    lc_safetensors *f;
    CHECK_OK(lc_safetensors_open(st, &f));
    lc_safetensors_close(f);
    run_release(&r);
}

static lc_status fail_third(void *context, lc_trainer *t, lc_tensor *prediction, const lc_batch *b, int64_t i, int d)
{
    (void)context, (void)t, (void)prediction, (void)b, (void)d;
    return i == 2 ? lc_fail(LC_ERR_USER, "no more") : LC_OK;
}

TEST(a_prediction_that_fails_leaves_no_file)
{
    run r;
    lc_callback cb;
    char npy[300], list[512];
    run_init(&r);
    snprintf(npy, sizeof npy, "%s/out.npy", r.dir);
    CHECK_OK(lc_prediction_writer(&cb, .path = npy, .write_on_batch_end = fail_third));
    r.o.callbacks = &cb;
    r.o.n_callbacks = 1;
    CHECK_OK(lc_trainer_new(&r.o, &r.t));
    CHECK_STATUS(lc_trainer_predict(r.t, &r.m.base, .discard_predictions = true), LC_ERR_USER);
    CHECK_STR(world_list(r.dir, ".npy", list, sizeof list), "");
    CHECK_STR(world_list(r.dir, ".part", list, sizeof list), "");
    run_release(&r);
    CHECK_STATUS(lc_prediction_writer(&cb, .path = "x.csv"), LC_ERR_CONFIG);
    CHECK_STATUS(lc_prediction_writer_new(NULL, &cb), LC_ERR_CONFIG);
}

TEST_MAIN
