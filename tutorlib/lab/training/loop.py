"""The training loop of the book, which can resume at any step, on a CPU, a GPU or several.

It works for any model. The loss is a function of the model and the step number, and the data of a step depends only on
this number. So a run that was killed continues exactly from its last checkpoint.
"""

import json
import time
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from ...disk import replacing, write_text
from .devices import ALONE, Devices

SAVE_EVERY = 250  # steps from one checkpoint to the next


def train(
    model,
    loss,
    optimizers,
    *,
    steps,
    folder,
    schedule,
    report=None,
    every=500,
    devices: Devices = ALONE,
    progress=True,
):
    """Minimises `loss`, saves checkpoints, and resumes from the last checkpoint if there is one.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place.
    loss : callable
        ``loss(step)`` → scalar tensor to minimise at that step (counted from 0).
    optimizers : list of torch.optim.Optimizer
        Stepped together; the rate of each is its own starting rate times `schedule`.
    steps : int
        The total number of steps, including those before a resume.
    folder : path
        The folder of ``checkpoint.pt`` and ``log.jsonl``, created if it is missing.
    schedule : callable
        ``schedule(step)`` → factor on the learning rates.
    report : callable, optional
        ``report()`` → dict of numbers, called every `every` steps and at the end; logged and shown with the loss.
    devices : Devices
        Several processes each compute the loss of their share of the step's batch, see `devices`: the gradient is the
        mean of theirs, and so is the loss that is logged. The first of them writes the checkpoints, from which any
        number of processes can continue.
    progress : bool
        Show a progress bar on the standard error stream.

    Returns
    -------
    list of dict
        The log: one entry per report, with step, loss (averaged since the last entry) and seconds.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    step, seconds, log = _resume(folder / "checkpoint.pt", model, optimizers)
    devices.wait()  # no process may write a checkpoint before all have read it
    began, losses = time.perf_counter(), []
    model.train()
    shown = progress and devices.first
    bar = tqdm(total=steps, initial=step, disable=not shown, unit="step", desc=folder.name, dynamic_ncols=True)

    try:
        while step < steps:
            for optimizer, starts in zip(optimizers, rates):
                for group, rate in zip(optimizer.param_groups, starts):
                    group["lr"] = rate * schedule(step)
            value = loss(step)
            value.backward()
            devices.average([weight.grad for weight in model.parameters() if weight.grad is not None])
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            losses.append(value.detach())
            step += 1
            bar.update()
            if step % every == 0 or step == steps:
                together = torch.stack(losses).mean()
                devices.average([together])
                mean = float(together)
                if not mean < float("inf"):
                    raise FloatingPointError(
                        f"the loss is {mean} at step {step}; the checkpoint in {folder} is from before: "
                        "resume with a lower learning rate"
                    )
                model.eval()
                entry = {"step": step, "loss": round(mean, 4), **(report() if report else {})}
                model.train()
                losses = []
                log.append({**entry, "seconds": round(seconds + time.perf_counter() - began)})
                bar.set_postfix(entry)
            if devices.first and (step % SAVE_EVERY == 0 or step == steps):
                elapsed = seconds + time.perf_counter() - began
                _write(folder / "checkpoint.pt", model, optimizers, step, elapsed, log)
    finally:  # also when interrupted: at worst a kill loses the steps since the last checkpoint
        bar.close()
    if devices.first:
        write_text(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in log))
    model.eval()
    return log


def warmup_then_decay(steps, warmup=100, flat=0.4, least=0.02):
    """A schedule: linear warm-up, constant until `flat` of the run, then linear down to `least`."""

    def factor(step):
        falling = (steps - step) / ((1 - flat) * steps)
        return min(1.0, (step + 1) / warmup) * max(least, min(1.0, falling))

    return factor


def _write(path, model, optimizers, step, seconds, log):
    """Writes a new checkpoint next to the old one and then replaces it, so the old one survives a kill in the
    middle.
    """
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "step": step,
        "seconds": seconds,
        "log": log,
    }
    size = sum(one.nbytes for one in tree_leaves(state) if isinstance(one, torch.Tensor))
    with replacing(path, size) as fresh, open(fresh, "wb") as file:  # torch's own file hides that a disk is full
        torch.save(state, file)


def _resume(path, model, optimizers):
    if not path.exists():
        return 0, 0.0, []
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}); delete it to start anew"
        ) from error
    try:
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        return state["step"], state["seconds"], state["log"]
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"{path} is a checkpoint of something else ({type(error).__name__}: {str(error).splitlines()[0]}): use "
            "another folder, or delete it to start anew"
        ) from error
