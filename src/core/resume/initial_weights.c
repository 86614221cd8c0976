/* SPDX-License-Identifier: Apache-2.0 */
/* The options weights, weights_...: the weights with which a trainer's first run begins. Rank 0 reads them; the other
 * ranks get its parameters at the start of the run anyway. */
#include "core/resume/resume.h"
#include "comm/agree.h"
#include "core/resume/run_state.h"
#include "tensor/initial.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* Splits "a,b,c" in place. */
static lc_status cut(const char *option, char *text, const char **list, int64_t *n)
{
    char *rest = NULL;
    *n = 0;
    for (char *one = text ? strtok_r(text, ",", &rest) : NULL; one; one = strtok_r(NULL, ",", &rest)) {
        if (*n == MOST) return lc_fail(LC_ERR_CONFIG, "%s: more than %d patterns", option, (int)MOST);
        list[(*n)++] = one;
    }
    return LC_OK;
}

static lc_status load(lc_trainer *t)
{
    const lc_trainer_options *opt = &t->opt;
    const char *const given[] = {opt->weights_rename, opt->weights_skip, opt->weights_transpose};
    static const char *const names[] = {"weights_rename", "weights_skip", "weights_transpose"};
    const char *list[3][MOST];
    char *text[3] = {NULL};
    int64_t n[3];
    lc_text_pair rename[MOST];
    lc_load_args o = lc_load_defaults();
    lc_load_result r = LC_LOAD_RESULT_INIT;
    lc_status s = LC_OK;
    for (int k = 0; k < 3; k++) {
        if (given[k]) LC_TRY_GOTO(s, done, lc__copy_text(given[k], &text[k]));
        LC_TRY_GOTO(s, done, cut(names[k], text[k], list[k], &n[k]));
    }
    for (int64_t i = 0; i < n[0]; i++) {
        char *from = text[0] + (list[0][i] - text[0]), *equals = strchr(from, '=');
        if (!equals) {
            s = lc_fail(LC_ERR_CONFIG, "weights_rename: \"%.60s\" is not of the form OLD=NEW", from);
            goto done;
        }
        *equals = '\0';
        rename[i] = (lc_text_pair){from, equals + 1};
    }
    o.not_strict = !opt->weights_strict;
    o.skip_mismatched = opt->weights_skip_mismatched;
    o.strip_prefix = opt->weights_strip_prefix;
    o.add_prefix = opt->weights_add_prefix;
    o.rename = rename;
    o.n_rename = n[0];
    o.skip = list[1];
    o.n_skip = n[1];
    o.transpose = list[2];
    o.n_transpose = n[2];
    LC_TRY_GOTO(s, done, lc__load_weights(t->m, opt->weights, "weights_", &o, &r));
    if (r.message) lc_trainer_message(t, LC_WARNING, "weights: %s", r.message);
    lc_trainer_message(t, LC_INFO, "weights: %lld tensors from %s%s", (long long)r.n_loaded, opt->weights,
                       r.n_converted ? ", converted to the model's data type" : "");
done:
    lc_load_result_release(&r);
    for (int k = 0; k < 3; k++) free(text[k]);
    return s < 0 ? lc_fail_context(s, "weights") : LC_OK;
}

lc_status lc__initial_weights(lc_trainer *t)
{
    if (!t->opt.weights || !*t->opt.weights || t->resume->weights_loaded) return LC_OK;
    t->resume->weights_loaded = true; /* a later run keeps the weights that this one trains */
    if (t->resume->restoring_from) {
        lc_trainer_message(t, LC_INFO, "weights is ignored: the run continues from %s", t->ckpt_path);
        return LC_OK;
    }
    return lc__ranks_agree(t->comm, lc__is_rank_zero(t) ? load(t) : LC_OK);
}
