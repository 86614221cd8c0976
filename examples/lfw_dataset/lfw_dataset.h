/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of lfw_dataset.c. */
#ifndef LFW_DATASET_H
#define LFW_DATASET_H

#include <lightc/lightc.h>

typedef struct arguments {
    const char *path, *num_workers;
    int64_t batch_size;
    bool get_timing, visualize_batch;
} arguments;

/* Saves a plot, and prints it. */
lc_status show(const lc_plot *p, const char *file);
/* Five passes for each number of workers; with several numbers, also as a plot. */
lc_status get_timing(const arguments *a, lc_dataset *pictures);
/* Writes PATH/NAME/NAME_0001.png, ...: a few simple faces. */
lc_status make_faces(const char *path);

#endif
