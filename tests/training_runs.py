"""What tests of trainings on own texts share: a small family as a folder, and trainings as processes of their own."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch


def weights(module):
    """All numbers of a module in one row."""
    return torch.cat([weight.detach().flatten() for weight in module.state_dict().values()])


def write_family(folder):
    """A random target with a tokenizer, as a folder."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from tutorlib.training.storyworld import save
    from tutorlib.training.tokenizers import learn

    tokenizer = learn(300, seed="one", stories=30)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.4,
        bos_token_id=0, eos_token_id=1, pad_token_id=None,
    )  # fmt: skip
    save(LlamaForCausalLM(config), tokenizer, folder / "target")
    return folder


def started(arguments, *launcher):
    """A training as a process of its own, perhaps through a module that launches several."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, "-m", "tutorlib.training", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def two_processes(arguments):
    """A training shared by two processes, through torchrun and accelerate; None if it went well, else its errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    process = started(arguments, *launcher)
    return None if process.wait() == 0 else process.stderr.read()
