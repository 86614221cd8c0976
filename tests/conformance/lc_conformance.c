/* SPDX-License-Identifier: Apache-2.0 */
/* Runs scripted cases through lightc and compares them with recordings of PyTorch Lightning.
 *
 *     lc_conformance [CASES.json EXPECTED.json [NAME...]]
 *
 * Prints a line for each case that differs, with the first difference, and "N passed, N failed, N skipped"; exits 1 if
 * any failed, 77 if there was nothing to run. Intended differences are rules (rules.c), never lists of cases. */
#include "rules.h"
#include "test.h"

/* ---- the recording in the same form ---- */

static void add_value(const lc_state *v, char *text, size_t size)
{
    double d;
    if (lc_state_kind_of(v) == LC_STATE_TEXT)
        add(text, size, "%s", get_text(v, NULL, ""));
    else if (lc_state_kind_of(v) == LC_STATE_NULL || lc_state_get_double(v, NULL, &d) < 0)
        add(text, size, "none");
    else
        add_number(text, size, d);
}

/* Sorted by name, whatever the recorded order. */
static void add_metrics(const lc_state *o, char *text, size_t size)
{
    int64_t n = lc_state_length(o);
    for (int64_t done = 0, next = -1; done < n; done++) {
        int64_t last = next;
        next = -1;
        for (int64_t i = 0; i < n; i++)
            if ((last < 0 || strcmp(lc_state_key_at(o, i), lc_state_key_at(o, last)) > 0) &&
                (next < 0 || strcmp(lc_state_key_at(o, i), lc_state_key_at(o, next)) < 0))
                next = i;
        add(text, size, "%s=", lc_state_key_at(o, next));
        add_value(lc_state_at(o, next), text, size);
        add(text, size, " ");
    }
}

static void add_trace(trace *tr, const lc_state *row)
{
    char item[128];
    int64_t epoch = -1, step = -1;
    if (lc_state_length(row) == 3 && (lc_state_get_int(lc_state_at(row, 1), NULL, &epoch) < 0 ||
                                      lc_state_get_int(lc_state_at(row, 2), NULL, &step) < 0))
        epoch = -2;
    int n = snprintf(item, sizeof item, "%s:%lld,%lld ", get_text(lc_state_at(row, 0), NULL, "?"), (long long)epoch,
                     (long long)step);
    if (tr->n + (size_t)n + 1 > tr->cap) {
        char *text = realloc(tr->text, tr->cap = 2 * tr->cap + 4096);
        if (!text) return;
        tr->text = text;
    }
    memcpy(tr->text + tr->n, item, (size_t)n + 1);
    tr->n += (size_t)n;
}

static void recorded(const lc_state *want, outcome *o)
{
    const lc_state *final = get(want, "final"), *list;
    memset(o, 0, sizeof *o);
    o->error = get_text(want, "error", NULL);
    o->failed = o->error != NULL;
    snprintf(o->message, sizeof o->message, "%s", get_text(want, "message", ""));
    list = get(want, "trace");
    for (int64_t i = 0; i < lc_state_length(list); i++) add_trace(&o->tr, lc_state_at(list, i));
    list = get(want, "rows");
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        const lc_state *r = lc_state_at(list, i);
        add(o->rows, sizeof o->rows, "step=%s", get_text(r, "step", "?"));
        if (get(r, "epoch")) {
            add(o->rows, sizeof o->rows, " epoch=");
            add_number(o->rows, sizeof o->rows, atof(get_text(r, "epoch", "nan")));
        }
        for (int64_t k = 0; k < lc_state_length(r); k++) {
            const char *key = lc_state_key_at(r, k);
            if (!strcmp(key, "step") || !strcmp(key, "epoch")) continue;
            add(o->rows, sizeof o->rows, " %s=", key);
            add_value(lc_state_at(r, k), o->rows, sizeof o->rows);
        }
        add(o->rows, sizeof o->rows, "|");
    }
    list = get(want, "files");
    for (int64_t i = 0; i < lc_state_length(list); i++)
        add(o->files, sizeof o->files, "%s ", get_text(lc_state_at(list, i), NULL, "?"));
    list = get(want, "result");
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        if (lc_state_kind_of(lc_state_at(list, i)) == LC_STATE_OBJECT)
            add_metrics(lc_state_at(list, i), o->result, sizeof o->result);
        else
            add_value(lc_state_at(list, i), o->result, sizeof o->result);
        add(o->result, sizeof o->result, "; ");
    }
    if (!final) return;
    o->ran = true;
    o->global_step = get_int(final, "global_step", -1);
    o->current_epoch = get_int(final, "current_epoch", -1);
    o->should_stop = get_bool(final, "should_stop", false);
    add_value(get(final, "weight"), o->weight, sizeof o->weight);
    add_metrics(get(final, "callback_metrics"), o->metrics, sizeof o->metrics);
    const lc_state *es = get(final, "early_stopping");
    if (es) {
        add(o->early, sizeof o->early, "%lld %lld ", (long long)get_int(es, "stopped_epoch", -1),
            (long long)get_int(es, "wait_count", -1));
        add_value(get(es, "best_score"), o->early, sizeof o->early);
        add(o->early, sizeof o->early, " %s", get_text(es, "reason", "?"));
    }
    list = get(final, "checkpoints");
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        const lc_state *m = lc_state_at(list, i);
        add(o->checkpoints, sizeof o->checkpoints, "best=%s score=", get_text(m, "best", ""));
        add_value(get(m, "score"), o->checkpoints, sizeof o->checkpoints);
        add(o->checkpoints, sizeof o->checkpoints, " last=%s;", get_text(m, "last", ""));
    }
}

/* ---- comparing ---- */

/* Maps Python's exceptions to classes of lightc's codes. */
static bool same_error(const outcome *got, const outcome *want)
{
    lc_status s = got->status;
    if (!want->error || !got->failed) return got->failed == want->failed;
    if (!strcmp(want->error, "ValueError") || !strcmp(want->error, "TypeError")) /* also a name that lightc lacks */
        return s == LC_ERR_CONFIG || s == LC_ERR_ARGUMENT || s == LC_ERR_UNSUPPORTED;
    if (!strcmp(want->error, "MisconfigurationException")) return s == LC_ERR_CONFIG || s == LC_ERR_ARGUMENT;
    if (!strcmp(want->error, "RuntimeError")) return s == LC_ERR_STATE || s == LC_ERR_USER || s == LC_ERR_CONFIG;
    return true;
}

static bool differ(const char *name, const char *what, const char *got, const char *want)
{
    size_t i = 0;
    if (!got) got = "";
    if (!want) want = "";
    if (!strcmp(got, want)) return false;
    while (got[i] && got[i] == want[i]) i++;
    while (i > 0 && !strchr(" |;", got[i - 1])) i--;
    printf("FAIL %s: %s: got \"%.100s\", want \"%.100s\" (at %zu)\n", name, what, got + i, want + i, i);
    return true;
}

static bool compare(const lc_state *c, const outcome *got, const outcome *want)
{
    const char *name = get_text(c, "name", "?");
    char a[256], b[256];
    if (!same_error(got, want)) {
        printf("FAIL %s: error: got %s (%s), want %s (%s)\n", name, lc_status_text(got->status), got->message,
               want->error ? want->error : "none", want->message);
        return false;
    }
    if (got->ran && want->ran) {
        snprintf(a, sizeof a, "step %lld epoch %lld stop %d weight %s", (long long)got->global_step,
                 (long long)got->current_epoch, got->should_stop, got->weight);
        snprintf(b, sizeof b, "step %lld epoch %lld stop %d weight %s", (long long)want->global_step,
                 (long long)want->current_epoch, want->should_stop, want->weight);
        if (differ(name, "final", a, b) || differ(name, "callback_metrics", got->metrics, want->metrics) ||
            differ(name, "early_stopping", got->early, want->early) ||
            differ(name, "checkpoints", got->checkpoints, want->checkpoints))
            return false;
    }
    if (get_bool(c, "trace", true) && differ(name, "trace", got->tr.text, want->tr.text)) return false;
    return !differ(name, "rows", got->rows, want->rows) && !differ(name, "files", got->files, want->files) &&
           !differ(name, "result", got->result, want->result);
}

static bool run_case(const lc_state *c, const lc_state *recording)
{
    static outcome got, want;
    run_settings how = {0};
    for (int i = 0; i < n_rules; i++)
        if (rules[i].set && rules[i].applies(c, NULL, NULL)) rules[i].set(&how);
    bool ok = scripted_run(c, &how, &got);
    recorded(recording, &want);
    if (!ok) printf("FAIL %s: %s\n", get_text(c, "name", "?"), got.message);
    for (int i = 0; ok && i < n_rules; i++)
        if (rules[i].rewrite && rules[i].applies(c, &got, &want)) rules[i].rewrite(c, &got, &want);
    ok = ok && compare(c, &got, &want);
    free(got.tr.text);
    free(want.tr.text);
    return ok;
}

/* A feature that lightc does not have yet; NULL: none. */
static const char *missing(const lc_state *c)
{
    static const char *const known[] = {
        "ModelCheckpoint",           "EarlyStopping",   "LearningRateMonitor", "GradientAccumulationScheduler",
        "StochasticWeightAveraging", "WeightAveraging", "EMAWeightAveraging",  "Timer",
        "OnExceptionCheckpoint"};
    const lc_state *list = get(c, "callbacks");
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        const char *type = get_text(lc_state_at(list, i), "type", "");
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) found |= !strcmp(known[k], type);
        if (!found) return type;
    }
    return NULL;
}

static lc_state *read_json(const char *path)
{
    lc_state *s = NULL;
    size_t n = 0, cap = 1 << 20;
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(cap) : NULL;
    for (size_t got; text && (got = fread(text + n, 1, cap - n, f)) > 0;) {
        n += got;
        if (n < cap) continue;
        char *more = realloc(text, cap *= 2);
        if (!more) break;
        text = more;
    }
    if (!text || lc_state_parse(text, n, &s) < 0)
        printf("cannot read %s: %s\n", path, text ? lc_error_message() : "no such file");
    if (f) fclose(f);
    free(text);
    return s;
}

int main(int argc, char **argv)
{
    char cases_path[4200], expected_path[4200];
    const char *shared = test_shared_dir();
    int passed = 0, failed = 0, skipped = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc >= 3) {
        snprintf(cases_path, sizeof cases_path, "%s", argv[1]);
        snprintf(expected_path, sizeof expected_path, "%s", argv[2]);
    } else if (shared) {
        snprintf(cases_path, sizeof cases_path, "%s/conformance/cases.json", shared);
        snprintf(expected_path, sizeof expected_path, "%s/conformance/expected.json", shared);
    } else {
        printf("SKIP: there are no recordings here\n0 passed, 0 failed, 0 skipped\n");
        return 77;
    }
    lc_state *cases = read_json(cases_path), *expected = read_json(expected_path);
    if (!cases || !expected) {
        lc_state_free(cases);
        lc_state_free(expected);
        return 1;
    }
    const lc_state *list = get(expected, "cases");
    for (int64_t i = 0; i < lc_state_length(cases); i++) {
        const lc_state *c = lc_state_at(cases, i), *want = NULL;
        const char *name = get_text(c, "name", "?");
        bool wanted = argc < 4;
        for (int k = 3; k < argc; k++) wanted |= strstr(name, argv[k]) != NULL;
        if (!wanted) continue;
        for (int64_t k = 0; k < lc_state_length(list); k++)
            if (!strcmp(get_text(lc_state_at(list, k), "name", ""), name)) want = lc_state_at(list, k);
        const char *what = want ? missing(c) : "a recording";
        if (what) {
            printf("SKIP %s: there is no %s\n", name, what);
            skipped++;
        } else if (run_case(c, want)) {
            passed++;
        } else {
            failed++;
        }
    }
    lc_state_free(cases);
    lc_state_free(expected);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : passed ? 0 : 77;
}
