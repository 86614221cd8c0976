/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc run` of a module that is linked in, with any configuration and any options after it: it is refused with a
 * printable message, or trains, validates, tests or predicts for a few steps. If the first byte is odd, the rest is the
 * text of the configuration; if it is even, the rest lists options by number with their values, SETTING bytes each. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "scratch.h"
#include "tools/tools.h"

#include <lightc/lightc.h>

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

extern const lc_plugin_info lc_plugin_entry; /* the module's */

enum { SETTING = 4, MOST = 32 };

/* ---- replaces the library's, which would open a shared object: examples/modules/spiral.c ---- */

lc_status lc_plugin_open(const char *path, lc_plugin **out)
{
    (void)path;
    *out = NULL;
    return LC_OK;
}

const lc_module_class *lc_plugin_class(const lc_plugin *p)
{
    (void)p;
    return lc_plugin_entry.module;
}

void lc_plugin_close(lc_plugin *p)
{
    (void)p;
}

/* ---- the configuration ---- */

static char root[250], config[300], checkpoints[300], typed[MOST][200];

static const char *option_name(unsigned i)
{
    static const char *const others[] = {"module", "command", "nothing", "fit"};
    const lc_module_class *c = lc_plugin_entry.module;
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    i %= (unsigned)(n + c->n_fields) + 4;
    if (i < (unsigned)n) return table[i].name;
    i -= (unsigned)n;
    return i < (unsigned)c->n_fields ? c->fields[i].name : others[i - (unsigned)c->n_fields];
}

static const char *const values[] = {"0",
                                     "1",
                                     "-1",
                                     "2",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "1e300",
                                     "-1e-300",
                                     "0.5",
                                     "1.0",
                                     "NaN",
                                     "true",
                                     "false",
                                     "null",
                                     "[]",
                                     "{}",
                                     "[1,[2]]",
                                     "{\"a\":{\"b\":1}}",
                                     "\"\"",
                                     "\"auto\"",
                                     "\"../x\"",
                                     "\"val_loss\"",
                                     "\"train_loss\"",
                                     "\"min\"",
                                     "\"max\"",
                                     "\"{epoch}-{val_loss:.2f}{\"",
                                     "\"%s%n\"",
                                     "\"a\\u001b[31m\\n\"",
                                     "\"last\"",
                                     "\"best\"",
                                     "\"test\"",
                                     "\"predict\"",
                                     "\"validate\"",
                                     "\"ops,trace,simple\"",
                                     "\"norm\"",
                                     "\"value\"",
                                     "\"00:00:00:01\"",
                                     "\"sharded\"",
                                     "\"full\"",
                                     "\"*=\""};
enum { VALUES = sizeof values / sizeof *values };

/* Returns the number of options on the command line. */
static int write_config(const uint8_t *data, size_t size)
{
    int n = 0;
    const char *comma = "";
    FILE *f = fopen(config, "wb");
    if (!f) abort();
    if (data[0] % 2) {
        if (fwrite(data + 1, 1, size - 1, f) != size - 1) abort();
        fclose(f);
        return 0;
    }
    fprintf(f, "{\"module\": \"m.so\"");
    comma = ", ";
    for (data++, size--; size >= SETTING; data += SETTING, size -= SETTING) {
        const char *name = option_name(data[0]), *value = values[data[1] % VALUES];
        if (data[2] % 2 == 0) {
            fprintf(f, "%s\"%s\": %s", comma, name, value);
        } else if (n < MOST) {
            size_t quoted = *value == '"', length = strlen(value);
            snprintf(typed[n++], sizeof *typed, "--%s=%.*s", name, (int)(length - 2 * quoted), value + quoted);
        }
    }
    fprintf(f, "}\n");
    fclose(f);
    return n;
}

/* ---- the run ---- */

static int run(int n)
{
    static const char *const loggers[] = {"none", "csv", "csv,sqlite,tensorboard"};
    static int runs;
    /* These keep the run from starting processes, leaving the folder and taking long; the last option wins. */
    const char *const last[] = {"--default_root_dir",
                                root,
                                "--dirpath",
                                checkpoints,
                                "--logger",
                                loggers[runs++ % 3],
                                "--devices",
                                "1",
                                "--strategy",
                                "auto",
                                "--num_nodes",
                                "1",
                                "--max_restarts",
                                "0",
                                "--threads",
                                "1",
                                "--max_steps",
                                "3",
                                "--max_epochs",
                                "2",
                                "--samples",
                                "64",
                                "--width",
                                "4",
                                "--handle_signals",
                                "off",
                                "--tune",
                                "off",
                                "--min_epochs",
                                "0",
                                "--min_steps",
                                "0",
                                "--run_name",
                                "runs",
                                "--enable_progress_bar",
                                "off"};
    char *argv[2 + MOST + sizeof last / sizeof *last + 1] = {(char *)"run", config};
    int argc = 2;
    for (int i = 0; i < n; i++) argv[argc++] = typed[i];
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) argv[argc++] = (char *)(uintptr_t)last[i];
    return tool_run(argc, argv);
}

static void check_printable(const char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\n') || *text == 127) abort();
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    unsigned int random = seed;
    if (size + SETTING + 1 > room || (size && (data[0] % 2 || (size > SETTING && rand_r(&random) % 2))))
        return LLVMFuzzerMutate(data, size, room);
    if (!size) data[size++] = 0;
    for (int i = 0; i < SETTING; i++) data[size++] = (uint8_t)(rand_r(&random) >> 8);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *out, *err;
    size_t n_out, n_err;
    FILE *real_out = stdout, *real_err = stderr;
    if (!*root) {
        snprintf(root, sizeof root, "%s/root", scratch_root);
        snprintf(config, sizeof config, "%s/config.json", root);
        snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", root);
        if (setenv("LIGHTC_CACHE", "off", 1) < 0) abort();
    }
    if (!size) return 0;
    if (!remove_tree(root) || mkdir(root, 0777) < 0) abort();
    int n = write_config(data, size);
    stdout = open_memstream(&out, &n_out);
    stderr = open_memstream(&err, &n_err);
    if (!stdout || !stderr) abort();
    int status = run(n);
    fclose(stdout);
    fclose(stderr);
    stdout = real_out, stderr = real_err;
    if (status && !strstr(err, "error: ")) abort(); /* it failed without a message */
    check_printable(out);
    check_printable(err);
    free(out);
    free(err);
    return 0;
}
