/* SPDX-License-Identifier: Apache-2.0 */
/* The whole public interface. */
#ifndef LIGHTC_LIGHTC_H
#define LIGHTC_LIGHTC_H

#include <lightc/array_file.h>
#include <lightc/backend.h>
#include <lightc/base.h>
#include <lightc/batch.h>
#include <lightc/callback.h>
#include <lightc/callbacks.h>
#include <lightc/checkpoint.h>
#include <lightc/comm.h>
#include <lightc/data.h>
#include <lightc/fabric.h>
#include <lightc/datamodule.h>
#include <lightc/graph.h>
#include <lightc/hooks.h>
#include <lightc/hyperparameters.h>
#include <lightc/image.h>
#include <lightc/launch.h>
#include <lightc/logger.h>
#include <lightc/metrics.h>
#include <lightc/models.h>
#include <lightc/module.h>
#include <lightc/nn.h>
#include <lightc/op.h>
#include <lightc/ops.h>
#include <lightc/ops_types.h>
#include <lightc/optim.h>
#include <lightc/options.h>
#include <lightc/plot.h>
#include <lightc/plugin.h>
#include <lightc/precision.h>
#include <lightc/profiler.h>
#include <lightc/random.h>
#include <lightc/safetensors.h>
#include <lightc/sched.h>
#include <lightc/span.h>
#include <lightc/state.h>
#include <lightc/status.h>
#include <lightc/strategy.h>
#include <lightc/tensor.h>
#include <lightc/trainer.h>
#include <lightc/transforms.h>
#include <lightc/tuner.h>
#include <lightc/weights.h>

#endif
