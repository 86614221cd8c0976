/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.json: the size and checksum of every other file of a checkpoint. Its last line is its own checksum, the
 * CRC-32C of all bytes before that line. */
#define _GNU_SOURCE
#include "core/checkpoint/checkpoint.h"
#include "base/grow.h"

#include "base/chunks.h"
#include "base/crc32c.h"
#include "base/json.h"
#include "safetensors/safetensors_impl.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT     LC__FORMAT
#define VERSION    1 /* written by one rank */
#define RANKS      2 /* written by several ranks */
#define TAIL       "  \"crc32c\": \"%08" PRIx32 "\"\n}\n"
#define TAIL_BYTES 25
#define MAX_RANKS  1000000

const char *lc__kind_name(lc_ckpt_kind kind)
{
    switch (kind) {
    case LC_CKPT_MODEL:
        return "model.safetensors";
    case LC_CKPT_OPTIMIZER:
        return "optimizer.safetensors";
    case LC_CKPT_TENSORS:
        return "tensors.safetensors";
    case LC_CKPT_KINDS:
        break;
    }
    return "";
}

void lc__kind_file(lc_ckpt_kind kind, int rank, int ranks, char name[64])
{
    const char *whole = lc__kind_name(kind);
    if (ranks)
        snprintf(name, 64, "%.*s-%05d-of-%05d.safetensors", (int)strcspn(whole, "."), whole, rank + 1, ranks);
    else
        snprintf(name, 64, "%s", whole);
}

lc_status lc__manifest_add(lc__manifest *m, const char *name, uint64_t size, uint32_t crc)
{
    LC_TRY(lc__grow(&m->files, &m->capacity, m->n, 1, "names of files"));
    lc__manifest_file *f = &m->files[m->n++];
    *f = (lc__manifest_file){.size = size, .crc = crc};
    snprintf(f->name, sizeof f->name, "%s", name);
    return LC_OK;
}

void lc__manifest_release(lc__manifest *m)
{
    free(m->files);
    *m = (lc__manifest){0};
}

lc_status lc__manifest_print(const lc__manifest *m, char **text, size_t *length)
{
    lc__text t = {0};
    char line[256];
    lc_status status;
    snprintf(line, sizeof line,
             "{\n  \"format\": \"" FORMAT "\",\n  \"version\": %d,\n  \"lightc\": \"%s\",\n  \"saved_ns\": %" PRId64
             ",\n",
             m->ranks ? RANKS : VERSION, lc_version(), m->saved_ns);
    LC_TRY_GOTO(status, fail, lc__text_puts(&t, line));
    snprintf(line, sizeof line, "  \"ranks\": %d,\n  \"id\": \"%s\",\n", m->ranks, m->id);
    if (m->ranks) LC_TRY_GOTO(status, fail, lc__text_puts(&t, line));
    snprintf(line, sizeof line, "  \"run\": \"%s\",\n", m->origin.run);
    if (*m->origin.run) LC_TRY_GOTO(status, fail, lc__text_puts(&t, line));
    snprintf(line, sizeof line, "  \"fit\": %" PRId64 ",\n", m->origin.fit);
    if (m->origin.fit) LC_TRY_GOTO(status, fail, lc__text_puts(&t, line));
    snprintf(line, sizeof line, "  \"training\": \"%s\",\n", m->origin.training);
    if (*m->origin.training) LC_TRY_GOTO(status, fail, lc__text_puts(&t, line));
    LC_TRY_GOTO(status, fail, lc__text_puts(&t, "  \"files\": [\n"));
    for (int i = 0; i < m->n; i++) {
        snprintf(line, sizeof line, "    {\"name\": \"%s\", \"size\": %" PRIu64 ", \"crc32c\": \"%08" PRIx32 "\"}%s\n",
                 m->files[i].name, m->files[i].size, m->files[i].crc, i + 1 < m->n ? "," : "");
        LC_TRY_GOTO(status, fail, lc__text_puts(&t, line));
    }
    LC_TRY_GOTO(status, fail, lc__text_puts(&t, "  ],\n"));
    snprintf(line, sizeof line, TAIL, lc__crc32c(0, t.data, t.length));
    LC_TRY_GOTO(status, fail, lc__text_puts(&t, line));
    *text = t.data, *length = t.length;
    return LC_OK;
fail:
    lc__text_release(&t);
    return status;
}

static bool valid_name(const char *name)
{
    if (!*name || *name == '.') return false;
    for (const char *p = name; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("._-", *p)))
            return false;
    return true;
}

static lc_status parse_crc(const char *text, uint32_t *crc)
{
    char again[9];
    *crc = (uint32_t)strtoul(text, NULL, 16);
    snprintf(again, sizeof again, "%08" PRIx32, *crc);
    if (strcmp(text, again)) return lc_fail(LC_ERR_FORMAT, "\"%.40s\" is not a checksum", text);
    return LC_OK;
}

static lc_status parse_name(const lc_state *root, const char *key, char *out, size_t size)
{
    const char *text;
    LC_TRY(lc_state_get_text(root, key, &text));
    if (strlen(text) >= size || !valid_name(text))
        return lc_fail(LC_ERR_FORMAT, "\"%.80s\" is not a valid %s", text, key);
    memcpy(out, text, strlen(text) + 1);
    return LC_OK;
}

static lc_status parse(const lc_state *root, lc__manifest *out)
{
    const char *text;
    const lc_state *files;
    int64_t version, size, ranks = 0;
    uint32_t crc;
    LC_TRY(lc_state_get_text(root, "format", &text));
    if (strcmp(text, FORMAT)) return lc_fail(LC_ERR_FORMAT, "its format is \"%.80s\", not \"" FORMAT "\"", text);
    LC_TRY(lc_state_get_int(root, "version", &version));
    if (version != VERSION && version != RANKS)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "its format has version %" PRId64
                       ", this lightc (%s) reads versions %d and %d; use a newer lightc",
                       version, lc_version(), VERSION, RANKS);
    LC_TRY(lc_state_get_int(root, "saved_ns", &out->saved_ns));
    if (out->saved_ns < 0) return lc_fail(LC_ERR_FORMAT, "its \"saved_ns\" is %" PRId64, out->saved_ns);
    if (version == RANKS) {
        LC_TRY(lc_state_get_int(root, "ranks", &ranks));
        if (ranks < 1 || ranks > MAX_RANKS) return lc_fail(LC_ERR_FORMAT, "%" PRId64 " ranks wrote it", ranks);
        out->ranks = (int)ranks;
        LC_TRY(parse_name(root, "id", out->id, sizeof out->id));
    }
    if (lc_state_find(root, "run")) LC_TRY(parse_name(root, "run", out->origin.run, sizeof out->origin.run));
    if (lc_state_find(root, "fit")) LC_TRY(lc_state_get_int(root, "fit", &out->origin.fit));
    if (lc_state_find(root, "training"))
        LC_TRY(parse_name(root, "training", out->origin.training, sizeof out->origin.training));
    LC_TRY(lc_state_get_array(root, "files", &files));
    for (int64_t i = 0; i < lc_state_length(files); i++) {
        const lc_state *file = lc_state_at(files, i);
        const char *name;
        LC_TRY(lc_state_get_text(file, "name", &name));
        if (strlen(name) >= sizeof out->files->name || !valid_name(name))
            return lc_fail(LC_ERR_FORMAT, "\"%.80s\" is not a valid file name", name);
        LC_TRY(lc_state_get_int(file, "size", &size));
        if (size < 0) return lc_fail(LC_ERR_FORMAT, "the \"size\" of \"%s\" is %" PRId64, name, size);
        LC_TRY(lc_state_get_text(file, "crc32c", &text));
        LC_TRY(parse_crc(text, &crc));
        LC_TRY(lc__manifest_add(out, name, (uint64_t)size, crc));
    }
    return LC_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A file listed twice would be verified and read twice, and one listed thousands of times would keep every reader
 * busy. */
static lc_status check_names(const lc__manifest *m)
{
    lc_status status = LC_OK;
    const char **names = malloc(((size_t)m->n + 1) * sizeof *names);
    if (!names) return lc_fail(LC_ERR_MEMORY, "out of memory: the names of %d files", m->n);
    for (int i = 0; i < m->n; i++) names[i] = m->files[i].name;
    if (m->n) qsort(names, (size_t)m->n, sizeof *names, by_name);
    for (int i = 1; i < m->n && status >= 0; i++)
        if (!strcmp(names[i - 1], names[i])) status = lc_fail(LC_ERR_FORMAT, "\"files\" names \"%s\" twice", names[i]);
    free(names);
    return status;
}

lc_status lc__manifest_parse(const char *text, size_t length, const char *path, lc__manifest *out)
{
    char tail[64];
    lc_state *root = NULL;
    *out = (lc__manifest){0};
    snprintf(tail, sizeof tail, TAIL, length > TAIL_BYTES ? lc__crc32c(0, text, length - TAIL_BYTES) : 0);
    if (length <= TAIL_BYTES || memcmp(text + length - TAIL_BYTES, tail, TAIL_BYTES))
        return lc_fail(LC_ERR_FORMAT, "\"%s\" is damaged: it does not end with the checksum of its own content", path);
    lc_status status = lc_state_parse(text, length, &root);
    if (status >= 0) status = parse(root, out);
    if (status >= 0) status = check_names(out);
    if (status < 0) lc_fail_context(status, "\"%s\" cannot be read", path);
    lc_state_free(root);
    return status;
}

lc_status lc__manifest_read_file(const lc__io *io, const char *path, lc__manifest *out)
{
    char *text = NULL;
    size_t length;
    *out = (lc__manifest){0};
    LC_TRY(lc__io_read_file(io, path, LC__MAX_MANIFEST, &text, &length));
    lc_status status = lc__manifest_parse(text, length, path, out);
    free(text);
    return status;
}

/* A checkpoint is a directory. The error for a file of another program names its kind and a way to use it. */
static lc_status refuse_file(const lc__io *io, const char *path)
{
    unsigned char first[8] = {0};
    struct stat st;
    int fd;
    LC_TRY(lc__open_to_read(io, path, &fd, &st));
    lc_status status = st.st_size < 8 ? LC_OK : lc__read_all(io, fd, path, first, sizeof first, 0);
    io->close(io, fd);
    LC_TRY(status);
    if (lc__st_is_torch(first))
        return lc_fail(LC_ERR_FORMAT,
                       "\"%s\" is not a checkpoint of lightc but a file that torch.save wrote. Its training cannot be "
                       "continued, but its weights can be used: in Python, "
                       "safetensors.torch.save_file(torch.load(\"file.pt\"), \"file.safetensors\") (with Lightning's "
                       "torch.load(\"file.ckpt\")[\"state_dict\"]), then lc_module_load_weights",
                       path);
    return lc_fail(
        LC_ERR_FORMAT,
        "\"%s\" is a file, not a checkpoint of lightc, which is a directory; weights from other tools can be "
        "loaded from safetensors files (lc_module_load_weights)",
        path);
}

lc_status lc__manifest_read(const lc__io *io, const char *dir, lc__manifest *out)
{
    *out = (lc__manifest){0};
    char *path = NULL;
    struct stat st;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__path_join(dir, LC__MANIFEST, &path));
    if (stat(dir, &st) < 0) {
        status = lc__io_fail(errno, "open checkpoint", dir);
        goto done;
    }
    if (!S_ISDIR(st.st_mode)) {
        status = refuse_file(io, dir);
        goto done;
    }
    if (stat(path, &st) < 0 && errno == ENOENT) {
        status = lc_fail(LC_ERR_FORMAT,
                         "\"%s\" is not a checkpoint of lightc, or is incomplete: it has no " LC__MANIFEST, dir);
        goto done;
    }
    status = lc__manifest_read_file(io, path, out);
done:
    free(path);
    return status;
}

static bool is_of_kind(const char *name, lc_ckpt_kind kind, int ranks)
{
    char want[64];
    const char *number = strchr(name, '-');
    lc__kind_file(kind, number ? atoi(number + 1) - 1 : 0, ranks, want);
    return !strcmp(name, want);
}

lc_status lc__manifest_open_kind(const lc__io *io, const char *dir, const lc__manifest *m, lc_ckpt_kind kind,
                                 lc_safetensors **out)
{
    char *path = NULL;
    int n = 0;
    lc_status status = LC_OK;
    *out = NULL;
    lc_safetensors **files = calloc((size_t)m->n + 1, sizeof *files);
    if (!files) return lc_fail(LC_ERR_MEMORY, "out of memory: %d open files", m->n);
    for (int i = 0; i < m->n; i++) {
        if (!is_of_kind(m->files[i].name, kind, m->ranks)) continue;
        LC_TRY_GOTO(status, done, lc__path_join(dir, m->files[i].name, &path));
        LC_TRY_GOTO(status, done, lc__st_open(io, path, &files[n]));
        n++;
        free(path);
        path = NULL;
    }
    if (m->ranks && n) {
        LC_TRY_GOTO(status, done, lc__path_join(dir, lc__kind_name(kind), &path));
        status = lc__st_join(path, n, files, out);
        n = 0;
    } else if (n) {
        *out = files[0];
        files[0] = NULL;
    }
done:
    for (int i = 0; i < n; i++) lc_safetensors_close(files[i]);
    free(files);
    free(path);
    return status;
}

/* ---- checksums of whole files ---- */

#define BLOCK                                                                                                          \
    ((size_t)256 << 10) /* stays in a core's cache between the copy out of the page cache and the checksum             \
                         */

typedef struct file_check {
    const lc__io *io;
    const char *path;
    int fd;
    uint64_t size;
    uint32_t *crcs; /* one for each chunk */
} file_check;

static lc_status check_chunk(void *ctx, uint64_t i)
{
    file_check *c = ctx;
    uint64_t from = i * LC__CHUNK, to = from + LC__CHUNK < c->size ? from + LC__CHUNK : c->size;
    uint32_t crc = 0;
    char *block = malloc(BLOCK);
    if (!block) return lc_fail(LC_ERR_MEMORY, "out of memory: verifying \"%s\"", c->path);
    lc_status status = LC_OK;
    for (uint64_t at = from; at < to && status >= 0;) {
        size_t n = to - at < BLOCK ? (size_t)(to - at) : BLOCK;
        status = lc__read_all(c->io, c->fd, c->path, block, n, at);
        crc = lc__crc32c(crc, block, status >= 0 ? n : 0);
        at += n;
    }
    free(block);
    c->crcs[i] = crc;
    return status;
}

/* A file with the wrong bytes may be an intact file of another save: reports that instead of damage. */
static lc_status name_other_save(const lc__io *io, const char *path, const lc__manifest *m, lc_status damage)
{
    lc_safetensors *f;
    char message[1024];
    lc__copy_message(message, sizeof message);
    if (!m->ranks || lc__st_open(io, path, &f) < 0) return lc_fail(damage, "%s", message);
    const char *id = lc_safetensors_metadata(f, LC__ST_CHECKPOINT);
    if (id && strcmp(id, m->id) != 0)
        lc_fail(damage, "\"%s\" belongs to another save, %.40s; this checkpoint is %s", path, id, m->id);
    else
        lc_fail(damage, "%s", message);
    lc_safetensors_close(f);
    return damage;
}

lc_status lc__manifest_check_file(const lc__io *io, const char *dir, const lc__manifest *m, int i)
{
    const lc__manifest_file *f = &m->files[i];
    char *path = NULL;
    file_check c = {.io = io, .fd = -1, .size = f->size};
    struct stat st;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__path_join(dir, f->name, &path));
    c.path = path;
    status = lc__open_to_read(io, path, &c.fd, &st);
    if (status == LC_ERR_NOT_FOUND) status = lc_fail(LC_ERR_FORMAT, "\"%s\" is missing", path);
    if (status < 0) goto done;
    if ((uint64_t)st.st_size != f->size) {
        status = lc_fail(LC_ERR_FORMAT, "\"%s\" is %s: it has %lld bytes, but %" PRIu64 " were saved", path,
                         (uint64_t)st.st_size < f->size ? "truncated" : "damaged", (long long)st.st_size, f->size);
        goto done;
    }
    uint64_t n = (f->size + LC__CHUNK - 1) / LC__CHUNK;
    c.crcs = calloc(n ? (size_t)n : 1, sizeof *c.crcs);
    if (!c.crcs) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: verifying \"%s\"", path);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__for_chunks(n, check_chunk, &c));
    uint32_t crc = 0;
    for (uint64_t k = 0; k < n; k++)
        crc = lc__crc32c_combine(crc, c.crcs[k], k + 1 < n ? LC__CHUNK : f->size - k * LC__CHUNK);
    if (crc != f->crc)
        status = lc_fail(LC_ERR_FORMAT,
                         "\"%s\" is damaged: its checksum is %08" PRIx32 ", but the saved file had %08" PRIx32, path,
                         crc, f->crc);
done:
    if (c.fd >= 0) io->close(io, c.fd);
    if (status == LC_ERR_FORMAT && c.fd >= 0) status = name_other_save(io, path, m, status);
    free(c.crcs);
    free(path);
    return status;
}

lc_status lc__manifest_check(const lc__io *io, const char *dir, const lc__manifest *m)
{
    for (int i = 0; i < m->n; i++) LC_TRY(lc__manifest_check_file(io, dir, m, i));
    return LC_OK;
}
