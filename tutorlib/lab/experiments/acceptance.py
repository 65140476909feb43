"""A sweep of chapter 9: how often the bundled target accepts the bundled draft's tokens, by temperature.

Acceptance is Σ min(p, q), the probability that a token drawn from q is accepted, averaged over positions. It is
computed and not counted in runs, so it is exact at every position.
"""

from functools import cache

import torch

from ... import measures, storyworld
from ...decoders.sample_batch import sample_batch
from ...running.decoding import run_batch
from ...sampling.randomness import Seeded
from ...sampling.warp import temperature
from . import PAIR, Experiment, Setting, bundled, figures, village_prompts

SETTING: Setting = {**PAIR, "prompts": 40, "stories": 40, "tokens": 60}
# A row's name -> its temperature.
SETTINGS = {f"{t:g}": t for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.2, 1.5, 2, 2.5, 3, 4, 6, 10, 20)}


@cache
def told_stories() -> tuple[tuple[int, ...], ...]:
    """The tokens of stories that no bundled model was trained on, the same every time."""
    encode = bundled().draft.encode
    return tuple(tuple(encode(storyworld.story(f"acceptance {i}"))) for i in range(SETTING["stories"]))


def both_logits(target, draft, tokens, first=1) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of target and draft at the positions of ``tokens[first:]``: two float64 tensors (positions, vocab)."""
    rows = []
    for lm in (target, draft):
        session = lm.session(list(tokens[:first]))
        rows.append(session.feed(list(tokens[first:]))[:-1].cpu().double())
    return rows[0], rows[1]


def overlap(target_logits, draft_logits, t: float, draft_t: float | None = None) -> torch.Tensor:
    """Σ min(p, q) at each position: the target at temperature `t`, the draft at `draft_t` (by default the same)."""
    p = (target_logits / t).softmax(-1)
    q = (draft_logits / (draft_t or t)).softmax(-1)
    return torch.minimum(p, q).sum(-1)


@cache
def _told_logits(target, draft):
    rows = [both_logits(target, draft, story) for story in told_stories()]
    return torch.cat([row[0] for row in rows]), torch.cat([row[1] for row in rows])


def row(family, name: str) -> dict:
    """The figures of one temperature; about ten seconds on one core.

    Returns
    -------
    dict
        - ``told``: acceptance in stories of the village's simulation, the same stories at every temperature;
        - ``told_draft_at_1``: the same, if the draft stays at temperature 1;
        - ``unlikely``: in these stories, the total probability that the target at this temperature gives to tokens
          whose probability at temperature 1 is below 0.0001;
        - ``own``: acceptance in texts that the target itself writes at this temperature, with its ``own_interval``;
          ``own_draft_at_1``: the same, if the draft stays at temperature 1;
        - ``readable``, ``consistent``: of these texts, as in `experiments.figures`.
    """
    t, lm, draft = SETTINGS[name], family.target, family.draft
    p, q = _told_logits(lm, draft)
    rare = p.softmax(-1) < 1e-4
    prompts = village_prompts(SETTING["prompts"])
    rngs = [Seeded(number) for number in range(len(prompts))]
    rounds = sample_batch(lm, prompts, rngs=rngs, warp=[temperature(t)])
    texts = run_batch(rounds, SETTING["tokens"], progress=False)
    own = [both_logits(lm, draft, text.prompt + text.tokens, len(text.prompt)) for text in texts]
    by_text = [overlap(*logits, t) for logits in own]
    sums = [float(one.sum()) for one in by_text]
    quality = figures(lm, prompts, texts)
    return {
        "told": float(overlap(p, q, t).mean()),
        "told_draft_at_1": float(overlap(p, q, t, 1.0).mean()),
        "unlikely": float(((p / t).softmax(-1) * rare).sum(-1).mean()),
        "own": float(torch.cat(by_text).mean()),
        "own_interval": measures.bootstrap_interval(sums, [len(one) for one in by_text]),
        "own_draft_at_1": float(torch.cat([overlap(*logits, t, 1.0) for logits in own]).mean()),
        "readable": quality["readable"],
        "consistent": quality["consistent"],
    }


EXPERIMENT = Experiment("acceptance", SETTING, SETTINGS, row)
