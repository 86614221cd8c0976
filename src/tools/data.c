/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc data`: packs folders of pictures into shards, indexes shards, and shows what is in them. */
#include "tools.h"

#include <errno.h>
#include <lightc/lightc.h>
#include <stdio.h>
#include <stdlib.h>

static int usage(bool asked)
{
    fprintf(asked ? stdout : stderr, "usage: lightc data pack [--samples N] [--bytes N] [--seed N] [--in-order]\n"
                                     "                        [--allow-empty] DIR PREFIX\n"
                                     "       lightc data index SHARD.tar...\n"
                                     "       lightc data show SHARD.tar|DIR|'PREFIX-{000000..000009}.tar'\n");
    return asked ? 0 : 2;
}

static int failed(void)
{
    fprintf(stderr, "error: %s\n", lc_error_message());
    return 1;
}

/* ---- pack ---- */

static bool number(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = text ? strtoll(text, &end, 10) : 0;
    return text && *text >= '0' && *text <= '9' && !*end && !errno;
}

static int no_number(const char *option)
{
    fprintf(stderr, "error: %s needs a whole number from 0 to 2^63 - 1\n", option);
    return 2;
}

static int pack(int argc, char **argv)
{
    lc_image_shards_pack_args a = lc_image_shards_pack_defaults();
    static const char *const options[] = {"--samples", "--bytes", "--seed", "--in-order", "--allow-empty"};
    const char *paths[2];
    int n = 0;
    int64_t seed = 0, shards;
    for (int i = 0; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        int64_t *value = !strcmp(argv[i], "--samples") ? &a.samples
                         : !strcmp(argv[i], "--bytes") ? &a.bytes
                         : !strcmp(argv[i], "--seed")  ? &seed
                                                       : NULL;
        if (!strcmp(argv[i], "--in-order"))
            a.shuffle = false;
        else if (!strcmp(argv[i], "--allow-empty"))
            a.allow_empty = true;
        else if (value && !number(next, value))
            return no_number(argv[i]);
        else if (value)
            i++;
        else if (argv[i][0] == '-')
            return is_help(argv[i]) ? usage(true) : unknown_word("option", argv[i], options, 5, usage);
        else if (n == 2)
            return usage(false);
        else
            paths[n++] = argv[i];
    }
    if (n != 2) return usage(false);
    a.seed = (uint64_t)seed;
    if (lc_image_shards_pack_with(paths[0], paths[1], &shards, &a) < 0) return failed();
    printf("%lld shard%s: %s-000000.tar ...\n", (long long)shards, shards == 1 ? "" : "s", SHOWN(paths[1]));
    return 0;
}

/* ---- index ---- */

static int index_shards(int argc, char **argv)
{
    if (argc < 1 || argv[0][0] == '-') return usage(argc > 0 && is_help(argv[0]));
    for (int i = 0; i < argc; i++) {
        int64_t samples;
        if (lc_image_shards_index(argv[i], &samples) < 0) return failed();
        printf("%s.idx: %lld samples\n", SHOWN(argv[i]), (long long)samples);
    }
    return 0;
}

/* ---- show ---- */

enum { MOST_TARGETS = 20, FIRST = 5 };

static void show_targets(const lc_dataset *d)
{
    const int64_t n = lc_dataset_length(d);
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        const int64_t t = lc_image_target(d, i);
        least = t < least ? t : least;
        most = t > most ? t : most;
    }
    printf("targets from %lld to %lld\n", (long long)least, (long long)most);
    if ((uint64_t)most - (uint64_t)least >= MOST_TARGETS) return;
    int64_t counts[MOST_TARGETS] = {0};
    for (int64_t i = 0; i < n; i++) counts[lc_image_target(d, i) - least]++;
    for (int64_t i = 0; i <= most - least; i++) { /* no target is beyond INT64_MAX */
        const char *name = lc_image_class(d, least + i);
        printf("  %lld%s%s: %lld\n", (long long)(least + i), name ? " " : "", name ? SHOWN(name) : "",
               (long long)counts[i]);
    }
}

static int show(int argc, char **argv)
{
    lc_dataset *d;
    if (argc > 1 && argv[0][0] != '-')
        fprintf(stderr,
                "error: data show takes one shard, folder or pattern, not %d; quote a pattern with braces, so that the "
                "shell does not expand it\n",
                argc);
    if (argc != 1 || argv[0][0] == '-') return usage(argc > 0 && is_help(argv[0]));
    /* A size, so that no picture is opened to find one. */
    if (lc_image_shards_new(argv[0], &d, .height = 1, .width = 1) < 0) return failed();
    const int64_t n = lc_dataset_length(d), shards = lc_image_shards(d);
    printf("%lld samples in %lld shard%s\n", (long long)n, (long long)shards, shards == 1 ? "" : "s");
    show_targets(d);
    for (int64_t i = 0; i < n && i < FIRST; i++)
        printf("%s -> %lld\n", SHOWN(lc_image_file(d, i)), (long long)lc_image_target(d, i));
    if (n > FIRST) printf("...\n");
    lc_dataset_unref(d);
    return 0;
}

int tool_data(int argc, char **argv)
{
    static const char *const commands[] = {"pack", "index", "show"};
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "pack")) return pack(argc - 2, argv + 2);
    if (!strcmp(what, "index")) return index_shards(argc - 2, argv + 2);
    if (!strcmp(what, "show")) return show(argc - 2, argv + 2);
    return is_help(what) ? usage(true) : unknown_word("command", what, commands, 3, usage);
}
