# SPDX-License-Identifier: Apache-2.0
"""Trains the network of tests/support/callback_net.h with a callback of Lightning and compares the weights at the end.

    callbacks.py DIR CALLBACK OPTIMIZER EPOCHS ACCUMULATE CLIP SCHEDULE TRAINABLE_ONLY

DIR: start.safetensors, end.safetensors. Weights may differ by 1e-4 of the largest of their tensor."""
import logging
import os
import sys
import warnings

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch import callbacks as cb
from safetensors.torch import load_file
from torch import nn

FEATURES, SAMPLES, BATCH = 5, 22, 4


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.norm = nn.Linear(FEATURES, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(F.relu(self.l1(x)))


class Net(pl.LightningModule):
    def __init__(self, optimizer, schedule, trainable_only):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Linear(8, 1)
        self.how = optimizer, schedule, trainable_only

    def loss(self, batch):
        return F.mse_loss(self.head(self.backbone(batch[0])).flatten(), batch[1])

    def training_step(self, batch, _):
        return self.loss(batch)

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        name, schedule, trainable_only = self.how
        p = [p for p in self.parameters() if p.requires_grad or not trainable_only]
        o = torch.optim.SGD(p, lr=0.01, momentum=0.9) if name == "SGD" else torch.optim.Adam(p, lr=0.01)
        return ([o], [torch.optim.lr_scheduler.ExponentialLR(o, 0.9)]) if schedule else o


class Finetuning(cb.BaseFinetuning):
    def freeze_before_training(self, module):
        self.freeze(module.backbone, train_bn=False)

    def finetune_function(self, module, epoch, optimizer):
        if epoch == 2:
            self.unfreeze_and_add_param_group(module.backbone, optimizer, initial_denom_lr=4)


class Lottery(cb.ModelPruning):
    """In Lightning the weights share memory with the initial values, so its second round starts from trained weights;
    lightc keeps them apart."""

    @staticmethod
    def _copy_param(new, old, name):
        getattr(new, name + "_orig").data = getattr(old, name).data.clone()


def make(name, model):
    l1 = model.backbone.l1
    return {
        "swa": lambda: cb.StochasticWeightAveraging(0.05, swa_epoch_start=2, annealing_epochs=3),
        "mean": lambda: cb.WeightAveraging(),
        "ema": lambda: cb.EMAWeightAveraging(decay=0.9, update_every_n_steps=2, update_starting_at_step=3),
        "copied": lambda: cb.EMAWeightAveraging(decay=0.9, update_every_n_steps=4, use_buffers=False),
        "accumulation": lambda: cb.GradientAccumulationScheduler({1: 2, 3: 3}),
        "backbone": lambda: cb.BackboneFinetuning(unfreeze_backbone_at_epoch=1),
        "finetuning": lambda: Finetuning(),
        "lottery": lambda: Lottery("l1_unstructured", amount=0.3),
        "local": lambda: cb.ModelPruning("l1_unstructured", amount=0.2, use_global_unstructured=False,
                                         use_lottery_ticket_hypothesis=False),
        "channels": lambda: cb.ModelPruning("ln_structured", parameters_to_prune=[(l1, "weight")], amount=0.25,
                                            pruning_dim=0, pruning_norm=2, use_global_unstructured=False,
                                            use_lottery_ticket_hypothesis=False),
    }[name]()


def main(folder, name, optimizer, epochs, accumulate, clip, schedule, trainable_only):
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model = Net(optimizer, int(schedule), int(trainable_only))
    model.load_state_dict(load_file(folder + "/start.safetensors"), strict=False)
    data = load_file(folder + "/data.safetensors")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data["x"], data["y"]), BATCH)
    trainer = pl.Trainer(max_epochs=int(epochs), accumulate_grad_batches=int(accumulate), accelerator="cpu",
                         gradient_clip_val=float(clip) or None, callbacks=[make(name, model)], logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                         num_sanity_val_steps=0, default_root_dir=folder)
    trainer.fit(model, loader, loader)
    ours, worst, where = load_file(folder + "/end.safetensors"), 0.0, ""
    for k, v in model.state_dict().items():
        if k in ours:
            off = ((v - ours[k]).abs().max() / v.abs().max().clamp_min(1e-3)).item()
            if not off <= worst:
                worst, where = off, k
    print(f"  {name}: greatest difference {worst:.2g} ({where})")
    return 0 if worst <= 1e-4 and where in ours else 1


if __name__ == "__main__":
    os.environ["POSSIBLE_USER_WARNINGS"] = "off"
    sys.exit(main(*sys.argv[1:]))
