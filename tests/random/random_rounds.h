/* SPDX-License-Identifier: Apache-2.0 */
/* The main function of a test of random cases, which selects rounds: --seed S, --rounds N, --round I. Include it last,
 * with `ROUNDS_OF` defined as the struct that holds the selection: seed, first and rounds. */
#ifndef LC_TESTS_RANDOM_ROUNDS_H
#define LC_TESTS_RANDOM_ROUNDS_H

#include "test.h"

int run_cases(int argc, char **argv);
#define main run_cases
TEST_MAIN
#undef main

int main(int argc, char **argv)
{
    int n = 1;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && !strcmp(argv[i], "--seed"))
            ROUNDS_OF.seed = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && !strcmp(argv[i], "--round"))
            ROUNDS_OF.first = strtoll(argv[++i], NULL, 10), ROUNDS_OF.rounds = 1;
        else if (i + 1 < argc && !strcmp(argv[i], "--rounds"))
            ROUNDS_OF.rounds = strtoll(argv[++i], NULL, 10);
        else
            argv[n++] = argv[i];
    }
    return run_cases(n, argv);
}

#endif
