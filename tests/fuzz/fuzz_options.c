/* SPDX-License-Identifier: Apache-2.0 */
/* The option parser: lines of the input are arguments. Nothing may crash, leak or print. It only parses:
 * lc_trainer_options_parse would also start the ranks that the options ask for. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <lightc/options.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX_ARGS = 32 };
    char *argv[MAX_ARGS] = {(char *)"fuzz"};
    int argc = 1;
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    for (char *line = strtok(text, "\n"); line && argc < MAX_ARGS; line = strtok(NULL, "\n")) {
        /* These print to standard output or read files. */
        if (strstr(line, "help") || !strcmp(line, "-h") || strstr(line, "print") || strstr(line, "config")) continue;
        argv[argc++] = line;
    }
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    const lc_option_set set = {.options = table, .n = n, .target = &opt};
    lc_status status = lc_options_parse(&set, 1, "LIGHTC_", argc, argv, &opt.storage);
    if (status == LC_OK) {
        /* Parsed values must print as text that parses to the same values. */
        for (int i = 0; i < n; i++) {
            char first[256], second[256];
            lc_trainer_options other = LC_TRAINER_OPTIONS_INIT;
            if (lc_option_get_text(&table[i], &opt, first, sizeof first) >= (int)sizeof first) continue;
            if (table[i].kind == LC_OPTION_TEXT) continue;
            if (lc_option_set_text(&table[i], &other, first) != LC_OK) abort();
            lc_option_get_text(&table[i], &other, second, sizeof second);
            if (strcmp(first, second) != 0) abort();
        }
    }
    lc_trainer_options_release(&opt);
    free(text);
    return 0;
}
