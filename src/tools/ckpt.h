/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `lightc ckpt`. Each returns the exit status. */
#ifndef LC_TOOLS_CKPT_H
#define LC_TOOLS_CKPT_H

#include <lightc/lightc.h>

int ckpt_inspect(const char *path, bool json);
/* Like diff(1): 0 if nothing differs, 1 if something does, 2 if they cannot be compared. */
int ckpt_diff(const char *a, const char *b, bool only_tensors, bool json);

/* "model", "optimizer", "tensors" */
const char *ckpt_part_name(int part);
/* A value of a state tree in one line, to be freed by the caller. NULL: out of memory. */
char *ckpt_value_text(const lc_state *value);
/* "[64,32]". */
void ckpt_shape_text(const lc_type *type, char *text, size_t size);
/* Prints a tree as JSON and frees it. */
lc_status ckpt_print_tree(lc_state *root);

#endif
