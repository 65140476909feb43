"""A sweep of chapter 11: how many greedy texts of a speculative loop differ from a plain loop's, by float type.

The models are the bundled pair, on the CPU. The counts in float32 and bfloat16 depend on the CPU that computed them,
because another one adds numbers in another order.
"""

from ...decoders.greedy import greedy
from ...decoders.speculative import speculative
from ...running.decoding import run
from . import PAIR, Experiment, Setting, bundled, village_prompts

SETTING: Setting = {**PAIR, "prompts": 100, "tokens": 60, "gamma": 5}
# A row's name -> the type of both models' weights.
SETTINGS = {name: name for name in ("float64", "float32", "bfloat16")}


def compare_loops(family, prompt) -> dict:
    """Compare what both loops write after one prompt.

    Returns
    -------
    dict
        ``"place"``: the index of the first new token that differs, or None; ``"tokens"``: how many were compared up to
        there; ``"gap"``: the difference of the plain loop's two largest logits at that position; ``"least_gap"``: the
        smallest difference at any position.
    """
    plain, fast = (
        run(steps, SETTING["tokens"], progress=False).tokens
        for steps in (
            greedy(family.target, prompt),
            speculative(family.target, family.draft, prompt, gamma=SETTING["gamma"]),
        )
    )
    place = next((i for i, (one, other) in enumerate(zip(plain, fast)) if one != other), None)
    compared = len(plain) if place is None else place + 1
    session = family.target.session(prompt)
    gaps = []
    for i in range(compared):  # the logits that the plain loop saw, one call per token
        best = session.feed(plain[i - 1 : i] if i else ()).cpu().double()[-1].topk(2).values
        gaps.append(float(best[0] - best[1]))
    return {
        "place": place,
        "tokens": compared,
        "gap": None if place is None else gaps[place],
        "least_gap": min(gaps),
    }


def two_best(family, prompt, place: int) -> dict:
    """The two tokens between which the two loops decide differently, ``place`` tokens after the prompt.

    Returns
    -------
    dict
        ``"tokens"``: their texts, the plain loop's choice first; ``"one"``, ``"several"``: their two logits in a call
        with one token and in a call with several.
    """
    plain = run(greedy(family.target, prompt), place + 1, progress=False).tokens
    session = family.target.session(prompt)
    for i in range(place + 1):
        one = session.feed(plain[i - 1 : i] if i else ()).cpu().double()[-1]
    before, rows = [*family.target.encode(prompt), *plain[:place]], []

    def spy(logits, histories):
        if len(histories) > 1 and before in histories:  # only calls of the target have several rows
            rows.append(logits[histories.index(before)])
        return logits

    _ = run(speculative(family.target, family.draft, prompt, gamma=SETTING["gamma"], warp=[spy]), place + 1)
    several = rows[0]
    tokens = [plain[place], int(several.argmax())]
    return {
        "tokens": [family.target.decode([token]) for token in tokens],
        "one": one[tokens].tolist(),
        "several": several[tokens].tolist(),
    }


def row(_, name: str) -> dict:
    """The figures of one type.

    Returns
    -------
    dict
        ``"texts"``: their number; ``"differ"``: how many of them differ; ``"tokens"``: how many tokens were compared;
        ``"gaps"``: the differences of the two largest logits where a text first differs, ascending; ``"least_gap"``:
        the smallest difference at any position; ``"ties"``: in how many texts the two largest logits were equal
        somewhere; ``"first"``: the first text that differs without a tie, with its prompt, its place, and the result of
        `two_best`; or None.
    """
    openings, family = village_prompts(SETTING["prompts"]), bundled(dtype=name)
    found = [compare_loops(family, prompt) for prompt in openings]
    differ = [i for i, one in enumerate(found) if one["place"] is not None]
    clear = next((i for i in differ if found[i]["gap"] > 0), None)
    first = None
    if clear is not None:
        place = found[clear]["place"]
        first = {"prompt": clear, "place": place, **two_best(family, openings[clear], place)}
    return {
        "texts": len(found),
        "differ": len(differ),
        "tokens": sum(one["tokens"] for one in found),
        "gaps": sorted(found[i]["gap"] for i in differ),
        "least_gap": min(one["least_gap"] for one in found),
        "ties": sum(one["least_gap"] == 0 for one in found),
        "first": first,
    }


EXPERIMENT = Experiment("rounding", SETTING, SETTINGS, row)
