"""The devices of a training: one processor, one GPU, or several processes.

Several processes are started from outside, by ``torchrun --nproc-per-node 2 -m tutorlib.lab.training ...`` or by
``accelerate launch --num-processes 2 -m tutorlib.lab.training ...``, one for each GPU (or, without, on the processor).
They work together through `accelerate`, which is needed only for this. The batch of a step does not depend on their
number: each process takes its share of the rows, and the gradients are averaged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...disk import locked


@dataclass(frozen=True)
class Devices:
    """This process's device, and the other processes.

    Attributes
    ----------
    device : torch.device
    rank : int
        The number of this process, from 0.
    processes : int
        How many there are.
    accelerator : accelerate.Accelerator, or None
        None for a process that is alone.
    """

    device: torch.device = torch.device("cpu")
    rank: int = 0
    processes: int = 1
    accelerator: Any = None

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and shows progress."""
        return self.rank == 0

    def share(self, rows: Sequence) -> Sequence:
        """This process's share of the rows: every n-th row, for n processes."""
        return rows[self.rank :: self.processes]

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor, in place, by its mean over the processes. The shapes must be the same in all of them."""
        if self.processes == 1 or not tensors:
            return
        together = torch.cat([tensor.detach().flatten() for tensor in tensors])
        together = self.accelerator.reduce(together, reduction="mean")
        for tensor, mean in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))

    def wait(self) -> None:
        """Wait until every process has reached this point."""
        if self.processes > 1:
            self.accelerator.wait_for_everyone()

    def keep(self, path) -> contextlib.AbstractContextManager:
        """Lock a file or folder for these processes, see `tutorlib.disk.locked`. The first process holds the lock for
        all.
        """
        return locked(path) if self.first else contextlib.nullcontext()

    def leave(self) -> None:
        """Disconnect from the other processes at the end."""
        if self.processes > 1:
            self.accelerator.end_training()


ALONE = Devices()


def find_devices(device: str | None = None) -> Devices:
    """The devices of this process, and of those that were started with it.

    Parameters
    ----------
    device : str, optional
        By default a GPU if there is one, a different one for each process. "cpu" uses the processor.

    Raises
    ------
    ValueError
        If several processes were started but `accelerate` is not installed, or if all of them would use the same GPU.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        return Devices(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise ValueError(
            f"{processes} processes were started (WORLD_SIZE), but `accelerate`, through which they work together, is "
            "not installed: `pip install accelerate`, or start one process"
        ) from error
    if device is not None and torch.device(device).index is not None:
        raise ValueError(
            f'device={device!r} is one GPU for {processes} processes: leave it out, or say "cuda" or "cpu"'
        )
    accelerator = Accelerator(cpu=device == "cpu" or not torch.cuda.is_available())
    return Devices(accelerator.device, accelerator.process_index, accelerator.num_processes, accelerator)
