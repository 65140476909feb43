"""The formats in which heads are published. Each layout is a map from the names of tensors here to those in the file.

A layout is a folder with a `config.json`, which contains the sizes, and one file of tensors, safetensors or a pickle,
which may be in several parts. Reading and writing keep the dtype and every bit of a tensor. Files may come from
anywhere, so nothing in them is executed and nothing is guessed: if a tensor is missing, unknown or has the wrong shape,
the error names it.

What this package does not do: find or download folders (`tutorlib.loading.hub`), or train (`tutorlib.lab.training`).
"""

from .dflash_files import load_dflash, save_dflash
from .eagle_configs import extra_norms
from .eagle_files import BORROWED, load_eagle, save_eagle
from .files import FILES, INSIDE, output_weight
from .joint_files import load_dflash2, load_dspark, save_dflash2, save_dspark
from .medusa_files import load_medusa, save_medusa
from .mtp_files import load_mtp, save_mtp
from .pruned_files import load_pruned, save_pruned
