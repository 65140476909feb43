"""Calls as a reader writes them, for the type checker alone: `make lint` checks them, and nothing runs them.

What is wrong stands behind an ignore comment. If the checker found nothing wrong there, it would report the comment.
"""

from collections.abc import Iterator, Sequence

import torch

from tutorlib import (
    LM,
    EagleHead,
    MedusaHeads,
    Seeded,
    Step,
    TableLM,
    Trace,
    decoder,
    dynamic_tree,
    eagle,
    exact,
    grammar,
    greedy,
    jump_ahead,
    medusa,
    prompt_lookup,
    repetition_penalty,
    run,
    run_batch,
    sample,
    sample_batch,
    speculative,
    temperature,
    top_k,
    typical_acceptance,
)
from tutorlib.sampling.randomness import Randomness
from tutorlib.sampling.warp import probabilities


class Coin:
    """Anybody's randomness."""

    def choose(self, probs: torch.Tensor | Sequence[float]) -> int:
        return 0

    def accept(self, probability: float) -> bool:
        return True


@decoder
def parrot(lm: LM, prompt: str | Sequence[int], *, rng: Randomness | None = None) -> Iterator[Step]:
    while True:
        yield Step([lm.prompt_tokens(prompt)[-1]])


def ends_early(logits: torch.Tensor, histories: Sequence[Sequence[int]] | None) -> torch.Tensor:
    return logits


def right(target: LM, draft: LM, table: TableLM, heads: MedusaHeads, head: EagleHead) -> Trace:
    run(greedy(target, "Once"), 40)
    run(greedy(table, [1, 2]), max_new_tokens=40, stop=(), progress=False, on_text=print)
    run(sample(target, (1, 2), rng=Seeded(7), warp=[temperature(0.7), repetition_penalty(1.2), ends_early]), 40)
    run(speculative(target, draft, "Once", gamma=4, rng=None), 40)
    run(speculative(target, draft, "Once", rng=Coin()), 40)
    run(prompt_lookup(target, "Once", warp=(top_k(5),)), 40)
    run(medusa(target, heads, "Once", shape=[(0,), (0, 1)], rule=typical_acceptance(0.09, 0.3)), 40)
    run(medusa(target, heads, "Once", rule=exact), 40)
    run(eagle(target, head, "Once", shape=dynamic_tree(8, 4, 4)), 40)
    run(sample(target, "Once", warp=[grammar("[0-9]+", target), temperature(0.7)]), 40)
    run(jump_ahead(target, "Once", grammar=grammar({"type": "string"}, target), rng=Seeded(7)), 40)
    run_batch(sample_batch(target, ["Once", [1, 2]], rngs=[Seeded(0), Coin()]), 40)
    probabilities(top_k(5)(torch.zeros(1, 9)), [temperature(2)])
    return run(parrot(target, "Once"), 40)


def wrong(target: LM, draft: LM) -> None:
    run(greedy(target, 5), 40)  # type: ignore[arg-type]
    run(greedy("gpt2", "Once"), 40)  # type: ignore[arg-type]
    run(sample(target, "Once", rng=7), 40)  # type: ignore[arg-type]
    run(sample(target, "Once", warp=temperature(0.7)), 40)  # type: ignore[arg-type]
    run(speculative(target, draft, "Once", gama=4), 40)  # type: ignore[call-arg]
    run_batch(greedy(target, "Once"), 40)  # type: ignore[arg-type]
    run(parrot(target, "Once", rng=7), 40)  # type: ignore[arg-type]
