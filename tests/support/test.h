/* SPDX-License-Identifier: Apache-2.0 */
/* The test harness: TEST(name) { ... CHECK(...) ... } and one TEST_MAIN at the end of the file.
 *
 * A failed check ends its test, not the program. `PROGRAM name...` runs only tests whose names contain one of the
 * arguments. The closing line is "N passed, N failed, N skipped"; exit 1 if any failed, 77 if all were skipped. */
#ifndef LC_TEST_H
#define LC_TEST_H

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <lightc/status.h>

/* A build with a sanitizer, which has an allocator and variables of its own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

/* A build with any sanitizer: its objects have variables of their own, and programs without it cannot be linked with
 * it. */
#ifdef SANITIZED
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define INSTRUMENTED 1
#endif
#endif

/* With ThreadSanitizer, which makes threads ten times slower or worse: it detects races between the threads of one
 * process, for which a few rounds are enough in loops over sizes and numbers of ranks that test other things. */
#if defined(__SANITIZE_THREAD__)
#define RACES_ALONE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_ALONE 1
#endif
#endif
#ifndef RACES_ALONE
#define RACES_ALONE 0
#endif

/* Rounds of a loop, or its step, if later rounds use other numbers on the same paths: a sanitizer finds bugs of memory
 * and races in a few of them, and the numbers are the same without it. */
#ifdef SANITIZED
#define ROUNDS(all, few) (few)
#else
#define ROUNDS(all, few) (all)
#endif

/* Whether a test tries all combinations. It does without a sanitizer and on the host: some of them show on a simulated
 * device, whose kernels are slow, or to a sanitizer what all show. .ci/long tries them all there (LIGHTC_TEST_ALL). */
__attribute__((unused)) static bool takes_all(void)
{
    const char *device = getenv("LIGHTC_ACCELERATOR");
    if (getenv("LIGHTC_TEST_ALL")) return true;
    return ROUNDS(true, false) && (!device || strcmp(device, "sim") != 0);
}

/* Whether the test runs on the simulated device with the reference kernels (tests/extra.cmake). Then its numbers are
 * those of the CPU, bit for bit. */
__attribute__((unused)) static bool is_simulated(void)
{
    const char *device = getenv("LIGHTC_ACCELERATOR"), *kernels = getenv("LIGHTC_KERNELS");
    return device && kernels && !strcmp(device, "sim") && !strcmp(kernels, "reference");
}

/* Where what follows runs, in a test for which is_simulated() holds. */
__attribute__((unused)) static void simulate(bool yes)
{
    setenv("LIGHTC_ACCELERATOR", yes ? "sim" : "cpu", 1);
}

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;

__attribute__((unused)) static test_case *test_first, **test_last = &test_first;
__attribute__((unused)) static jmp_buf test_escape;
__attribute__((unused)) static const char *test_skip_reason = "";

#define TEST(id)                                                                                                       \
    static void test_##id(void);                                                                                       \
    __attribute__((constructor)) static void test_register_##id(void)                                                  \
    {                                                                                                                  \
        static test_case c = {#id, test_##id, NULL};                                                                   \
        *test_last = &c;                                                                                               \
        test_last = &c.next;                                                                                           \
    }                                                                                                                  \
    static void test_##id(void)

#define TEST_FAIL(...)                                                                                                 \
    do {                                                                                                               \
        printf("  %s:%d: ", __FILE__, __LINE__);                                                                       \
        printf(__VA_ARGS__);                                                                                           \
        printf("\n");                                                                                                  \
        longjmp(test_escape, 1);                                                                                       \
    } while (0)
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) TEST_FAIL("CHECK(%s) failed", #cond);                                                             \
    } while (0)
#define CHECK_OK(expr)                                                                                                 \
    do {                                                                                                               \
        lc_status check_status_ = (expr);                                                                              \
        if (check_status_ != LC_OK) TEST_FAIL("%s: %s: %s", #expr, lc_status_text(check_status_), lc_error_message()); \
    } while (0)
#define CHECK_STATUS(expr, want)                                                                                       \
    do {                                                                                                               \
        lc_status check_status_ = (expr);                                                                              \
        if (check_status_ != (want))                                                                                   \
            TEST_FAIL("%s: got \"%s\" (%s), wanted \"%s\"", #expr, lc_status_text(check_status_), lc_error_message(),  \
                      lc_status_text(want));                                                                           \
    } while (0)
#define CHECK_EQ(a, b)                                                                                                 \
    do {                                                                                                               \
        long long check_a_ = (long long)(a), check_b_ = (long long)(b);                                                \
        if (check_a_ != check_b_) TEST_FAIL("%s = %lld, %s = %lld", #a, check_a_, #b, check_b_);                       \
    } while (0)
#define CHECK_STR(a, b)                                                                                                \
    do {                                                                                                               \
        const char *check_a_ = (a), *check_b_ = (b);                                                                   \
        if (strcmp(check_a_, check_b_)) TEST_FAIL("%s = \"%s\", wanted \"%s\"", #a, check_a_, check_b_);               \
    } while (0)
#define CHECK_CONTAINS(text, part)                                                                                     \
    do {                                                                                                               \
        const char *check_a_ = (text), *check_b_ = (part);                                                             \
        if (!strstr(check_a_, check_b_)) TEST_FAIL("\"%s\" does not contain \"%s\"", check_a_, check_b_);              \
    } while (0)
#define CHECK_NEAR(a, b, tol)                                                                                          \
    do {                                                                                                               \
        double check_a_ = (a), check_b_ = (b);                                                                         \
        if (!(fabs(check_a_ - check_b_) <= (tol)))                                                                     \
            TEST_FAIL("%s = %.17g, %s = %.17g, off by %g", #a, check_a_, #b, check_b_, check_a_ - check_b_);           \
    } while (0)
#define SKIP(reason)                                                                                                   \
    do {                                                                                                               \
        test_skip_reason = (reason);                                                                                   \
        longjmp(test_escape, 2);                                                                                       \
    } while (0)

/* A promised time, multiplied by LIGHTC_TEST_SLACK, since other programs may use the processors too. */
static inline double patience(double seconds)
{
    const char *slack = getenv("LIGHTC_TEST_SLACK");
    return slack && atof(slack) >= 1 ? seconds * atof(slack) : seconds;
}

#define TEST_MAIN                                                                                                      \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        volatile int passed = 0, failed = 0, skipped = 0;                                                              \
        setvbuf(stdout, NULL, _IOLBF, 0);                                                                              \
        signal(SIGINT, SIG_DFL); /* it is ignored in a script's background jobs */                                     \
        signal(SIGHUP, SIG_DFL); /* and under nohup */                                                                 \
        for (volatile test_case *volatile c = test_first; c; c = c->next) {                                            \
            int wanted = argc < 2;                                                                                     \
            for (int i = 1; i < argc; i++) wanted |= strstr(c->name, argv[i]) != NULL;                                 \
            if (!wanted) continue;                                                                                     \
            int how = setjmp(test_escape);                                                                             \
            if (how == 0) {                                                                                            \
                c->run();                                                                                              \
                passed++;                                                                                              \
            } else if (how == 2) {                                                                                     \
                printf("SKIP %s: %s\n", c->name, test_skip_reason);                                                    \
                skipped++;                                                                                             \
            } else {                                                                                                   \
                printf("FAIL %s\n", c->name);                                                                          \
                failed++;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);                                         \
        if (argc > 1 && passed + failed + skipped == 0) return fprintf(stderr, "no case has such a name\n"), 2;        \
        return failed ? 1 : passed ? 0 : 77;                                                                           \
    }

/* The folder of shared recordings and data, or NULL if it does not exist. */
static inline const char *test_shared_dir(void)
{
    const char *dir = getenv("LIGHTC_TEST_SHARED");
    if (!dir) dir = "../shared";
    FILE *f = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/conformance/README.md", dir);
    f = fopen(path, "r");
    if (!f) return NULL;
    fclose(f);
    return dir;
}

#endif
