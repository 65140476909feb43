"""Train the bundled models from scratch, or heads for them or for any other target.

If several processes are started by ``torchrun`` or ``accelerate launch``, they share the work; see `devices`.
"""

import os
import shlex
import sys
from typing import Any

import torch

from tutorlib.arguments import USER_ERRORS, check_whole_number
from tutorlib.disk import plain_name
from tutorlib.lab.training import (
    card,
    devices,
    train_dflash,
    train_eagle,
    train_joints,
    train_medusa,
    train_mtp,
    train_ngram,
    train_parallel,
    train_pruned,
    train_village,
)
from tutorlib.lab.training.labels import LOSSES
from tutorlib.lab.training.learner import check_training, make
from tutorlib.lab.training.options import command_line
from tutorlib.lab.training.sampled_texts import check_vocabulary, frequent
from tutorlib.lab.training.text_files import write_texts
from tutorlib.lab.training.texts import family_texts, written_texts
from tutorlib.loading.formats import load_dflash
from tutorlib.loading.hub import CHECKSUMS, write_checksums
from tutorlib.loading.models import load

# What belongs to a DFlash network → how it begins, and what learns it.
JOINTS = {
    "dspark": (train_joints.new_dspark, train_joints.DSparkLearner),
    "dflash2": (train_joints.new_dflash2, train_joints.DFlash2Learner),
}
SAMPLING = ("length", "low_share", "temperature", "prompts")  # how texts are sampled


def main(arguments=None):
    """The command line; returns the exit code, or raises SystemExit with a message."""
    parser, made = command_line(__doc__)
    chosen = parser.parse_args(arguments)
    chosen.default = made[chosen.what].get_default
    said = ["python", "-m", "tutorlib", "train", *(sys.argv[1:] if arguments is None else arguments)]
    try:
        if chosen.threads is not None:
            check_whole_number(chosen.threads, 1, "--threads needs how many to use")
            torch.set_num_threads(chosen.threads)
        {"storyworld": _storyworld, "ngram": _ngram, "texts": _texts_file}.get(chosen.what, _heads)(chosen, said)
    except KeyboardInterrupt:
        print(f"\nstopped; run the same command to continue from {chosen.runs}", file=sys.stderr)
        return 130
    except USER_ERRORS as error:
        raise SystemExit(f"{parser.prog}: error: {error}") from error
    return 0


def _storyworld(chosen, command):
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("the village's models are trained by one process: start one")
    train_village.make_village(
        chosen.runs,
        chosen.out,
        only=chosen.only,
        device=chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"),
        compiled=chosen.compile,
        progress=not chosen.quiet,
    )
    card.write_card(chosen.out, command=shlex.join(command))


def _heads(chosen, command):
    """Medusa heads, an EAGLE network or a pruned draft. What cannot be is said before texts are sampled, which may take
    hours.
    """
    training = _given(chosen, "steps", "rows", "rate")
    check_training(**training)
    if not chosen.features >= 0:
        raise ValueError(
            f"--features is how many GB the hidden states may take on the disk, 0 or more, got {chosen.features:g}"
        )
    if chosen.name is not None and (not plain_name(chosen.name) or chosen.name == "features"):
        raise ValueError(f"--name is a plain name for a folder, got {chosen.name!r}")
    unused = [name for name in SAMPLING if getattr(chosen, name) != chosen.default(name)] if chosen.written else []
    if unused:
        options = ", ".join("--" + name.replace("_", "-") for name in unused)
        raise ValueError(f"{chosen.written} holds texts that are written already: leave out {options}, or --written")
    if chosen.half and chosen.written and not chosen.features:
        raise ValueError("--half has nothing to do: the texts are written, and no --features are stored")
    joint, here = chosen.what == "medusa" and chosen.joint, devices.find_devices(chosen.device)
    shared: dict[str, Any] = {"devices": here, "progress": not chosen.quiet}
    family = load(chosen.target, device=here.device, dtype="float32" if joint else None)
    kinds = {"medusa": _medusa, "eagle": _eagle, "eagle3": _eagle3, "pruned": _pruned, "dflash": _dflash}
    kinds |= {"mtp": _mtp, "parallel": _parallel}
    kinds |= dict.fromkeys(JOINTS, _joint)
    learner = kinds[chosen.what](chosen, family if chosen.what in JOINTS else family.target)
    writer = load(chosen.target, device=here.device, dtype="bfloat16") if chosen.half else family
    with here.keep(chosen.out):
        if chosen.written is None:
            how = _given(chosen, "texts", "held_out", *SAMPLING)
            texts = family_texts(writer, chosen.runs, **how, **shared)
        else:
            texts = written_texts(family, chosen.runs, chosen.written, **_given(chosen, "texts", "held_out"))
        made = learner(texts.train)
        made.name, made.reader = chosen.name or made.name, writer.target
        room = {"memory": 1e9 * chosen.memory, "disk": 1e9 * chosen.features}
        folder = make(texts, made, chosen.out, **training, **room, command=command, **shared)
        if here.first:
            print(folder)
            names = card.SECTIONS.get(chosen.what, ())
            if folder.name in names and (folder.parent / "figures.json").exists():
                card.write_heads_card(folder.parent, names)
    here.leave()


def _texts_file(chosen, command):
    """Texts in one file, and nothing that learns from them."""
    here = devices.find_devices(chosen.device)
    family = load(chosen.target, device=here.device, dtype="bfloat16" if chosen.half else None)
    how = _given(chosen, "texts", "held_out", *SAMPLING)
    with here.keep(chosen.out):
        texts = family_texts(family, chosen.runs, **how, devices=here, progress=not chosen.quiet)
        if here.first:
            noted = {**texts.setting, "target": texts.base, "dtype": str(family.target.dtype).removeprefix("torch.")}
            print(write_texts(chosen.out, texts.train, texts.held_out, {**noted, "command": shlex.join(command)}))
    here.leave()


def _ngram(chosen, command):
    """An n-gram model. Nothing is computed but the texts, if they are not there yet."""
    here = devices.find_devices(chosen.device)
    family = load(chosen.target, device=here.device)
    how = _given(chosen, "texts", "held_out", "length", "low_share", "temperature", "prompts")
    with here.keep(chosen.out):
        texts = family_texts(family, chosen.runs, **how, devices=here, progress=not chosen.quiet)
        if here.first:
            made = _given(chosen, "order", "megabytes")
            folder = train_ngram.make_ngram(texts, family.target, chosen.out, **made, command=command)
            print(folder)
            if (folder.parent / CHECKSUMS).exists():
                write_checksums(folder.parent)
    here.leave()


def _medusa(chosen, target):
    """From texts to what learns from them."""
    kind = train_medusa.JointMedusaLearner if chosen.joint else train_medusa.MedusaLearner
    settings = {"low_temperature": chosen.temperature, **_given(chosen, "heads", "layers", "nodes", "hard", "borrow")}
    settings["compare"] = LOSSES[chosen.loss]
    if chosen.vocabulary is None:
        learner = kind(target, **settings)
        return lambda texts: learner
    check_vocabulary(chosen.vocabulary, target.vocab_size)
    kind(target, tokens=range(chosen.vocabulary), **settings)  # raises now, and not after the texts are there
    return lambda texts: kind(target, tokens=frequent(texts, chosen.vocabulary, target.vocab_size), **settings)


def _eagle(chosen, target):
    head = train_eagle.new_eagle(target, bias=not chosen.no_bias)
    learner = train_eagle.EagleLearner(target, head, _tree(chosen), noise=chosen.noise)
    return lambda texts: learner


def _eagle3(chosen, target):
    known = round(train_eagle.KNOWN * target.vocab_size) if chosen.vocabulary is None else chosen.vocabulary
    check_vocabulary(known, target.vocab_size)
    layers, tree = train_eagle.checked_layers(target, chosen.layers), _tree(chosen)
    settings = {"compare": LOSSES[chosen.loss], **_given(chosen, "depth", "borrow", "from_last_layer", "thin")}
    if chosen.from_last_layer:  # raises now, and not after the texts are there
        train_eagle.start_from_last_layer(target, train_eagle.new_eagle3(target, [], layers, known))
    return lambda texts: train_eagle.Eagle3Learner(
        target, train_eagle.new_eagle3(target, texts, layers, known, normed=chosen.normed), tree, **settings
    )


def _pruned(chosen, target):
    settings: dict[str, Any] = {"compare": LOSSES[chosen.loss], "eight_bits": chosen.eight_bits}
    learner = train_pruned.PrunedLearner(target, chosen.layers, **settings)  # raises now, if something is wrong
    if chosen.vocabulary is None:
        return lambda texts: learner
    check_vocabulary(chosen.vocabulary, target.vocab_size)
    return lambda texts: train_pruned.PrunedLearner(
        target, chosen.layers, tokens=frequent(texts, chosen.vocabulary, target.vocab_size), **settings
    )


def _dflash(chosen, target):
    head = train_dflash.new_dflash(target, chosen.layers, chosen.block)
    learner = train_dflash.DFlashLearner(target, head, _tree(chosen), compare=LOSSES[chosen.loss])
    return lambda texts: learner


def _mtp(chosen, target):
    settings = {"compare": LOSSES[chosen.loss], **_given(chosen, "depth", "thin")}
    learner = train_mtp.MtpLearner(target, train_mtp.new_mtp(target, chosen.modules), _tree(chosen), **settings)
    return lambda texts: learner


def _parallel(chosen, target):
    known = round(train_eagle.KNOWN * target.vocab_size) if chosen.vocabulary is None else chosen.vocabulary
    check_vocabulary(known, target.vocab_size)
    layers, tree = train_eagle.checked_layers(target, chosen.layers), _tree(chosen)
    check_whole_number(chosen.masks, 1, "--masks is how many follow the text")
    check_whole_number(chosen.thin, 1, "--thin is from one position to the next")
    return lambda texts: train_parallel.ParallelLearner(
        target, train_parallel.new_parallel(target, texts, layers, known, chosen.masks), tree,
        compare=LOSSES[chosen.loss], thin=chosen.thin,
    )  # fmt: skip


def _joint(chosen, family):
    network = family.dflash if chosen.network is None else load_dflash(chosen.network, family.target)
    new, kind = JOINTS[chosen.what]
    learner = kind(family.target, new(network, chosen.rank), _tree(chosen), compare=LOSSES[chosen.loss])
    return lambda texts: learner


def _tree(chosen):
    nodes, depth, top_k = chosen.tree
    return train_eagle.chosen_tree(nodes, depth, top_k, chosen.confidence, chosen.greedy_temperature)


def _given(chosen, *names) -> dict[str, Any]:
    """Some of the options, by name."""
    return {name: getattr(chosen, name) for name in names}


if __name__ == "__main__":
    sys.exit(main())
