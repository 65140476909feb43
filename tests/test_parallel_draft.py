"""Parallel drafts are what EAGLE-3's network makes of masks after the text. That it is exact: `test_lossless.py`.

The reference is the network's arithmetic written out a second time, in `draft_networks`.
"""

import json

import pytest
import torch
from conftest import random_model
from draft_networks import best_tree, drafted_anew, eagle3, law_of_masks, parallel_head
from safetensors.torch import load_file
from test_llama import TEXT, tiny
from transformers import LlamaConfig

from tutorlib.decoders.parallel_draft import parallel_draft
from tutorlib.drafting.draft_trees import chain_draft, dynamic_tree
from tutorlib.drafting.parallel_head import ParallelHead
from tutorlib.loading.formats import load_eagle, save_eagle
from tutorlib.model.lm import LM
from tutorlib.running.decoding import run


@pytest.fixture(scope="module")
def double():
    return LM(random_model("llama", torch.float64))


@pytest.mark.parametrize("tokens", [None, [1, 3, 4, 7, 11, 18]])
def test_it_drafts_what_the_network_makes_of_masks_after_the_whole_text(double, tokens):
    head = parallel_head(double, tokens=tokens)
    for shape, nodes, top_k in ((chain_draft(9), 9, 1), (dynamic_tree(8, 8, 5), 8, 5)):
        trace = run(parallel_draft(double, head, [3, 1, 4], shape=shape), 16)

        def expected(guess, room, nodes=nodes, top_k=top_k):
            return best_tree(guess, nodes, min(head.masks + 1, room), top_k)[0]

        drafted_anew(double, head, expected, trace, law=law_of_masks)
        assert max(len(step.drafted) for step in trace.steps) == min(nodes, 8 if top_k > 1 else head.masks + 1)


def test_the_compiled_loops_compute_the_same():
    target = LM(tiny())
    layers = (0, target.layers // 2, -1)
    head = ParallelHead(LlamaConfig(**tiny().config.to_dict()), layers, mask=2, masks=4).eval()
    torch.nn.init.normal_(head.mask_hidden)
    session = target.session(TEXT, hidden=head.feature_layers)
    session.feed()
    features, made = head.features(session.prompt_hidden), []
    for dtype in (torch.float32, torch.float64):
        drafts = head.to(dtype).session(target)
        assert (drafts._loops is not None) == (dtype == torch.float32)
        drafts.feed(TEXT[1:5], features[:4])
        first = drafts.logits
        drafts.feed(TEXT[5:7], features[4:6])
        made.append(torch.cat([first, drafts.logits]).float().detach())
    torch.testing.assert_close(*made, rtol=0, atol=1e-4)


# -- bad input --


def test_bad_arguments_are_named_at_the_call(double):
    head = parallel_head(double)
    for arguments, said in {
        (double, eagle3(double)): "head must be a ParallelHead, got Eagle3Head: family.parallel",
        (double, parallel_head(LM(tiny()))): "does not fit",
    }.items():
        with pytest.raises(ValueError, match=said):
            parallel_draft(*arguments, [1])
    with pytest.raises(ValueError, match="mask must be a token of a vocabulary of 19, got 19"):
        ParallelHead(head.config, (1,), mask=19)
    with pytest.raises(ValueError, match="masks is how many follow the last token of the text, a whole number"):
        ParallelHead(head.config, (1,), masks=0)
    with pytest.raises(ValueError, match="each token needs the feature of the token before it"):
        head.session(double).feed([1, 2], torch.zeros(1, 3 * double.width))


def test_its_files_are_those_of_eagle3_with_what_the_masks_read(double, tmp_path):
    head = parallel_head(double, tokens=[1, 3, 4, 7, 11, 18])
    path = save_eagle(head, tmp_path)
    good = json.loads((tmp_path / "config.json").read_text())
    assert load_file(path)["mask_hidden"].shape == (1, 3 * double.width) and good["ptd_token_id"] == head.mask
    for key in ("ptd_token_id", "pard_token", "mask_token_id"):  # as the one or the other calls it
        theirs = {name: value for name, value in good.items() if name != "ptd_token_id"} | {key: head.mask}
        (tmp_path / "config.json").write_text(json.dumps(theirs))
        again = load_eagle(tmp_path, double)
        assert (type(again), again.mask, again.masks) == (ParallelHead, head.mask, head.masks)
        assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in head.state_dict().items())
    for change, said in (
        ({"ptd_token_id": 19}, "mask must be a token"),
        ({"ptd_token_id": None}, "ptd_token_id must be"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(good | change))
        with pytest.raises(ValueError, match=said):
            load_eagle(tmp_path, double)
    with pytest.raises(ValueError, match="a parallel draft is unknown to the layout"):
        save_eagle(head, tmp_path / "other", layout="speculators")
