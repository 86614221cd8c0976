/* SPDX-License-Identifier: Apache-2.0 */
/* CSV files: what RFC 4180 says, types of columns, missing values, classes, and broken files. */
#include "fixtures.h"

#include <locale.h>

#define DEFAULTS  ((lc_array_file_args[]){lc_array_file_defaults()})
#define ARGS(...) ((lc_array_file_args[]){LC_ARGS(lc_array_file, __VA_ARGS__)})

static lc_array_file *text_file(const char *text, const lc_array_file_args *args)
{
    lc_array_file *f;
    CHECK_OK(lc__array_file_of("t.csv", text, strlen(text), args ? args : DEFAULTS, &f));
    return f;
}

static const double *column(lc_array_file *f, const char *name, const char *type)
{
    static double values[64];
    int64_t i = lc_array_file_find(f, name);
    const lc_array_info *info = lc_array_file_info(f, i);
    if (!info) TEST_FAIL("no column %s", name);
    CHECK_STR(info->type, type);
    CHECK_EQ(info->ndim, 1);
    CHECK_OK(lc_array_file_read(f, i, 0, info->shape[0], LC_F64, values, (size_t)info->shape[0] * 8));
    return values;
}

#define CHECK_VALUES(f, name, type, ...)                                                                               \
    do {                                                                                                               \
        const double want[] = {__VA_ARGS__}, *got = column(f, name, type);                                             \
        CHECK_EQ(lc_array_file_info(f, lc_array_file_find(f, name))->shape[0], sizeof want / sizeof *want);            \
        for (size_t i_ = 0; i_ < sizeof want / sizeof *want; i_++) CHECK(got[i_] == want[i_]);                         \
    } while (0)

TEST(columns)
{
    lc_array_file *f =
        text_file("a,b,\"c, \"\"d\"\"\"\r\n1,0.5,red\r\n\r\n -20 ,1e3,\"gr\"\"een\"\r\n3,-inf,blue\r\n4,7,red", NULL);
    CHECK_EQ(lc_array_file_count(f), 3);
    CHECK_VALUES(f, "a", "i64", 1, -20, 3, 4);
    CHECK_VALUES(f, "b", "f64", 0.5, 1000, -INFINITY, 7);
    CHECK_VALUES(f, "c, \"d\"", "i64", 2, 1, 0, 2);
    CHECK_EQ(lc_array_file_info(f, 2)->classes, 3);
    CHECK_STR(lc_array_file_class(f, 2, 0), "blue");
    CHECK_STR(lc_array_file_class(f, 2, 1), "gr\"een");
    CHECK_STR(lc_array_file_class(f, 2, 2), "red");
    CHECK(!lc_array_file_class(f, 2, 3) && !lc_array_file_class(f, 0, 0) && !lc_array_file_class(f, 3, 0));
    lc_array_file_close(f);
}

TEST(numbers_are_those_of_strtod)
{
    static const char *const texts[] = {"0.1",
                                        "-0.3",
                                        "1.7976931348623157e308",
                                        "4.9e-324",
                                        "123456789012345.6",
                                        "999999999999999999",
                                        "-999999999999999999",
                                        "9223372036854775807",
                                        ".5",
                                        "5.",
                                        "+7",
                                        "0.000001",
                                        "3.14159265358979",
                                        "1E5",
                                        "-0.0",
                                        "-0",
                                        "+0",
                                        "-000",
                                        "infinity"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[100];
        snprintf(text, sizeof text, "x\n%s\n0.25\n", texts[i]);
        lc_array_file *f = text_file(text, NULL);
        double want = strtod(texts[i], NULL), got = column(f, "x", "f64")[0];
        CHECK(!memcmp(&want, &got, sizeof got));
        lc_array_file_close(f);
    }
    static const char *const not [] = {"0x10", "1e", ".", "-", "1 2", "1,5x", "nan(1)", "--1", "1.2.3"};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
        char text[100];
        snprintf(text, sizeof text, "x\n\"%s\"\n", not [i]);
        lc_array_file *f = text_file(text, NULL);
        CHECK_EQ(lc_array_file_info(f, 0)->classes, 1);
        lc_array_file_close(f);
    }
}

TEST(whole_numbers_of_64_bits)
{
    lc_array_file *f =
        text_file("id,n\n1234567890123456789,9223372036854775807\n-1234567890123456788,-9223372036854775808\n", NULL);
    static const int64_t ids[2][2] = {{1234567890123456789, -1234567890123456788}, {INT64_MAX, INT64_MIN}};
    for (int k = 0; k < 2; k++) {
        int64_t got[2];
        CHECK_STR(lc_array_file_info(f, k)->type, "i64");
        CHECK_OK(lc_array_file_read(f, k, 0, 2, LC_I64, got, sizeof got));
        CHECK(got[0] == ids[k][0] && got[1] == ids[k][1]);
    }
    lc_array_file_close(f);
    f = text_file("n\n9223372036854775808\n1\n", NULL);
    CHECK_VALUES(f, "n", "f64", 9223372036854775808.0, 1);
    lc_array_file_close(f);
}

TEST(headers)
{
    lc_array_file *f = text_file("1,2\n3,4\n", NULL);
    CHECK_VALUES(f, "0", "i64", 1, 3);
    CHECK_VALUES(f, "1", "i64", 2, 4);
    lc_array_file_close(f);
    f = text_file("1,2\n3,4\n", ARGS(.header = true));
    CHECK_VALUES(f, "2", "i64", 4);
    lc_array_file_close(f);
    f = text_file("a,b\nc,d\n", ARGS(.header = LC_OFF));
    CHECK_VALUES(f, "0", "i64", 0, 1);
    lc_array_file_close(f);
    f = text_file("\xef\xbb\xbfname;n\nx;1\ny;2", ARGS(.delimiter = ';'));
    CHECK_VALUES(f, "name", "i64", 0, 1);
    CHECK_VALUES(f, "n", "i64", 1, 2);
    lc_array_file_close(f);
    f = text_file("a,b\n", NULL);
    CHECK_EQ(lc_array_file_info(f, 1)->shape[0], 0);
    lc_array_file_close(f);
}

TEST(missing_values)
{
    static const char text[] = "a,b,c\n1,0.5,x\n,NA,y\n3,nan,\n";
    CHECK_STATUS(try_bytes("missing.csv", text, strlen(text)), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "missing.csv, line 3, column 'a': a value is missing");
    lc_array_file *f = text_file(text, ARGS(.missing = -1));
    CHECK_VALUES(f, "a", "f64", 1, -1, 3);
    CHECK_VALUES(f, "b", "f64", 0.5, -1, -1);
    CHECK_VALUES(f, "c", "i64", 1, 2, 0);
    CHECK_STR(lc_array_file_class(f, 2, 0), "");
    lc_array_file_close(f);
    f = text_file("a,b\n1,\n2,\n", ARGS(.missing = 0));
    CHECK_VALUES(f, "b", "f64", 0, 0);
    lc_array_file_close(f);
}

TEST(columns_of_texts_by_name)
{
    static const char text[] = "zip,n\n01067,1\nNA,2\n99,3\n01067,4\n";
    lc_array_file *f = text_file(text, ARGS(.text = "zip"));
    CHECK_VALUES(f, "zip", "i64", 0, 2, 1, 0);
    CHECK_STR(lc_array_file_class(f, 0, 0), "01067");
    lc_array_file_close(f);
    CHECK_STATUS(lc__array_file_of("t.csv", text, strlen(text), ARGS(.text = "city"), &f), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "'zip'");
}

/* They would be classes, and training would use their places in the order of texts. */
TEST(numbers_with_commas)
{
    static const char *const texts[] = {"1,5", "-0,25", "1,234.5", "1.234,5", "12,345,678", ",5", "1,5e-3"};
    static const char *const others[] = {"1,5x", ",", "-,", "a,b", "1, 5", "1,2 m"};
    lc_array_file *f;
    char text[100];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(text, sizeof text, "n;x\n1;2\n2;%s\n", texts[i]);
        CHECK_STATUS(lc__array_file_of("t.csv", text, strlen(text), ARGS(.delimiter = ';'), &f), LC_ERR_FORMAT);
        snprintf(text, sizeof text, "n;x\n1;%s\n2;3\n", texts[i]);
        CHECK_STATUS(lc__array_file_of("t.csv", text, strlen(text), ARGS(.delimiter = ';'), &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "line 2, column 'x'");
        CHECK_CONTAINS(lc_error_message(), "has a comma in a number; write it as in 1234.5");
        snprintf(text, sizeof text, "n;x\n1;%s\n2;3\n", texts[i]);
        f = text_file(text, ARGS(.delimiter = ';', .text = "x"));
        CHECK_EQ(lc_array_file_info(f, 1)->classes, 2);
        lc_array_file_close(f);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(text, sizeof text, "n;x\n1;%s\n", others[i]);
        f = text_file(text, ARGS(.delimiter = ';'));
        CHECK_STR(lc_array_file_class(f, 1, 0), others[i]);
        lc_array_file_close(f);
    }
}

TEST(another_delimiter)
{
    static const struct {
        const char *text, *says;
    } files[] = {{"a;b\n1;2\n3;4\n", "give .delimiter = ';', and if not, .delimiter = ','"},
                 {"\na;b\r\n\r\n1;2,5\r\n3;4\r\n", "if it is between values"},
                 {"\"a\";\"b\"\n1;x", "t.csv: its lines have ';', and no ','"},
                 {"a\tb\n1\t2\n", "give .delimiter = '\\t', and"},
                 {"a|b|c\n1|2|x\n", "give .delimiter = '|', and"}};
    static const char *const one_column[] = {"a;b\n1\n", "a\n1;2\n3;4\n", "a;b\n1;2\n3;4;5\n", "a;b\nx\ty\n"};
    lc_array_file *f;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_STATUS(lc__array_file_of("t.csv", files[i].text, strlen(files[i].text), DEFAULTS, &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), files[i].says);
    }
    for (size_t i = 0; i < sizeof one_column / sizeof *one_column; i++) {
        f = text_file(one_column[i], NULL);
        CHECK_EQ(lc_array_file_count(f), 1);
        lc_array_file_close(f);
    }
    f = text_file(files[0].text, ARGS(.delimiter = ','));
    CHECK_EQ(lc_array_file_count(f), 1);
    lc_array_file_close(f);
    CHECK_STATUS(lc__array_file_of("t.tsv", "a;b\n1;2\n", 8, DEFAULTS, &f), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "and no '\\t'");
}

/* Each line would be a class. */
TEST(blanks_between_numbers)
{
    static const char *const tables[] = {"1 2\n3 4\n", "a b\n1 2\n", "x\n\n -1.5   2e3\tcat\n", "x\n1 .5 7\n"};
    static const char *const texts[] = {"a\n\"1 2\"\n", "a\n1 st\n", "a\nNo 2 3\n", "a,b\n1 2,3\n", "a\n1 NA\n"};
    lc_array_file *f;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        CHECK_STATUS(lc__array_file_of("t.csv", tables[i], strlen(tables[i]), DEFAULTS, &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "has blanks between numbers");
        f = text_file(tables[i], ARGS(.delimiter = ','));
        CHECK_EQ(lc_array_file_count(f), 1);
        lc_array_file_close(f);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        f = text_file(texts[i], NULL);
        CHECK_EQ(lc_array_file_info(f, 0)->classes, 1);
        lc_array_file_close(f);
    }
    f = text_file("a\n1 2\n", ARGS(.text = "a"));
    CHECK_EQ(lc_array_file_info(f, 0)->classes, 1);
    lc_array_file_close(f);
    f = text_file("a b\n1 2\n3 4\n", ARGS(.delimiter = ' '));
    CHECK_VALUES(f, "b", "i64", 2, 4);
    lc_array_file_close(f);
}

TEST(another_locale)
{
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "de_DE")) SKIP("there is no German locale");
    lc_array_file *f = text_file("x\n1.5e1\n", NULL);
    CHECK_VALUES(f, "x", "f64", 15);
    lc_array_file_close(f);
    setlocale(LC_NUMERIC, "C");
}

TEST(errors)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"a,b\n1,2\n3\n", "line 3: 1 values, but there are 2 columns"},
        {"a,b\n1,2\n3,4,5\n", "line 3: 3 values"},
        {"a,b\n1,\"2\n3,4\n", "line 2: a quote has no end"},
        {"a,b\n1,\"2\"3\n", "line 2: a field goes on after its quotes"},
        {"a,b\n1,2\n\"x\ny\",4\n", "line 3, column 'a': x\\x0ay is not a number"},
        {"a,b\nx,2\n4,4\n", "line 3, column 'a': 4 is a number, but earlier"},
        {"a,a\n1,2\n", "'a' is there twice"},
        {",a\n0,1\n", "1 is a number, but earlier values are texts; if the first line names the columns, give .header"},
        {"a,b\r1,2\r", "line 1: a carriage return by itself ends no line"},
        {"", "is empty"},
        {"\n\n", "is empty"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_STATUS(try_bytes("odd.csv", rows[i].text, strlen(rows[i].text)), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), rows[i].says);
    }
    CHECK_STATUS(try_bytes("zero.csv", "a\n1\nx\0\n", 7), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "zero character");
    CHECK_STATUS(try_bytes("wide.csv", "\xFF\xFEx\0\n\0001\0\n", 9), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "wide.csv: the text is UTF-16; save it as UTF-8");
    CHECK_STATUS(try_bytes("wide.csv", "\xFE\xFF\0x\0\n\0001\0\n", 10), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "the text is UTF-16");
    char *wide = malloc(1000003);
    memset(wide, ',', 1000003);
    CHECK_STATUS(try_bytes("wide.csv", wide, 1000003), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "1000000 columns");
    free(wide);
}

static void check_pandas(void)
{
    lc_array_file *f;
    CHECK_OK(lc_array_file_open(fixture("pandas.csv"), &f, .missing = 0));
    CHECK_VALUES(f, "number", "i64", -3, -2, -1, 0, 1);
    CHECK_VALUES(f, "real", "f64", 0, 0.1, 1e-300, 3, 0);
    CHECK_VALUES(f, "text, quoted", "i64", 3, 1, 4, 0, 2);
    CHECK_STR(lc_array_file_class(f, 2, 4), "two\nlines");
    lc_file_field fields[] = {{.name = "x", .file = f, .arrays = "*", .to = LC_F32},
                              {.name = "y", .file = f, .arrays = "\"text, quoted\""}};
    lc_dataset *d;
    CHECK_OK(lc_file_dataset_new(2, fields, &d));
    lc_array_file_close(f);
    CHECK_EQ(lc_dataset_length(d), 5);
    CHECK_EQ(lc_dataset_spec(d)->fields[0].shape[0], 2);
    float x[2];
    int64_t y;
    void *out[] = {x, &y};
    CHECK_OK(lc_dataset_read(d, 1, 0, out));
    CHECK(x[0] == -2 && x[1] == 0.1f && y == 1);
    lc_dataset_unref(d);
}

TEST(files_of_others)
{
    check_pandas();
}

TEST(live_pandas)
{
    with_live_files("pandas", check_pandas);
}

TEST(tabs)
{
    lc_array_file *f;
    CHECK_OK(lc__array_file_of("t.tsv", "a\tb\n1\t2,5\n", 10, ARGS(.text = "b"), &f));
    CHECK_EQ(lc_array_file_count(f), 2);
    CHECK_STR(lc_array_file_class(f, 1, 0), "2,5");
    lc_array_file_close(f);
    CHECK_STATUS(lc__array_file_of("t.csv", "a", 1, ARGS(.delimiter = '"'), &f), LC_ERR_ARGUMENT);
}

TEST(files_that_end_early_or_are_changed)
{
    try_broken("pandas.csv", false);
}

TEST_MAIN
