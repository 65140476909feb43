"""The sweep of chapter 7 on a published model: five prompts, and 50 tokens from each method.

The model is SmolLM2. There is no smaller model with its tokenizer, so contrastive decoding is not a row of the file;
`text` writes it too if you pass an amateur.
"""

from collections.abc import Callable
from functools import partial
from statistics import fmean

from ... import measures
from ...decoders.context_contrast import context_contrast
from ...decoders.contrastive_decoding import contrastive_decoding
from ...decoders.contrastive_search import contrastive_search
from ...decoders.dola import dola, lower_layers, upper_layers
from ...decoders.greedy import greedy
from ...decoders.sample import sample
from ...running.decoding import run
from ...running.trace import Trace
from ...sampling.penalties import repetition_penalty
from ...sampling.randomness import Seeded
from ...sampling.warp import top_p
from . import Experiment, Setting

PROMPTS = (
    "Large Language models are",
    "Barack Obama was",
    "Decoding strategy is important because",
    "A good recipe for Halloween is",
    "Stanford is known for",
)
SETTING: Setting = {"model": "SmolLM2-135M-Instruct", "prompts": PROMPTS, "tokens": 50, "seed": 6}


def _sample(lm, prompt, warp=()):
    return sample(lm, prompt, rng=Seeded(SETTING["seed"]), warp=warp)


def _guided(lm, prompt):
    """Classifier-free guidance. The text without the prompt begins with the prompt's last token."""
    return context_contrast(lm, prompt, without=lm.prompt_tokens(prompt)[-1:], weight=0.5)


def _dola(lm, prompt, layers):
    return dola(lm, prompt, layers=layers(lm), warp=[repetition_penalty(1.2)])


# A row's name -> the decoder (lm, prompt) that writes it, with the settings of its paper.
SETTINGS: dict[str, Callable] = {
    "plain sampling": _sample,
    "greedy": greedy,
    "top-p 0.95": partial(_sample, warp=[top_p(0.95)]),
    "guidance, weight 0.5": _guided,
    "contrastive search, k 4": partial(contrastive_search, k=4, penalty=0.6),
    "contrastive search, k 8": partial(contrastive_search, k=8, penalty=0.6),
    "DoLa, lower layers": partial(_dola, layers=lower_layers),
    "DoLa, upper layers": partial(_dola, layers=upper_layers),
}
TWO_MODELS = "contrastive decoding"  # a row that needs an amateur


def text(lm, name: str, prompt: str, amateur=None) -> Trace:
    """The text after one prompt: 50 tokens, even if the model would have ended earlier.

    Parameters
    ----------
    lm : LM
    name : str
        A key of `SETTINGS`, or `TWO_MODELS`.
    prompt : str
    amateur : LM, optional
        Needed for `TWO_MODELS`.
    """
    if name == TWO_MODELS:
        steps = contrastive_decoding(lm, amateur, prompt, amateur_temperature=0.5)
    else:
        steps = SETTINGS[name](lm, prompt)
    return run(steps, SETTING["tokens"], stop=(), progress=False)


def row(family, name: str) -> dict:
    """The figures of one row, each computed for every text separately and averaged over the five.

    Returns
    -------
    dict
        ``entropy_1``, ``entropy_2``, ``entropy_3`` (bits), ``distinct_1``, ``distinct_2``, of words; ``words``: their
        number; ``perplexity`` of the tokens under the model; ``texts``: the text after each prompt.
    """
    lm = family.target
    traces = [text(lm, name, prompt) for prompt in PROMPTS]
    words = [trace.text.split() for trace in traces]
    found = {f"entropy_{n}": fmean(measures.ngram_entropy(one, n) for one in words) for n in (1, 2, 3)}
    found |= {f"distinct_{n}": fmean(measures.distinct_n([one], n) for one in words) for n in (1, 2)}
    found["words"] = fmean(map(len, words))
    judged = zip(PROMPTS, traces, strict=True)
    found["perplexity"] = fmean(measures.perplexity(lm, prompt, trace.tokens) for prompt, trace in judged)
    return found | {"texts": [trace.text for trace in traces]}


EXPERIMENT = Experiment("five_prompts", SETTING, SETTINGS, row, "smollm2")
