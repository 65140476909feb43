"""A frozen target's hidden states for its texts, computed once and kept on the disk in half precision.

Heads are trained on the same texts in many rounds, and the target never changes. With its hidden states on the disk, a
round costs only what is trained. A file holds the states of one layer for several texts, and notes of which target and
which texts they are. So heads that read different layers, in batches of any size, share the files, and a file of
another target or of other texts is written anew. It is written completely or not at all: who is stopped continues after
the last one.

What this file does not do: put texts into batches (`batches`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tqdm import tqdm

from ...disk import megabytes, replacing
from ...model.lm import LM
from .devices import ALONE, Devices
from .sampled_texts import SampledText, best_tokens, hidden_states, padded, weights_fingerprint

TOGETHER = 64  # texts in a file
ROWS = 8  # texts that the target reads in a call
BEST = "best"  # the file of the target's most likely tokens
_CURE = "delete it to have it computed anew"


class StoredFeatures:
    """Hidden states of texts on the disk. Those that are missing there are computed now.

    Parameters
    ----------
    lm : LM
        The target, which must not change.
    texts : sequence of SampledText
    layers : sequence of int
        The layers whose hidden states are needed, numbered as in transformers.
    folder : path
        Created if it is missing.
    best : bool
        Whether the target's most likely token after each token is needed, too.
    disk : float
        The most bytes that all these files may take.
    devices : Devices
        Several processes compute different files.
    progress : bool
        Show a progress bar on the standard error stream.

    Raises
    ------
    ValueError
        If the files would take more than `disk`, or more than is free; if one is damaged; if another process writes to
        the folder; if a number is too large for half precision.
    """

    def __init__(
        self,
        lm: LM,
        texts: Sequence[SampledText],
        layers: Sequence[int],
        folder,
        *,
        best: bool = False,
        disk: float = float("inf"),
        devices: Devices = ALONE,
        progress: bool = True,
    ):
        self.lm, self.folder = lm, Path(folder)
        self.dtype = lm.dtype if lm.dtype in (torch.float16, torch.bfloat16) else torch.float16
        self.layers = {layer: f"layer {layer}" for layer in layers}
        names = [*self.layers.values(), *([BEST] if best else [])]
        parts = [texts[start : start + TOGETHER] for start in range(0, len(texts), TOGETHER)]
        self._rows = [place for number, part in enumerate(parts) for place in _places(number, part)]
        notes = self._notes(parts)
        missing = {}
        for number, note in enumerate(notes):
            lacking = [name for name in names if self._note(number, name) != note]
            if lacking:
                missing[number] = lacking
        self._check_room(parts, dict.fromkeys(range(len(parts)), names), missing, disk)
        if not missing:
            return
        with devices.keep(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            # By number, as others may have written some of them by now.
            mine = [number for number in missing if number % devices.processes == devices.rank]
            hidden = not (progress and devices.first)
            for number in tqdm(mine, disable=hidden, unit="file", desc="hidden states", dynamic_ncols=True):
                self._write(number, parts[number], missing[number], notes[number])
            devices.wait()

    def read(self, number: int, layer: int) -> torch.Tensor:
        """The hidden states (length, width) of a text, by its number, in half precision."""
        return self._read(number, self.layers[layer])

    def read_best(self, number: int) -> torch.Tensor:
        """The target's most likely token after each token of a text: int32 (length,)."""
        return self._read(number, BEST)

    def _path(self, number: int, name: str) -> Path:
        return self.folder / f"{number:05} {name}.safetensors"

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[safe_open]:
        try:
            with safe_open(path, framework="pt") as file:
                yield file
        except SafetensorError as error:
            raise ValueError(f"{path} is half-written or broken ({error}): {_CURE}") from error

    def _note(self, number: int, name: str) -> dict | None:
        """Of which target and texts a file is; None if there is no such file."""
        path = self._path(number, name)
        if not path.exists():
            return None
        with self._opened(path) as file:
            return file.metadata()

    def _read(self, number: int, name: str) -> torch.Tensor:
        file_number, start, end = self._rows[number]
        with self._opened(self._path(file_number, name)) as file:
            return file.get_slice(name)[start:end]

    def _notes(self, parts) -> list[dict[str, str]]:
        """For each part of the texts, what a file of its states notes."""
        target = {"model": weights_fingerprint(self.lm.model), "dtype": str(self.dtype)}
        tokens = [json.dumps([text.tokens for text in part]).encode() for part in parts]
        return [{**target, "texts": hashlib.sha256(each).hexdigest()} for each in tokens]

    def _check_room(self, parts, all_files, missing, disk) -> None:
        sizes = [sum(len(text.tokens) for text in part) for part in parts]
        texts, width = sum(map(len, parts)), self.lm.width * self.dtype.itemsize

        def needed(files: dict[int, list[str]]) -> int:
            return sum(sizes[number] * (4 if name == BEST else width) for number in files for name in files[number])

        whole, more = needed(all_files), needed(missing)
        if whole > disk:
            raise ValueError(
                f"the hidden states of {texts} texts take {megabytes(whole)} on the disk, and may take "
                f"{megabytes(disk)}: allow more with --features, or leave it out to compute them in every round"
            )
        place = next(place for place in self.folder.absolute().parents if place.exists())
        free = shutil.disk_usage(place).free
        if more > free:
            raise ValueError(
                f"the hidden states of {texts} texts need {megabytes(more)} more in {self.folder}, where "
                f"{megabytes(free)} are free: make room, or train without --features"
            )

    def _write(self, number: int, texts: list[SampledText], names: list[str], note: dict) -> None:
        """Compute the states of some texts, those of similar length together, and write a file for each name."""
        found: dict[str, dict[int, torch.Tensor]] = {name: {} for name in names}
        wanted = [layer for layer, name in self.layers.items() if name in names]
        order = sorted(range(len(texts)), key=lambda place: len(texts[place].tokens))
        for start in range(0, len(order), ROWS):
            places = order[start : start + ROWS]
            tokens = padded([texts[place].tokens for place in places], self.lm.device)
            with torch.no_grad():
                states = hidden_states(self.lm.model, tokens, [*wanted, *([-1] if BEST in names else [])])
            best = best_tokens(self.lm, states[-1]) if BEST in names else None
            for row, place in enumerate(places):
                length = len(texts[place].tokens)
                for layer in wanted:
                    state = states[layer][row, :length].to(self.dtype).cpu()
                    if not state.isfinite().all():
                        raise ValueError(
                            f"hidden states of layer {layer} of this target are too large for half precision: train "
                            "without --features"
                        )
                    found[self.layers[layer]][place] = state
                if best is not None:
                    found[BEST][place] = best[row, :length].int().cpu()
        for name, parts in found.items():
            tensor = torch.cat([parts[place] for place in range(len(texts))])
            with replacing(self._path(number, name), tensor.nbytes) as fresh:
                save_file({name: tensor}, fresh, metadata=note)


def _places(number: int, texts: Sequence[SampledText]) -> Iterator[tuple[int, int, int]]:
    """Where the states of each text are: the number of the file, and its first and last row there."""
    end = 0
    for text in texts:
        start, end = end, end + len(text.tokens)
        yield number, start, end
