/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics compared with plain re-computations and, if available, TorchMetrics' recorded values; degenerate cases;
 * merging. */
#include "recording.h"
#include <lightc/metrics.h>
#include <lightc/random.h>

enum { N = 90, C = 5, L = 4 };

static float scores[N * C], single[N], other[N];
static int64_t classes[N], bits[N], labels[N * L];

static void make_data(uint64_t seed)
{
    for (int i = 0; i < N * C; i++) scores[i] = (float)lc_random_normal(seed, (uint64_t)i);
    for (int i = 0; i < N; i++) {
        single[i] = (float)lc_random_uniform(seed + 1, (uint64_t)i);
        /* Coarse values, so that there are ties. */
        other[i] = (float)lc_random_below(seed + 2, (uint64_t)i, 7);
        classes[i] = (int64_t)lc_random_below(seed + 3, (uint64_t)i, C - 1); /* class C-1 never occurs */
        bits[i] = lc_random_uniform(seed + 4, (uint64_t)i) < 0.3;
    }
    for (int i = 0; i < N * L; i++) labels[i] = (int64_t)lc_random_below(seed + 5, (uint64_t)i, 2);
}

static lc_metric *make(const char *name, lc_metric_args o)
{
    lc_metric *m;
    CHECK_OK(lc_metric_new_with(name, &m, &o));
    CHECK_STR(lc_metric_name(m), name);
    return m;
}

static double value(lc_metric *m)
{
    double v;
    CHECK_OK(lc_metric_compute(m, &v));
    lc_metric_free(m);
    return v;
}

static int best_class(int i)
{
    int best = 0;
    for (int c = 1; c < C; c++)
        if (scores[i * C + c] > scores[i * C + best]) best = c;
    return best;
}

/* The value over all of make_data, for a multiclass metric. */
static double multiclass(const char *name, lc_metric_args o)
{
    o.num_classes = C;
    lc_metric *m = make(name, o);
    CHECK_OK(lc_metric_update_scores(m, 40, C, scores, classes));
    CHECK_OK(lc_metric_update_scores(m, N - 40, C, scores + 40 * C, classes + 40));
    return value(m);
}

TEST(multiclass_by_counting)
{
    make_data(1);
    double tp[C] = {0}, fp[C] = {0}, fn[C] = {0}, right = 0;
    for (int i = 0; i < N; i++) {
        int p = best_class(i), t = (int)classes[i];
        right += p == t;
        for (int c = 0; c < C; c++) tp[c] += p == c && t == c, fp[c] += p == c && t != c, fn[c] += p != c && t == c;
    }
    CHECK_NEAR(multiclass("Accuracy", lc_metric_defaults()), right / N, 1e-12);
    CHECK_NEAR(multiclass("HammingDistance", lc_metric_defaults()), 1 - right / N, 1e-12);
    double precision = 0, recall = 0, f = 0, f2 = 0, specificity = 0, jaccard = 0, weighted = 0, present = 0;
    for (int c = 0; c < C; c++) {
        double tn = N - tp[c] - fp[c] - fn[c];
        if (tp[c] + fp[c] + fn[c] == 0) continue;
        present++;
        precision += tp[c] + fp[c] ? tp[c] / (tp[c] + fp[c]) : 0;
        recall += tp[c] + fn[c] ? tp[c] / (tp[c] + fn[c]) : 0;
        f += 2 * tp[c] / (2 * tp[c] + fp[c] + fn[c]);
        f2 += 5 * tp[c] / (5 * tp[c] + fp[c] + 4 * fn[c]);
        specificity += tn / (tn + fp[c]);
        jaccard += tp[c] / (tp[c] + fp[c] + fn[c]);
        weighted += (tp[c] + fn[c]) / N * 2 * tp[c] / (2 * tp[c] + fp[c] + fn[c]);
    }
    CHECK(fn[C - 1] == 0 && fp[C - 1] > 0); /* includes a class that is predicted but never occurs */
    lc_metric_args macro = LC_ARGS(lc_metric, .average = LC_AVERAGE_MACRO);
    CHECK_NEAR(multiclass("Precision", macro), precision / present, 1e-12);
    CHECK_NEAR(multiclass("Recall", macro), recall / present, 1e-12);
    CHECK_NEAR(multiclass("Accuracy", macro), recall / present, 1e-12);
    CHECK_NEAR(multiclass("F1Score", macro), f / present, 1e-12);
    CHECK_NEAR(multiclass("FBetaScore", LC_ARGS(lc_metric, .average = LC_AVERAGE_MACRO, .beta = 2)), f2 / present,
               1e-12);
    CHECK_NEAR(multiclass("Specificity", macro), specificity / present, 1e-12);
    CHECK_NEAR(multiclass("JaccardIndex", lc_metric_defaults()), jaccard / present, 1e-12); /* macro by default */
    CHECK_NEAR(multiclass("F1Score", LC_ARGS(lc_metric, .average = LC_AVERAGE_WEIGHTED)), weighted, 1e-12);
    lc_metric *m = make("Recall", LC_ARGS(lc_metric, .num_classes = C, .average = LC_AVERAGE_NONE));
    CHECK_OK(lc_metric_update_scores(m, N, C, scores, classes));
    CHECK_EQ(lc_metric_outputs(m), C);
    double each[C];
    CHECK_OK(lc_metric_compute_all(m, each, C));
    for (int c = 0; c < C; c++) CHECK_NEAR(each[c], tp[c] + fn[c] ? tp[c] / (tp[c] + fn[c]) : 0, 1e-12);
    CHECK_STATUS(lc_metric_compute(m, each), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_metric_compute_all(m, each, C - 1), LC_ERR_ARGUMENT);
    lc_metric_free(m);
}

TEST(top_k_and_ignore)
{
    make_data(2);
    double among = 0, right[3] = {0}, kept[3] = {0}; /* [k]: without class k */
    for (int i = 0; i < N; i++) {
        int better = 0;
        for (int c = 0; c < C; c++) better += scores[i * C + c] > scores[i * C + classes[i]];
        among += better < 3;
        for (int k = 0; k < 3; k++) {
            right[k] += classes[i] != k && best_class(i) == classes[i];
            kept[k] += classes[i] != k;
        }
    }
    CHECK_NEAR(multiclass("Accuracy", LC_ARGS(lc_metric, .top_k = 3)), among / N, 1e-12);
    CHECK_NEAR(multiclass("Accuracy", LC_ARGS(lc_metric, .ignore_index = 2)), right[2] / kept[2], 1e-12);
    CHECK_NEAR(multiclass("Accuracy", LC_ARGS(lc_metric, .ignore_index = 0)), right[0] / kept[0], 1e-12);
    CHECK(kept[0] < N);
    /* An ignored target need not be a class. */
    classes[7] = -100;
    double with = multiclass("Accuracy", LC_ARGS(lc_metric, .ignore_index = -100));
    CHECK(with >= 0 && with <= 1);
    lc_metric *m = make("Accuracy", LC_ARGS(lc_metric, .num_classes = C));
    CHECK_STATUS(lc_metric_update_scores(m, N, C, scores, classes), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "target -100 of sample 7");
    CHECK_STATUS(lc_metric_update_scores(m, N, 3, scores, classes), LC_ERR_SHAPE);
    lc_metric_free(m);
    CHECK_STATUS(lc_metric_new("Accuracy", &m, .num_classes = 3, .top_k = 4), LC_ERR_ARGUMENT);
}

TEST(binary_and_multilabel)
{
    make_data(3);
    double tp = 0, fp = 0, fn = 0, tn = 0;
    for (int i = 0; i < N; i++) {
        bool p = single[i] > 0.4f, t = bits[i];
        tp += p && t, fp += p && !t, fn += !p && t, tn += !p && !t;
    }
    const struct {
        const char *name;
        double want;
    } rows[] = {
        {"Accuracy", (tp + tn) / N},
        {"Precision", tp / (tp + fp)},
        {"Recall", tp / (tp + fn)},
        {"F1Score", 2 * tp / (2 * tp + fp + fn)},
        {"Specificity", tn / (tn + fp)},
        {"JaccardIndex", tp / (tp + fp + fn)},
        {"HammingDistance", (fp + fn) / N},
        {"MatthewsCorrCoef", (tp * tn - fp * fn) / sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))},
    };
    float logits[N];
    for (int i = 0; i < N; i++) logits[i] = (float)log(single[i] / (1.0 - single[i]));
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        lc_metric *m = make(rows[r].name, LC_ARGS(lc_metric, .threshold = 0.4));
        CHECK_OK(lc_metric_update_scores(m, N, 1, single, bits));
        CHECK_NEAR(value(m), rows[r].want, 1e-12);
        m = make(rows[r].name, LC_ARGS(lc_metric, .task = LC_TASK_BINARY, .threshold = 0.4));
        CHECK_OK(lc_metric_update_scores(m, N, 1, logits, bits));
        CHECK_NEAR(value(m), rows[r].want, 0.03); /* a score at the threshold may be rounded to either side */
    }
    double same = 0;
    for (int i = 0; i < N * L; i++) same += (scores[i] > 0) == labels[i];
    lc_metric *m = make("Accuracy", LC_ARGS(lc_metric, .num_labels = L));
    CHECK_OK(lc_metric_update_scores(m, N, L, scores, labels)); /* logits */
    CHECK_NEAR(value(m), same / (N * L), 1e-12);
    m = make("Accuracy", LC_ARGS(lc_metric, .num_labels = L, .average = LC_AVERAGE_MACRO));
    CHECK_OK(lc_metric_update_scores(m, N, L, scores, labels));
    CHECK_NEAR(value(m), same / (N * L), 1e-12); /* all labels occur equally often */
}

/* An ignored score outside of [0, 1] makes logits of the others only where TorchMetrics removes it later. */
TEST(ignored_logits)
{
    static const float among[4] = {0.2f, 0.4f, 0.6f, -3};
    static const int64_t truth[4] = {0, 1, 1, -1};
    static const struct {
        const char *name;
        double want;
    } rows[] = {
        {"Accuracy", 2. / 3},     {"Precision", 2. / 3},        {"HammingDistance", 1. / 3},
        {"JaccardIndex", 1. / 2}, {"MatthewsCorrCoef", 1. / 2}, {"CohenKappa", 2. / 5},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        lc_metric *m = make(rows[r].name, LC_ARGS(lc_metric, .ignore_index = -1));
        CHECK_OK(lc_metric_update_scores(m, 4, 1, among, truth));
        CHECK_NEAR(value(m), rows[r].want, 1e-12);
    }
}

TEST(confusion_kappa_matthews)
{
    make_data(4);
    double c[C * C] = {0}, got[C * C], all = 0, agree = 0, chance = 0;
    for (int i = 0; i < N; i++) c[classes[i] * C + best_class(i)]++;
    lc_metric *m = make("ConfusionMatrix", LC_ARGS(lc_metric, .num_classes = C));
    CHECK_OK(lc_metric_update_scores(m, N, C, scores, classes));
    CHECK_OK(lc_metric_compute_all(m, got, C * C));
    for (int i = 0; i < C * C; i++) CHECK_NEAR(got[i], c[i], 0);
    lc_metric_free(m);
    for (lc_normalize n = LC_NORMALIZE_TRUE; n <= LC_NORMALIZE_ALL; n++) {
        m = make("ConfusionMatrix", LC_ARGS(lc_metric, .num_classes = C, .normalize = n));
        CHECK_OK(lc_metric_update_scores(m, N, C, scores, classes));
        CHECK_OK(lc_metric_compute_all(m, got, C * C));
        for (int t = 0; t < C; t++)
            for (int p = 0; p < C; p++) {
                double row = 0, column = 0;
                for (int i = 0; i < C; i++) row += c[t * C + i], column += c[i * C + p];
                double by = n == LC_NORMALIZE_TRUE ? row : n == LC_NORMALIZE_PRED ? column : N;
                CHECK_NEAR(got[t * C + p], by != 0 ? c[t * C + p] / by : 0, 1e-12);
            }
        lc_metric_free(m);
    }
    double st = 0, sp = 0, tp = 0;
    for (int i = 0; i < C; i++) {
        double row = 0, column = 0;
        for (int j = 0; j < C; j++) row += c[i * C + j], column += c[j * C + i];
        agree += c[i * C + i], all += row, chance += row * column / N, tp += row * column;
        st += row * row, sp += column * column;
    }
    CHECK_NEAR(multiclass("CohenKappa", lc_metric_defaults()), (agree - chance) / (all - chance), 1e-12);
    for (int w = 1; w <= 2; w++) {
        double seen = 0, expected = 0;
        for (int i = 0; i < C; i++)
            for (int j = 0; j < C; j++) {
                double row = 0, column = 0, far = pow(abs(i - j), w);
                for (int l = 0; l < C; l++) row += c[i * C + l], column += c[l * C + j];
                seen += far * c[i * C + j], expected += far * row * column / N;
            }
        CHECK_NEAR(multiclass("CohenKappa", LC_ARGS(lc_metric, .kappa_weights = w)), 1 - seen / expected, 1e-12);
    }
    CHECK_STATUS(lc_metric_new("CohenKappa", &m, .kappa_weights = 3), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_metric_new("ConfusionMatrix", &m, .normalize = (lc_normalize)4), LC_ERR_ARGUMENT);
    CHECK_NEAR(multiclass("MatthewsCorrCoef", lc_metric_defaults()),
               (agree * N - tp) / sqrt((N * (double)N - sp) * (N * (double)N - st)), 1e-12);
}

/* AUROC is the share of (positive, negative) pairs in the right order; ties count half. */
static double pairs_in_order(const float *s, int stride, const int64_t *target, int64_t positive, int n)
{
    double good = 0, all = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (target[i] == positive && target[j] != positive) {
                all++;
                good += s[i * stride] > s[j * stride] ? 1 : s[i * stride] == s[j * stride] ? 0.5 : 0;
            }
    return all != 0 ? good / all : 0;
}

TEST(areas)
{
    make_data(5);
    lc_metric *m = make("AUROC", lc_metric_defaults());
    CHECK_OK(lc_metric_update_scores(m, N, 1, single, bits));
    CHECK_NEAR(value(m), pairs_in_order(single, 1, bits, 1, N), 1e-12);
    /* With ties: scores of 0, 1/8 .. 6/8. */
    float coarse[N];
    for (int i = 0; i < N; i++) coarse[i] = other[i] / 8;
    m = make("AUROC", lc_metric_defaults());
    CHECK_OK(lc_metric_update_scores(m, N, 1, coarse, bits));
    CHECK_NEAR(value(m), pairs_in_order(coarse, 1, bits, 1, N), 1e-12);
    /* One class against the rest. A softmax keeps the order of a column only within a row, so use probabilities. */
    float p[N * C];
    double want = 0;
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int c = 0; c < C; c++) sum += exp(scores[i * C + c]);
        for (int c = 0; c < C; c++) p[i * C + c] = (float)(exp(scores[i * C + c]) / sum);
    }
    for (int c = 0; c < C; c++) want += pairs_in_order(p + c, C, classes, c, N) / C;
    m = make("AUROC", LC_ARGS(lc_metric, .num_classes = C));
    CHECK_OK(lc_metric_update_scores(m, N, C, p, classes));
    CHECK_NEAR(value(m), want, 1e-12);
    CHECK_NEAR(multiclass("AUROC", lc_metric_defaults()), want, 1e-4); /* from logits */
    /* Average precision: the mean over positives of the precision at their score, counting ties together. */
    double sum = 0, positives = 0;
    for (int i = 0; i < N; i++)
        if (bits[i]) {
            double above = 0, hits = 0;
            for (int j = 0; j < N; j++) above += coarse[j] >= coarse[i], hits += coarse[j] >= coarse[i] && bits[j];
            sum += hits / above;
            positives++;
        }
    m = make("AveragePrecision", lc_metric_defaults());
    CHECK_OK(lc_metric_update_scores(m, N, 1, coarse, bits));
    CHECK_NEAR(value(m), sum / positives, 1e-12);
    /* Micro and macro averages over labels; ignored targets are excluded. */
    m = make("AUROC", LC_ARGS(lc_metric, .num_labels = L, .average = LC_AVERAGE_MICRO));
    CHECK_OK(lc_metric_update_scores(m, N, L, p, labels));
    CHECK_NEAR(value(m), pairs_in_order(p, 1, labels, 1, N * L), 1e-12);
    CHECK_STATUS(lc_metric_new("AUROC", &m, .num_classes = C, .average = LC_AVERAGE_MICRO), LC_ERR_UNSUPPORTED);
}

/* Classes that do not occur have no average precision; TorchMetrics has 0 if there is only class 0. */
TEST(average_precision_of_one_class)
{
    static const float rows[] = {0.2f, 0.5f, 0.3f, 0.6f, 0.1f, 0.3f};
    for (int c = 0; c < 2; c++) {
        double v[3];
        lc_metric *m = make("AveragePrecision", LC_ARGS(lc_metric, .num_classes = 3, .average = LC_AVERAGE_NONE));
        CHECK_OK(lc_metric_update_scores(m, 2, 3, rows, (int64_t[]){c, c}));
        CHECK_OK(lc_metric_compute_all(m, v, 3));
        lc_metric_free(m);
        for (int i = 0; i < 3; i++) CHECK(i == c ? v[i] == 1 : c == 0 ? v[i] == 0 : isnan(v[i]));
        m = make("AveragePrecision", LC_ARGS(lc_metric, .num_classes = 3));
        CHECK_OK(lc_metric_update_scores(m, 2, 3, rows, (int64_t[]){c, c}));
        CHECK_NEAR(value(m), c == 0 ? 1 / 3. : 1, 1e-12);
    }
}

TEST(regression)
{
    make_data(6);
    double mse = 0, mae = 0, mx = 0, my = 0, xx = 0, yy = 0, xy = 0, me = 0, ee = 0;
    for (int i = 0; i < N; i++) {
        double d = (double)single[i] - other[i];
        mse += d * d / N, mae += fabs(d) / N, mx += single[i] / N, my += other[i] / N, me += d / N;
    }
    for (int i = 0; i < N; i++) {
        xx += (single[i] - mx) * (single[i] - mx), yy += (other[i] - my) * (other[i] - my);
        xy += (single[i] - mx) * (other[i] - my);
        ee += ((double)single[i] - other[i] - me) * ((double)single[i] - other[i] - me);
    }
    const struct {
        const char *name;
        lc_metric_args o;
        double want;
    } rows[] = {{"MeanSquaredError", lc_metric_defaults(), mse},
                {"MeanSquaredError", LC_ARGS(lc_metric, .not_squared = true), sqrt(mse)},
                {"MeanAbsoluteError", lc_metric_defaults(), mae},
                {"R2Score", lc_metric_defaults(), 1 - mse * N / yy},
                {"ExplainedVariance", lc_metric_defaults(), 1 - ee / yy},
                {"PearsonCorrCoef", lc_metric_defaults(), xy / sqrt(xx * yy)}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        lc_metric *m = make(rows[r].name, rows[r].o);
        CHECK_OK(lc_metric_update_values(m, 30, single, other));
        CHECK_OK(lc_metric_update_values(m, N - 30, single + 30, other + 30));
        CHECK_NEAR(value(m), rows[r].want, 1e-10);
    }
    /* Ranks: 1 + the number of smaller values, averaged over ties. */
    double rx[N], ry[N], sxx = 0, syy = 0, sxy = 0;
    for (int i = 0; i < N; i++) {
        rx[i] = ry[i] = 0.5;
        for (int j = 0; j < N; j++) {
            rx[i] += 0.5 * (single[j] < single[i]) + 0.5 * (single[j] <= single[i]);
            ry[i] += 0.5 * (other[j] < other[i]) + 0.5 * (other[j] <= other[i]);
        }
    }
    for (int i = 0; i < N; i++) {
        double a = rx[i] - (N + 1) / 2.0, b = ry[i] - (N + 1) / 2.0;
        sxx += a * a, syy += b * b, sxy += a * b;
    }
    lc_metric *m = make("SpearmanCorrCoef", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, N, single, other));
    CHECK_NEAR(value(m), sxy / sqrt(sxx * syy), 1e-7);
    /* Several outputs, each evaluated separately. */
    lc_metric_batch b = {.n = N / 2, .columns = 2, .scores = single, .values = other};
    m = make("MeanSquaredError", LC_ARGS(lc_metric, .num_outputs = 2));
    CHECK_OK(lc_metric_update(m, &b));
    double two[2], even = 0;
    for (int i = 0; i < N; i += 2) even += pow((double)single[i] - other[i], 2);
    CHECK_OK(lc_metric_compute_all(m, two, 2));
    CHECK_NEAR(two[0], even / (N / 2), 1e-10);
    CHECK_NEAR((two[0] + two[1]) / 2, mse, 1e-10);
    lc_metric_free(m);
    m = make("R2Score", lc_metric_defaults());
    CHECK_STATUS(lc_metric_update(m, &b), LC_ERR_SHAPE);
    lc_metric_free(m);
    /* A large offset does not hurt Pearson's formula. */
    float far_x[N], far_y[N];
    for (int i = 0; i < N; i++) far_x[i] = 10000 + other[i], far_y[i] = 20000 - 2 * other[i];
    m = make("PearsonCorrCoef", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, N, far_x, far_y));
    CHECK_NEAR(value(m), -1, 1e-9);
}

TEST(aggregates)
{
    static const float v[5] = {3, NAN, -1, 4, 2}, w[5] = {1, 1, 2, 0.5f, 1};
    lc_metric_batch b = {.n = 5, .columns = 1, .scores = v, .weights = w};
    static const struct {
        const char *name;
        double want, empty;
    } rows[] = {{"MeanMetric", (3 - 2 + 2 + 2) / 4.5, NAN},
                {"SumMetric", 8, 0},
                {"MaxMetric", 4, -INFINITY},
                {"MinMetric", -1, INFINITY}};
    for (int r = 0; r < 4; r++) {
        lc_metric *m = make(rows[r].name, lc_metric_defaults());
        double v0;
        CHECK_OK(lc_metric_compute(m, &v0));
        CHECK(isnan(rows[r].empty) ? isnan(v0) : v0 == rows[r].empty);
        CHECK_OK(lc_metric_update(m, &b));
        CHECK_OK(lc_metric_compute(m, &v0));
        CHECK_NEAR(v0, rows[r].want, 1e-12);
        lc_metric_reset(m);
        CHECK_OK(lc_metric_update_value(m, 2.5, 1));
        CHECK_NEAR(value(m), 2.5, 0);
    }
}

/* An update adds what merging the batch's own state adds, and a loaded state equals the saved one, bit for bit:
 * resuming relies on it. */
TEST(updates_are_merges)
{
    static double one[4096], two[4096], loaded[4096];
    make_data(77);
    for (int r = 0; lc_metric_name_at(r); r++) {
        const char *name = lc_metric_name_at(r);
        lc_metric *steady = make(name, lc_metric_defaults()), *part = make(name, lc_metric_defaults());
        lc_metric *resumed = make(name, lc_metric_defaults());
        for (int64_t i = 0; i < N; i += 30) {
            int64_t n = 4096, k = 4096;
            lc_metric_batch b = {
                .n = 30, .columns = 1, .scores = single + i, .targets = bits + i, .values = other + i, .n_targets = 30};
            CHECK_OK(lc_metric_update(steady, &b));
            lc_metric_reset(part);
            CHECK_OK(lc_metric_update(part, &b));
            CHECK_OK(lc_metric_merge(resumed, part));
            CHECK_OK(lc_metric_save(resumed, two, &n));
            CHECK_OK(lc_metric_load(resumed, two, n));
            CHECK_OK(lc_metric_save(resumed, loaded, &n));
            CHECK_OK(lc_metric_save(steady, one, &k));
            CHECK_EQ(n, k);
            if (memcmp(one, two, (size_t)n * sizeof *one) != 0 || memcmp(two, loaded, (size_t)n * sizeof *one) != 0)
                TEST_FAIL("%s: the state depends on how it came about", name);
        }
        lc_metric_free(steady);
        lc_metric_free(part);
        lc_metric_free(resumed);
    }
}

/* Divisions by zero. */
TEST(degenerate)
{
    static const int64_t zeros[4] = {0, 0, 0, 0}, ones[4] = {1, 1, 1, 1};
    static const float low[4] = {0.1f, 0.2f, 0.3f, 0.1f}, constant[4] = {2, 2, 2, 2}, up[4] = {1, 2, 3, 4};
    static const char *const all_zero[] = {"Precision", "Recall", "F1Score", "JaccardIndex"};
    for (int i = 0; i < 4; i++) { /* nothing predicted, nothing true */
        lc_metric *m = make(all_zero[i], lc_metric_defaults());
        CHECK_OK(lc_metric_update_scores(m, 4, 1, low, zeros));
        CHECK_NEAR(value(m), 0, 0);
        m = make(all_zero[i], LC_ARGS(lc_metric, .zero_division = 1));
        CHECK_OK(lc_metric_update_scores(m, 4, 1, low, zeros));
        CHECK_NEAR(value(m), 1, 0);
    }
    lc_metric *m = make("Specificity", lc_metric_defaults());
    CHECK_OK(lc_metric_update_labels(m, 4, ones, ones));
    CHECK_NEAR(value(m), 0, 0);
    m = make("Accuracy", LC_ARGS(lc_metric, .num_classes = 3, .average = LC_AVERAGE_MACRO));
    CHECK_NEAR(value(m), 0, 0);   /* never updated */
    for (int t = 0; t < 2; t++) { /* one class only */
        m = make("AUROC", lc_metric_defaults());
        CHECK_OK(lc_metric_update_scores(m, 4, 1, low, t ? ones : zeros));
        CHECK_NEAR(value(m), 0, 0);
        m = make("AveragePrecision", lc_metric_defaults());
        CHECK_OK(lc_metric_update_scores(m, 4, 1, low, t ? ones : zeros));
        CHECK_NEAR(value(m), t, 0);
    }
    m = make("MatthewsCorrCoef", lc_metric_defaults());
    CHECK_OK(lc_metric_update_labels(m, 4, ones, ones));
    CHECK_NEAR(value(m), 1, 0);
    m = make("MatthewsCorrCoef", lc_metric_defaults());
    CHECK_OK(lc_metric_update_labels(m, 4, ones, zeros));
    CHECK_NEAR(value(m), -1, 0);
    m = make("R2Score", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, 1, up, up));
    double v;
    CHECK_STATUS(lc_metric_compute(m, &v), LC_ERR_STATE);
    CHECK_OK(lc_metric_update_values(m, 3, up + 1, up + 1));
    CHECK_NEAR(value(m), 1, 0);
    m = make("R2Score", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, 4, up, constant));
    CHECK_NEAR(value(m), 0, 0);
    m = make("ExplainedVariance", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, 4, up, constant));
    CHECK_NEAR(value(m), 0, 0);
    m = make("ExplainedVariance", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, 4, constant, constant));
    CHECK_NEAR(value(m), 1, 0);
    m = make("SpearmanCorrCoef", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, 4, constant, up));
    CHECK_NEAR(value(m), 0, 0);
    m = make("PearsonCorrCoef", lc_metric_defaults());
    CHECK_OK(lc_metric_update_values(m, 4, constant, up));
    CHECK(isnan(value(m)));
    CHECK_STATUS(lc_metric_new("Acuracy", &m), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "Accuracy");
    m = make("Accuracy", lc_metric_defaults());
    CHECK_STATUS(lc_metric_update_values(m, 4, up, up), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_metric_update_scores(m, 1, 4, up, ones), LC_ERR_SHAPE);
    CHECK_STATUS(lc_metric_update_labels(m, 4, (int64_t[]){0, 1, 2, 0}, ones), LC_ERR_ARGUMENT);
    CHECK_NEAR(value(m), 0, 0); /* the refused update left no trace */
}

static lc_metric *by_index(int i, int task)
{
    lc_metric *m;
    lc_metric_args o = LC_ARGS(lc_metric, .num_classes = task == 0 ? C : 0, .num_labels = task == 2 ? L : 0);
    const char *name = lc_metric_name_at(i);
    return lc_metric_new_with(name, &m, &o) == LC_OK ? m : NULL;
}

static bool classifies(int i)
{
    return strcmp(lc_metric_name_at(i), "MeanSquaredError") != 0 && i < 13;
}

static void feed(lc_metric *m, int i, int task, int from, int to)
{
    if (!classifies(i))
        CHECK_OK(lc_metric_update_values(m, to - from, single + from, other + from));
    else if (task == 0)
        CHECK_OK(lc_metric_update_scores(m, to - from, C, scores + from * C, classes + from));
    else if (task == 1)
        CHECK_OK(lc_metric_update_scores(m, to - from, 1, single + from, bits + from));
    else
        CHECK_OK(lc_metric_update_scores(m, to - from, L, scores + from * L, labels + from * L));
}

/* Every metric, every task: two parts merged are the whole, and a stored state continues. */
TEST(merge_of_parts_is_the_whole)
{
    make_data(7);
    int tried = 0;
    for (int i = 0; lc_metric_name_at(i); i++)
        for (int task = 0; task < (classifies(i) ? 3 : 1); task++) {
            lc_metric *whole = by_index(i, task), *a, *b, *empty, *fresh;
            if (!whole) continue;
            tried++;
            a = by_index(i, task), b = by_index(i, task), empty = by_index(i, task), fresh = by_index(i, task);
            int64_t n = lc_metric_outputs(whole), size = 0, size_b = 0;
            double want[64], got[64], *state, *state_b;
            feed(whole, i, task, 0, N);
            feed(a, i, task, 0, 35);
            feed(b, i, task, 35, N);
            CHECK_OK(lc_metric_compute_all(whole, want, n));
            CHECK_OK(lc_metric_save(a, NULL, &size));
            CHECK_OK(lc_metric_save(b, NULL, &size_b));
            state = malloc((size_t)size * sizeof *state);
            state_b = malloc((size_t)size_b * sizeof *state_b);
            int64_t small = size - 1;
            CHECK_STATUS(lc_metric_save(a, state, &small), LC_ERR_ARGUMENT);
            CHECK_OK(lc_metric_save(a, state, &size));
            CHECK_OK(lc_metric_save(b, state_b, &size_b));
            CHECK_OK(lc_metric_merge(empty, fresh)); /* a rank that has no sample */
            CHECK_OK(lc_metric_merge(a, b));
            CHECK_OK(lc_metric_merge(a, empty));
            CHECK_OK(lc_metric_compute_all(a, got, n));
            for (int64_t j = 0; j < n; j++) CHECK_NEAR(got[j], want[j], 1e-10);
            /* Load the stored state into a metric that has seen other values, and continue. */
            CHECK_OK(lc_metric_load(b, state, size));
            feed(b, i, task, 35, N);
            CHECK_OK(lc_metric_compute_all(b, got, n));
            for (int64_t j = 0; j < n; j++) CHECK_NEAR(got[j], want[j], 1e-10);
            CHECK_STATUS(lc_metric_merge_state(b, state, size + 1 + (size == 0)), LC_ERR_STATE);
            if (lc_metric_is_additive(a)) {
                CHECK_EQ(size, size_b);
                for (int64_t j = 0; j < size; j++) state[j] += state_b[j];
                CHECK_OK(lc_metric_load(b, state, size));
                CHECK_OK(lc_metric_compute_all(b, got, n));
                for (int64_t j = 0; j < n; j++) CHECK_NEAR(got[j], want[j], 1e-10);
            }
            lc_metric_reset(a);
            feed(a, i, task, 0, N);
            CHECK_OK(lc_metric_compute_all(a, got, n));
            for (int64_t j = 0; j < n; j++) CHECK_NEAR(got[j], want[j], 0);
            free(state), free(state_b);
            lc_metric_free(whole), lc_metric_free(a), lc_metric_free(b), lc_metric_free(empty);
            lc_metric_free(fresh);
        }
    CHECK(tried >= 45);
    lc_metric *a = make("SumMetric", lc_metric_defaults()), *b = make("MaxMetric", lc_metric_defaults());
    CHECK_STATUS(lc_metric_merge(a, b), LC_ERR_ARGUMENT);
    lc_metric_free(a), lc_metric_free(b);
}

TEST(from_tensors)
{
    make_data(8);
    lc_tensor *s, *t;
    int32_t narrow[N];
    for (int i = 0; i < N; i++) narrow[i] = (int32_t)classes[i];
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){N, C}, &s));
    CHECK_OK(lc_tensor_write(s, scores, sizeof scores));
    CHECK_OK(lc_tensor_new(LC_I32, 1, (int64_t[]){N}, &t));
    CHECK_OK(lc_tensor_write(t, narrow, sizeof narrow));
    lc_metric *m = make("Accuracy", LC_ARGS(lc_metric, .num_classes = C));
    CHECK_OK(lc_metric_update_tensor(m, s, t));
    CHECK_NEAR(value(m), multiclass("Accuracy", lc_metric_defaults()), 0);
    m = make("Accuracy", LC_ARGS(lc_metric, .num_classes = C));
    CHECK_OK(lc_metric_update_tensor(m, t, t));
    CHECK_NEAR(value(m), 1, 0);
    m = make("MeanMetric", lc_metric_defaults());
    CHECK_OK(lc_metric_update_tensor(m, s, NULL));
    double mean = 0;
    for (int i = 0; i < N * C; i++) mean += scores[i] / (double)(N * C);
    CHECK_NEAR(value(m), mean, 1e-9);
    m = make("Accuracy", LC_ARGS(lc_metric, .num_classes = C));
    CHECK_STATUS(lc_metric_update_tensor(m, t, s), LC_ERR_SHAPE);
    lc_metric_free(m);
    lc_tensor_unref(s);
    lc_tensor_unref(t);
}

/* ---- TorchMetrics' recorded values ---- */

static int64_t flat(const cJSON *a, double *out, int64_t n)
{
    if (!cJSON_IsArray(a)) {
        /* Not-a-number and infinities are recorded as strings. */
        out[n] = cJSON_IsBool(a) ? cJSON_IsTrue(a) : cJSON_IsString(a) ? strtod(a->valuestring, NULL) : a->valuedouble;
        return n + 1;
    }
    const cJSON *e;
    cJSON_ArrayForEach(e, a) n = flat(e, out, n);
    return n;
}

TEST(recorded_values)
{
    cJSON *root = read_recording("metrics.json"), *c, *batch;
    int wrong = 0, n_cases = 0;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(root, "cases"))
    {
        const char *name = cJSON_GetObjectItem(c, "name")->valuestring;
        const cJSON *args = cJSON_GetObjectItem(c, "args"), *v;
        lc_metric_args o = lc_metric_defaults();
        cJSON_ArrayForEach(v, args)
        {
            const char *k = v->string;
            if (!strcmp(k, "task"))
                o.task = !strcmp(v->valuestring, "binary")       ? LC_TASK_BINARY
                         : !strcmp(v->valuestring, "multiclass") ? LC_TASK_MULTICLASS
                                                                 : LC_TASK_MULTILABEL;
            else if (!strcmp(k, "num_classes"))
                o.num_classes = v->valueint;
            else if (!strcmp(k, "num_labels"))
                o.num_labels = v->valueint;
            else if (!strcmp(k, "top_k"))
                o.top_k = v->valueint;
            else if (!strcmp(k, "threshold"))
                o.threshold = v->valuedouble;
            else if (!strcmp(k, "beta"))
                o.beta = v->valuedouble;
            else if (!strcmp(k, "squared"))
                o.not_squared = cJSON_IsFalse(v);
            else if (!strcmp(k, "ignore_index"))
                o.ignore_index = v->valueint;
            else if (!strcmp(k, "average"))
                o.average = cJSON_IsNull(v) || !strcmp(v->valuestring, "none") ? LC_AVERAGE_NONE
                            : !strcmp(v->valuestring, "micro")                 ? LC_AVERAGE_MICRO
                            : !strcmp(v->valuestring, "macro")                 ? LC_AVERAGE_MACRO
                                                                               : LC_AVERAGE_WEIGHTED;
            else if (!strcmp(k, "num_outputs"))
                o.num_outputs = v->valueint;
            else if (!strcmp(k, "multioutput"))
                o.num_outputs = 3, o.raw_values = !strcmp(v->valuestring, "raw_values");
            else if (!strcmp(k, "normalize"))
                o.normalize = !strcmp(v->valuestring, "true")   ? LC_NORMALIZE_TRUE
                              : !strcmp(v->valuestring, "pred") ? LC_NORMALIZE_PRED
                                                                : LC_NORMALIZE_ALL;
            else
                TEST_FAIL("%s: unknown argument %s", name, k);
        }
        lc_metric *m;
        CHECK_OK(lc_metric_new_with(cJSON_GetObjectItem(c, "class")->valuestring, &m, &o));
        cJSON_ArrayForEach(batch, cJSON_GetObjectItem(c, "data"))
        {
            static double p[4096], t[4096];
            static float pf[4096], tf[4096];
            static int64_t ti[4096], pi[4096];
            int64_t np = flat(cJSON_GetObjectItem(batch, "preds"), p, 0), nt = 0;
            const cJSON *target = cJSON_GetObjectItem(batch, "target");
            if (target) nt = flat(target, t, 0);
            int64_t n = cJSON_GetArrayItem(cJSON_GetObjectItem(batch, "preds_shape"), 0)->valueint;
            for (int64_t i = 0; i < np; i++) pf[i] = (float)p[i];
            for (int64_t i = 0; i < nt; i++) tf[i] = (float)t[i], ti[i] = (int64_t)t[i];
            lc_metric_batch b = {.n = n, .columns = np / n, .scores = pf, .n_targets = nt};
            if (cJSON_HasObjectItem(args, "task"))
                b.targets = ti;
            else if (target)
                b.values = tf;
            if (o.task == LC_TASK_MULTICLASS && b.columns == 1) {
                for (int64_t i = 0; i < np; i++) pi[i] = (int64_t)p[i];
                b.scores = NULL;
                b.labels = pi;
            }
            CHECK_OK(lc_metric_update(m, &b));
        }
        double got[64], want[64];
        int64_t n = flat(cJSON_GetObjectItem(c, "value"), want, 0);
        CHECK_EQ(n, lc_metric_outputs(m));
        CHECK_OK(lc_metric_compute_all(m, got, n));
        for (int64_t i = 0; i < n; i++)
            if (!(fabs(got[i] - want[i]) <= 1e-5) && got[i] != want[i] && !(isnan(got[i]) && isnan(want[i]))) {
                printf("  %s[%d]: %.9g, TorchMetrics has %.9g\n", name, (int)i, got[i], want[i]);
                wrong++;
            }
        lc_metric_free(m);
        n_cases++;
    }
    cJSON_Delete(root);
    printf("  %d recorded cases\n", n_cases);
    CHECK(n_cases > 0);
    CHECK_EQ(wrong, 0);
}

TEST_MAIN
