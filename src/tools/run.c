/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc run CONFIG.json`: trains or evaluates a module in a shared object.
 *
 * The configuration names the module and holds any of its hyperparameters and the trainer's options; the environment
 * and the command line override it, as in every program. config.json in a run's folder is such a configuration. */
#include "tools.h"

#include <lightc/lightc.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run_options {
    const char *module, *command;
} run_options;

static const lc_option run_table[] = {
    LC_FIELD(run_options, module, "the shared object; relative to the directory of the configuration"),
    LC_FIELD(run_options, command, "fit, validate, test or predict"),
};

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* The member "module" of a configuration, as a path relative to the current directory. */
static lc_status module_of(const char *config, char *path, size_t size)
{
    lc_status status = LC_OK;
    char *text = NULL;
    size_t n = 0, cap = 1 << 24;
    lc_state *root = NULL;
    const char *name = NULL;
    struct stat st;
    int fd = open(config, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a FIFO would block until it has a writer */
    bool is_file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    FILE *f = is_file ? fdopen(fd, "rb") : NULL;
    if (fd < 0) return lc_fail(LC_ERR_NOT_FOUND, "cannot open the configuration %s: %s", config, strerror(errno));
    if (!f) {
        close(fd);
        return lc_fail(LC_ERR_NOT_FOUND, "the configuration %s is not a file", config);
    }
    if ((uint64_t)st.st_size > cap) {
        fclose(f);
        return lc_fail(LC_ERR_FORMAT, "the configuration %s has %lld bytes; at most %zu are expected", config,
                       (long long)st.st_size, cap);
    }
    text = malloc(cap);
    n = text ? fread(text, 1, cap, f) : 0;
    fclose(f);
    if (!text) return lc_fail(LC_ERR_MEMORY, "out of memory: %s", config);
    status = lc_state_parse(text, n, &root);
    free(text);
    if (status < 0) return lc_fail_context(status, "%s", config);
    if (lc_state_get_text(root, "module", &name) < 0) {
        status = lc_fail(LC_ERR_CONFIG, "%s does not name a module; it needs a member \"module\": \"NAME.so\"", config);
        goto done;
    }
    const char *slash = strrchr(config, '/');
    int dir = slash && *name != '/' ? (int)(slash - config) + 1 : 0;
    /* With a slash, so that dlopen takes it as a path and does not search for it. */
    if ((size_t)snprintf(path, size, "%s%.*s%s", dir || strchr(name, '/') ? "" : "./", dir, config, name) >= size)
        status = lc_fail(LC_ERR_ARGUMENT, "the path of the module, %.60s..., is too long", name);
done:
    lc_state_free(root);
    return status;
}

/* The value after --module, or NULL. */
static const char *module_argument(int argc, char **argv)
{
    const char *found = NULL;
    for (int i = 2; i < argc; i++) {
        if (!strncmp(argv[i], "--module=", 9)) found = argv[i] + 9;
        if (!strcmp(argv[i], "--module") && i + 1 < argc) found = argv[i + 1];
    }
    return found;
}

static lc_status show_metrics(const lc_trainer *t)
{
    for (int loader = 0;; loader++) {
        lc_metrics m = lc_trainer_results(t, loader);
        if (!m.n) return LC_OK;
        for (int i = 0; i < m.n; i++) {
            char name[256];
            printf("%s %.9g\n", lc_printable(m.values[i].name, false, name, sizeof name), m.values[i].value);
        }
    }
}

static lc_status execute(lc_trainer *t, lc_module *m, const char *command, const char *ckpt_path)
{
    lc_run_args args = LC_ARGS(lc_run, .ckpt_path = ckpt_path);
    if (!command || !strcmp(command, "fit")) return lc_trainer_fit(t, m);
    if (!strcmp(command, "predict")) return lc_trainer_predict_with(t, m, &args);
    if (!strcmp(command, "validate"))
        LC_TRY(lc_trainer_validate_with(t, m, &args));
    else if (!strcmp(command, "test"))
        LC_TRY(lc_trainer_test_with(t, m, &args));
    else
        return lc_fail(LC_ERR_CONFIG, "command is \"%.60s\"; it must be fit, validate, test or predict", command);
    return show_metrics(t);
}

/* Arguments of the run: "lightc run", --config FILE, the user's, and --module with the path that was found. */
static char **arguments(int argc, char **argv, const char *config, char *module, int *n)
{
    char **list = malloc(((size_t)argc + 6) * sizeof *list);
    if (!list) return NULL;
    *n = 0;
    list[(*n)++] = (char *)"lightc run";
    if (config) list[(*n)++] = (char *)"--config", list[(*n)++] = (char *)(uintptr_t)config;
    for (int i = 2; i < argc; i++) list[(*n)++] = argv[i];
    list[(*n)++] = (char *)"--module", list[(*n)++] = module;
    list[*n] = NULL;
    return list;
}

int tool_run(int argc, char **argv)
{
    lc_status status = LC_OK;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    run_options own = {.command = "fit"};
    lc_plugin *plugin = NULL;
    lc_module *m = NULL;
    lc_trainer *t = NULL;
    void *values = NULL;
    char path[PATH_MAX], real[PATH_MAX], **args = NULL;
    int n_args = 0, exit_status;
    if (argc < 2 || argv[1][0] == '-') {
        bool asked = argc > 1 && is_help(argv[1]);
        fprintf(asked ? stdout : stderr, "usage: lightc run CONFIG.json|MODULE.so [--OPTION VALUE]...\n"
                                         "       lightc run CONFIG.json --help\n"
                                         "           lists the options of its module and of the trainer\n");
        return asked ? 0 : 2;
    }
    const char *config = ends_in(argv[1], ".so") ? NULL : argv[1], *typed = module_argument(argc, argv);
    if (typed || !config)
        snprintf(path, sizeof path, "%s", typed ? typed : argv[1]);
    else
        LC_TRY_GOTO(status, done, module_of(config, path, sizeof path));
    /* Absolute, so that the run's config.json can be used from anywhere. */
    if (!realpath(path, real)) snprintf(real, sizeof real, "%s", path);
    LC_TRY_GOTO(status, done, lc_plugin_open(real, &plugin));
    const lc_module_class *c = lc_plugin_class(plugin);
    values = calloc(1, c->values_size ? c->values_size : 1);
    args = arguments(argc, argv, config, real, &n_args);
    if (!values || !args) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: options");
        goto done;
    }
    if (c->defaults && c->values_size) memcpy(values, c->defaults, c->values_size);
    lc_option_set sets[] = {{"what to run", run_table, sizeof run_table / sizeof *run_table, &own},
                            {c->name, c->fields, c->n_fields, values}};
    LC_TRY_GOTO(status, done, lc_trainer_options_parse_sets(&opt, sets, 2, n_args, args));
    if (status == LC_STOP) goto done; /* --help, --print_config */
    const char *ckpt_path = opt.ckpt_path;
    LC_TRY_GOTO(status, done, lc_module_new(c, values, (uint64_t)opt.seed, &m));
    LC_TRY_GOTO(status, done, lc_trainer_new(&opt, &t));
    LC_TRY_GOTO(status, done, execute(t, m, own.command, ckpt_path));
done:
    exit_status = status < 0 ? lc_exit_status(status) : 0;
    if (status < 0 && !lc_error_is_reported()) fprintf(stderr, "error: %s\n", lc_error_message());
    lc_trainer_free(t);
    lc_module_free(m);
    lc_trainer_options_release(&opt);
    lc_plugin_close(plugin);
    free(values);
    free(args);
    return exit_status;
}
