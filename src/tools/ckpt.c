/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc ckpt`: shows a checkpoint (ckpt_inspect.c), compares two (ckpt_diff.c), and consolidates a sharded one. */
#include "ckpt.h"
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *ckpt_part_name(int part)
{
    static const char *const names[] = {
        [LC_CKPT_MODEL] = "model", [LC_CKPT_OPTIMIZER] = "optimizer", [LC_CKPT_TENSORS] = "tensors"};
    return names[part];
}

char *ckpt_value_text(const lc_state *value)
{
    char *text = NULL;
    const char *plain;
    if (lc_state_kind_of(value) == LC_STATE_TEXT && lc_state_get_text(value, NULL, &plain) >= 0) {
        size_t size = 4 * strlen(plain) + 1;
        text = malloc(size);
        return text ? (char *)(uintptr_t)lc_printable(plain, false, text, size) : NULL;
    }
    if (lc_state_print(value, &text, NULL) < 0) return NULL;
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '\n') /* and the indentation that follows */
            while (from[1] == ' ') from++;
        else
            *to++ = *from;
    }
    *to = 0;
    return text;
}

void ckpt_shape_text(const lc_type *type, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < type->ndim && n < size; d++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? "," : "", (long long)type->shape[d]);
    if (n < size) snprintf(text + n, size - n, "]");
}

lc_status ckpt_print_tree(lc_state *root)
{
    char *text = NULL;
    lc_status status = lc_state_print(root, &text, NULL);
    if (status >= 0) fputs(text, stdout);
    free(text);
    lc_state_free(root);
    return status;
}

/* ---- consolidate ---- */

/* Copies values from file to file, a few MB at a time. */
static lc_status copy_checkpoint(lc_checkpoint *from, const char *to)
{
    lc_ckpt_writer *w = NULL;
    lc_state *member = NULL;
    const lc_state *root = lc_checkpoint_state(from);
    lc_status status;
    LC_TRY_GOTO(status, done, lc_ckpt_writer_new(&w));
    LC_TRY_GOTO(status, done, lc_ckpt_begin(w, to));
    for (int64_t i = 0; i < lc_state_length(root); i++) {
        LC_TRY_GOTO(status, done, lc_state_copy(lc_state_at(root, i), &member));
        LC_TRY_GOTO(status, done, lc_state_set_tree(lc_ckpt_state(w), lc_state_key_at(root, i), member));
    }
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc_safetensors *f = lc_checkpoint_tensors(from, (lc_ckpt_kind)k);
        for (int64_t i = 0; f && i < lc_safetensors_count(f); i++)
            LC_TRY_GOTO(status, done, lc_ckpt_add_stored(w, (lc_ckpt_kind)k, f, i));
    }
    status = lc_ckpt_commit(w, true);
done:
    lc_ckpt_writer_free(w);
    return status;
}

static int consolidate(const char *from, const char *to)
{
    struct stat st;
    lc_checkpoint *c;
    if (lstat(to, &st) == 0)
        LC_MAIN_TRY(lc_fail(LC_ERR_ARGUMENT, "\"%s\" already exists; choose another path, or remove it", to));
    LC_MAIN_TRY(lc_checkpoint_open(from, &c));
    lc_status status = copy_checkpoint(c, to);
    lc_checkpoint_close(c);
    LC_MAIN_TRY(status);
    printf("%s\n", to);
    return 0;
}

/* ---- the command ---- */

/* For --help (`asked`), or after wrong usage. */
static int usage(bool asked)
{
    fprintf(asked ? stdout : stderr, "usage: lightc ckpt inspect [--json] CHECKPOINT|FILE.safetensors\n"
                                     "       lightc ckpt diff [--json] [--tensors] CHECKPOINT CHECKPOINT\n"
                                     "       lightc ckpt consolidate CHECKPOINT NEW_CHECKPOINT\n");
    return asked ? 0 : 2;
}

int tool_ckpt(int argc, char **argv)
{
    static const char *const commands[] = {"inspect", "diff", "consolidate"}, *const options[] = {"--json",
                                                                                                  "--tensors"};
    const char *what = argc > 1 ? argv[1] : "", *paths[2] = {NULL, NULL};
    bool json = false, tensors = false;
    int n = 0;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (!strcmp(argv[i], "--tensors"))
            tensors = true;
        else if (argv[i][0] == '-' || n == 2)
            return is_help(argv[i]) ? usage(true) : unknown_word("option", argv[i], options, 2, usage);
        else
            paths[n++] = argv[i];
    }
    if (!strcmp(what, "inspect") && n == 1 && !tensors) return ckpt_inspect(paths[0], json);
    if (!strcmp(what, "diff") && n == 2) return ckpt_diff(paths[0], paths[1], tensors, json);
    if (!strcmp(what, "consolidate") && n == 2 && !tensors && !json) return consolidate(paths[0], paths[1]);
    return is_help(what) ? usage(true) : unknown_word("command", what, commands, 3, usage);
}
