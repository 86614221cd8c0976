/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of the collectives: the memory of each rank before and after.
 *
 *   collectives --devices 4                starts four ranks
 *   lightc launch -np 4 collectives        so does this, and mpirun -np 4
 *
 * Rank r holds the numbers 10(r+1), 10(r+1)+1, ...; a dot is memory that was not written. Every rank makes the same
 * calls in the same order; rank 0 gathers the memory of all ranks, and prints it. */
#include <lightc/lightc.h>
#include <stdio.h>

enum { MAX_RANKS = 9, EMPTY = -1 };

typedef struct board {
    lc_comm *comm;
    int rank, size;
    int64_t in[MAX_RANKS], out[MAX_RANKS];
} board;

/* Fills in `n` numbers of this rank, if it has `any`, and clears the results. */
static void fill(board *b, int n, bool any)
{
    for (int i = 0; i < MAX_RANKS; i++) {
        b->in[i] = any && i < n ? 10 * (b->rank + 1) + i : EMPTY;
        b->out[i] = EMPTY;
    }
}

static void print_cells(const int64_t *cells, int n)
{
    for (int i = 0; i < n; i++) {
        if (cells[i] == EMPTY)
            printf("   .");
        else
            printf(" %3lld", (long long)cells[i]);
    }
}

/* Gathers all memory to rank 0, which prints it. */
static lc_status show(board *b, const char *title)
{
    int64_t before[MAX_RANKS][MAX_RANKS], after[MAX_RANKS][MAX_RANKS];
    LC_TRY(lc_comm_gather(b->comm, b->in, before, MAX_RANKS, LC_I64, 0, NULL));
    LC_TRY(lc_comm_gather(b->comm, b->out, after, MAX_RANKS, LC_I64, 0, NULL));
    if (b->rank) return LC_OK;
    printf("%s\n", title);
    for (int r = 0; r < b->size; r++) {
        printf("  rank %d ", r);
        print_cells(before[r], b->size);
        printf("   ->");
        print_cells(after[r], b->size);
        printf("\n");
    }
    printf("\n");
    return LC_OK;
}

static lc_status run(board *b)
{
    lc_comm *c = b->comm;
    int n = b->size, r = b->rank;

    fill(b, n, r == 0);
    for (int i = 0; i < n; i++) b->out[i] = b->in[i]; /* broadcast works in place: use a copy, to show both */
    LC_TRY(lc_comm_broadcast(c, b->out, n, LC_I64, 0, NULL));
    LC_TRY(show(b, "broadcast from rank 0: every rank gets its numbers"));

    fill(b, n, r == 0);
    LC_TRY(lc_comm_scatter(c, b->in, b->out, 1, LC_I64, 0, NULL));
    LC_TRY(show(b, "scatter from rank 0: part i goes to rank i"));

    fill(b, 1, true);
    LC_TRY(lc_comm_gather(c, b->in, b->out, 1, LC_I64, 0, NULL));
    LC_TRY(show(b, "gather to rank 0: it gets a part from each rank"));

    fill(b, 1, true);
    LC_TRY(lc_comm_all_gather(c, b->in, b->out, 1, LC_I64, NULL));
    LC_TRY(show(b, "all_gather: every rank gets a part from each"));

    fill(b, n, true);
    LC_TRY(lc_comm_reduce(c, b->in, b->out, n, LC_I64, LC_COMM_SUM, 0, NULL));
    LC_TRY(show(b, "reduce to rank 0, sum: it gets the sums over the ranks"));

    fill(b, n, true);
    LC_TRY(lc_comm_all_reduce(c, b->in, b->out, n, LC_I64, LC_COMM_SUM, NULL));
    LC_TRY(show(b, "all_reduce, sum: every rank gets the sums"));

    fill(b, n, true);
    LC_TRY(lc_comm_reduce_scatter(c, b->in, b->out, 1, LC_I64, LC_COMM_SUM, NULL));
    LC_TRY(show(b, "reduce_scatter, sum: rank i gets the sum of all parts i"));

    fill(b, n, true);
    LC_TRY(lc_comm_all_to_all(c, b->in, b->out, 1, LC_I64, NULL));
    return show(b, "all_to_all: part j of rank i becomes part i of rank j");
}

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    board b = {0};
    LC_MAIN_TRY(lc_trainer_options_parse_used(&opt, NULL, NULL, 0, NULL, argc, argv)); /* --devices */
    LC_MAIN_TRY(lc_comm_world(&b.comm));
    b.rank = lc_comm_rank(b.comm), b.size = lc_comm_size(b.comm);
    if (b.size > MAX_RANKS)
        LC_MAIN_TRY(lc_fail(LC_ERR_CONFIG,
                            "there are %d ranks, but the pictures have room for %d: use --devices 2 to %d", b.size,
                            MAX_RANKS, MAX_RANKS));
    if (b.size == 1) printf("There is one rank, so nothing is sent: try --devices 4.\n\n");
    LC_MAIN_TRY(run(&b));
    lc_comm_free(b.comm);
    lc_trainer_options_release(&opt);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}
