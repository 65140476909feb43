"""What other engines draw from, or draw, with given settings: the file with which `as_in` is compared.

Each row is an engine. Its questions are put to the engine itself, in an environment of its own, over a model whose
logits are the same row after every token (`_ask_engines.py`); so what an engine does to logits is visible, and nothing
else. The environments are made with the pinned packages, in the folder that the variable TUTORLIB_ENGINES names, or in
the present folder's ``.engines``. That needs the network, and a minute or more for each engine.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from . import Experiment, Setting

# 16 logits for the tokens 3 to 18, of 32 tokens; the others are too unlikely to be drawn.
LOGITS = [-30.0] * 3 + [2.5, 1.75, -0.5, 0.25, 3, -2, 0.5, 1, -1.25, 2, -3, 0, 1.5, -0.25, 0.75, -4] + [-30.0] * 13
BELOW = [logit - 5 for logit in LOGITS]
TIES = [-30.0] * 3 + [1.0, 2, 2, 1, 2, 2, 0, 1] + [-30.0] * 21
PROMPT = [1, 3, 4, 7, 3, 4]
SETTING: Setting = {"logits": LOGITS, "ties": TIES, "below": BELOW, "prompt": PROMPT, "draws": 4000}

PACKAGES = {
    "llama.cpp": "xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6",
    "openvino-genai": "openvino-genai==2026.4.1.0 openvino==2026.4.1 numpy==2.4.6",
    "ctranslate2": "ctranslate2==4.8.5 numpy==2.4.6",
    "onnxruntime-genai": "onnxruntime-genai==0.18.0 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6",
    "mlx-lm": "mlx[cpu]==0.32.2 mlx-lm==0.32.2 numpy==2.4.6",
    "keras-hub": "keras-hub==0.32.0 torch==2.13.0 numpy==2.4.6",
    "litgpt": "litgpt==0.5.13 torch==2.13.0 numpy==2.4.6",
}
ALL = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}  # llama.cpp without its defaults
DO = {"do_sample": True}
ONNX = DO | {"top_k": 0}
# The questions: settings in the engine's own names. The names of `OF_THE_QUESTION` are not for the engine.
QUESTIONS: dict[str, list[dict]] = {
    "llama.cpp": [
        {}, {"temperature": 0}, ALL, ALL | {"temperature": 2}, ALL | {"temperature": 0.4}, ALL | {"top_p": 0.8},
        ALL | {"top_p": 0.8, "temperature": 2}, ALL | {"top_p": 0.8, "temperature": 0.5},
        ALL | {"top_p": 0.8, "temperature": 2, "samplers": ["temperature", "top_p"]},
        ALL | {"min_p": 0.2, "temperature": 3}, ALL | {"top_k": 3}, ALL | {"top_k": 3, "ties": True},
        ALL | {"top_k": 6, "top_p": 0.6}, ALL | {"top_p": 0.5, "ties": True}, ALL | {"typical_p": 0.5},
        ALL | {"typical_p": 0.9, "temperature": 0.7}, ALL | {"top_n_sigma": 1}, ALL | {"top_n_sigma": 0.5, "top_k": 9},
        ALL | {"top_k": 8, "dynatemp_range": 0.5}, ALL | {"top_k": 5, "dynatemp_range": 0.9, "dynatemp_exponent": 2},
        ALL | {"xtc_probability": 1, "xtc_threshold": 0.1},
        ALL | {"xtc_probability": 1, "xtc_threshold": 0.06, "temperature": 1.7}, ALL | {"repeat_penalty": 1.5},
        ALL | {"repeat_penalty": 1.5, "repeat_last_n": 2}, ALL | {"frequency_penalty": 0.7},
        ALL | {"presence_penalty": 0.7, "repeat_last_n": 3},
        {"repeat_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": -0.4, "temperature": 0.6},
        ALL | {"dry_multiplier": 0.8}, ALL | {"dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 1},
        ALL | {"dry_multiplier": 0.5, "dry_sequence_breakers": ["a"], "dry_allowed_length": 1},
        ALL | {"logit_bias": {"3": 1.5, "7": -2}}, {"top_k": 10, "top_p": 0.9, "min_p": 0.1, "temperature": 1.3},
        ALL | {"mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.5, "steps": 8},
        ALL | {"mirostat": 2, "mirostat_tau": 1, "temperature": 1.5, "steps": 8},
    ],
    "openvino-genai": [
        DO, DO | {"temperature": 2}, DO | {"top_p": 0.8, "temperature": 2}, DO | {"top_k": 6, "top_p": 0.6},
        DO | {"top_k": 3, "ties": True}, DO | {"min_p": 0.2, "temperature": 3},
        DO | {"top_p": 0.9, "min_p": 0.25, "temperature": 1.5}, {"repetition_penalty": 4.0, "steps": 12},
        {"frequency_penalty": 0.7, "steps": 12}, {"presence_penalty": 1.2, "steps": 12},
        {"presence_penalty": 0.6, "below": True, "steps": 6}, {"frequency_penalty": -0.6, "below": True, "steps": 9},
        {"repetition_penalty": 2.0, "presence_penalty": 0.5, "frequency_penalty": 0.3, "steps": 16},
    ],
    "ctranslate2": [
        {"sampling_topk": 0}, {"sampling_topk": 0, "sampling_temperature": 2},
        {"sampling_topk": 0, "sampling_topp": 0.8, "sampling_temperature": 2},
        {"sampling_topk": 6, "sampling_topp": 0.6}, {"sampling_topk": 3, "ties": True},
        {"repetition_penalty": 4.0, "steps": 12}, {"no_repeat_ngram_size": 2, "steps": 12},
        {"repetition_penalty": 4.0, "include_prompt_in_result": False, "steps": 12},
    ],
    "onnxruntime-genai": [
        ONNX | {"top_p": 1.0}, ONNX | {"top_p": 1.0, "temperature": 2.0}, ONNX | {"top_p": 0.8, "temperature": 2.0},
        ONNX | {"top_k": 6, "top_p": 0.6},
        ONNX | {"top_k": 3, "ties": True}, {"repetition_penalty": 4.0, "steps": 12},
        {"no_repeat_ngram_size": 2, "steps": 12},
    ],
    "mlx-lm": [
        {"temp": 1.0}, {"temp": 2.0}, {"temp": 2.0, "top_p": 0.8}, {"temp": 1.0, "top_k": 6, "top_p": 0.6},
        {"temp": 1.0, "top_k": 3, "ties": True}, {"temp": 3.0, "min_p": 0.2},
        {"temp": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.1},
        {"temp": 1.0, "repetition_penalty": 1.5, "repetition_context_size": 2},
        {"temp": 1.0, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.7},
        {"temp": 1.0, "logit_bias": {"3": 1.5, "7": -2}},
    ],
    "keras-hub": [
        {}, {"temperature": 2.0}, {"k": 5}, {"p": 0.8, "temperature": 2.0}, {"p": 0.8, "k": 4}, {"p": 0.5, "k": 4},
    ],
    "litgpt": [
        {}, {"temperature": 2.0}, {"top_k": 5}, {"top_p": 0.8, "temperature": 2.0}, {"top_k": 6, "top_p": 0.6},
        {"temperature": 0.0, "top_p": 0.8},
    ],
}  # fmt: skip
OF_THE_QUESTION = ("ties", "below", "steps")
# Beam searches of an engine over tables of logits, in which the next token depends on the last one (`table_of_logits`).
BEAM = {"beam_size": 3, "num_hypotheses": 3, "max_length": 8, "include_prompt_in_result": False}
BEAMS: dict[str, list[dict]] = {
    "ctranslate2": [
        BEAM | {"length_penalty": 1}, BEAM | {"length_penalty": 0}, BEAM | {"length_penalty": 1, "patience": 2},
        BEAM | {"length_penalty": 0.7, "patience": 0.5, "num_hypotheses": 2},
        BEAM | {"length_penalty": 1, "patience": 0.5, "beam_size": 5},
        BEAM | {"length_penalty": 1, "include_prompt_in_result": True, "max_length": 9},
    ],
}  # fmt: skip
TABLES = 4


def table_of_logits(number: int, size: int = 7) -> list[list[float]]:
    """Logits after each of a few tokens; the first two tokens never come, and 2 ends a text."""
    rng = random.Random(f"beams {number}")
    return [[-30.0, -30.0, *(round(rng.gauss(0, 1.5), 2) for _ in range(size - 2))] for _ in range(size)]


def questions(engine: str) -> list[dict]:
    """The questions to an engine, as `_ask_engines.py` reads them."""
    asked = []
    for settings in QUESTIONS[engine]:
        logits = SETTING[next((name for name in ("ties", "below") if name in settings), "logits")]
        steps = {"steps": settings["steps"]} if "steps" in settings else {}
        mine = {name: value for name, value in settings.items() if name not in OF_THE_QUESTION}
        asked.append({"logits": logits, "prompt": PROMPT, "settings": mine, "draws": SETTING["draws"], **steps})
    for settings in BEAMS.get(engine, ()):
        asked += [
            {"table": table_of_logits(number), "prompt": PROMPT[:2], "settings": settings} for number in range(TABLES)
        ]
    return asked


def environment(engine: str) -> Path:
    """The Python of an environment with this engine, which is made if it is missing."""
    place = Path(os.environ.get("TUTORLIB_ENGINES", ".engines")) / engine
    python = place / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-compile", *PACKAGES[engine].split()], check=True)
    return python.absolute()


def row(family, engine: str) -> dict:
    """The settings of each question, with what the engine answered, and so for its beams. The family is not used."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(environment(engine)), str(Path(__file__).with_name("_ask_engines.py")), engine, folder]
        asked, surroundings = json.dumps(questions(engine)), os.environ | {"KERAS_BACKEND": "torch"}
        surroundings.pop("PYTHONPATH", None)
        ran = subprocess.run(command, input=asked, env=surroundings, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ChildProcessError(f"{engine} could not answer: {ran.stderr[-2000:]}")
    answers = json.loads(ran.stdout.splitlines()[-1])
    found = {"answers": [{"settings": one} | answer for one, answer in zip(QUESTIONS[engine], answers)]}
    if engine in BEAMS:
        searches = iter(answers[len(QUESTIONS[engine]) :])
        found["beams"] = [{"settings": one, "tables": [next(searches) for _ in range(TABLES)]} for one in BEAMS[engine]]
    return found


EXPERIMENT = Experiment("settings", SETTING, QUESTIONS, row)
