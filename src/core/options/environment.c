/* SPDX-License-Identifier: Apache-2.0 */
/* Options from the environment, and a warning about misspelled LIGHTC_ variables.
 *
 * To add a variable that is not an option: read it with getenv where it is needed, and give it a line in `switches`. */
#include "core/options/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

#define MAX_NAME 128
#define MAX_SETS 16

/* Known variables other than options. */
static const lc_option switches[] = {
    {.name = "backend_path"},
    {.name = "cache"},
    {.name = "comm"},
    {.name = "config"},
    {.name = "host_fallback"},
    {.name = "isa"},
    {.name = "kernels"},
    {.name = "mpi_plugin"},
    {.name = "nan_check"},
    {.name = "plan"},
    {.name = "plan_dump"},
    {.name = "progress"},
    /* of the simulated device, which only tests use */
    {.name = "sim"},
    {.name = "sim_devices"},
    {.name = "sim_fail"},
    {.name = "sim_without"},
    /* set for a rank by src/launch */
    {.name = "rank"},
    {.name = "world_size"},
    {.name = "local_rank"},
    {.name = "local_size"},
    {.name = "secret"},
    {.name = "run"},
    {.name = "restarted"},
    {.name = "restarts"},
    {.name = "batches"},
    {.name = "coordinated"},
    {.name = "keep"},
};

/* LIGHTC_OPTIMIZER_LR for "optimizer.lr". False if the result would not fit. */
static bool variable_of(const char *prefix, const char *option, char name[MAX_NAME])
{
    int n = snprintf(name, MAX_NAME, "%s%s", prefix, option);
    for (char *c = name; *c; c++) {
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        if (*c == '.') *c = '_';
    }
    return n > 0 && n < MAX_NAME;
}

lc_status lc__options_from_environment(const lc_option_set *sets, int n_sets, const char *prefix)
{
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s].n; i++) {
            char name[MAX_NAME];
            const char *value = variable_of(prefix, sets[s].options[i].name, name) ? getenv(name) : NULL;
            if (!value || !*value) continue;
            lc_status status = lc_option_set_text(&sets[s].options[i], sets[s].target, value);
            if (status < 0) return lc_fail_context(status, "environment variable %s", name);
        }
    return LC_OK;
}

static bool known(const lc_option_set *sets, int n_sets, const char *prefix, const char *variable, size_t length)
{
    char name[MAX_NAME];
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s].n; i++)
            if (variable_of(prefix, sets[s].options[i].name, name) && strlen(name) == length &&
                !strncmp(name, variable, length))
                return true;
    return false;
}

static void no_effect(const char *variable, size_t length, const char *why)
{
    lc__show_line(2, "warning: the environment variable %.*s has no effect; %s", (int)length, variable, why);
}

void lc__options_doubt_environment(const lc_option_set *sets, int n_sets, const char *prefix)
{
    lc_option_set all[MAX_SETS], trainer = {0};
    trainer.options = lc_trainer_option_table(&trainer.n);
    if (n_sets >= MAX_SETS) return;
    for (int s = 0; s < n_sets; s++) all[s] = sets[s];
    all[n_sets++] = (lc_option_set){.options = switches, .n = sizeof switches / sizeof *switches};
    for (char **e = environ; e && *e; e++) {
        const char *end = strchr(*e, '=');
        size_t length = end ? (size_t)(end - *e) : 0, skip = strlen(prefix);
        char option[MAX_NAME], meant[MAX_NAME], question[MAX_NAME + 16];
        if (strncmp(*e, prefix, skip) != 0 || length <= skip || length >= MAX_NAME) continue;
        if (known(all, n_sets, prefix, *e, length)) continue;
        if (known(&trainer, 1, prefix, *e, length)) {
            no_effect(*e, length, "this program has no such option");
            continue;
        }
        for (size_t i = skip; i < length; i++)
            option[i - skip] = (char)((*e)[i] >= 'A' && (*e)[i] <= 'Z' ? (*e)[i] - 'A' + 'a' : (*e)[i]);
        const char *near = lc__option_nearest(all, n_sets, option, length - skip);
        /* A name unlike any option may belong to another program. */
        if (!near || !variable_of(prefix, near, meant)) continue;
        snprintf(question, sizeof question, "did you mean %s?", meant);
        no_effect(*e, length, question);
    }
}
