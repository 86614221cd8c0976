/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of which each rank saves a range: any number of ranks reads any range of them, in either layout; ranges that
 * do not add up, and headers that make false claims, are refused. */
#include "checkpoint_world.h"
#include "comm_world.h"
#include "peer_python.h"

#include "core/checkpoint/joint.h"

enum { ROWS = 6, CHANNELS = 5, SIDE = 3, NUMEL = ROWS * CHANNELS * SIDE * SIDE };

static const lc_type image = {LC_F32, 4, {ROWS, CHANNELS, SIDE, SIDE}};

/* Offset of logical element i, channels last. */
static int64_t place(int64_t i)
{
    int64_t x = i % SIDE, y = i / SIDE % SIDE, c = i / (SIDE * SIDE) % CHANNELS, n = i / (SIDE * SIDE * CHANNELS);
    return ((n * SIDE + y) * SIDE + x) * CHANNELS + c;
}

static void in_memory(float *rows, float *last)
{
    for (int64_t i = 0; i < NUMEL; i++) rows[i] = last[place(i)] = (float)(i * 3 + 1);
}

typedef struct range_job {
    char path[512];
    int first, end; /* elements that the last rank's range lacks, or has too many */
} range_job;

static lc_status save_ranges(lc_comm *comm, void *ctx)
{
    const range_job *j = ctx;
    int rank = lc_comm_rank(comm), n = lc_comm_size(comm);
    float rows[NUMEL], last[NUMEL];
    lc_ckpt_writer *w;
    int64_t one = 7;
    lc_type scalar = {LC_I64, 0, {0}};
    in_memory(rows, last);
    int64_t from = NUMEL * rank / n, to = NUMEL * (rank + 1) / n;
    if (rank == n - 1) from += j->first, to += j->end;
    LC_TRY(lc_ckpt_writer_new(&w));
    LC_TRY(lc_ckpt_begin(w, j->path));
    LC_TRY(lc__ckpt_add_range(w, LC_CKPT_MODEL, "rows", &image, LC_ROW_MAJOR, from, to - from, rows + from));
    LC_TRY(lc__ckpt_add_range(w, LC_CKPT_MODEL, "last", &image, LC_CHANNELS_LAST, from, to - from, last + from));
    /* All of one tensor is on one rank. */
    LC_TRY(
        lc__ckpt_add_range(w, LC_CKPT_OPTIMIZER, "all", &image, LC_CHANNELS_LAST, 0, rank == n - 1 ? NUMEL : 0, last));
    LC_TRY(lc_ckpt_add_data(w, LC_CKPT_MODEL, "step", &scalar, &one));
    lc_status status = lc__ckpt_commit_together(w, comm, true);
    lc_ckpt_writer_free(w);
    return status;
}

static void check_ranges(const char *path)
{
    float rows[NUMEL], last[NUMEL], got[NUMEL];
    lc_checkpoint *c;
    in_memory(rows, last);
    CHECK_OK(lc_checkpoint_open(path, &c));
    for (int k = 0; k < 3; k++) {
        static const char *const names[] = {"rows", "last", "all"};
        lc_safetensors *f = lc_checkpoint_tensors(c, k == 2 ? LC_CKPT_OPTIMIZER : LC_CKPT_MODEL);
        int64_t i = lc_safetensors_find(f, names[k]);
        CHECK(i >= 0);
        CHECK_EQ(lc_safetensors_info(f, i)->type.ndim, 4);
        CHECK_OK(lc_safetensors_read(f, i, got, sizeof got));
        CHECK(!memcmp(got, rows, sizeof rows));
        CHECK_OK(lc_safetensors_read_range(f, i, 40, got, 400));
        CHECK(!memcmp(got, rows + 10, 400));
        /* Read by another number of ranks. */
        for (int n = 1; n <= 5; n++)
            for (int rank = 0; rank < n; rank++) {
                int64_t from = NUMEL * rank / n, count = NUMEL * (rank + 1) / n - from;
                CHECK_OK(lc_safetensors_read_range(f, i, (uint64_t)from * 4, got, (size_t)count * 4));
                CHECK(!memcmp(got, rows + from, (size_t)count * 4));
            }
        CHECK_STATUS(lc_safetensors_read_range(f, i, 4, got, NUMEL * 4), LC_ERR_ARGUMENT);
        CHECK_STATUS(lc_safetensors_read_range(f, -1, 0, got, 4), LC_ERR_ARGUMENT);
        /* Into a tensor, whose memory may be in either order. */
        for (int layout = LC_ROW_MAJOR; layout <= LC_CHANNELS_LAST; layout++) {
            lc_tensor *t;
            CHECK_OK(lc_tensor_new_layout(LC_F32, 4, image.shape, (lc_layout)layout, &t));
            CHECK_OK(lc_safetensors_load(f, names[k], t));
            CHECK_OK(lc_tensor_read(t, got, sizeof got));
            CHECK(!memcmp(got, rows, sizeof rows));
            lc_tensor_unref(t);
        }
    }
    lc_checkpoint_close(c);
}

TEST(ranges_of_tensors)
{
    for (int n = 1; n <= 4; n++) {
        range_job j = {.first = 0};
        snprintf(j.path, sizeof j.path, "%s/a.ckpt", fresh_dir("ranges"));
        CHECK_RANKS("threads", n, save_ranges, &j);
        check_ranges(j.path);
    }
}

TEST(ranges_that_do_not_add_up)
{
    static const struct {
        int first, end;
        const char *says;
    } cases[] = {{5, 0, "is incomplete: no file has its data from byte"},
                 {-5, 0, "hold the same elements"},
                 {0, -1, "is incomplete: no file has"}};
    char dir[400];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        range_job j = {.first = cases[i].first, .end = cases[i].end};
        snprintf(dir, sizeof dir, "%s", fresh_dir("gaps"));
        snprintf(j.path, sizeof j.path, "%s/a.ckpt", dir);
        world *w = world_run("threads", 3, save_ranges, &j);
        for (int rank = 0; rank < 3; rank++) {
            CHECK(w->ranks[rank].status < 0);
            CHECK_CONTAINS(w->ranks[rank].message, cases[i].says);
        }
        world_free(w);
        CHECK_EQ(count_entries(dir), 0);
    }
}

/* Nothing that a header claims is believed. */
TEST(hostile_ranges)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[1]",
        "[{\"name\":\"x\"}]",
        "[{\"name\":\"x\",\"shape\":[4],\"first\":0}]",
        "[{\"name\":\"x\",\"shape\":[4],\"first\":0,\"layout\":\"diagonal\"}]",
        "[{\"name\":\"y\",\"shape\":[4],\"first\":0,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[3],\"first\":0,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[8],\"first\":5,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[8],\"first\":4,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[8],\"first\":-1,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[8],\"first\":9223372036854775807,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[-8],\"first\":0,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[4611686018427387904,4],\"first\":0,\"layout\":\"row_major\"}]",
        "[{\"name\":\"none\",\"shape\":[2305843009213693952,0],\"first\":0,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[1,1,1,1,1,1,1,1,4],\"first\":0,\"layout\":\"row_major\"}]",
        "[{\"name\":\"x\",\"shape\":[4],\"first\":0,\"layout\":\"row_major\"},{\"name\":\"x\",\"shape\":[4],\"first\":"
        "0,"
        "\"layout\":\"row_major\"}]",
    };
    float data[4] = {1, 2, 3, 4};
    char path[512];
    lc_safetensors *f, *all;
    snprintf(path, sizeof path, "%s/a.safetensors", fresh_dir("hostile"));
    lc_named_tensor two[] = {{.name = "x", .type = {LC_F32, 1, {4}}, .data = data},
                             {.name = "none", .type = {LC_F32, 1, {0}}, .data = data}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lc_text_pair pair = {LC__ST_RANGES, bad[i]};
        CHECK_OK(lc_safetensors_save(path, 2, two, 1, &pair));
        CHECK_OK(lc_safetensors_open(path, &f));
        lc_status status = lc__st_join("model", 1, &f, &all);
        if (status != LC_ERR_FORMAT) TEST_FAIL("%s was accepted (%d)", bad[i], status);
        if (!strstr(lc_error_message(), "a.safetensors") && !strstr(lc_error_message(), "model"))
            TEST_FAIL("%s: %s", bad[i], lc_error_message());
    }
    lc_text_pair pair = {LC__ST_RANGES, "[{\"name\":\"x\",\"shape\":[2,2],\"first\":0,\"layout\":\"row_major\"}]"};
    CHECK_OK(lc_safetensors_save(path, 2, two, 1, &pair));
    CHECK_OK(lc_safetensors_open(path, &f));
    CHECK_OK(lc__st_join("model", 1, &f, &all));
    CHECK_EQ(lc_safetensors_info(all, lc_safetensors_find(all, "x"))->type.ndim, 2);
    lc_safetensors_close(all);
}

/* A tensor whose elements are in two files, assembled by Python from the files' metadata. */
TEST(python_reads_ranges)
{
    const char *python = peer_python("safetensors, torch");
    if (!python)
        SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with safetensors and torch");
    const char *dir = fresh_dir("python");
    range_job r = {.first = 0};
    snprintf(r.path, sizeof r.path, "%s/ranges.ckpt", dir);
    CHECK_RANKS("threads", 2, save_ranges, &r);
    run_python(python, dir,
               "import glob, json, torch\nfrom safetensors import safe_open\n"
               "flat = torch.zeros(%d)\n"
               "for path in glob.glob('%s/model-*.safetensors'):\n"
               "    with safe_open(path, 'pt') as part:\n"
               "        for range_ in json.loads(part.metadata()['ranges']):\n"
               "            if range_['name'] == 'last':\n"
               "                piece = part.get_tensor('last')\n"
               "                flat[range_['first']:range_['first'] + len(piece)] = piece\n"
               "n, c, h, w = range_['shape']\n"
               "want = (torch.arange(%d, dtype=torch.float32) * 3 + 1).view(n, c, h, w)\n"
               "assert torch.equal(flat.view(n, h, w, c).permute(0, 3, 1, 2), want)\n",
               NUMEL, r.path, NUMEL);
}

TEST_MAIN
