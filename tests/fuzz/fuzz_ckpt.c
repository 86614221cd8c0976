/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc ckpt` on a checkpoint that was tampered with (changed_checkpoint.h): each command succeeds or prints a
 * readable reason, JSON is valid, and a consolidated copy does not differ from its original. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "scratch.h"
#include "changed_checkpoint.h"
#include "tools/tools.h"

#include <lightc/lightc.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char good[300], bad[300], whole[300];

/* Runs `lightc ckpt ...`; *out is its output. */
static int command(char **out, char **err, const char *const *words)
{
    char *argv[8] = {(char *)"ckpt"};
    int argc = 1, status;
    size_t n_out, n_err;
    FILE *real_out = stdout, *real_err = stderr;
    for (; *words; words++) argv[argc++] = (char *)(uintptr_t)*words;
    stdout = open_memstream(out, &n_out);
    stderr = open_memstream(err, &n_err);
    if (!stdout || !stderr) abort();
    status = tool_ckpt(argc, argv);
    fclose(stdout);
    fclose(stderr);
    stdout = real_out, stderr = real_err;
    return status;
}

static void check_printable(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\n') || *text == 127) abort();
}

static int run(bool json, const char *const *words)
{
    char *out, *err;
    int status = command(&out, &err, words);
    check_printable(out);
    check_printable(err);
    if (status < 0 || status > 2) abort();
    if ((status == 0) == (*err != 0) && status != 1) abort(); /* 1 of diff: they differ */
    lc_state *s;
    if (json && *out) {
        if (lc_state_parse(out, strlen(out), &s) < 0) abort();
        lc_state_free(s);
    }
    free(out);
    free(err);
    return status;
}
#define RUN(json, ...) run(json, (const char *const[]){__VA_ARGS__, NULL})

static void make(const char *path)
{
    lc_ckpt_writer *w;
    lc_state *loop, *list, *group;
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    const lc_type type = {.dtype = LC_F32, .ndim = 2, .shape = {2, 3}};
    if (lc_ckpt_writer_new(&w) < 0 || lc_ckpt_begin(w, path) < 0) abort();
    lc_state *root = lc_ckpt_state(w);
    if (lc_state_set_text(root, "model", "m") < 0 || lc_state_set_int(root, "epoch", 1) < 0 ||
        lc_state_set_object(root, "loop", &loop) < 0 || lc_state_set_double(loop, "lr", 0.5) < 0 ||
        lc_state_set_array(root, "optimizers", &list) < 0 || lc_state_set_object(list, NULL, &group) < 0 ||
        lc_state_set_text(group, "name", "sgd") < 0 || lc_state_set_array(group, "groups", &list) < 0 ||
        lc_state_set_object(list, NULL, &group) < 0 || lc_state_set_double(group, "momentum", 0.9) < 0)
        abort();
    if (lc_ckpt_add_data(w, LC_CKPT_MODEL, "w", &type, data) < 0 ||
        lc_ckpt_add_data(w, LC_CKPT_MODEL, "v", &type, data) < 0 ||
        lc_ckpt_add_data(w, LC_CKPT_OPTIMIZER, "0.w", &type, data) < 0 || lc_ckpt_commit(w, true) < 0)
        abort();
    lc_ckpt_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*good) {
        snprintf(good, sizeof good, "%s/good.ckpt", scratch_root);
        snprintf(bad, sizeof bad, "%s/bad.ckpt", scratch_root);
        snprintf(whole, sizeof whole, "%s/whole.ckpt", scratch_root);
        make(good);
    }
    if (!remove_tree(bad) || !remove_tree(whole)) abort();
    if (!size || write_changed(good, bad, data + 1, size - 1) < 0) return 0;
    RUN(false, "inspect", bad);
    RUN(true, "inspect", "--json", bad);
    RUN(false, "diff", good, bad);
    RUN(true, "diff", "--json", "--tensors", bad, good);
    if (RUN(false, "consolidate", bad, whole) == 0 && RUN(false, "diff", bad, whole) != 0) abort();
    return 0;
}
