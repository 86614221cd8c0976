/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders of several ranks: their shares, joined in the order of ranks, are the batches of one process with a batch as
 * large as all of theirs together. */
#include "share_loaders.h"
#include "fail_malloc.h"

TEST(ranks_together_have_the_batches_of_one_process)
{
    static const int64_t lengths[] = {0, 1, 2, 3, 7, 12, 23};
    setting s;
    long joined = 0;
    for (int k = 0; k < KINDS; k++)
        for (int size = 1; size <= MOST_RANKS; size++)
            for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
                for (int64_t batch_size = 1; batch_size <= 4; batch_size += 1 + (batch_size == 2))
                    for (int mode = 0; mode < 4; mode++) {
                        s = (setting){(what)k, lengths[n], batch_size, mode & 1, mode & 2};
                        lc_dataloader *l[MOST_RANKS];
                        for (int r = 0; r < size; r++) {
                            l[r] = loader_of(&s);
                            CHECK_OK(lc_dataloader_share(l[r], &(lc_share){.rank = r, .size = size}));
                            CHECK_EQ(lc_dataloader_get_share(l[r])->rank, r);
                            CHECK_EQ(lc_dataloader_get_share(l[r])->batches, size);
                            if (k < OWN) CHECK_EQ(lc_dataloader_batch_size(l[r]), batch_size);
                        }
                        for (int64_t epoch = 1; epoch < 3; epoch++) {
                            read_whole(&s, size * batch_size, epoch);
                            for (int r = 0; r < size; r++) {
                                CHECK_EQ(lc_dataloader_length(l[r], epoch), whole.n);
                                CHECK_OK(lc_dataloader_begin(l[r], epoch, 0));
                                read_batches(l[r], INT_MAX, &logs[r]);
                            }
                            check_union(&whole, 0, logs, size, size * batch_size);
                            joined += whole.n;
                        }
                        for (int r = 0; r < size; r++) lc_dataloader_free(l[r]);
                    }
    CHECK(joined > 10000);
}

/* Evaluation, the simplest case in numbers: 7 samples, 3 ranks, 2 for each; then 4 ranks for the last one. */
TEST(the_last_batch_may_be_empty_on_some_ranks)
{
    static const int64_t sizes[3][2] = {{2, 0}, {2, 0}, {2, 1}};
    setting s = {PLAIN, 7, 2, false, 0};
    for (int r = 0; r < 3; r++) {
        lc_dataloader *l = loader_of(&s);
        lc_batch *b;
        CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = r, .size = 3}));
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        for (int i = 0; i < 2; i++) {
            CHECK_OK(lc_dataloader_next(l, &b));
            CHECK_EQ(b->size, sizes[r][i]);
            CHECK_EQ(b->global_size, i ? 1 : 6);
            CHECK_EQ(b->global_offset, i ? 0 : 2 * r);
            CHECK_EQ(b->first, i ? 6 : 2 * r);
            CHECK_EQ(lc_tensor_dim(b->x, 0), b->size);
            for (int64_t j = 0; j < b->size; j++) CHECK_EQ(b->indices[j], b->first + j);
        }
        CHECK_OK(lc_dataloader_next(l, &b));
        CHECK(!b);
        lc_dataloader_free(l);
    }
}

/* A run of `from` ranks stops after batch k; one of `to` ranks continues. */
static void check_resume(const setting *s, int from, int to, int64_t epoch)
{
    int64_t global = s->batch_size * from;
    read_whole(s, global, epoch);
    for (int k = 0; k <= whole.n; k++) {
        int64_t state[64];
        size_t size = sizeof state;
        lc_dataloader *l = loader_of(s);
        CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = from - 1, .size = from}));
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        read_batches(l, k, &logs[0]);
        CHECK_EQ(logs[0].n, k);
        CHECK_OK(lc_dataloader_save(l, state, &size));
        lc_dataloader_free(l);
        /* The loaders keep their sizes for another number of ranks; and, if it divides, they are given another size. */
        for (int divided = 0; divided < 1 + (global % to == 0); divided++) {
            setting now = *s;
            if (divided) now.batch_size = global / to;
            for (int r = 0; r < to; r++) {
                l = loader_of(&now);
                CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = r, .size = to, .batches = divided ? 0 : from}));
                if (size) CHECK_OK(lc_dataloader_load(l, state, size));
                CHECK_OK(lc_dataloader_begin(l, epoch, k));
                read_batches(l, INT_MAX, &logs[r]);
                lc_dataloader_free(l);
            }
            check_union(&whole, k, logs, to, global);
        }
    }
}

TEST(resume_at_every_batch_with_other_ranks)
{
    setting s;
    for (int k = 0; k < KINDS; k++)
        for (int from = 1; from <= 4; from++)
            for (int to = 1; to <= MOST_RANKS; to++)
                for (int64_t batch_size = 1; batch_size <= 3; batch_size += 2) {
                    s = (setting){(what)k, 17, batch_size, to == 3, k == SHUFFLED ? 2 : 0};
                    check_resume(&s, from, to, 1);
                }
}

/* One loader that is used as one rank after another, and then as all of them again; with epochs that are left early. */
TEST(the_same_loader_as_other_ranks)
{
    for (int workers = 0; workers < 3; workers += 2) {
        setting s = {SHUFFLED, 23, 2, false, workers};
        lc_dataloader *l = loader_of(&s);
        lc_batch *b;
        for (int round = 0; round < 3; round++)
            for (int size = 1; size <= MOST_RANKS; size++)
                for (int batches = 0; batches <= MOST_RANKS; batches++) {
                    int64_t global = 2 * (batches ? batches : size);
                    read_whole(&s, global, round);
                    for (int r = 0; r < size; r++) {
                        CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = r, .size = size, .batches = batches}));
                        CHECK_OK(lc_dataloader_begin(l, round, 0));
                        read_batches(l, INT_MAX, &logs[r]);
                        CHECK_OK(lc_dataloader_begin(l, round + 1, 0)); /* workers are busy when its share changes */
                        CHECK_OK(lc_dataloader_next(l, &b));
                    }
                    check_union(&whole, 0, logs, size, global);
                }
        read_whole(&s, 2, 0);
        CHECK_OK(lc_dataloader_share(l, NULL));
        CHECK_STATUS(lc_dataloader_next(l, &b), LC_ERR_STATE); /* the epoch was ended */
        CHECK_OK(lc_dataloader_begin(l, 0, 0));
        read_batches(l, INT_MAX, &logs[0]);
        CHECK(!memcmp(&whole, &logs[0], sizeof whole));
        lc_dataloader_free(l);
    }
}

/* Sums over parts of a batch that do not depend on the number of ranks need shares of whole pieces. */
TEST(slices_of_whole_pieces)
{
    for (int size = 1; size <= MOST_RANKS; size++) {
        setting s = {SHUFFLED, 31, 4, false, 0};
        int64_t at[16] = {0};
        int n = 0;
        for (int r = 0; r < size; r++) {
            lc_dataloader *l = loader_of(&s);
            lc_batch *b;
            CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = r, .size = size, .batches = 3, .pieces = 3}));
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            for (n = 0;; n++) {
                CHECK_OK(lc_dataloader_next(l, &b));
                if (!b) break;
                CHECK_EQ(b->global_offset, at[n]);
                CHECK_EQ(b->piece, 4);
                CHECK(b->size % 4 == 0 || b->global_offset + b->size == b->global_size);
                CHECK_EQ(b->global_offset,
                         n == 2 && 4 * r * ((3 + size - 1) / size) > 7
                             ? 7
                             : (4 * r * ((3 + size - 1) / size) < 12 ? 4 * r * ((3 + size - 1) / size) : 12));
                at[n] += b->size;
                CHECK_EQ(b->global_size, n == 2 ? 31 - 24 : 12);
            }
            lc_dataloader_free(l);
        }
        CHECK_EQ(n, 3);
        CHECK(at[0] == 12 && at[1] == 12 && at[2] == 7);
    }
}

TEST(a_loader_of_the_program_must_support_shares)
{
    lc_dataloader_ops ops = stream_ops;
    lc_dataloader *plain, *parts[2], *l;
    setting s = {PLAIN, 9, 2, false, 0};
    ops.share = NULL;
    CHECK_OK(lc_dataloader_from_ops(&ops, stream_self(9, 2, false), &l));
    CHECK_STATUS(lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2}), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "loader 'stream'");
    CHECK_CONTAINS(lc_error_message(), "rank 1 of 2");
    CHECK_CONTAINS(lc_error_message(), "--use_distributed_sampler false");
    CHECK_EQ(lc_dataloader_get_share(l)->size, 1);
    CHECK_OK(lc_dataloader_share(l, NULL)); /* a single rank needs nothing */
    CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = 0, .size = 1}));

    /* In a combined loader: the loader before it has all its samples again. */
    plain = parts[0] = loader_of(&s);
    parts[1] = l;
    CHECK_OK(lc_combined_loader_new(LC_MAX_SIZE, 2, parts, &l));
    CHECK_STATUS(lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2}), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "'stream'");
    CHECK_EQ(lc_dataloader_get_share(plain)->size, 1);
    CHECK_EQ(lc_dataloader_length(plain, 0), 5);
    CHECK_EQ(lc_dataloader_length(l, 0), 5);
    lc_dataloader_free(l);

    /* A loader that can be shared out, but does not know how large the global batch is. */
    stream *silent = stream_self(9, 2, false);
    silent->silent = true;
    CHECK_OK(lc_dataloader_from_ops(&stream_ops, silent, &l));
    lc_batch *b;
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_OK(lc_dataloader_next(l, &b));
    CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = 0, .size = 2}));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_STATUS(lc_dataloader_next(l, &b), LC_ERR_USER);
    CHECK(!b);
    CHECK_CONTAINS(lc_error_message(), "global_size");
    lc_dataloader_free(l);
}

TEST(impossible_shares)
{
    static const lc_share wrong[] = {
        {0, 0}, {-1, 2}, {2, 2}, {0, -1}, {0, 1, -1, 0}, {0, 1, 0, -1}, {0, 2, 0, INT64_MAX}};
    setting s = {PLAIN, 9, 2, false, 0};
    lc_dataloader *l = loader_of(&s);
    CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 3}));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(lc_dataloader_share(l, &wrong[i]), LC_ERR_ARGUMENT);
        CHECK_EQ(lc_dataloader_get_share(l)->size, 3);
        CHECK_EQ(lc_dataloader_length(l, 0), 2);
    }
    CHECK_STATUS(lc_dataloader_share(l, &(lc_share){.rank = 0, .size = 1, .batches = INT_MAX}),
                 LC_ERR_ARGUMENT); /* a batch of 2^32 samples */
    CHECK_EQ(lc_dataloader_length(l, 0), 2);
    lc_dataloader_free(l);
}

/* Larger shares than before need memory; without it the loader stays as it was. */
TEST(no_memory_for_larger_slices)
{
#ifdef SANITIZED
    SKIP("a sanitizer owns malloc");
#else
    setting s = {SHUFFLED, 23, 2, false, 2};
    int failures = 0;
    read_whole(&s, 2, 0);
    for (long at = 1;; at++) {
        lc_dataloader *l = loader_of(&s);
        atomic_store(&malloc_fail_at, atomic_load(&mallocs) + at);
        lc_status status = lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2, .batches = 4});
        atomic_store(&malloc_fail_at, 0);
        if (status < 0) {
            CHECK_EQ(status, LC_ERR_MEMORY);
            CHECK_OK(lc_dataloader_begin(l, 0, 0));
            read_batches(l, INT_MAX, &logs[0]);
            CHECK(!memcmp(&whole, &logs[0], sizeof whole));
            failures++;
        }
        lc_dataloader_free(l);
        if (status == LC_OK) break;
    }
    CHECK(failures >= 8); /* the keys of two workers, and two fields of five slots */
#endif
}

TEST(ranks_allocate_nothing_in_the_steady_state)
{
#ifdef SANITIZED
    SKIP("a sanitizer owns malloc");
#else
    for (int workers = 0; workers < 3; workers += 2) {
        setting s = {SHUFFLED, 23, 2, false, workers};
        lc_dataloader *l = loader_of(&s);
        long before = 0, batches = 0;
        CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = 2, .size = 3}));
        for (int epoch = 0; epoch < 4; epoch++) {
            if (epoch == 1) before = atomic_load(&mallocs);
            CHECK_OK(lc_dataloader_begin(l, epoch, 0));
            for (lc_batch *b;; batches++) {
                CHECK_OK(lc_dataloader_next(l, &b));
                if (!b) break;
            }
        }
        CHECK_EQ(batches, 16);
        CHECK_EQ(atomic_load(&mallocs) - before, 0);
        lc_dataloader_free(l);
    }
#endif
}

/* ---- more room than samples ---- */

/* A batch size that means "all samples" takes the memory of all samples. */
TEST(a_batch_has_room_for_the_samples_that_there_are)
{
    static float x[5];
    const lc_array a = {.field = {.name = "x"}, .data = x};
    lc_dataset *d;
    CHECK_OK(lc_array_dataset_new(5, 1, &a, &d));
    for (int ranks = 1; ranks < 4; ranks++)
        for (int64_t pieces = 0; pieces < 4; pieces++) {
            lc_dataloader *l;
            lc_batch *b;
            lc_loader_times times;
            int64_t n = 0;
            CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = INT32_MAX / ranks, .num_workers = 2));
            for (int rank = 0; rank < ranks; rank++) {
                CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = rank, .size = ranks, .pieces = pieces}));
                CHECK_OK(lc_dataloader_begin(l, 0, 0));
                CHECK_OK(lc_dataloader_next(l, &b));
                n += b->size;
                CHECK_EQ(b->global_size, ranks > 1 || pieces ? 5 : b->global_size);
            }
            CHECK_EQ(n, 5);
            CHECK_EQ(lc_dataloader_batch_size(l), INT32_MAX / ranks);
            lc_dataloader_times(l, &times);
            CHECK(times.bytes < 10000);
            lc_dataloader_free(l);
        }
    lc_dataset_unref(d);
}

TEST_MAIN
