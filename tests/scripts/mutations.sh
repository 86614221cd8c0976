#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mutations.sh [-j N] [-l] [PART_OF_A_NAME...]: tests that cannot fail prove nothing. Each mutation below breaks a copy of
# the sources in one place, and at least one of the tests named with it must turn red. -l builds nothing: it lists them,
# and checks that each still changes its file, and that its tests exist.
#
# The copy and its build stay in $MUTATIONS_DIR (/tmp/lightc-mutations) for the next time: only the first run builds
# everything. To add one: a line `mutate NAME FILE SED TEST[:CASE]...`, the quickest test first. A script that changes
# nothing is an error: the code has changed, and the mutation must follow it. So is a test that is red without one.
set -u
copy=${MUTATIONS_DIR:-/tmp/lightc-mutations}
. "$(dirname "$0")/copy.sh"
ulimit -u 600 2>/dev/null
ulimit -c 0
survived=0 count=0 proofs=()

# Whether a test fails; it runs the cases after the colon. A test that was skipped (77), or has no such case (2), proves
# nothing.
is_red() {
  local program=${1%%:*} cases=()
  [[ $1 == *:* ]] && IFS=, read -ra cases <<<"${1#*:}"
  timeout -k 5 90 setsid "$copy/build/bin/$program" "${cases[@]}" >"$copy/log" 2>&1
  local status=$? # 124 where a mutation makes a test hang
  [ $status -ne 0 ] && [ $status -ne 77 ] && [ $status -ne 2 ]
}

# Removes what a broken program has left behind.
clean_up() {
  local exe
  for exe in /proc/[0-9]*/exe; do
    [[ $(readlink "$exe" 2>/dev/null) == "$copy"/build/* ]] && kill -9 "$(basename "$(dirname "$exe")")" 2>/dev/null
  done
}

# Whether a test exists, and each case after the colon, which is part of a name or an argument.
exists() {
  local program=("$source"/tests/*/"${1%%:*}.c" "$source"/tests/*/*/"${1%%:*}.c") cases=() part
  [ -f "${program[0]}" ] || program=("${program[1]}")
  [ -f "${program[0]}" ] || return
  [[ $1 == *:* ]] && IFS=, read -ra cases <<<"${1#*:}"
  for part in "${cases[@]}"; do
    [[ $part == [-0-9]* ]] || grep -qE "^TEST\(.*$part" "${program[0]}" || return
  done
}

# How many more braces a text opens than it closes.
open_braces() { awk '{n += gsub(/{/, "") - gsub(/}/, "")} END {print n}'; }

# -l: prints what is wrong with a mutation without a build.
look_at() {
  local name=$1 file=$2 script=$3 changed wrong='' test
  shift 3
  if ! changed=$(sed -z "$script" "$source/$file"); then
    wrong='CANNOT BE MADE'
  elif [ "$changed" = "$(<"$source/$file")" ]; then
    wrong='CHANGES NOTHING'
  elif [ "$(open_braces <<<"$changed")" != "$(open_braces <"$source/$file")" ]; then
    wrong='CUTS THE FILE: .* goes on to its end; [^;]* is the rest of a statement'
  fi
  for test in "$@"; do exists "$test" || wrong="HAS NO TEST $test"; done
  [ -z "$wrong" ] || survived=$((survived + 1))
  printf '%-44s %-34s %s\n' "$name" "$file" "$wrong"
}

mutate() {
  local name=$1 file=$2 script=$3 red='' tests
  shift 3
  wanted "$name" || return 0
  count=$((count + 1))
  if [ $list = 1 ]; then look_at "$name" "$file" "$script" "$@"; return; fi
  cp -p "$copy/$file" "$copy/original"
  sed -i -z "$script" "$copy/$file"
  if cmp -s "$copy/$file" "$copy/original"; then
    red='CHANGES NOTHING'
  else
    mapfile -t tests < <(printf '%s\n' "${@%%:*}" | sort -u)
    if ! cmake --build "$copy/build" -j"$jobs" --target "${tests[@]}" lightc_program rank_program fault_program >"$copy/log" 2>&1; then
      red='DOES NOT BUILD'
    else
      for test in "$@"; do
        if is_red "$test"; then red=$test; break; fi
      done
    fi
  fi
  cp "$copy/original" "$copy/$file"
  clean_up
  case $red in
    '') red='SURVIVED' ;&
    *[A-Z][A-Z]*) survived=$((survived + 1)) ;;
    *) proofs+=("$red") ;;
  esac
  printf '%-44s %-34s %s\n' "$name" "$file" "$red"
}

# The tests that turned red must be green without a mutation.
check_proofs() {
  local tests test
  mapfile -t tests < <(printf '%s\n' "${proofs[@]%%:*}" | sort -u)
  cmake --build "$copy/build" -j"$jobs" --target "${tests[@]}" lightc_program rank_program fault_program >"$copy/log" 2>&1 || { tail "$copy/log"; exit 2; }
  while IFS= read -r test; do
    ! is_red "$test" || { survived=$((survived + 1)); printf '%-44s %s\n' "$test" 'IS RED WITHOUT A MUTATION'; }
  done < <(printf '%s\n' "${proofs[@]}" | sort -u)
}

# In a function, so that bash has read all of it before this file may change.
all() {
# ---- gradients and sums ----
mutate 'last bucket dropped' src/parallel/reduce/expand_sync.c 's/if (begin >= 0 && (last || gap/if (begin >= 0 \&\& !last \&\& (gap/' test_sync test_partial_gradients test_ddp
mutate '1/N missing' src/parallel/reduce/reducer.c 's/lc__tree_of_graph(r->g) ? 1 : lc_comm_size(r->comm);/1;/' test_sync test_partial_gradients test_ddp:train_as_one
mutate 'buckets sent before they are complete' src/parallel/reduce/expand_sync.c 's/if (ready > \*after) \*after = ready;//' test_sync test_partial_gradients test_ddp:train_as_one
mutate 'order of a sum swapped' src/comm/combine.c 's/for (unsigned ones = (unsigned)k; ones & 1;/for (unsigned ones = k == n - 1 ? ~0u : 0; top > 1 \&\& ones \& 1;/' test_comm:tree
mutate 'the rest of a grain from elsewhere' src/comm/transport/tcp.c 's/memcpy(at, (const char \*)data + k, rest);/memcpy(at, data, rest);/' test_tcp:odd_numbers
mutate 'a piece of a sum twice' src/comm/exchange/exchange.c 's/x->parts\[c->own\] = r->at + c->mine.at;/x->parts[c->own] = r->at;/' test_comm
mutate 'weights of uneven shares ignored' src/core/ranks/batch_weight.c 's/weight = (double)batch->size \* [^;]*;/weight = 1;/' test_ddp:train_as_one
mutate 'links to the checkpoint before come late' src/core/checkpoint/write_job.c 's/if (write) do_chores(w, true);//' test_checkpoint:newer
mutate 'sums that stay on the host' src/parallel/reduce/reducer_ops.c 's/if (!r->wire) lc__reducer_deliver(r, slot);//' test_sim_ranks:ddp
mutate 'an update before its bucket' src/parallel/reduce/reducer_ops.c 's/r->sent\[i\] < end) wait_for(r, i);/r->sent[i] < begin) wait_for(r, i);/' test_sync:gpt test_partial_gradients:some_ranks
mutate 'late steps with shares of sums' src/core/loop/manual.c 's/return r && lc__reducer_has_shares(r) ? [^;]*;/return LC_OK;/' test_ddp_checkpoints:a_late_step
mutate 'gradients looked at while under way' src/engine/run/execute.c 's/if (status >= 0 \&\& !p->by_bucket) status = lc__peers_settle(g);//' test_sync:gpt
mutate 'plans of other peers' src/engine/plan/plan.c 's/p->peers == peers \&\& //g' test_peers:plans_belong
mutate 'a peer that fails passed over' src/engine/run/execute.c 's/if (p->ops->poll) LC_TRY(p->ops->poll(p));/if (p->ops->poll) (void)!p->ops->poll(p);/' test_peers:may_refuse
mutate 'gradients that are read on, added up' src/engine/plan/share_memory.c 's/if (s->last > position && lc__peers_sum_in_place(b->g))\n *return;//' test_under_way:read_later
mutate 'kernels of programs get f64' src/engine/plan/storage_types.c 's/if (lc__op_find(n->op->name) != n->op) return LC_OK;//' test_program_ops:kernels_get_f32
mutate 'numbers read where others write' src/engine/plan/program.c 's/ || lc__storage_root(b, exact->storage)->external//' test_exact_numbers:numbers_of_a_step
mutate 'gradients looked at before, added up' src/parallel/reduce/expand_sync.c 's/ && !reads(g, &g->ir.nodes\[k\], flat, i)//' test_under_way:was_read
mutate 'LBFGS with the loss of one rank' src/core/loop/optimize.c 's/return lc__ranks_reduce(t->comm, loss, 1, LC_LOG_MEAN);/return LC_OK;/' test_ddp:lbfgs
mutate 'LBFGS with sums for means' src/optim/lbfgs.c 's/LC_TRY(lc__gradient_factor_now(g, &scale));/scale = 1;/' test_ddp:lbfgs
mutate 'updates that no overflow skips' src/backends/cpu/isa/update.c 's/if (lc__update_skipped(call)) return;//' test_unscale:writes_nothing
mutate 'an overflow that clipping makes finite' src/optim/clip.c 's/if (unscale \&\& !isfinite(norm)) factor = NAN;//' test_unscale:writes_nothing
mutate 'an overflow in a vector of gradients is not seen' src/backends/cpu/isa/finite.h 's/ \* vload(x + i + k \* VW);/;/' test_cpu_training_kernels:a_gradient_that_is_not_finite
mutate 'an overflow in an input is not seen' src/backends/cpu/isa/product_job.c 's/own, m == 0 && j->after.finite);/own, false);/' test_product_low:gradients_that_are_not_finite
mutate 'an overflow in the last panel is not seen' src/backends/cpu/isa/product_job.c 's/: zero_if_finite(panel, depth, PANEL, width);/: 0;/' test_product_low:gradients_that_are_not_finite
mutate 'an overflow in a gradient of results is not seen' src/backends/cpu/isa/product.c 's/    if (j->after.finite) \*j->after.finite += [^;]*;//' test_product_low:gradients_that_are_not_finite
mutate 'a check that remembers the last step' src/backends/cpu/isa/product.c 's/        if (e->finite) \*e->finite = 0;\n//' test_product_low:gradients_that_are_not_finite
mutate 'a gradient that is checked before all is added' src/optim/fuse_finite.c 's/ || n->ints\[0\]) return NULL;/) return NULL;/' test_fuse_finite:something_else
mutate 'a check of all results finds what a product reports' src/optim/fuse_finite.c 's/ || b->g->nan_check//' test_fuse_finite:something_else
mutate 'a scale that gradients keep' src/optim/macros.c 's/parameter, g ? g->unscale : NULL/parameter, NULL/' test_unscale:where_they_are_read
mutate 'scaled gradients of a rank without samples' src/core/loop/optimize.c 's/    lc__scale_no_loss(t);\n//' test_mixed_run:without_samples
mutate 'scaled gradients of a rank without chunks' src/core/split/chunks.c 's/    if (!r.any) lc__scale_no_loss(t);\n//' test_mixed_run:without_samples
mutate 'master weights that ignore what was written' src/optim/master.h 's/width)) return/0)) return/' test_master_weights:taken_over
mutate 'master weights that no checkpoint has' src/optim/state_buffers.c 's/LC__MASTER_WEIGHT : NULL/NULL : NULL/' test_scaled_loss_run:resume
mutate 'random rounding that does not know the slice' src/optim/expand_update.c 's/if (s->count) s->first = [^;]*;//' test_true_run:stochastic_rounding
mutate 'rounding that is random in one direction' src/base/half.h 's/(m + (word >> 16)) >> 16/m >> 16/' test_stochastic_rounding:mean
mutate 'zeros of the type that a program sees' src/parallel/reduce/expand_sync.c 's/lc_full_at(0, place->type\.dtype/lc_full_at(0, lc_tensor_type(flat->parameters[i])->dtype/' test_true_run:absent_gradients
mutate 'deterministic sums of 16 bits' src/core/trainer/begin.c 's/list\[i\], lc__sums_on_tree(t)/list[i], false/' test_true_run:deterministic_sums
mutate 'a scale that changes between two optimizers' src/precision/mixed.c 's/    lc_graph_set_unscale(g, s->now.held_unscale, after_update, s);\n//' test_precision_runs:of_one_backward
mutate 'a scale without a reciprocal' src/precision/update_scale.c 's/fmaxf(changed, FLT_MIN)/changed/' test_mixed_run:fall_to_zero
mutate 'a window with two scales' src/core/resume/resume.c 's/to \* t->resume->scales\[1\]/to/' test_mixed_run:a_window_ends
mutate 'numbers without dimensions that count' src/engine/plan/storage_types.c 's/if (any_dims \&\& /if (false \&\& /' test_autocast:without_dimensions
mutate 'program operators follow' src/ops/storage_rules.c 's/ \&\& lc__is_math_op(op)//' test_program_ops:results_in_mixed
mutate 'halves that operators do not round' src/engine/run/seen_types.c 's/later->rounds = result_type([^;]*;/later->rounds = 0;/' test_half_operands:types
mutate 'halves converted by every operator' src/engine/run/seen_types.c 's/if (t->as_seen.graph != g ||/if (true ||/' test_half_operands:converted_once
mutate 'writes that stay in the copy' src/engine/run/seen_types.c 's/later->written |= [^;]*;/;/' test_stored_writes:writes_a_parameter
mutate 'any optimizer by bucket' src/optim/macros.c 's/opt->ops->elementwise;/true;/' test_under_way:an_optimizer
mutate 'sums added up again without samples' src/core/loop/optimize.c 's/lc__peers_before_backward(t->graph);//' test_under_way:without_samples
mutate 'gradient of only one rank left out' src/parallel/reduce/reducer.c 's/memcpy(r->flats\[f\]->has_gradient, at, (size_t)r->flats\[f\]->n);/;/' test_partial_gradients:some_ranks
mutate 'ranks that get nothing keep what they gave' src/parallel/collectives/collectives.c 's/memset(to, 0, bytes);/;/' test_collectives:values
# ---- low copies ----
mutate 'a write by the host that low copies miss' src/tensor/host_access.c 's/    lc__tensor_written(t);\n//' test_keep_low
mutate 'a write by a step that low copies miss' src/engine/run/execute.c 's/i < p->n_written;/i < 0;/' test_keep_low
mutate 'a low copy of what the step has written' src/optim/keep_low.c 's/is_written(x, t, 0, i, false) || //' test_keep_low:written_last
mutate 'an update that does not know of new low copies' src/engine/plan/plan.c 's/if (s->n_low >= 0 \&\& /if (false \&\& /' test_keep_low:written_last
mutate 'an update that makes no low copy old' src/optim/keep_low.c 's/kind != both/kind < 0/' test_keep_low:written_last
mutate 'updates that make all low copies old' src/optim/keep_low.c 's/kind != both/true/' test_keep_low:write_both
mutate 'a low copy of a value that has moved' src/tensor/low.c 's/now\.id == from\.id \&\& //' test_keep_low
mutate 'a low copy of every segment' src/optim/update.c 's/low \&\& entry\[LC_S_LOW\]/low/' test_cpu_training_kernels:updates
mutate 'low copies at offsets of other fits' src/parallel/shard/shard.c 's/    lc__low_free(flat);\n//' test_low_fits
mutate 'low copies that a graph seems to train' src/optim/keep_low.c 's/LC_TRY(hold(b->plan, t->flat));/LC_TRY(lc__graph_add_flat(b->g, t->flat));/' test_keep_low
mutate 'low copies that no limit of memory knows' src/optim/keep_low.c 's/if (\*most > 0 \&\& /if (false \&\& /' test_keep_low:memory_of_steps
# ---- sharded ----
mutate 'f32 gathered for ranks that gather 16 bits' src/parallel/reduce/reducer_uneven.c 's/call\.dtype = r->g->low;//' test_low_gather:without_samples
mutate 'vectors one on top of the other' src/parallel/reduce/unit_vectors.c 's/\*at += in_slice/*at += 0 * in_slice/' test_low_gather:travels_in_16_bits
mutate 'a matrix of f32 in a unit of 16 bits' src/parallel/reduce/place_slices.c 's/u->whole |= !lc__is_vector(u->flat, p->index);/u->whole |= false;/' test_low_gather:a_unit_with_a_matrix
mutate 'a rounded slice that is overwritten while it is sent' src/parallel/reduce/gather_units.c 's/if (u->low) t\.wait->in\[1\] = [^;]*;//' test_low_gather:travels_in_16_bits
mutate 'products that round parameters in slices' src/engine/plan/read_rounded.c 's/ \&\& !r\.from->is_slice//' test_low_gather:travels_in_16_bits
mutate 'parameters not gathered after an update' src/optim/expand_update.c 's/if (any \&\& !sharding->parameter) LC_TRY(updated(b, state->flat, u));//' test_sync:sharded
mutate 'parameters gathered before an update' src/parallel/reduce/gather_units.c 's/return at > c->barrier ? at : c->barrier + 1;/return at;/' test_sync:after_the_update
mutate 'slices of another unit gathered' src/parallel/reduce/gather_units.c 's/u->low ? 0 : u->u->at;/0;/' test_sync:sharded
mutate 'gradients of the slice of another rank' src/parallel/reduce/expand_sync.c 's/ints\[LC__SYNC_OFFSET\] = s->rank \* u->slice;/ints[LC__SYNC_OFFSET] = (s->size - 1 - s->rank) * u->slice;/' test_sync:sharded
mutate 'slices that begin as another rank'"'"'s' src/tensor/initial.c 's/lc__initial_range(t, begin, count, out);/lc__initial_range(t, 0, count, out);/' test_slices
mutate 'slices of other seeds' src/core/ranks/same_run.c 's/return \*sent ? lc__tensor_set_initial(t, &begin.initial) : LC_OK;/return LC_OK;/' test_slices
mutate 'weights of an evaluation not loaded' src/core/trainer/run.c 's/if (t->resume->restoring_from) LC_TRY(lc__restore_module(t, LC__IN_SLICES));//' test_slices
mutate 'slices no optimizer has forgotten' src/strategies/processes.c 's/if (status >= 0 \&\& before) status = lc_module_visit(m, gather_rest, before);//' test_slices
mutate 'values made before slices' src/core/trainer/begin.c 's/LC_TRY(check_optimizers(t));/LC_TRY(lc__module_fill(t->m));\n    LC_TRY(check_optimizers(t));/' test_launch:memory_of_ranks
mutate 'last unit dropped' src/parallel/reduce/expand_sync.c 's/if (!lc__any_trained(flat, u)) continue;/if (!lc__any_trained(flat, u) || (k \&\& k == s->n_units - 1)) continue;/' test_sync:sharded
mutate 'norm of only the own slices' src/parallel/reduce/reducer_uneven.c 's/\.out = words, \.count = n}/.out = words, .count = 0 * n}/' test_sync:sharded_is_ddp_gpt
mutate 'gradients put together without their places' src/parallel/reduce/expand_sync.c 's/lc_pad(part, before, n - before - count)/lc_pad(part, 0, n - count)/' test_sync:gradients_of
mutate 'norm of all copies' src/parallel/reduce/reducer_uneven.c 's/run_now(r, r->slices,\n *&(lc_comm_call){.op = LC_COMM_ALL_REDUCE/run_now(r, r->comm, \&(lc_comm_call){.op = LC_COMM_ALL_REDUCE/' test_sync:hybrid_is_ddp_gpt
mutate '1/N of a node' src/parallel/reduce/reducer.c 's/ : lc_comm_size(r->comm);/ : lc_comm_size(r->slices);/' test_sync:hybrid
mutate 'gradients of only one node' src/strategies/processes.c 's/lc__reducer_replicate(d->reducer, d->slices, d->replicas)/lc__reducer_replicate(d->reducer, d->slices, NULL)/' test_ddp_sharded:hybrid_trains_as_ddp
mutate 'last slice not summed between nodes' src/parallel/reduce/expand_sync.c 's/if (r->replicas && sent) LC_TRY(reduce_slice(b, r, flat, units\[sent - 1\], first + sent - 1, NULL));//' test_sync:hybrid
mutate 'calls not driven while a rank computes' src/comm/transport/tcp.c 's/\.wants_thread = true,//' test_tcp:calls_go_on
mutate 'no hurry for a rank that waits' src/comm/progress_thread.c 's/atomic_store(&c->waited_for, true);/;/' test_progress_thread:hurries
mutate 'a call that failed ends nothing' src/comm/comm.c 's/lc__comm_give_up(c, c->failed == LC_ERR_PEER ? c->message : why);//' test_endings:calls
mutate 'calls that are given up go on' src/comm/comm.c 's/if (c->carried) lc__progress_thread_drop(c->self);//' test_progress_thread:given_up
mutate 'waits of one group hold up another' src/comm/comm.c 's/(void)!lc_comm_progress(at);//' test_comm:moves_the_others
mutate 'every copy writes its slices' src/tensor/slice.c 's/if (!t->is_slice || !t->slices) return;/return;/' test_ddp_checkpoints:copies
mutate 'memory of parameters that moved kept' src/backends/cpu/memory.c 's/128 << 10/1 << 30/' test_launch:formula
mutate 'a window added to slices twice' src/parallel/reduce/expand_sync.c 's/(state\[i\] \& 1) \&\& !tree;/(state[i] \& 1);/' test_deterministic_windows:accumulation
mutate 'gathers of ranks with more chunks missed' src/parallel/reduce/reducer_uneven.c 's/r->uneven = true;/;/' test_deterministic:fewer
mutate 'values sent before they have come' src/parallel/devices/devices.c 's/(void)!lc__staging_wait(&d->sent, d->host->on);//' test_sim_devices
mutate 'gradients that stay on their device' src/parallel/devices/gradients.c 's/(void)!lc__staging_read([^;]*);/;/' test_sim_devices
mutate 'chunks random by their device' src/parallel/devices/devices.c 's/of_chunks ? d->host->rng.micro_batch : (uint64_t)i/(uint64_t)i/' test_deterministic:ranks_are
mutate 'statistics of devices not added' src/core/split/chunk_statistics.c 's/if (parts <= 1) return LC_OK;/return LC_OK;/' test_deterministic:ranks_are
# ---- state and data ----
mutate 'an unfinished window of only one rank' src/core/resume/save.c 's/if (g->t->comm \&\& !gradient->is_slice) return/if (false) return/' test_resume_ranks:any_strategy
mutate 'sums of other numbers of ranks as they are' src/core/resume/resume.c 's/(double)(sum ? ranks : 1)/1/' test_resume_ranks:any_strategy
mutate 'small shares count as large ones' src/core/logging/results.c 's/ || t->device_parts || e->args.sync_dist;/ || t->device_parts;/' test_strategies:ranks_are
mutate 'stale parameters' src/core/ranks/same_run.c 's/return s < 0 ? s : lc_module_visit(m, sharding ? send_to_slice : send_tensor, comm);/return s;/' test_ddp:train_as_one
mutate 'shares overlap' src/data/epoch.c 's/s.begin = global_begin + s.offset;/s.begin = global_begin;/' test_ddp:train_as_one
mutate 'sums of an epoch not reduced' src/core/logging/results_ranks.c 's/lc_status s = lc__ranks_reduce(t->comm, v, 2 \* n, LC_LOG_SUM);/lc_status s = LC_OK;/' test_ddp:train_as_one
mutate 'metrics not merged' src/core/logging/results_ranks.c 's/LC_TRY(reduce_metrics(t, r));//' test_ddp:train_as_one
mutate 'a wish to stop ignored' src/core/ranks/wishes.c 's/if (flags\[WISH_STOP\]) t->user_stop/if (t->stop_wish) t->user_stop/' test_ddp_ends:one_rank_stops
# ---- mismatches are found ----
mutate 'options not compared' src/core/trainer/begin.c 's/LC_TRY(lc__check_same_options(t));//' test_ddp_differences:different_options
mutate 'data not compared' src/core/loop/fit.c 's/LC_TRY(lc__check_same_data(t));//' test_ddp_differences:different_options
mutate 'buffers of steps not shared' src/core/loop/fit.c 's/if (!t->accumulating) LC_TRY(lc__read_buffers_from_rank_zero(t));//' test_ddp_data:rank_0
mutate 'own loaders weighed as shares' src/data/loader.c 's/lc__epoch_is_share(&l->epoch) ? share.global_size : 0/share.global_size/' test_ddp_loaders:ranks_own
mutate 'restarts from any fit' src/core/checkpoint/find_newest.c 's/return !origin || (/return true || (/' test_elastic:each_fit
mutate 'models not compared' src/core/ranks/same_run.c 's/s = lc__ranks_compare(comm, "model", &text);/s = LC_OK;/' test_ddp_differences:different_models
mutate 'models of evaluations not compared' src/core/trainer/run.c 's/LC_TRY(lc__ranks_model(t->comm, t->m, false));//' test_ddp_differences:nothing_is_trained
mutate 'wishes of an epoch that ends not shared' src/core/loop/fit.c 's/LC_TRY(lc__sync_wishes(t)); .. these hooks[^\n]*//' test_ddp_ends:where_one_process_stops
mutate 'sums in place taken before all have written' src/comm/exchange/exchange.c 's/x->stage == SAY || x->stage == WHOLE/x->stage != ASK/' test_exposed:ddp,many_calls
mutate 'sums in place not reported to others' src/comm/exchange/exposed.c 's/if (i != x->rank) memcpy((char/if (0) memcpy((char/' test_exposed:bits
mutate 'different pieces taken for one' src/comm/exchange/exposed.c 's/ && tokens\[i\] >> OFFSET_BITS == tokens\[0\] >> OFFSET_BITS;/;/' test_exposed:different_pieces
mutate 'a rank that has left not missed' src/comm/transport/rings.c 's/!lc__rings_peek(self, peer, lane, &at)) e->missed = peer;/false) e->missed = peer;/' test_comm:has_left
mutate 'answers taken before they are there' src/comm/transport/rings.c 's/\&r->read, memory_order_acquire) - e->taken/\&r->written, memory_order_acquire) - e->taken/' test_comm:tree
mutate 'calls not compared' src/comm/exchange/exchange.c 's/return !memcmp(got, want, sizeof \*got);/return true;/' test_comm:different
mutate 'a batch script taken for a rank' src/comm/world/find.c 's/variable("SLURM_PROCID") && step/variable("SLURM_PROCID")/' test_world
# ---- the end of a run ----
mutate 'heartbeats never judged' src/comm/coordinator/verdict.c 's/now - m->heard > c->times.silence) {/now - m->heard > 1e9) {/' test_control:stopped test_machines:cut
mutate 'the coordinator never judged' src/comm/control/rank_thread.c 's/now - c->heard > t->silence/now - c->heard > 1e9/' test_machines:cut
mutate 'lanes never looked at' src/comm/transport/tcp.c 's/\n    look_at_lanes(g);//' test_tcp:a_lane test_machines:one_connection
mutate 'connections never asked for a sign of life' src/comm/net/socket.c 's/TCP_KEEPINTVL, &every/TCP_KEEPIDLE, \&every/' test_machines:by_themselves
mutate 'ends ignored while connections are made' src/comm/transport/tcp_mesh.c 's/return m->meeting->check ? m->meeting->check(m->meeting->ctx) : LC_OK;/return LC_OK;/' test_tcp:is_heard
mutate 'progress never judged' src/comm/coordinator/verdict.c 's/> lc__stall_limit(c, m)/> 1e9/' test_control:progress test_stall
mutate 'a waiting rank taken for a hanging one' src/comm/coordinator/verdict.c 's/ || strchr(m->calls, .>.) || m->gift_number;/;/' test_last_calls:hangs test_control:progress
mutate 'first cause taken last' src/comm/coordinator/verdict.c 's/\.since < c->members\[found\]/.since > c->members[found]/' test_control
mutate 'complaints accepted at once' src/comm/coordinator/verdict.c 's/if (now - c->members\[rank\].since < LC__SECONDS(LC__COMPLAINT_MS)/if (now < 0/' test_control:complaint
mutate 'last words not awaited' src/comm/coordinator/verdict.c 's/if (m->wire.fd >= 0 && now - m->ended_at < LC__SECONDS(LC__LAST_WORDS_MS)) return true;//' test_control:last_words
mutate 'no rank notified of the end' src/comm/coordinator/verdict.c 's/lc__member_send_text(&c->members\[i\], LC__FRAME_END, c->message);/(void)i;/' test_control:killed
mutate 'last calls not asked for' src/comm/coordinator/verdict.c 's/lc__members_send(c, LC__FRAME_ASK, "");//' test_last_calls:wait_for
mutate 'a call that hangs shown as done' src/comm/history.c 's/done, false, memory/done, true, memory/' test_last_calls:the_newest_calls
mutate 'groups left out of last calls' src/comm/comm.c 's/lc__comm_standing(g, s);//' test_last_calls:is_killed
mutate 'ranks launch ranks' src/launch/launch.c 's/if (rank || getenv("LIGHTC_COORDINATED"))/if (false)/' test_launch_scripts:ranks_launch_none
mutate 'programs of scripts not ended' src/launch/supervisor/supervisor.c 's/((ends || stops) \&\& !s->plan->hosts)/(stops \&\& !s->plan->hosts)/' test_launch_scripts:scripts_end
mutate 'failures hidden by scripts' src/launch/supervisor/supervisor.c 's/bool hidden = s->culprit < 0/bool hidden = false/' test_launch_scripts:hides
mutate 'statuses of ranks not waited for' src/launch/supervisor/supervisor.c 's/sigaction(SIGCHLD, &heard, &inherited);/sigaction(SIGCHLD, NULL, \&inherited);/' test_launch_scripts:ignores_its_children
mutate 'node 0 not notified' src/launch/supervisor/supervisor.c 's/if (!s->coordinator) report_to_node_0/if (false) report_to_node_0/' test_launch_hosts:by_hand
mutate 'mpirun waited for' src/launch/supervisor/supervisor.c 's/if (s->plan->hosts \&\& !s->asked)/if (s->plan->hosts)/' test_launch_hosts:mpirun_is_not
mutate 'all ranks print' src/comm/world/prints_forward.c 's/here.supervisor_reports \&\& here.rank > 0/false/' test_launch_prints:only_rank_0
mutate 'mpirun blames no rank' src/launch/supervisor/mpirun_output.c 's/lc__mpirun_blames(g->line, &g->blame);//' test_launch_prints:that_failed
mutate 'bytes like a frame taken for one' src/comm/world/prints.c 's/if (\*bytes == f->mark\[f->n - 1\])/if (true)/' test_prints
mutate 'mpirun starts those that are lost' src/launch/supervisor/restart.c 's/s->lost\[--rank\] ||/--rank, /' test_machines:three_of_four
mutate 'a silent host is not lost' src/comm/coordinator/verdict.c 's/(c->silent == rank/(false \&\& c->silent == rank/' test_machines:a_machine_with_ranks
mutate 'half-open connections kept' src/comm/net/socket.c 's/    notice_half_open(fd);//' test_control_start:only_one_end
mutate 'options for a restart not reported' src/strategies/processes.c 's/lc__control_terms(d->world->control/(void)(d->world->control/' test_elastic:allow_a_restart
mutate 'any proof accepted' src/comm/net/proof.c 's/return !differs;/return true;/' test_control_admit:secret test_tcp:strangers
mutate 'a proof accepted twice' src/comm/coordinator/admit.c 's/return lc__proof_nonce(s->asked) >= 0 \&\&/return/' test_control_admit:repeated
mutate 'a proof accepted in both directions' src/comm/net/proof_openssl.c 's/text\[0\] = (uint8_t)ask->role;/text[0] = 0;/' test_control_admit
mutate 'a rank accepts any coordinator' src/comm/control/rank_thread.c 's/|| !lc__proof_is(secret, strlen(secret), \&ask, f->data)) {/) {/' test_control_admit:impostor
mutate 'launchers start ranks of others' src/comm/coordinator/launchers.c 's/l->identity == identity) continue;/true) continue;/' test_twice:before_its test_twice:own_ranks
mutate 'strangers keep others waiting' src/comm/net/guests.h 's/LC__GUEST_FIRST 0.15/LC__GUEST_FIRST 9.0/' test_crowd:delay test_crowd_tcp:delay
mutate 'messages accepted in any order' src/comm/net/seal_openssl.c 's/    s->number++;//' test_seal:order test_seal:between
mutate 'a broken seal accepted' src/comm/control/wire.c 's/w->takes \&\& !open_sealed(w, out)) return -1;/w->takes) (void)open_sealed(w, out);/' test_seal:between
mutate 'broken records accepted' src/comm/transport/tcp_records.c 's/return r->tampered ? NULL : data;/r->tampered = false; return data;/' test_secure:between
mutate 'a rank that ignores the end left running' src/comm/control/rank_thread.c 's/    _exit(1);//' test_control_ends:ignores_the_end
mutate 'progress reported late' src/comm/control/control.c 's/if (news) (void)!write(c->wake, &one, sizeof one);//' test_control:step
mutate 'a rejected rank waited for' src/comm/coordinator/admit.c 's/if (!ends || c->ending) return;/return;/' test_control_start:another_size
mutate 'ranks outlive their launcher' src/comm/control/rank_thread.c 's/getppid() == c->parent/true/' test_control_ends:launcher_that
mutate 'different calls not found' src/comm/coordinator/calls.c 's/    find_difference(c, now);//' test_last_calls:different_roots
mutate 'deadlock not found' src/comm/coordinator/calls.c 's/if (!c->ending) find_standstill(c, now);//' test_last_calls:from_each_other
mutate 'a computing rank taken for a waiting one' src/comm/comm.c 's/waits % 2 \&\& c->ops.moved/c->ops.moved != NULL/' test_last_calls:that_compute
mutate 'calls no progress' src/comm/coordinator/calls.c 's/if (!m->reports) m->reported = now;//' test_last_calls:are_progress
mutate 'ranks outlive their supervisor' src/launch/supervisor/process.c 's/prctl(PR_SET_PDEATHSIG, SIGKILL);//' test_launch_ends:outlive
mutate 'survivors never killed' src/launch/supervisor/supervisor.c 's/if (s->deadline > 0 && lc__seconds() > s->deadline) end_those_left(s);//' test_launch_ends:is_killed
mutate 'a grace period for a silent rank' src/launch/supervisor/supervisor.c 's/if (c && c->pid) kill(-c->pid, SIGKILL);//' test_launch_ends:not_waited_for
mutate 'an end without survivors not seen' src/launch/supervisor/supervisor.c 's/        check_for_end(s);//' test_launch_ends:not_waited_for
mutate 'gradients divided by what was zeroed' src/optim/macros.c 's/g->backwards \&\& trains_all(opt, g)/false/' test_optim:zero_grad_of_the_only
mutate 'line searches beyond max_eval' src/optim/lbfgs.c 's/&line, max_eval - evaluations, /\&line, 25, /' test_optim:searches_no_longer
mutate 'a line search content with too little' src/optim/line_search.c 's/c2 = 0.9;/c2 = 0.99;/' test_line_search:a_quadratic
mutate 'a cubic with a minimum elsewhere' src/optim/line_search.c 's/3 \* (f1 - f2)/2 * (f1 - f2)/' test_line_search:a_cubic
mutate 'LBFGS with shorter directions' src/optim/lbfgs.c 's/h_diag = ys/h_diag = 0.9 * ys/' test_random_trainings:--seed,3,--round,9,against_reference
mutate 'older runs continued' src/core/checkpoint/find_newest.c 's/!strcmp(m->origin.run, origin->run)/true/' test_checkpoint:newest_by
mutate 'checkpoints of other trainings removed' src/core/checkpoint/removal.c 's/ours && p->owner && /false \&\& /' test_checkpoint_owner:previous
mutate 'paths of checkpoints followed' src/callbacks/model_checkpoint.c 's/path, strlen(c->dir))/path, 0)/' test_checkpoint_owner:previous
mutate 'entries of others removed with a checkpoint' src/core/checkpoint/removal.c 's/ || is_listed(&p->m, name)) ? LC__GOES : LC__STAYS/ || true) ? LC__GOES : LC__STAYS/' test_checkpoint_removal:other_things
mutate 'leftovers without a mark cleaned away' src/core/checkpoint/removal.c 's/holds(dir, LC__MARK) || is_empty(dir, true)/true/' test_checkpoint_removal:names_like
mutate 'names of checkpoints not taken' src/core/checkpoint/taken.c 's/t->fd = make(t->path, taken);/*out = NULL;/' test_checkpoint_shared:newest
mutate 'an id that two runs have' src/callbacks/model_checkpoint_state.c 's/if (!taken) return LC_OK;/return LC_OK;/' test_checkpoint_shared:resumed
mutate 'a signal after the stop kills' src/core/trainer/finish.c 's/ || t->ranks->agreed_signal)/)/' test_launch_ends:after_the_stop
mutate 'a second signal passed on only once' src/launch/supervisor/supervisor.c 's/        insist(s);//' test_launch_ends:reads_late
mutate 'how a lost rank ended not said' src/launch/supervisor/failure.c 's/    add_status(s, rank, why, sizeof why);//' test_launch_ends:that_is_late
mutate 'a training that has begun taken for one that ended' src/core/trainer/begin.c 's/lc__world_trained(false);/;/' test_elastic:began_after
# ---- values that a device still has to copy ----
mutate 'a value is used before it has arrived' src/core/logging/arrivals.c 's/LC_TRY(on->ops->wait(on->context, a->mark));/{}/' test_sim_fit
mutate 'values read early are those before' src/core/logging/arrivals.c 's/LC_TRY(on->ops->wait(on->context, a->mark));/if (q->next < 4 * PLACES) &/' test_sim_fit:never_change
mutate 'an error of a device said twice' src/core/trainer/finish.c 's/ \&\& (s != LC_ERR_DEVICE || s != ended)//' test_sim_failures:allocations
mutate 'values in flight share their places' src/core/logging/arrivals.c 's/(int)(q->next % PLACES)/(int)(q->next % 4)/' test_sim_fit
mutate 'values are published before they arrive' src/core/logging/arrivals.c 's/LC_TRY(put(t, &(arrival){.kind = PUBLISH[^;]*;/lc__results_publish_now(t, r);/' test_sim_fit
mutate 'a step after a bad index updates parameters' src/engine/run/device_run.c 's/LC_TRY(g->on->ops->wait(g->on->context, UINT64_MAX));\n    const lc_plan_call/const lc_plan_call/' test_sim_fit
mutate 'a spike in the last batch of an epoch is missed' src/callbacks/spike_detection.c 's/return judge_sent(self, t);/(void)self, (void)t; return LC_OK;/' test_sim_fit:spike
# ---- devices ----
mutate 'a slot of the block used too early' src/engine/run/device_run.c 's/if (k->marks\[k->turn\]) /if (false) /' test_sim:every_schedule
mutate 'an upload left out' src/engine/run/device_run.c 's/(int i = 0; i < k->n_uploads; i++) {\n        const lc_upload/(int i = 1; i < k->n_uploads; i++) {\n        const lc_upload/' test_sim:every_schedule
mutate 'a loader slot is freed one batch early' src/engine/run/device_run.c 's/pin->mark = mark;/pin->mark = mark - 1;/' test_sim_fit:a_slot_is_held
mutate 'a slot is filled while it is copied' src/data/gather.c 's/s->status = lc__pin_wait([^;]*;//' test_sim_fit:a_slot_is_held
mutate 'batches copied once more' src/engine/run/device_run.c 's/return pin && pin->on == p->on ? pin : NULL;/return pin \&\& !p->on ? pin : NULL;/' test_sim_fit:a_batch_is_copied
mutate 'numbers read when the plan is made' src/engine/run/execute.c 's/i < p->n_live;/i < p->n_live \&\& lc__on_host(g->on);/' test_sim:every_schedule
mutate 'a wait in every step' src/engine/run/device_run.c 's/    LC_TRY(ops->mark(/    LC_TRY(ops->wait(p->on->context, UINT64_MAX));\n&/' test_sim:waits_for_nothing
mutate 'the loss of every batch is waited for' src/core/loop/fit.c 's/    LC_TRY(lc__vote_stop(t));/    double loss;\n    LC_TRY(lc_item(t->outputs.loss, \&loss));\n&/' test_sim_fit:waits_for_nothing
mutate 'bytes copied that no step needs' src/engine/plan/program.c 's/k->bytes = k->floats + align/k->bytes = k->floats + 256 + align/' test_sim:waits_for_nothing
mutate 'numbers at an address of the host' src/engine/plan/program.c 's/if (!p->block.device) return floats;/return floats;/' test_sim:every_schedule
mutate 'host calls in a program' src/engine/plan/program.c 's/if (p->block.device \&\& !on_host)/if (p->block.device)/' test_sim:runs_on_the_host
mutate 'kernels launched between host calls' src/engine/run/device_run.c 's/if (!s->program \&\& /if (!s->program \&\& p->block.n_stretches == 1 \&\& /' test_sim_ranks:steady_step
mutate 'what follows from a bad label is sent' src/engine/run/starts.c 's/    LC_TRY(lc__device_fault(g));\n//' test_sim_ranks:bad_label
mutate 'a bucket is sent before it has arrived' src/engine/run/starts.c 's/        LC_TRY(lc__device_reach([^;]*;\n//' test_sim_ranks:ddp
mutate 'what a host call writes stays there' src/engine/run/host_call.c 's/            LC_TRY(put_back(on, &call->in/            if (false) LC_TRY(put_back(on, \&call->in/' test_sim:runs_on_the_host
mutate 'operators that no plug-in finds' src/builtin.c 's/lc__optim_ops, lc__collective_ops,/lc__collective_ops,/' test_operators
mutate 'a kernel that takes rows for dense' src/backends/sim/work.c 's/v\[i\].data = sim_translate(d, v\[i\].data);/v[i].data = sim_translate(d, v[i].data), v[i].stride[0] = v[i].ndim == 2 ? v[i].shape[1] : v[i].stride[0];/' test_backend_check:a_good_backend
mutate 'a kernel with a number of its own' src/backends/sim/work.c 's/    w->kernel->run(&c);/    static const double slope = 0.01;\n    if (!strcmp(c.op->name, "leaky_relu")) c.floats = \&slope;\n&/' test_backend_check:a_good_backend
mutate 'an update that forgets its state' src/backends/sim/work.c 's/    w->kernel->run(&c);/    if (!strcmp(c.op->name, "update_sgd_momentum")) memset(c.in[2].data, 0, 4 * (size_t)c.in[2].shape[0]);\n&/' test_backend_check:a_good_backend
mutate 'an update without master weights' src/backends/sim/work.c 's/    w->kernel->run(&c);/    if (c.n_in > 4 \&\& !strncmp(c.op->name, "update_", 7)) v[c.n_in - 1].data = NULL;\n&/' test_backend_check:a_good_backend
mutate 'an update that rounds to the nearest' src/backends/sim/work.c 's/    w->kernel->run(&c);/    if (c.n_in > 4 \&\& !strncmp(c.op->name, "update_", 7)) ((int64_t *)(uintptr_t)c.ints)[2] \&= ~128;\n&/' test_backend_check:a_good_backend
mutate 'an update with an infinite factor' src/backends/sim/work.c 's/    w->kernel->run(&c);/    if (c.n_in > 4 \&\& !strncmp(c.op->name, "update_", 7)) ((int64_t *)(uintptr_t)c.ints)[4] = 0;\n&/' test_backend_check:a_good_backend
mutate 'copies that overtake others' src/backends/sim/work.c 's/    w->bytes = bytes;\n    enqueue(stream, w);/    w->bytes = bytes;\n    if (!d->into) { run_one(d, w); return leave(d, 0); }\n    enqueue(stream, w);/' test_backend_check:a_good_backend
mutate 'memory that is not zero' src/backends/driver/queue.c 's/error = q->driver->fill_async(q->context, data, 0, [^;]*;//' test_backend_check:a_good_backend
mutate 'inputs that nobody waits for' src/backends/driver/queue.c 's/if (!error) error = d->stream_wait(q->context, q->stream, event);//' test_backend_check:a_good_backend
mutate 'inputs sent over those in use' src/backends/driver/queue.c 's/if (!error) error = d->stream_wait(q->context, q->ahead, q->taken);//' test_backend_check:a_good_backend
mutate 'inputs that wait for what is computed' src/engine/plan/program.c 's/if (k->n_uploads \&\& on->ops->copy_ahead)/if (false)/' test_sim_fit:a_batch_is_copied
mutate 'a program with the work of two queues' src/backends/sim/work.c 's/if (error || !d->into || d->capturing == s) return error;/return error;/' test_sim:one_queue
mutate 'memory that stays registered' src/backends/driver/queue.c 's/if ((\*p)->at != at) continue;/continue;/' test_backend_check:a_good_backend
mutate 'memory unregistered while it is used' src/backends/driver/queue.c 's/        (void)synchronize(q);\n//' test_backend_check:a_good_backend test_sim_driver:same_host_memory
mutate 'marks of what is done already' src/backends/sim/work.c 's/(sim_event){s, s->enqueued}/(sim_event){s, s->done}/' test_backend_check:a_good_backend
mutate 'a program that runs as it is made' src/backends/sim/work.c 's/    \*end = &w->next;/    *end = \&w->next;\n    if (d->into) run_one(d, w);/' test_backend_check:a_good_backend
mutate 'errors that are forgotten' src/backends/sim/work.c 's/return \*d->error != 0;/return 0;/' test_sim:first_error test_backend_check:a_device
mutate 'memory that can still be touched' src/backends/sim/memory.c 's/return mprotect(p, pages(bytes), PROT_NONE) == 0 ? 0/return true ? 0/' test_sim_driver:cannot_be_touched
mutate 'host memory given back as it is' src/backends/sim/memory.c 's/    fill_with_poison(at, gone->bytes);//' test_sim_driver:given_back_is_poison
mutate 'a call without a queue' src/engine/plan/program.c 's/c->queue = on_host ||/c->queue = true ||/' test_sim:kernels_by_backend
mutate 'a kernel that takes a total of any type' src/backends/cpu/isa/cross_entropy.c 's/ &&\n *call->in\[5\].dtype == LC_F32;/;/' test_backend_check:kernels_of_the_cpu
mutate 'a gradient that takes operands of two types' src/ops/norm.c 's/LC_TRY(lc__check_dtype_of(call, 0, "dy", 1, "x"));\n *LC_TRY(lc__check_shape(call, 0, "dy", x->ndim, x->shape));\n    for/for/' test_backend_check:a_good_backend
mutate 'a program that follows integers' src/backends/sim/work.c 's/    if (n_ints) w->call.ints = memcpy[^;]*;//' test_sim_driver:keeps_the_integers
# ---- messages, and when they appear ----
mutate 'errors of saves stop every run' src/core/resume/after_save.c 's/ || t->resume->stops_on_save_error)/ || true)/' test_save_errors:saves_again
mutate 'a run that is to stop goes on' src/core/resume/after_save.c 's/ || t->resume->stops_on_save_error)/)/' test_save_errors:configured
mutate 'a file without a weight of the model is loaded' src/core/resume/load_weights.c 's/if (found || !l->model.n) return LC_OK;/return LC_OK;/' test_load_weights:prefixed
mutate 'matrices left as the file has them' src/core/resume/load_weights.c 's/transposed ? j \* rows + i : i \* columns + j;/i * columns + j;/' test_load_weights:transposed
mutate 'master weights of rounded parameters' src/core/resume/master_weights.c 's/    return lc_safetensors_load_all(f, masters->n, masters->v, false);/    return LC_OK;/' test_master_checkpoints:lose_nothing
mutate 'parameters of outdated master weights' src/core/resume/master_weights.c 's/lc__master_of(p.data, p.dtype, i, values)/values[i]/' test_master_checkpoints:has_written
mutate 'threads that lose time kept' src/base/pool.c 's/if (pool.lost > LOSS_NS) {/if (false) {/' test_pool:no_gain
mutate 'slow steps given no more time' src/comm/coordinator/stall.c 's/FACTOR \* c->longest/0 * c->longest/' test_stall:slow_steps
mutate 'a helper that is in a piece not waited for' src/base/pool.c 's/if (atomic_load_explicit(&l->left, memory_order_acquire)) {\n        wait_for_rest/if (false) {\n        wait_for_rest/' test_pool:holds_up
mutate 'a caller that spins, and no longer' src/base/pool.c 's/while (left & ~SLEEPS) {/while (false) {/' test_pool:holds_up
mutate 'time between runs counts as a step' src/comm/coordinator/stall.c 's/if (m->in_run) c->longest/c->longest/' test_stall:between_runs
mutate 'ranks outside of runs must make progress' src/comm/coordinator/stall.c 's/    if (!m->in_run) return INFINITY;\n//' test_stall:not_limited
mutate 'ranks outside of runs reported as hanging' src/comm/coordinator/stall.c 's/ || !m->in_run) continue/) continue/' test_stall:not_limited
mutate 'every report comes from a run' src/comm/control/control.c 's/where && strcmp(where, LC__OWN_LOOP) != 0/true/' test_stall:not_limited
mutate 'losses that are not finite not reported' src/core/loop/watch.c 's/ || isfinite(loss)) return;/ || true) return;/' test_watch:not_finite
mutate 'epochs that train nothing not reported' src/core/loop/watch.c 's/if (!why) return;/return;/' test_watch:train_nothing
mutate 'samples that could not be read not reported' src/core/loop/watch.c 's/if (!all.n || t->sanity/if (true || t->sanity/' test_watch:cannot_be_read
mutate 'too little memory skips pictures' src/data/image_dataset.c 's/status == LC_ERR_NOT_FOUND;/status < 0;/' test_images:memory test_images:nothing
mutate 'pictures turned though nobody asked' src/image/jpeg.c 's/if (r->file->exif_transpose) jpeg/jpeg/' test_images:turned
mutate 'files cut after the part that is looked at' src/image/jpeg.c 's/if (p == end) return false;/if (p == end) return true;/; s/    }\n    return false;/    }\n    return true;/' test_jpeg_part:truncated
mutate 'columns next to a part left out' src/image/jpeg.c 's/BESIDE      2/BESIDE      0/' test_jpeg_part:every_edge
mutate 'markers where none belongs passed over' src/image/jpeg.c 's/if (\*p && (\*p < JPEG_RST0/if (false \&\& (*p < JPEG_RST0/' test_jpeg_part:damaged
mutate 'chains read what another key draws' src/data/compose.c 's/reads(c->parts\[0\].self, in, lc_random_key(key, 0), part)/reads(c->parts[0].self, in, key, part)/' test_transform_slots:a_chain
mutate 'on a device chains draw from one key' src/data/transforms/batch.c 's/i < r->n; i++) key = /i < 0; i++) key = /' test_transform_batch:what_the_loader
mutate 'mirrors read only what they cover' src/data/transforms/pad.c 's/(mode == LC_PAD_CONSTANT && part/(part/' test_transform_slots:beyond
mutate 'pictures of any size' src/image/image.c 's/ || pixels > file->max_pixels)/)/' test_image:too_large
mutate 'hooks named by each that passes an error on' src/core/hooks/hooks.c 's/    if (said && lc__names_hook(t)) return s;\n//' test_said_once

# ---- what is hostile, misused or wrong, and what is said about it ----
mutate 'a result read before it is computed again' src/engine/plan/compute_again.c 's/late\[i\] = (n->gradient \&\& reads(n, value)) ||/late[i] =/; s/int i = from; i < b->n_nodes/int i = 0 * from; i < b->n_nodes/' test_fuse:computed_again
mutate 'a batch norm computed again without its relu' src/backends/cpu/isa/batch_norm.c 's/if (again) vput(t, y, l, vselect(z <= vzero(), vzero(), z));/if (again) vput(t, y, l, z);/' test_cpu_kernels:batch_normalization
mutate 'a gradient of what has been overwritten' src/engine/plan/expand_writes.c 's/if (p->writes\[i\]\.node > k/if (false/' test_writes:assigned_before
mutate 'updates after an index that does not exist' src/engine/run/execute.c 's/lc__fault_is_set(&g->fault) | peers/peers/' test_bad_index:a_training_ends
mutate 'parts written where there is no room' src/ops/view.c 's/if (parts > max)/if (false)/' test_ops_edges:refusals
mutate 'a gradient through what was rounded to 0' src/backends/cpu/isa/stored.h 's/0x1p-134f : 0x1p-25f/0.f : 0.f/' test_cpu_stored_kernels:relu_after
mutate 'gradients of 16 bits added up in another order' src/backends/cpu/isa/batch_norm_pool_backward.c 's/r += SUM_ROWS)/r += SUM_ROWS \/ 2)/; s/end - r < SUM_ROWS ? end - r : SUM_ROWS/end - r < SUM_ROWS \/ 2 ? end - r : SUM_ROWS \/ 2/' test_cpu_stored_kernels:with_pooling_backward
mutate 'a run of pixels that begins in the middle of a window' src/backends/cpu/isa/batch_norm_pool_backward.c 's/of->place\[i++\] = right;/of->place[i++] = left;/' test_cpu_stored_kernels:with_pooling_backward
mutate 'a result that is NaN taken for 0' src/backends/cpu/isa/vec.h 's/_CMP_NLE_UQ/_CMP_GT_OQ/' test_cpu_stored_kernels:with_pooling_backward
mutate 'the last of equal maxima' src/backends/cpu/isa/batch_norm_pool.c 's/\*later = b > a;/*later = b >= a;/' test_cpu_stored_kernels:with_pooling
mutate 'subnormal numbers rounded to 0' src/backends/cpu/isa/stored.h 's/#define SUBNORMAL 0x20/#define SUBNORMAL 0/' test_cpu_kernels:casts_round
mutate 'the last pair of a product left out' src/backends/cpu/isa/product_dot.h 's/const int64_t pairs = parts(depth, 2);/const int64_t pairs = depth \/ 2;/' test_product_low
mutate 'a copy that ends with the last whole square' src/backends/cpu/isa/copy.c 's/const int64_t r = k + side > rows ? rows - side : k;/const int64_t r = k + side > rows ? 0 : k;/' test_cpu_training_kernels:copies_between
mutate 'the last panel of patches left out' src/backends/cpu/isa/product_pairs.h 's/smaller(first + PACKED_PANELS \* PANEL, n1);/smaller(first + (PACKED_PANELS - 1) * PANEL, n1);/' test_conv_low
mutate 'rows of a crop that is wider than the picture' src/data/compose.c 's/ || out->shape\[2\] != part->width) return false/) return false/' test_image_transforms:part_is_that
mutate 'the last rows of a part' src/image/jpeg.c 's/part->height - given) : LC_OK/0) : LC_OK/' test_jpeg_part
mutate 'blocks of a kernel that are not added' src/backends/cpu/isa/winograd.c 's/y + p \* v->step_y, columns, k > 0);/y + p * v->step_y, columns, false);/' test_winograd
mutate 'what a row of tiles adds to the next' src/backends/cpu/isa/winograd_input_grad.c 's/memcpy(band, band + others,/memcpy(band, band + shared,/' test_winograd:transposed_input
mutate 'the last rows of the gradient of an image' src/backends/cpu/isa/winograd_input_grad.c 's/last ? WG_POINTS : WG_RESULTS/WG_RESULTS/' test_winograd:transposed_input
mutate 'gradients of padded images transposed' src/backends/cpu/isa/winograd_input_grad.c 's/return 5 \* of_dy.count <= 4 \* of_dx.count/return true/' test_winograd:transposes
mutate 'sums of a square of a kernel' src/backends/cpu/isa/winograd.c 's/some_of_kernel, g, own, row, outs, ins);/some_of_kernel, g, own, g->x.c, outs, ins);/' test_winograd
mutate 'the border of images of few channels' src/backends/cpu/isa/conv_few.c 's/count, to + left);/count, to);/' test_conv_low:few_channels
mutate 'the last numbers of patches of few channels' src/backends/cpu/isa/conv_few.c 's/for (; i < f->numbers; i++) add_channels/for (; i + 1 < f->numbers; i++) add_channels/' test_conv_low:few_channels
mutate 'factors that are not rounded' src/backends/cpu/isa/product.c 's/return call->rounded >> i \& 1 ?/return false ?/' test_product_low:factors_that_are_rounded
mutate 'a tensor that is written before it is rounded' src/engine/plan/read_rounded.c 's/written |= lc__node_writes([^;]*;//' test_read_rounded:written
mutate 'a rounded copy that is kept' src/engine/plan/read_rounded.c 's/ \&\& !values\[n->out\[0\]\].keep \&\&/ \&\&/' test_read_rounded:other_readers
mutate 'any number of products that round' src/engine/plan/read_rounded.c 's/MOST_READERS 3/MOST_READERS 4/' test_read_rounded:many_readers
mutate 'the edge of images that units convolve' src/backends/cpu/isa/conv_units.c 's/s->padding\[W\] \* c->pixel;/0;/' test_conv_low:convolutions,gradients_of_the_input
mutate 'weights of attention not divided again' src/backends/cpu/isa/attention.h 's|1\.f / sum);|1.f + 0 * sum);|' test_attention_digits
mutate 'a key before the last one left out of attention in pairs' src/backends/cpu/isa/attention_pairs.c 's|seen_by_group(b, r) + 1) / 2|seen_by_group(b, r)) / 2|' test_attention_low
mutate 'a NaN blamed on the last operator of a chain' src/ops/fused.c 's/i < count \&\& found < 0/i < count/' test_anomaly:inside_a_chain
mutate 'callbacks added to those of their kind' src/core/hooks/callback_list.c 's/\n    remove_replaced(t, cb);//' test_callback_kinds:added_callbacks
mutate 'slopes of a loss over the rate itself' src/core/tuner/lr_find.c 's/r->over_log10 ? log10(r->lr\[b\] \/ r->lr\[a\]) : //' test_tuner:suggestion
mutate 'a rate found by each rank alone' src/core/tuner/lr_find.c 's/    LC_TRY(lc__ranks_reduce(t->comm, sums, 2, LC_LOG_SUM));\n//' test_tuner_ranks:one_rate
mutate 'the end of a run written without the lock' src/loggers/sqlite_db.c 's/if (waited >= ms) return LC_SKIP;/if (waited >= ms) return LC_OK;/' test_sqlite_lock:nothing_is
mutate 'an attempt in progress taken for the last' src/loggers/writer.c 's/if (last) break;/if (w->stop) break;/' test_loggers:an_attempt
mutate 'a failure before a flush taken for its own' src/loggers/writer.c 's/w->ended > begun/w->ended >= begun/' test_loggers:an_attempt
mutate 'checkpoints of other runs taken for removed' src/loggers/sqlite_db.c 's/ AND (wall_ns <= ?3 OR run = ?4 OR id <= ?5)/ AND ?3 + ?4 + ?5 IS NOT NULL/' test_sqlite_checkpoints:another_run
mutate 'control characters in messages' src/base/printable.c 's/return control || surrogate/return surrogate/' test_printable
mutate 'a FIFO read as a file' src/base/io.c 's/if (fstat(\*fd, st) == 0 && S_ISREG(st->st_mode))/if (fstat(*fd, st) == 0)/' test_hostile_state:irregular
mutate 'a plug-in that is not a file is waited for' src/base/library.c 's/!S_ISREG(st.st_mode)/false/' test_hostile_state:elsewhere
mutate 'counters that no run reaches are accepted' src/base/state_count.c 's/ || value > LC__MOST_COUNT)/)/' test_hostile_state:counters
mutate 'a refused checkpoint that is not named' src/core/resume/resume.c 's/return lc__name_checkpoint(t->ckpt_path, restore_progress(t));/return restore_progress(t);/' test_hostile_leaves:optimizers
mutate 'a failed hook blamed with an older message' src/base/status.c 's/lc__errors != before && //' test_hook_errors:names_the_hook
mutate 'a line that a narrow terminal wraps' src/callbacks/rich_progress_bar.c 's/int room = lc__terminal_width(&r->term) - 1;/int room = lc__terminal_width(\&r->term) + 1;/' test_narrow_terminal:rich
mutate 'a signal that is passed on counts twice' src/core/trainer/signals.c 's/bool passed_on = sender == s->launcher;/bool passed_on = sender < 0;/' test_trainer_signals:forwarded
mutate 'what is not a metric is used' src/metrics/metric.c 's/\n    LC__IS(m, METRIC, LC_ERR_ARGUMENT);//' test_misuse:wrong_argument
mutate 'a file of options starts no rank' src/core/trainer/start_ranks.c 's/if (!many \&\& o->max_restarts <= 0) return LC_OK;/if (!many) return LC_OK;/' test_launch:a_file_of_options
mutate 'layers used before their init' src/nn/nn_internal.h 's/if (__builtin_expect(!lc__has_mark(l, LC__MARK_OF(MODULE)), 0)) return/if (!(l)) return/' test_nn:not_initialized
mutate 'hosts that a file names twice' src/launch/mpirun.c 's/if (\*line \&\& !is_there(out, line))/if (*line)/' test_launch:hosts_of_a_file
mutate 'slots beyond the end of a vtable' src/base/args.c 's/memcpy(to, given, \*(const size_t \*)given)/memcpy(to, given, size)/' test_vtable_sizes:vtables
mutate 'a plug-in that two things own' src/base/owned.c 's/ || f->owned))/))/' test_options_again:belong_to_one_trainer
mutate 'memory that no constructor made taken over' src/base/owned.c 's/(!is_made(f) || f->owned)/f->owned/' test_data:a_sampler_belongs
mutate 'a callback of another trainer freed' src/core/hooks/callback_list.c 's/lc__free_unless_owned(LC__SLOT(callback\.ops, free), callback\.self);/callback.ops->free(callback.self);/' test_options_again:belong_to_one_trainer
mutate 'a precision of a fabric that is not made' src/core/fabric/fabric.c 's/lc__first_error_note(&e, lc__list_check(\([^;]*\)));/LC_TRY(lc__list_check(\1));/' test_fabric:that_is_not_made
mutate 'a constructor that failed blamed on the list' src/core/trainer/begin.c 's/if (lc_module_root(t->m)->status < 0)/if (s >= 0 \&\& lc_module_root(t->m)->status < 0)/' test_hook_errors:an_optimizer_that_is_null
mutate 'a state that failed with an older message' src/core/resume/save.c 's/lc__said(\(cb->ops\.save_state([^;]*)\), before)/((void)before, \1)/' test_hook_errors:a_state_without
mutate 'a transform that failed with an older message' src/data/compose.c 's/status = lc__answered(status, before, "describe", "a transform");//' test_answers:names_the_function
mutate 'an optimizer that failed with an older message' src/optim/optimizer.c 's/lc__said(\(opt->ops->accept([^;]*)\), before)/((void)before, \1)/' test_optim:a_function_that_fails
mutate 'a logger that failed with an older message' src/core/fabric/logging.c 's/lc__said(\(f->loggers\[i\]\.ops->log_row([^;]*)\), before)/((void)before, \1)/' test_fabric:a_logger_that_fails
mutate 'a clipping by value of an earlier step' src/optim/macros.c 's/if (!by_norm \&\& !by_value)/if (!by_norm)/' test_fabric:clipping_after
mutate 'a clipping between steps refused' src/optim/macros.c 's/opt->clip_step \&\& //' test_fabric:between_steps
mutate 'a module released in its run' src/module/module.c 's/if (m->trainer) {/if (false) {/' test_hook_errors:must_not_do
mutate 'a tensor of a module dropped' src/tensor/tensor.c 's/if (t->modules \&\& /if (false \&\& /' test_module:cannot_drop
mutate 'a tensor that stays with a module released' src/module/module.c 's/m->tensors\[i\]\.tensor->modules--;//' test_module:cannot_drop
mutate 'a loader of two combined loaders' src/data/combined.c 's/else if (lc__dataloader_is_part(loaders\[i\]))/else if (false)/' test_data:a_loader_belongs
mutate 'a schedule of two others' src/optim/sched/scheduler.c 's/if (parts->children\[i\]->parent) return/if (false) return/' test_sched:belongs_to_one_other
mutate 'an update of what is not an optimizer left out' src/core/fabric/step.c 's/note(f, lc__not_a(optimizer,\([^;]*\)));/(void)f, (void)lc__not_a(optimizer,\1);/' test_fabric:a_step_of_what
mutate 'a list that is NULL read' src/base/handle.c 's/if (n \&\& !list)/if (false)/' test_null_lists
mutate 'padding that no sample needs' src/data/loader.c 's/ || o->pad_multiple != 1 / /' test_lengths:what_is_refused
mutate 'a time of hours and minutes' src/core/options/value.c 's/(i \&\& end - p != 2) || //' test_options:a_time_with_colons
mutate 'a target beyond 64 bits taken for a name' src/data/image_files.c 's/\*fits = !errno;/*fits = true;/; s/return end != text \&\& !\*end;/return end != text \&\& !*end \&\& !errno;/' test_images:names_and_targets
mutate 'reserved members of operators ignored' src/record/record.c 's/    LC_TRY(lc__reserved_check(op->reserved, "lc_op"));\n//' test_reserved
mutate 'reserved members of kernels ignored' src/engine/plan/choose_kernel.c 's/lc__reserved_check(call->kernel->reserved, "lc_kernel")/LC_OK/' test_reserved
mutate 'an error in teardown kept from on_exception' src/core/trainer/finish.c 's/after_failure(t, s, false, message, sizeof message);\n        }\n    }/lc__copy_message(message, sizeof message);\n        }\n    }/' test_trainer_order:an_error_in_teardown
mutate 'a fit after a failed end of an epoch repeats it' src/core/trainer/begin.c 's/t->current_epoch = t->epochs_processed;//' test_trainer_order:a_failed_end
mutate 'a validation of another run' src/core/trainer/begin.c 's/ = t->loop->val_has_run = false/ = false/' test_trainer_order:without_a_validation
mutate 'a fit that puts everything into training mode' src/core/trainer/begin.c 's/    LC_TRY(lc__hook(t, LC_HOOK_ON_FIT_START, NULL));/    lc_module_train(t->m, true);\n&/' test_watch:a_fit_keeps_modes
mutate 'a NaN with a sign' src/core/logging/step_value.h 's/isnan(v) ? NAN : v/v/' test_trainer_order:a_nan_has_no_sign
mutate 'an infinite weight without decay' src/optim/loop.h 's/(decay) != 0 ? (decay)\*p\[i\] : 0/(decay) * p[i]/' test_optim:an_infinite_weight
mutate 'a factor of clipping lost with its step' src/optim/expand_update.c 's/    b->keep\[n->first_out + 1\] = true;[^\n]*\n//' test_optim:a_closure_clips
mutate 'a search that ends early' src/optim/line_search.c 's/NARROWEST 1e-9/NARROWEST 20/' test_line_search:is_as_exact
mutate 'a norm that is NaN without a gradient' src/ops/elementwise_math.h 's/return y == y ? 0 : y;/return 0;/; s/if (y == 0) return 0;/if (y == 0 || y != y) return 0;/' test_not_finite:gradients_keep_nan
mutate 'unaligned numbers past the caches' src/data/convert.c 's/streams \&\& (uintptr_t)dst % 32 == 0/streams/' test_into_batch:with_helpers
mutate 'a chunk of HDF5 decompressed for each sample' src/data/files/hdf5_lib.c 's/2 \* kept + USUAL_SLOTS, CACHE_BYTES/1, 1/' test_hdf5:decompressed_once
mutate 'a copy of LZF that is too short' src/data/files/lzf.c 's/(control >> 5) + 2/(control >> 5) + 1/' test_hdf5:filters
mutate 'a gradient of ranks in the type of the parameter' src/core/resume/resume.c 's/if (!\*any \&\& lc_dtype_is_float(saved->dtype)) type.dtype = saved->dtype;//' test_mixed_run:a_window_of_ranks
mutate 'an input without memory read' src/tensor/host_access.c 's/input->kind != LC_TENSOR_INPUT || /true || /' test_engine:an_input_without_memory
mutate 'a step of chunks executed with its update' src/core/split/chunks.c 's/if (!lc__reducer_of_graph(t->graph) \&\& !t->device_parts)/if (false)/' test_deterministic:values_read
}

if [ $list = 0 ]; then
  prepare
  [ -f "$copy/build/build.ninja" ] ||
    cmake -S "$copy" -B "$copy/build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$copy/log" 2>&1 || { tail "$copy/log"; exit 2; }
fi
all
[ ${#proofs[@]} -eq 0 ] || check_proofs
printf '%d mutations, %d %s\n' $count $survived "$([ $list = 1 ] && echo out of date || echo survived)"
[ $survived = 0 ] && [ $count -gt 0 ]
