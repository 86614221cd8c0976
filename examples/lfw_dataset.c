/* SPDX-License-Identifier: Apache-2.0 */
/* Faces, or any folders of pictures (Labeled Faces in the Wild: PATH/NAME/PICTURE.jpg), as batches: how fast they are
 * read with one or more workers, and what they look like.
 *
 *   lfw_dataset                                    both, on a small folder that it makes if there is none
 *   lfw_dataset -path lfw -batch_size 250 -get_timing -num_workers 4         five passes: mean and deviation
 *   lfw_dataset -path lfw -get_timing -num_workers 1,2,4                     for each; as timing.png, and here
 *   lfw_dataset -path lfw -batch_size 32 -visualize_batch                    the first batch as batch.png, and here
 *
 * In a terminal pictures are drawn with kitty's protocol or sixel, if TERM and its relatives say that it has them, and
 * else with half blocks. Options may begin with one dash or two. */
#include "lfw_dataset/lfw_dataset.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const lc_option options[] = {
    LC_OPTION(arguments, path, LC_OPTION_TEXT, 0, 0, "folder with a folder of pictures for each person"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "pictures in a batch"),
    LC_OPTION(arguments, num_workers, LC_OPTION_TEXT, 0, 0, "threads that decode, or auto; several numbers: 1,2,4"),
    LC_OPTION(arguments, get_timing, LC_OPTION_BOOL, 0, 0, "measure five passes over all batches"),
    LC_OPTION(arguments, visualize_batch, LC_OPTION_BOOL, 0, 0, "show the first batch"),
};
enum { OPTIONS = sizeof options / sizeof *options };

/* "-path" is "--path"; "-1" is a number. */
static void with_two_dashes(int argc, char **argv, char (*room)[4096])
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' || !isalpha((unsigned char)argv[i][1]) || strlen(argv[i]) > 4094) continue;
        snprintf(room[i], sizeof room[i], "-%s", argv[i]);
        argv[i] = room[i];
    }
}

/* Pictures of one size: a random part of each face, flipped at random, as a network would get them. */
static lc_status open_pictures(const arguments *a, lc_dataset **out)
{
    enum { SIDE = 64 };
    lc_transform steps[2], all;
    LC_TRY(lc_transform_random_resized_crop(SIDE, SIDE, &steps[0], .scale = LC_RANGE(0.7, 1)));
    LC_TRY(lc_transform_horizontal_flip(0.5, &steps[1]));
    LC_TRY(lc_transform_compose(2, steps, &all));
    return lc_image_folder_new(a->path, out, .transform = &all);
}

/* ---- what the terminal can do ---- */

static bool begins(const char *variable, const char *with)
{
    const char *value = getenv(variable);
    return value && strncmp(value, with, strlen(with)) == 0;
}

static bool has_color(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0 && !(no_color && *no_color);
}

/* tmux and screen have the variables of the terminal around them, but pass no pictures on. */
static lc_plot_graphics graphics_of_terminal(void)
{
    if (!isatty(STDOUT_FILENO) || getenv("TMUX") || getenv("STY")) return LC_PLOT_BLOCKS;
    if (getenv("KITTY_WINDOW_ID") || begins("TERM", "xterm-kitty") || begins("TERM", "xterm-ghostty") ||
        begins("TERM_PROGRAM", "WezTerm"))
        return LC_PLOT_KITTY;
    if (begins("TERM", "foot") || begins("TERM", "mlterm") || begins("TERM", "yaft")) return LC_PLOT_SIXEL;
    return LC_PLOT_BLOCKS;
}

lc_status show(const lc_plot *p, const char *file)
{
    enum { LEAST = 24 }; /* for eight pictures in a row */
    struct winsize size = {0};
    int64_t columns = 80;
    char *text;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= LEAST && size.ws_col <= 1000)
        columns = size.ws_col;
    LC_TRY(lc_plot_text(p, &text, .graphics = graphics_of_terminal(), .columns = columns, .color = has_color()));
    fputs(text, stdout);
    free(text);
    LC_TRY(lc_plot_save(p, file));
    printf("saved as %s\n", file);
    return LC_OK;
}

/* ---- the two things it does ---- */

static lc_status visualize_batch(const arguments *a, lc_dataset *pictures)
{
    const char *labels[64];
    lc_dataloader *loader;
    lc_batch *batch;
    lc_plot *plot;
    int64_t n = a->batch_size < 64 ? a->batch_size : 64, numbers[64];
    LC_TRY(lc_dataloader_new(&loader, .dataset = pictures, .batch_size = n, .shuffle = true));
    LC_TRY(lc_dataloader_begin(loader, 0, 0));
    LC_TRY(lc_dataloader_next(loader, &batch));
    n = lc_tensor_dim(batch->x, 0);
    LC_TRY(lc_tensor_read(batch->y, numbers, (size_t)n * sizeof *numbers));
    for (int64_t i = 0; i < n; i++) labels[i] = lc_image_class(pictures, numbers[i]);
    LC_TRY(lc_plot_pictures(batch->x, &plot, .labels = labels));
    LC_TRY(show(plot, "batch.png"));
    lc_plot_free(plot);
    lc_dataloader_free(loader);
    return LC_OK;
}

int main(int argc, char **argv)
{
    static char room[64][4096];
    arguments args = {.path = "lfw", .batch_size = 32, .num_workers = "1"};
    const lc_option_set set = {.options = options, .n = OPTIONS, .target = &args};
    void *storage = NULL;
    if (argc < 64) with_two_dashes(argc, argv, room);
    LC_MAIN_TRY(lc_options_parse(&set, 1, NULL, argc, argv, &storage));
    if (!args.get_timing && !args.visualize_batch) args.get_timing = args.visualize_batch = true;

    struct stat st;
    lc_dataset *pictures;
    if (strcmp(args.path, "lfw") == 0 && stat(args.path, &st) != 0) {
        args.path = "lfw_small";
        if (stat(args.path, &st) != 0) LC_MAIN_TRY(make_faces(args.path));
    }
    LC_MAIN_TRY(open_pictures(&args, &pictures));
    printf("%s: %lld pictures of %lld people\n", args.path, (long long)lc_dataset_length(pictures),
           (long long)lc_image_classes(pictures));
    if (args.get_timing) LC_MAIN_TRY(get_timing(&args, pictures));
    if (args.visualize_batch) LC_MAIN_TRY(visualize_batch(&args, pictures));
    lc_dataset_unref(pictures);
    lc_options_free(storage);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
