/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint to save, in which every value depends on the step, and how to check one. */
#ifndef LC_TESTS_CHECKPOINT_WORLD_H
#define LC_TESTS_CHECKPOINT_WORLD_H

#include "scratch.h"

#include <lightc/checkpoint.h>
#include "core/checkpoint/checkpoint.h"

#include <dirent.h>
#include <math.h>

enum { WEIGHTS = 20000 };
static float weights[WEIGHTS]; /* the writer reads them */

static inline lc_status save_with(lc_ckpt_writer *w, const char *path, int64_t step, bool wait)
{
    LC_TRY(lc_ckpt_begin(w, path));
    for (int i = 0; i < WEIGHTS; i++) weights[i] = (float)(step * 31 + i);
    lc_type matrix = {LC_F32, 2, {WEIGHTS / 100, 100}}, one = {LC_I64, 0, {0}};
    LC_TRY(lc_ckpt_add_data(w, LC_CKPT_MODEL, "net.weight", &matrix, weights));
    LC_TRY(lc_ckpt_add_data(w, LC_CKPT_MODEL, "net.step", &one, &step));
    LC_TRY(lc_ckpt_add_data(w, LC_CKPT_OPTIMIZER, "exp_avg", &matrix, weights));
    LC_TRY(lc_state_set_int(lc_ckpt_state(w), "global_step", step));
    LC_TRY(lc_state_set_double(lc_ckpt_state(w), "best", -INFINITY));
    lc_status status = lc_ckpt_commit(w, wait);
    memset(weights, 0xff, sizeof weights); /* the snapshot must not look at it again */
    return status;
}

static inline void save(const char *path, int64_t step)
{
    lc_ckpt_writer *w;
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(save_with(w, path, step, true));
    lc_ckpt_writer_free(w);
}

/* The step of the checkpoint at `path`, all of whose content must be of that step; -1 if it cannot be opened. */
static inline int64_t step_of(const char *path)
{
    lc_checkpoint *c;
    if (lc_checkpoint_open(path, &c) < 0) return -1;
    int64_t step, model_step;
    double best;
    float *value = malloc(WEIGHTS * sizeof *value);
    CHECK_OK(lc_state_get_int(lc_checkpoint_state(c), "global_step", &step));
    CHECK_OK(lc_state_get_double(lc_checkpoint_state(c), "best", &best));
    lc_safetensors *model = lc_checkpoint_tensors(c, LC_CKPT_MODEL), *opt = lc_checkpoint_tensors(c, LC_CKPT_OPTIMIZER);
    CHECK(model && opt && !lc_checkpoint_tensors(c, LC_CKPT_TENSORS));
    CHECK_OK(lc_safetensors_read(model, lc_safetensors_find(model, "net.step"), &model_step, 8));
    CHECK_EQ(step, model_step);
    for (int k = 0; k < 2; k++) {
        lc_safetensors *f = k ? opt : model;
        CHECK_OK(lc_safetensors_read(f, lc_safetensors_find(f, k ? "exp_avg" : "net.weight"), value,
                                     WEIGHTS * sizeof *value));
        for (int i = 0; i < WEIGHTS; i++) CHECK(value[i] == (float)(step * 31 + i));
    }
    free(value);
    lc_checkpoint_close(c);
    return step;
}

static inline int count_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

#endif
