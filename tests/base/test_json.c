/* SPDX-License-Identifier: Apache-2.0 */
/* State trees, their strict JSON, and CRC-32C. */
#include "test.h"
#include <lightc/state.h>
#include "base/crc32c.h"
#include "base/json.h"

#include <float.h>
#include <locale.h>
#include <stdint.h>

static lc_status parse(const char *text, lc_state **out)
{
    return lc_state_parse(text, strlen(text), out);
}

TEST(round_trip)
{
    lc_state *s, *child, *list, *again;
    const lc_state *c;
    CHECK_OK(lc_state_new(&s));
    CHECK_OK(lc_state_set_int(s, "min", INT64_MIN));
    CHECK_OK(lc_state_set_int(s, "max", INT64_MAX));
    CHECK_OK(lc_state_set_uint(s, "seed", UINT64_MAX));
    CHECK_OK(lc_state_set_double(s, "third", 1.0 / 3));
    CHECK_OK(lc_state_set_double(s, "nan", NAN));
    CHECK_OK(lc_state_set_double(s, "minus", -INFINITY));
    CHECK_OK(lc_state_set_double(s, "tiny", 5e-324));
    CHECK_OK(lc_state_set_bool(s, "yes", true));
    CHECK_OK(lc_state_set_text(s, "text", "quote \" back \\ line\n tab\t \x01 \xc3\xa4 \xf0\x9f\x98\x80"));
    CHECK_OK(lc_state_set_text(s, "none", NULL));
    CHECK_OK(lc_state_set_object(s, "inner", &child));
    CHECK_OK(lc_state_set_int(child, "x", 1));
    CHECK_OK(lc_state_set_int(child, "x", 2)); /* replaces */
    CHECK_OK(lc_state_set_array(s, "list", &list));
    for (int i = 0; i < 100; i++) CHECK_OK(lc_state_set_int(list, NULL, i));
    char *text;
    size_t length;
    CHECK_OK(lc_state_print(s, &text, &length));
    CHECK_EQ(strlen(text), length);
    CHECK_OK(lc_state_parse(text, length, &again));
    int64_t i;
    uint64_t u;
    double d;
    bool b;
    const char *t;
    CHECK_OK(lc_state_get_int(again, "min", &i));
    CHECK(i == INT64_MIN);
    CHECK_OK(lc_state_get_int(again, "max", &i));
    CHECK(i == INT64_MAX);
    CHECK_OK(lc_state_get_uint(again, "seed", &u));
    CHECK(u == UINT64_MAX);
    CHECK_OK(lc_state_get_double(again, "third", &d));
    CHECK(d == 1.0 / 3);
    CHECK_OK(lc_state_get_double(again, "nan", &d));
    CHECK(isnan(d));
    CHECK_OK(lc_state_get_double(again, "minus", &d));
    CHECK(isinf(d) && d < 0);
    CHECK_OK(lc_state_get_double(again, "tiny", &d));
    CHECK(d == 5e-324);
    CHECK_OK(lc_state_get_bool(again, "yes", &b));
    CHECK(b);
    CHECK_OK(lc_state_get_text(again, "text", &t));
    CHECK_STR(t, "quote \" back \\ line\n tab\t \x01 \xc3\xa4 \xf0\x9f\x98\x80");
    CHECK_EQ(lc_state_kind_of(lc_state_find(again, "none")), LC_STATE_NULL);
    CHECK_OK(lc_state_get_object(again, "inner", &c));
    CHECK_EQ(lc_state_length(c), 1);
    CHECK_OK(lc_state_get_int(c, "x", &i));
    CHECK_EQ(i, 2);
    CHECK_OK(lc_state_get_array(again, "list", &c));
    CHECK_EQ(lc_state_length(c), 100);
    CHECK_OK(lc_state_get_int(lc_state_at(c, 99), NULL, &i));
    CHECK_EQ(i, 99);
    CHECK_STR(lc_state_key_at(again, 0), "min");
    CHECK_STATUS(lc_state_get_int(again, "nothing", &i), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_state_get_int(again, "text", &i), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "state \"text\" is a text, not an integer");
    CHECK_STATUS(lc_state_set_int(list, "key", 1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_state_set_int(s, NULL, 1), LC_ERR_ARGUMENT);
    free(text);
    lc_state_free(s);
    lc_state_free(again);
}

TEST(malformed_json_is_refused)
{
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1}x",
        "{} {}",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x10",
        "NaN",
        "Infinity",
        "tru",
        "nul",
        "9223372036854775808",
        "-9223372036854775809",
        "1e999",
        "-1e999",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\u0000\"",
        "\"\n\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf5\x80\x80\x80\"",
        "\"\xe2\x82\"",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "{\"x\":{\"a\":1,\"\\u0061\":3}}",
        "[1}",
        "{\"a\":1]",
        "'a'",
        "[1 2]",
        "/**/1",
        "\xef\xbb\xbf{}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lc_state *s = NULL;
        lc_status status = parse(bad[i], &s);
        if (status != LC_ERR_FORMAT) TEST_FAIL("%s was not refused (%s)", bad[i], lc_status_text(status));
        CHECK(!s);
        CHECK_CONTAINS(lc_error_message(), "line ");
    }
    lc_state *s = NULL;
    CHECK_STATUS(parse("{\"a\": 1,\n \"b\": x}", &s), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "line 2, column 7");
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    CHECK_STATUS(lc_state_parse(deep, 200, &s), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "64 levels");
    CHECK_OK(lc_state_parse(deep + 36, 128, &s));
    lc_state_free(s);
    /* Zero bytes inside the text, and a text without a terminator. */
    CHECK_STATUS(lc_state_parse("{\0}", 3, &s), LC_ERR_FORMAT);
    CHECK_OK(lc_state_parse("{}garbage", 2, &s));
    lc_state_free(s);
    CHECK_OK(parse("\"\\ud83d\\ude00\\/\\b\"", &s));
    const char *t;
    CHECK_OK(lc_state_get_text(s, NULL, &t));
    CHECK_STR(t, "\xf0\x9f\x98\x80/\b");
    lc_state_free(s);
}

TEST(too_deep_or_not_utf8_is_not_printed)
{
    lc_state *root, *s;
    char *text;
    CHECK_OK(lc_state_new(&root));
    s = root;
    for (int i = 0; i < 70; i++) CHECK_OK(lc_state_set_object(s, "a", &s));
    CHECK_STATUS(lc_state_print(root, &text, NULL), LC_ERR_ARGUMENT);
    lc_state_free(root);
    CHECK_OK(lc_state_new(&root));
    CHECK_OK(lc_state_set_text(root, "a", "\xff"));
    CHECK_STATUS(lc_state_print(root, &text, NULL), LC_ERR_ARGUMENT);
    lc_state_free(root);
}

TEST(doubles_as_python_prints_them)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {1, "1.0"},
        {0, "0.0"},
        {-0.0, "-0.0"},
        {-2.5, "-2.5"},
        {0.1, "0.1"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {1e22, "1e+22"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {1.5e-7, "1.5e-07"},
        {1e100, "1e+100"},
        {1.0 / 3, "0.3333333333333333"},
        {2.0 / 3, "0.6666666666666666"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {DBL_MIN, "2.2250738585072014e-308"},
        {(double)0.1f, "0.10000000149011612"},
        {123.456, "123.456"},
        {9007199254740993.0, "9007199254740992.0"},
        {NAN, "nan"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
    };
    char text[LC__DOUBLE_SIZE];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            CHECK_EQ(lc__print_double(text, cases[i].value), strlen(cases[i].text));
            CHECK_STR(text, cases[i].text);
        }
        if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) break; /* with a decimal comma, if there is such a locale */
    }
    setlocale(LC_NUMERIC, "C");
    uint64_t bits = 12345;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double value, again;
        memcpy(&value, &bits, 8);
        if (!isfinite(value)) continue;
        int n = lc__print_double(text, value);
        CHECK(n < LC__DOUBLE_SIZE);
        again = strtod(text, NULL);
        CHECK(again == value);
    }
}

TEST(crc32c)
{
    unsigned char zeros[32] = {0};
    CHECK_EQ(lc__crc32c(0, zeros, 32), 0x8a9136aa);
    CHECK_EQ(lc__crc32c(0, "123456789", 9), 0xe3069283);
    size_t n = 100000;
    unsigned char *data = malloc(n);
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i * 2654435761u >> 11);
    for (size_t from = 0; from < 9; from++)
        for (size_t length = 0; length < n - 9; length = length * 3 + 1)
            CHECK_EQ(lc__crc32c(7, data + from, length), lc__crc32c_plain(7, data + from, length));
    for (size_t cut = 0; cut <= n; cut += 9973) {
        uint32_t a = lc__crc32c(0, data, cut), b = lc__crc32c(0, data + cut, n - cut);
        CHECK_EQ(lc__crc32c_combine(a, b, n - cut), lc__crc32c(0, data, n));
        CHECK_EQ(lc__crc32c(a, data + cut, n - cut), lc__crc32c(0, data, n));
    }
    free(data);
}

TEST_MAIN
