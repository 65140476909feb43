"""Faulty heads and draft models. Texts stay correct and no error is raised, but fewer tokens are accepted.

Each function takes a correct head or draft model and returns a copy with one fault, of a kind that can happen when a
head is exported, loaded or served. Unlike the specimens of the zoo, these are not decoders: whichever method uses them
still checks their drafts.
"""

import copy

import torch
from torch import nn

from ...drafting.draft_session import DraftSession
from ...drafting.eagle_head import Eagle3Head
from ...drafting.medusa_heads import MedusaHeads
from ...model.lm import LM


def with_layers(head: Eagle3Head, layers) -> Eagle3Head:
    """Reads the states of other layers of the target, or of the same layers in another order."""
    return _copy(head, feature_layers=tuple(layers))


def late_features(head: Eagle3Head) -> Eagle3Head:
    """Each token is paired with the states of the position before the right one."""
    return _copy(head, session=lambda target: _Late(head, target, "features"))


def late_tokens(head: Eagle3Head) -> Eagle3Head:
    """The states are right, but each is paired with the token before the right one. The last token is never read."""
    return _copy(head, session=lambda target: _Late(head, target, "tokens"))


def of_another_target(head: Eagle3Head, seed: int = 0) -> Eagle3Head:
    """Imitates a head that was trained for another target: the dimensions of every state are permuted."""
    order = torch.randperm(head.width, generator=torch.Generator().manual_seed(seed))
    every = torch.cat([order + i * head.width for i in range(len(head.feature_layers))])
    return _copy(head, features=lambda hidden: head.features(hidden)[..., every.to(head.fc.weight.device)])


def normed_states(head: Eagle3Head) -> Eagle3Head:
    """Continues from its own state after the norm, not before it: the first guess is right, the next ones are not."""
    return _copy(head, forward=lambda *given: head.norm(head.forward(*given)), norm=nn.Identity())


def without_map(head: Eagle3Head) -> Eagle3Head:
    """Ids of the head are used as ids of the target: the offsets `d2t` are not added."""
    wrong = _copy(head)
    wrong.d2t.zero_()
    return wrong


def ids_for_offsets(head: Eagle3Head) -> Eagle3Head:
    """`d2t` is read as the target's ids, although it holds offsets that must be added."""
    wrong = _copy(head)
    wrong.d2t -= torch.arange(len(wrong.d2t), device=wrong.d2t.device)
    return wrong


def late_heads(heads: MedusaHeads) -> MedusaHeads:
    """Each Medusa head is used for the position before its own, and the first head for the last position."""
    wrong = copy.deepcopy(heads)
    for i, one in enumerate(list(wrong)):
        wrong[i - 1] = one
    return wrong


def hotter(lm: LM, factor: float) -> LM:
    """A model whose logits are divided once more, as if by a temperature that the other model does not use."""
    model = copy.deepcopy(lm.model)
    model.get_output_embeddings().register_forward_hook(lambda module, given, logits: logits / factor)
    return LM(model, lm.tokenizer)


def shifted_ids(lm: LM) -> LM:
    """A model for which each id means the token before it, as if its tokenizer had one more token at the beginning."""
    model = copy.deepcopy(lm.model)
    ends = (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    with torch.no_grad():
        for weight in {id(weight): weight for weight in ends}.values():  # the two may be the same
            weight.copy_(weight.roll(1, 0))
    return LM(model, lm.tokenizer)


class _Late(DraftSession):
    """Feeds tokens or features one position late; the very first one is fed twice."""

    def __init__(self, head, target, what):
        super().__init__(head, target)
        self._what, self._before = what, None

    def feed(self, tokens, features):
        given = {"tokens": torch.tensor(list(tokens)), "features": features}
        right = given[self._what]
        before = right[:1] if self._before is None else self._before
        given[self._what], self._before = torch.cat([before, right[:-1]]), right[-1:]
        return super().feed(given["tokens"].tolist(), given["features"])


def _copy(head, **attributes):
    wrong = copy.deepcopy(head)
    for name, value in attributes.items():
        setattr(wrong, name, value)
    return wrong
