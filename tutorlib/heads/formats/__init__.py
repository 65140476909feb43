"""The files that heads are published in: each layout a plain map, from the names of tensors here to those in the file.

A layout is a folder with a `config.json`, which tells the sizes, and one file of tensors, safetensors or a pickle.
Tensors keep their bits and their type both ways. Files come from anywhere, so nothing in them is executed, and nothing
is guessed: a tensor that is missing, unknown or of another shape is an error that names it.

What this package does not do: find or download folders (`tutorlib.hub`), or train (`tutorlib.training`).
"""

from .eagle_files import BORROWED, load_eagle, save_eagle
from .files import FILES, output_weight
from .medusa_files import load_medusa, save_medusa

__all__ = ["BORROWED", "FILES", "load_eagle", "load_medusa", "output_weight", "save_eagle", "save_medusa"]
