"""The sweep of chapter 7: methods that contrast two distributions, and methods that do not, on the same openings.

Random draws for story i use ``Seeded(i)``, as in the sweep of chapter 5. The expert is the bundled target, the amateur
the bundled draft.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ... import measures
from ...decoders.contrastive_decoding import contrastive_beam_search, contrastive_scores
from ...decoders.contrastive_search import contrastive_search
from ...decoders.dola import dola, lower_layers, upper_layers
from ...running.decoding import run
from ...sampling.penalties import repetition_penalty
from ...sampling.randomness import Greedy, Seeded
from ...sampling.warp import probabilities, top_p
from . import Experiment, Setting, figures, village_prompts, without_stop
from .sampling import in_groups, kinds_of_sentences, sampled

SETTING: Setting = {
    "expert": "storyworld target",
    "amateur": "storyworld draft",
    "prompts": 100,
    "tokens": 60,
    "side_by_side": 20,
}

# ----------------------------------------------------------------------------------------------------------------------
# The methods: functions (expert, amateur, prompts) -> texts


def one_by_one(method, expert, amateur, prompts) -> list:
    """The texts of the decoder ``method(expert, amateur, prompt)``, one for each prompt."""
    return [run(method(expert, amateur, prompt), SETTING["tokens"], progress=False) for prompt in prompts]


def plainly(expert, amateur, prompts, **how) -> list:
    """Texts of the expert alone, as in the sweep of chapter 5."""
    return in_groups(partial(sampled, expert, **how), prompts)


class Continued(NamedTuple):
    """What was written after one prompt: the new tokens, with the stop token if there is one, and their text."""

    tokens: list[int]
    text: str


def contrasted(expert, amateur, prompts, numbers, *, alpha, amateur_temperature=1.0, greedy=True) -> list[Continued]:
    """Contrastive decoding of some prompts in one batch, greedy or sampled.

    Each text is that of ``run(contrastive_decoding(expert, amateur, prompt, ...), tokens)``, or of
    `contrastive_sampling`, except that the last bits of the logits may differ. A test compares them.
    """
    batches = expert.batch(prompts), amateur.batch(prompts)
    rngs = [Greedy() if greedy else Seeded(number) for number in numbers]
    new: list[list[int]] = [[] for _ in prompts]
    fresh: list[list[int]] = [[] for _ in prompts]
    going = list(range(len(prompts)))
    while going:
        logits = [batch.feed(fresh) for batch in batches]
        fresh = [[] for _ in prompts]
        for i in going:
            ours, theirs = (rows[i][-1:] for rows in logits)
            scores = contrastive_scores(ours, theirs, alpha, amateur_temperature)
            new[i].append(rngs[i].choose(probabilities(scores)[0]))
        going = [i for i in going if new[i][-1] not in expert.stop_tokens and len(new[i]) < SETTING["tokens"]]
        for i in going:
            fresh[i] = new[i][-1:]
    return [Continued(tokens, expert.decode(tokens)) for tokens in new]


def _cd(alpha, amateur_temperature=1.0, greedy=True):
    how = {"alpha": alpha, "amateur_temperature": amateur_temperature, "greedy": greedy}
    return lambda expert, amateur, prompts: in_groups(partial(contrasted, expert, amateur, **how), prompts)


def _beams(expert, amateur, prompt):
    return contrastive_beam_search(expert, amateur, prompt, beams=5, max_new_tokens=SETTING["tokens"], length_penalty=0)


def _search(k, penalty):
    return partial(one_by_one, lambda expert, amateur, prompt: contrastive_search(expert, prompt, k=k, penalty=penalty))


def _dola(layers, warp=()):
    return partial(one_by_one, lambda expert, amateur, prompt: dola(expert, prompt, layers=layers(expert), warp=warp))


ALPHAS = (0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1)
TEMPERATURES = {0.5: (0.01, 0.03, 0.1, 0.3, 0.5), 2: (0.01, 0.03, 0.1, 0.3, 0.5)}  # and 1, with all of ALPHAS
PENALTIES = (0.1, 0.2, 0.4, 0.6)  # of contrastive search, with k = 4


def cd_name(alpha, amateur_temperature=1) -> str:
    """The name of the row of contrastive decoding with these arguments."""
    return f"contrastive decoding, alpha {alpha:g}, amateur temperature {amateur_temperature:g}"


# A row's name -> the function that writes its texts.
SETTINGS = {
    "plain sampling": plainly,
    "greedy": partial(plainly, greedy=True),
    "top-p 0.9": partial(plainly, warp=(top_p(0.9),)),
    **{cd_name(alpha): _cd(alpha) for alpha in ALPHAS},
    **{cd_name(alpha, heat): _cd(alpha, heat) for heat, alphas in TEMPERATURES.items() for alpha in alphas},
    "contrastive sampling, alpha 0.1": _cd(0.1, greedy=False),
    "contrastive sampling, alpha 0.3": _cd(0.3, greedy=False),
    "contrastive beam search, alpha 0.1, 5 beams": partial(one_by_one, _beams),
    **{f"contrastive search, k 4, penalty {penalty:g}": _search(4, penalty) for penalty in PENALTIES},
    "contrastive search, k 8, penalty 0.6": _search(8, 0.6),
    "DoLa, lower layers": _dola(lower_layers),
    "DoLa, upper layers": _dola(upper_layers),
    "DoLa, layer 4": _dola(lambda lm: [4]),
    "DoLa, layer 8": _dola(lambda lm: [8]),
    "DoLa, lower layers, repetition penalty 1.2": _dola(lower_layers, [repetition_penalty(1.2)]),  # as in the paper
    "DoLa, upper layers, repetition penalty 1.2": _dola(upper_layers, [repetition_penalty(1.2)]),
}


# ----------------------------------------------------------------------------------------------------------------------
# What is measured


def row(family, name: str) -> dict:
    """The figures of one row: `experiments.figures`, and those that the chapter compares with published ones.

    About 6,000 tokens: about ten seconds on one core for methods that write several texts at once, and half a minute
    for beam search, contrastive search and DoLa, which write one text at a time.

    Returns
    -------
    dict
        The figures of `experiments.figures`, and these, each with its ``_interval``:

        - ``ngram_entropy_1``, ``_2``, ``_3`` (bits), ``distinct_1_within``, ``distinct_2_within``, ``repetition_4``: of
          each story separately, averaged over the stories;
        - ``perplexity``: over all tokens together, as in `experiments.figures`.

        Also those of `kinds_of_sentences`.
    """
    lm, prompts = family.target, village_prompts(SETTING["prompts"])
    texts = SETTINGS[name](lm, family.draft, prompts)
    found = figures(lm, prompts, texts)
    # Texts of fewer than three tokens have no 3-gram, and nothing to average.
    tokens = [without_stop(text.tokens, lm) for text in texts]
    for n in (1, 2, 3):
        found |= _averaged(f"ngram_entropy_{n}", [measures.ngram_entropy(one, n) for one in tokens])
    for n in (1, 2):
        found |= _averaged(f"distinct_{n}_within", [measures.distinct_n([one], n) for one in tokens])
    found |= _averaged("repetition_4", [measures.repetition(one, 4) for one in tokens])
    found["perplexity_interval"] = _perplexity_interval(lm, prompts, texts)
    return found | kinds_of_sentences(prompts, texts)


def _averaged(name, values: Sequence[float]) -> dict:
    values = [value for value in values if not math.isnan(value)]
    return {name: math.fsum(values) / len(values), f"{name}_interval": measures.bootstrap_interval(values)}


def _perplexity_interval(lm, prompts, texts) -> list[float]:
    """An interval for exp(Σ -log p / tokens), from resampling the prompts."""
    judged = [(prompt, text.tokens) for prompt, text in zip(prompts, texts) if text.tokens]
    surprise = [-float(measures.log_probabilities(lm, prompt, tokens).sum()) for prompt, tokens in judged]
    ends = measures.bootstrap_interval(surprise, [len(tokens) for _, tokens in judged])
    return [round(math.exp(end), 2) for end in ends]


EXPERIMENT = Experiment("contrast", SETTING, SETTINGS, row)
