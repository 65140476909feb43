"""A server of vLLM on a processor: started by the script of an export, asked for greedy texts, and stopped again."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# One gigabyte for caches, nothing asked of the hub, nothing told to anybody.
SURROUNDINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
OPTIONS = ("--dtype", "float32", "--enforce-eager", "--host", "127.0.0.1")
PATIENCE = 900  # seconds until a server must be ready: the first one on a machine looks at every kind of model


@contextlib.contextmanager
def serving(folder, context: int) -> Iterator[str]:
    """Run the script ``serve.sh`` of an export; yields the server's address when it is ready.

    The first ``python`` in the path must be that of an environment with vLLM. Raises a RuntimeError with the end of the
    server's output if it stops, or is not ready in time.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = ["sh", str(Path(folder) / "serve.sh"), *OPTIONS, "--max-model-len", str(context), "--port", str(port)]
    with tempfile.TemporaryFile() as output:
        # In a directory of its own, so that `python -m` finds no other packages there.
        surroundings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | SURROUNDINGS
        server = subprocess.Popen(
            line, stdout=output, stderr=output, env=surroundings, cwd=folder, start_new_session=True
        )
        try:
            address, end = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
            while not _is_ready(address):
                if server.poll() is not None or time.monotonic() > end:
                    output.seek(0)
                    told = output.read().decode(errors="replace")[-3000:]
                    raise RuntimeError(f"{folder}: the server has stopped, or is not ready in {PATIENCE} s:\n{told}")
                time.sleep(0.5)
            yield address
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(20)


def _is_ready(address) -> bool:
    try:
        return urllib.request.urlopen(f"{address}/health", timeout=5).status == 200
    except OSError:
        return False


def served_texts(address: str, model: str, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """The new tokens of the greedy texts after some prompts, all asked for at once."""

    def ask(prompt):
        question = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": True}
        request = urllib.request.Request(
            f"{address}/v1/completions", json.dumps(question).encode(), {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request, timeout=PATIENCE))["choices"][0]["token_ids"]

    with ThreadPoolExecutor(len(prompts)) as users:
        return list(users.map(ask, prompts))


def draft_counts(address: str) -> dict:
    """What the server has counted of its drafts since it was started."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        lines = answer.read().decode()
    found = re.findall(r"^vllm:spec_decode_num_(\w+)_total\{(.*)\} (\S+)$", lines, re.MULTILINE)
    totals = {name: int(float(value)) for name, _, value in found}
    at = {int(labels.partition('position="')[2].partition('"')[0]): int(float(value)) for name, labels, value in found
          if name == "accepted_tokens_per_pos"}  # fmt: skip
    by_position = [accepted for _, accepted in sorted(at.items())]
    while by_position and not by_position[-1]:
        by_position.pop()
    return {
        "drafts": totals["drafts"],
        "drafted": totals["draft_tokens"],
        "accepted": totals["accepted_tokens"],
        "by_position": by_position,
    }
