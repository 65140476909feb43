"""The list of mistakes in settings, which the chapter on the same settings in other engines shows."""

from ...decoders.beam_search import beam_search
from ...decoders.sample_batch import sample_batch
from ...sampling.penalties import frequency_penalty
from . import cases, settings
from .specimens import GITHUB, Specimen

SETTING_SPECIMENS = [
    Specimen(
        settings.penalty_that_rewards, frequency_penalty,
        "The repetition penalty divides logits above zero and multiplies those below, so a distinction by sign looks "
        "right. But to subtract lowers every logit.",
        cases.frequency_penalised, 0.1,
        "OpenVINO GenAI 2026.4.1, seen with greedy texts over negative logits: "
        f"{GITHUB}openvinotoolkit/openvino.genai/blob/master/src/cpp/src/sampling/logit_processor.hpp",
    ),
    Specimen(
        settings.prompt_in_the_length, beam_search,
        "The sequence in the cache contains the prompt, and its length is at hand.",
        cases.best_text, 1.0,
        "onnxruntime-genai 0.18.0, and CTranslate2 4.8.5 if the prompt is part of the result: "
        f"{GITHUB}microsoft/onnxruntime-genai",
    ),
    Specimen(
        settings.one_stream_for_all_rows, sample_batch,
        "A generator of random numbers is made for each row, and all of them get the same seed.",
        cases.two_rows, 0.2,
        "OpenVINO GenAI 2026.4.1, and llama.cpp for a list of prompts with a seed: "
        f"{GITHUB}openvinotoolkit/openvino.genai",
        "pairs of texts",
    ),
    Specimen(
        settings.penalty_from_the_shortest_prompt, sample_batch,
        "A batch reads all prompts together up to the end of the shortest one. What comes after it counts as new text.",
        cases.penalised_row, 0.03,
        f"CTranslate2 4.8.5, if the prompt is not part of the result: {GITHUB}OpenNMT/CTranslate2",
    ),
]  # fmt: skip
