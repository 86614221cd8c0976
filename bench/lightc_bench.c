/* SPDX-License-Identifier: Apache-2.0 */
/* lightc_bench WORK: the works of the benchmarks, one JSON line per measurement (docs/benchmarks.md). */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    lc_status (*run)(const bench *b);
    const char *help;
} works[] = {
    {"noop", bench_noop,
     "trainer cost per step: a module that does nothing (barebones, quiet, with one log, with the defaults)"},
    {"everything", bench_everything, "the same with every callback and logger that acts at each step"},
    {"mlp", bench_mlp, "784-128-10, batch 64, Adam: epochs with loader, log and checkpoint; steps in memory"},
    {"fashion", bench_fashion, "FashionCNN, batch 100, Adam: epochs with loader; steps in memory"},
    {"resnet18", bench_resnet18, "32x32 images, batch 128, SGD with momentum, random data"},
    {"gpt", bench_gpt, "6 layers x 384, 6 heads, context 256, batch 16, AdamW, random tokens"},
    {"ckpt", bench_ckpt, "save and load 25M parameters with Adam's state"},
    {"startup", bench_startup, "exec to the end of the first step: data in memory; trainer and IDX files"},
    {"machine", bench_machine, "what this machine can do: memory bandwidth, FLOP/s"},
    {"share", bench_share, "fashion on such ranks, as a share of the speed of the same processes without each other"},
    {"exposed", bench_exposed,
     "what communication adds to a step of ddp (gpt), between ranks that were started for it"},
    {"link", bench_link, "what a link costs the core that computes, with only send and recv"},
    {"images", bench_images, "only the loader: JPEG files with 0 to 2 workers next to libjpeg, tokens next to memcpy"},
    {"record", bench_record, "recording an operation; replaying a node next to its kernel"},
    {"first_step", bench_first_step, NULL},
    {"first_step_idx", bench_first_step_idx, NULL},
};

#define N_WORKS ((int)(sizeof works / sizeof works[0]))

static void usage(FILE *f)
{
    fprintf(
        f,
        "usage: lightc_bench WORK [--threads N] [--precision P] [--matmul_precision P] [--steps N]\n"
        "                         [--epochs N] [--data DIR] [--batch N] [--workers N] [--devices N]\n"
        "                         [--strategy S] [--tune] [--unscaled] [--only_steps] [--only_epochs] [--keep DIR]\n\n"
        "One JSON line per measurement. Works:\n");
    for (int i = 0; i < N_WORKS; i++)
        if (works[i].help) fprintf(f, "  %-10s %s\n", works[i].name, works[i].help);
}

static lc_status parse(bench *b, int argc, char **argv)
{
    const lc_option options[] = {
        LC_OPTION(bench, threads, LC_OPTION_INT, 0, 4096, "threads per kernel; 0: one per core"),
        LC_OPTION(bench, precision, LC_OPTION_TEXT, 0, 0, "of the works that train a network: as the trainer's option"),
        LC_OPTION(bench, matmul_precision, LC_OPTION_TEXT, 0, 0,
                  "of the works that train a network: as the trainer's float32_matmul_precision"),
        LC_OPTION(bench, steps, LC_OPTION_INT, 0, 1e9, "batches of an epoch, and steps of a round; 0: the work's own"),
        LC_OPTION(bench, epochs, LC_OPTION_INT, 1, 1e6, "epochs of the works with a loader"),
        LC_OPTION(bench, data, LC_OPTION_TEXT, 0, 0, "folder with the IDX files"),
        LC_OPTION(bench, keep, LC_OPTION_TEXT, 0, 0, "folder for the files of images; used again if they are there"),
        LC_OPTION(bench, batch, LC_OPTION_INT, 0, 1e6, "samples in a batch; 0: the work's own"),
        LC_OPTION(bench, tune, LC_OPTION_BOOL, 0, 0, "choose kernels and threads by timing"),
        LC_OPTION(bench, unscaled, LC_OPTION_BOOL, 0, 0, "steps in memory without the loss scale of 16-mixed"),
        LC_OPTION(bench, workers, LC_OPTION_INT, 0, 256, "threads of the loader"),
        LC_OPTION(bench, devices, LC_OPTION_INT, 1, 4096, "ranks; they train with a loader only"),
        LC_OPTION(bench, strategy, LC_OPTION_TEXT, 0, 0, "strategy of these ranks"),
        {"only_steps", LC_OPTION_BOOL, offsetof(bench, stepped), 0, 0, "leave out the epochs with a loader", {0}},
        {"only_epochs", LC_OPTION_BOOL, offsetof(bench, loaded), 0, 0, "leave out the steps in memory", {0}},
        LC_OPTION(bench, since, LC_OPTION_FLOAT, 0, 0, "when exec was called, on the monotonic clock, if known"),
    };
    lc_option_set set = {"lightc_bench WORK", options, (int)(sizeof options / sizeof options[0]), b};
    /* The work is not an option: parsing starts after it. */
    lc_status s = lc_options_parse(&set, 1, NULL, argc - 1, argv + 1, &b->storage);
    if (b->devices > 1) b->loaded = true;
    return s;
}

int main(int argc, char **argv)
{
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    bench b = {
        .data = "/usr/share/datasets/fashion-mnist", .precision = "32", .epochs = 1, .devices = 1, .program = program};
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        usage(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    b.work = argv[1];
    for (int i = 0; i < N_WORKS; i++) {
        if (strcmp(works[i].name, b.work) != 0) continue;
        lc_status s = parse(&b, argc, argv);
        if (s == LC_OK) s = works[i].run(&b);
        lc_options_free(b.storage);
        LC_MAIN_TRY(s);
        LC_MAIN_TRY(lc_stdout_flush());
        return 0;
    }
    fprintf(stderr, "error: unknown work %s\n", b.work);
    usage(stderr);
    return 2;
}
