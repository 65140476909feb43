"""The table of the chapter on other engines: what each engine makes of the same settings.

Each cell was seen in a run of the engine, in the version of `VERSIONS`, unless the cell or the version says "by its
source", or the cell "not run". What this file does not do: compute anything. The chains themselves are in
`tutorlib.sampling.engines`.
"""

from ..sampling.engines import VERSIONS as CHAINS

IGNORED = "∅"  # the engine accepts the setting and does not use it
NONE = "–"  # the engine has no such setting
VERSIONS = {"tutorlib": "0.1.0"} | CHAINS

# The columns of each part, and a row of cells for each engine.
FILTERS = (
    ["order after the penalties", "does top-p see the temperature?", "top-p of what?", "ties in top-k"],
    {
        "tutorlib": ["as listed", "as listed", "of what is left", "all stay"],
        "transformers": ["T, top-k, top-p, min-p, typical", "yes", "of the top-k's rest", "all stay"],
        "llama.cpp": ["n-σ, top-k, typical, top-p, min-p, XTC, T", "**no**", "of the top-k's rest", "lower ids stay"],
        "openvino-genai": ["T, top-k, top-p, min-p", "yes", "of the top-k's rest", "lower ids stay"],
        "ctranslate2": ["top-k, T, top-p", "yes", "of the top-k's rest", "lower ids stay"],
        "onnxruntime-genai": ["top-k, T, top-p", "yes", "of the top-k's rest", "lower ids stay"],
        "mlx-lm": ["top-p, min-p, XTC, top-k, T", "**no**", "of all tokens", "lower ids stay"],
        "keras-hub": ["T, top-p, top-k", "yes", "of all tokens", "k stay, not always the lower ids"],
        "litgpt": ["top-k, T, top-p", "yes", "of the top-k's rest", "not run"],
        "transformers.js": ["T, top-k", IGNORED, IGNORED, "lower ids stay"],
        "node-llama-cpp": ["top-k, top-p, min-p, XTC, T", "**no**", "of the top-k's rest", "not run"],
        "vllm": ["T, min-p, top-k, top-p", "yes", "of the top-k's rest", "all stay"],
    },
)
DEFAULTS = (
    ["with nothing set", "only top-p set", "temperature 0"],
    {
        "tutorlib": ["plain sampling, or greedy with rng=None", "samples", "raises"],
        "transformers": ["greedy; with do_sample, top-k 50", f"{IGNORED} greedy, with a warning", "raises"],
        "llama.cpp": ["T 0.8, top-k 40, top-p 0.95, min-p 0.05", "samples, with the other defaults", "greedy"],
        "openvino-genai": ["greedy", f"{IGNORED} greedy", "raises"],
        "ctranslate2": ["greedy", f"{IGNORED} greedy", "greedy"],
        "onnxruntime-genai": ["greedy; with do_sample, top-k 50", f"{IGNORED} greedy", "greedy"],
        "mlx-lm": ["greedy", f"{IGNORED} greedy", "greedy"],
        "keras-hub": ["what the sampler says", "samples", "not run (divides by it, by its source)"],
        "litgpt": ["plain sampling", "samples", "greedy"],
        "transformers.js": ["greedy, 20 tokens with the prompt", f"{IGNORED} greedy", "greedy, with a warning"],
        "node-llama-cpp": ["greedy; with a temperature, top-k 40, top-p 0.95", f"{IGNORED} greedy", "greedy"],
        "vllm": ["plain sampling", "samples", "greedy; the filters are reset"],
    },
)
PENALTIES = (
    ["the repetition penalty looks back over", "presence and frequency penalty", "no-repeat n-gram"],
    {
        "tutorlib": ["prompt and text, or a window", "the same", "prompt and text"],
        "transformers": ["prompt and text", NONE, "prompt and text"],
        "llama.cpp": ["the last 64 tokens, prompt included", "the same window", NONE],
        "openvino-genai": ["prompt and text", "text only; **added** to logits below 0", f"{IGNORED} except with beams"],
        "ctranslate2": ["prompt only if it is in the result", NONE, "as the penalty"],
        "onnxruntime-genai": ["prompt and text", "raises", "prompt and text"],
        "mlx-lm": ["the last 20 tokens; with a draft model not the prompt", "the same", NONE],
        "keras-hub": [NONE, NONE, NONE],
        "litgpt": [NONE, NONE, NONE],
        "transformers.js": ["prompt and text", IGNORED, "prompt and text"],
        "node-llama-cpp": ["text only, the last 64", "the same", NONE],
        "vllm": ["prompt and text", "text only", NONE],
    },
)
TEXTS = (
    [
        "a beam's score is divided by",
        "beam search stops (as `early_stopping`)",
        "two rows with equal prompts and one seed",
        "sampling with a draft model",
    ],
    {
        "tutorlib": ["new tokens, end included", "as set; with a patience", "own draws", "exact"],
        "transformers": ["new tokens, end included", "`False`", "own draws", "exact"],
        "llama.cpp": [NONE, NONE, "a list of prompts: **the same text**", "exact; a seed's text is the plain one"],
        "openvino-genai": [
            "new tokens, end included",
            "`False`",
            "**the same text**",
            "raises in a third of the calls",
        ],
        "ctranslate2": [
            "new tokens, end included; with the prompt in the result, **prompt too**",
            "`True`, with its patience",
            "own draws",
            NONE,
        ],
        "onnxruntime-genai": ["**prompt** and new tokens, end not included", "`True`", "own draws", "not run"],
        "mlx-lm": [NONE, NONE, "not run", "exact, but another text with a seed"],
        "keras-hub": ["nothing (plain sum)", "at the last length; **ended texts go on**", "not run", "**not exact**"],
        "litgpt": [NONE, NONE, "not run", "exact; **raises with top-p**, and is not greedy at T 0"],
        "transformers.js": [f"{IGNORED} greedy text", IGNORED, "a row that has ended goes on", IGNORED],
        "node-llama-cpp": [NONE, NONE, "sequences of their own", "exact, but another text with a seed"],
        "vllm": ["not read", "not read", "not read", "not read"],
    },
)


def rows(part: tuple[list[str], dict[str, list[str]]]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of one part of the table, with the engines' versions, for `show_table`."""
    columns, cells = part
    return ["engine", *columns], [[f"{engine} ({VERSIONS[engine]})", *cells[engine]] for engine in VERSIONS]
