/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc ckpt inspect`: shows a checkpoint as text or JSON. Every byte is verified first; for a damaged checkpoint,
 * shows its files and which of them are damaged. A safetensors file has only tensors and metadata, and no checksum. */
#include "ckpt.h"
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct inspection {
    const char *path;
    lc_state *files; /* for JSON; NULL: print */
    int64_t n_files, n_tensors;
    uint64_t bytes;
    bool sharded;
} inspection;

/* ---- files ---- */

static lc_status show_file(void *ctx, const lc_checkpoint_file *file)
{
    inspection *in = ctx;
    char crc[9];
    lc_state *o;
    snprintf(crc, sizeof crc, "%08x", (unsigned)file->crc32c);
    in->n_files++;
    in->bytes += file->bytes;
    in->sharded |= strstr(file->name, "-of-") != NULL;
    if (!in->files) {
        if (in->n_files == 1) printf("%s\n\n%-44s %14s  %-8s\n", SHOWN(in->path), "file", "bytes", "crc32c");
        printf("%-44s %14llu  %s  %s\n", SHOWN(file->name), (unsigned long long)file->bytes, crc,
               file->damage ? file->damage : "ok");
        return LC_OK;
    }
    LC_TRY(lc_state_set_object(in->files, NULL, &o));
    LC_TRY(lc_state_set_text(o, "name", file->name));
    LC_TRY(lc_state_set_int(o, "bytes", (int64_t)file->bytes));
    LC_TRY(lc_state_set_text(o, "crc32c", crc));
    return file->damage ? lc_state_set_text(o, "damage", file->damage) : LC_OK;
}

/* ---- tensors ---- */

/* The files that contain a tensor, if its part has several. */
static void print_files(const lc_safetensors *f, int64_t i)
{
    lc_safetensor_piece piece;
    int64_t n = lc_safetensors_pieces(f, i, 0, NULL);
    for (int64_t k = 0; k < n; k++) {
        lc_safetensors_pieces(f, i, k, &piece);
        const char *base = strrchr(piece.path, '/');
        printf("  %s", SHOWN(base ? base + 1 : piece.path));
        if (n > 1) printf("[%lld:%lld]", (long long)piece.first, (long long)(piece.first + piece.count));
    }
}

static lc_status list_files(const lc_safetensors *f, int64_t i, lc_state *list)
{
    lc_safetensor_piece piece;
    lc_state *o;
    for (int64_t k = 0; k < lc_safetensors_pieces(f, i, 0, NULL); k++) {
        lc_safetensors_pieces(f, i, k, &piece);
        const char *base = strrchr(piece.path, '/');
        LC_TRY(lc_state_set_object(list, NULL, &o));
        LC_TRY(lc_state_set_text(o, "name", base ? base + 1 : piece.path));
        LC_TRY(lc_state_set_int(o, "first", piece.first));
        LC_TRY(lc_state_set_int(o, "count", piece.count));
    }
    return LC_OK;
}

/* parts[k]: NULL if there is none */
static int name_width(lc_safetensors *const parts[LC_CKPT_KINDS])
{
    size_t width = 6;
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc_safetensors *f = parts[k];
        for (int64_t i = 0; f && i < lc_safetensors_count(f); i++) {
            size_t n = strlen(SHOWN(lc_safetensors_info(f, i)->name));
            if (n > width) width = n;
        }
    }
    return (int)(width < 72 ? width : 72);
}

static lc_status show_tensors(inspection *in, lc_safetensors *const parts[LC_CKPT_KINDS], lc_state *list)
{
    int width = name_width(parts);
    char shape[256];
    lc_state *o, *dims, *files;
    if (!list) printf("\n%-9s  %-*s  %-5s  %-20s %14s\n", "part", width, "tensor", "dtype", "shape", "bytes");
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc_safetensors *f = parts[k];
        for (int64_t i = 0; f && i < lc_safetensors_count(f); i++) {
            const lc_safetensor_info *info = lc_safetensors_info(f, i);
            in->n_tensors++;
            ckpt_shape_text(&info->type, shape, sizeof shape);
            if (!list) {
                printf("%-9s  %-*s  %-5s  %-20s %14llu", ckpt_part_name(k), width, SHOWN(info->name),
                       SHOWN(info->dtype), shape, (unsigned long long)info->bytes);
                if (in->sharded) print_files(f, i);
                printf("\n");
                continue;
            }
            LC_TRY(lc_state_set_object(list, NULL, &o));
            LC_TRY(lc_state_set_text(o, "name", info->name));
            LC_TRY(lc_state_set_text(o, "part", ckpt_part_name(k)));
            LC_TRY(lc_state_set_text(o, "dtype", info->dtype));
            LC_TRY(lc_state_set_array(o, "shape", &dims));
            for (int d = 0; d < info->type.ndim; d++) LC_TRY(lc_state_set_int(dims, NULL, info->type.shape[d]));
            LC_TRY(lc_state_set_int(o, "bytes", (int64_t)info->bytes));
            LC_TRY(lc_state_set_array(o, "files", &files));
            LC_TRY(list_files(f, i, files));
        }
    }
    return LC_OK;
}

/* ---- the state ---- */

static void show_line(const char *label, const lc_state *value)
{
    char *text = value ? ckpt_value_text(value) : NULL;
    if (text) printf("%-20s %s\n", SHOWN(label), text);
    free(text);
}

static void show_members(const char *title, const lc_state *object)
{
    if (lc_state_length(object)) printf("\n%s\n", SHOWN(title));
    for (int64_t i = 0; i < lc_state_length(object); i++) {
        char label[80];
        snprintf(label, sizeof label, "  %s", lc_state_key_at(object, i));
        show_line(label, lc_state_at(object, i));
    }
}

static void show_optimizers(const lc_state *root)
{
    const lc_state *list = lc_state_find(root, "optimizers"), *groups;
    const char *name;
    char title[128];
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        const lc_state *one = lc_state_at(list, i);
        if (lc_state_get_text(one, "name", &name) < 0 || lc_state_get_array(one, "groups", &groups) < 0) continue;
        for (int64_t k = 0; k < lc_state_length(groups); k++) {
            int n = snprintf(title, sizeof title, "optimizer %lld: %.60s", (long long)i, name);
            if (lc_state_length(groups) > 1)
                snprintf(title + n, sizeof title - (size_t)n, ", group %lld", (long long)k);
            show_members(title, lc_state_at(groups, k));
        }
    }
    list = lc_state_find(root, "schedulers");
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        if (lc_state_get_text(lc_state_at(list, i), "name", &name) < 0) continue;
        snprintf(title, sizeof title, "scheduler %lld: %.60s", (long long)i, name);
        show_members(title, lc_state_find(lc_state_at(list, i), "state"));
    }
}

static void show_state(const lc_state *root)
{
    static const struct {
        const char *key, *label;
    } lines[] = {
        {"lightc_version", "lightc"},
        {"model", "model"},
        {"strategy", "strategy"},
        {"world_size", "world size"},
        {"state_dict_type", "state_dict_type"},
        {"epoch", "epoch"},
        {"global_step", "global step"},
        {"fabric_steps", "steps"},
        {"weights_only", "weights only"},
        {"seed", "seed"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        show_line(lines[i].label, lc_state_find(root, lines[i].key));
    show_members("loop", lc_state_find(root, "loop"));
    show_optimizers(root);
    show_members("metrics", lc_state_find(root, "metrics"));
    show_members("hyperparameters", lc_state_find(root, "hyper_parameters"));
    show_members("hyperparameters of the datamodule", lc_state_find(root, "datamodule_hyper_parameters"));
    const lc_state *callbacks = lc_state_find(root, "callbacks");
    if (lc_state_length(callbacks)) printf("\ncallbacks with state\n");
    for (int64_t i = 0; i < lc_state_length(callbacks); i++) printf("  %s\n", SHOWN(lc_state_key_at(callbacks, i)));
}

/* ---- a safetensors file ---- */

static lc_status show_metadata(const lc_safetensors *f, lc_state *object)
{
    const lc_text_pair *pair;
    char shown[1024];
    if (!object && lc_safetensors_metadata_at(f, 0)) printf("\nmetadata\n");
    for (int64_t i = 0; (pair = lc_safetensors_metadata_at(f, i)); i++) {
        if (object)
            LC_TRY(lc_state_set_text(object, pair->key, pair->value));
        else
            printf("  %-18s %s\n", SHOWN(pair->key), lc_printable(pair->value, false, shown, sizeof shown));
    }
    return LC_OK;
}

static lc_status inspect_weights(inspection *in, const char *path, lc_state *root)
{
    lc_safetensors *f = NULL, *parts[LC_CKPT_KINDS] = {NULL};
    lc_state *tensors = NULL, *metadata = NULL;
    lc_status status = LC_OK;
    uint64_t bytes = 0;
    LC_TRY(lc_safetensors_open(path, &f));
    parts[LC_CKPT_MODEL] = f;
    for (int64_t i = 0; i < lc_safetensors_count(f); i++) bytes += lc_safetensors_info(f, i)->bytes;
    if (root) {
        LC_TRY_GOTO(status, done, lc_state_set_text(root, "path", path));
        LC_TRY_GOTO(status, done, lc_state_set_array(root, "tensors", &tensors));
    } else {
        printf("%s\n", SHOWN(path));
    }
    LC_TRY_GOTO(status, done, show_tensors(in, parts, tensors));
    if (root)
        LC_TRY_GOTO(status, done, lc_state_set_object(root, "metadata", &metadata));
    else
        printf("%lld tensors, %llu bytes\n", (long long)in->n_tensors, (unsigned long long)bytes);
    status = show_metadata(f, metadata);
done:
    lc_safetensors_close(f);
    return status;
}

/* ---- the command ---- */

static lc_status inspect(inspection *in, const char *path, lc_state *root)
{
    lc_state *tensors = NULL, *copy;
    lc_checkpoint *c = NULL;
    lc_safetensors *parts[LC_CKPT_KINDS];
    lc_status status = LC_OK;
    char when[32];
    if (root) {
        LC_TRY(lc_state_set_text(root, "path", path));
        LC_TRY(lc_state_set_array(root, "files", &in->files));
    }
    in->path = path;
    LC_TRY(lc_checkpoint_visit_files(path, show_file, in));
    LC_TRY(lc_checkpoint_open(path, &c));
    for (int k = 0; k < LC_CKPT_KINDS; k++) parts[k] = lc_checkpoint_tensors(c, (lc_ckpt_kind)k);
    int64_t saved_ns = lc_checkpoint_saved_ns(c);
    if (root) {
        LC_TRY_GOTO(status, done, lc_state_set_int(root, "saved_ns", saved_ns));
        LC_TRY_GOTO(status, done, lc_state_set_array(root, "tensors", &tensors));
    }
    LC_TRY_GOTO(status, done, show_tensors(in, parts, tensors));
    if (root) {
        LC_TRY_GOTO(status, done, lc_state_copy(lc_checkpoint_state(c), &copy));
        LC_TRY_GOTO(status, done, lc_state_set_tree(root, "state", copy));
    } else {
        time_t seconds = (time_t)(saved_ns / 1000000000);
        struct tm utc;
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&seconds, &utc));
        printf("%lld tensors; %lld files, %llu bytes\n\n%-20s %s\n", (long long)in->n_tensors, (long long)in->n_files,
               (unsigned long long)in->bytes, "saved", when);
        show_state(lc_checkpoint_state(c));
    }
done:
    lc_checkpoint_close(c);
    return status;
}

int ckpt_inspect(const char *path, bool json)
{
    inspection in = {0};
    lc_state *root = NULL;
    struct stat st;
    bool is_file = stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
    if (json) LC_MAIN_TRY(lc_state_new(&root));
    lc_status status = is_file ? inspect_weights(&in, path, root) : inspect(&in, path, root);
    if (status < 0) fprintf(stderr, "error: %s\n", lc_error_message());
    /* Also for a damaged checkpoint: its files are known. */
    if (root && (in.n_files || status >= 0)) {
        if (ckpt_print_tree(root) < 0) status = LC_ERR_MEMORY;
    } else {
        lc_state_free(root);
    }
    return status < 0;
}
