"""Every method, of the library and of the chapters, on a pretend GPU: the tokens are those of the processor."""

import ast
import functools
import json
import re
import weakref
from pathlib import Path

import pytest
import torch
from pretend_gpu import APPLE, pretend_gpu
from torch.utils._pytree import tree_map

import tutorlib
from tutorlib import (
    Seeded,
    chain_draft,
    drawn_chain,
    drawn_tree,
    dynamic_tree,
    models,
    repetition_penalty,
    run,
    run_batch,
    static_tree,
    top_p,
)
from tutorlib.decoders.contrastive_decoding import contrastive_beam_search
from tutorlib.drafting.lossy_rules import typical_acceptance
from tutorlib.drafting.survival import confident_chain
from tutorlib.lab.training.train_ngram import count_ngrams, made_to_fit
from tutorlib.model.llama import without_loops

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
PROMPT = "Mia, Ben and Tom lived in a small village. Mia had the red kite. Mia"
SEARCH = {"beams": 2, "max_new_tokens": 4}
WARPS = [repetition_penalty(1.2), top_p(0.9)]

# Whatever draws is run greedily, and sampled with warps.
DRAWING = {
    "sample": lambda f, **how: tutorlib.sample(f.target, PROMPT, **how),
    "speculative": lambda f, **how: tutorlib.speculative(f.target, f.draft, PROMPT, **how),
    "prompt_lookup": lambda f, **how: tutorlib.prompt_lookup(f.target, PROMPT, gamma=3, **how),
    "suffix_lookup": lambda f, **how: tutorlib.suffix_lookup(f.target, PROMPT, gamma=3, **how),
    "lookahead": lambda f, **how: tutorlib.lookahead(f.target, PROMPT, **how),
    "jump_ahead": lambda f, **how: tutorlib.jump_ahead(
        f.target, PROMPT, grammar=tutorlib.grammar(" had the red kite\\.( [A-Za-z ,]+\\.)*", f.target), **how
    ),
    "string_match": lambda f, **how: tutorlib.string_match(f.target, f.other_draft, PROMPT, **how),
    "token_intersection": lambda f, **how: tutorlib.token_intersection(f.target, f.other_draft, PROMPT, **how),
    "dola": lambda f, **how: tutorlib.dola(f.target, PROMPT, layers=[2, 4], **how),
    "context_contrast": lambda f, **how: tutorlib.context_contrast(f.target, PROMPT, without="Mia", weight=1.0, **how),
    "medusa": lambda f, **how: tutorlib.medusa(f.target, f.medusa, PROMPT, **how),
    "eagle": lambda f, **how: tutorlib.eagle(f.target, f.eagle, PROMPT, **how),
    "early_exit": lambda f, **how: tutorlib.early_exit(f.target, PROMPT, layers=8, **how),
    "dflash": lambda f, **how: tutorlib.dflash(f.target, f.dflash, PROMPT, **how),
    "mtp": lambda f, **how: tutorlib.mtp(f.target, f.mtp, PROMPT, **how),
    "parallel_draft": lambda f, **how: tutorlib.parallel_draft(f.target, f.parallel, PROMPT, **how),
    "dspark": lambda f, **how: tutorlib.dspark(f.target, f.dspark, PROMPT, **how),
}
BATCHES = {
    "sample_batch": lambda f, **how: tutorlib.sample_batch(f.target, [PROMPT, "Ada"], **how),
    "speculative_batch": lambda f, **how: tutorlib.speculative_batch(f.target, f.draft, [PROMPT, "Ada"], **how),
}
OTHERS = {
    "greedy": lambda f: tutorlib.greedy(f.target, PROMPT),
    "beam_search": lambda f: tutorlib.beam_search(f.target, PROMPT, **SEARCH),
    "best_first_beam_search": lambda f: tutorlib.best_first_beam_search(f.target, PROMPT, **SEARCH),
    "contrastive_decoding": lambda f: tutorlib.contrastive_decoding(f.target, f.draft, PROMPT),
    "contrastive_sampling": lambda f: tutorlib.contrastive_sampling(f.target, f.draft, PROMPT, rng=Seeded(1)),
    "contrastive_beam_search": lambda f: contrastive_beam_search(f.target, f.draft, PROMPT, **SEARCH),
    "contrastive_search": lambda f: tutorlib.contrastive_search(f.target, PROMPT),
    "speculative, adaptive": lambda f: tutorlib.speculative(f.target, f.draft, PROMPT, confidence=0.3, rng=Seeded(1)),
    "speculative, n-grams": lambda f: tutorlib.speculative(f.target, ngrams(f.target), PROMPT),
    "medusa, typical": lambda f: tutorlib.medusa(
        f.target, f.medusa, PROMPT, rule=typical_acceptance(0.1, 0.3), rng=Seeded(1)
    ),
    "eagle, static": lambda f: tutorlib.eagle(f.target, f.eagle, PROMPT, shape=static_tree([(0,), (1,), (0, 0)])),
    "eagle, chain": lambda f: tutorlib.eagle(f.target, f.eagle, PROMPT, shape=chain_draft(3), rng=Seeded(1)),
    "eagle, drawn": lambda f: tutorlib.eagle(
        f.target, f.eagle, PROMPT, shape=drawn_tree([(0, 0), (1,)]), rng=Seeded(1)
    ),
    "eagle, dynamic": lambda f: tutorlib.eagle(f.target, f.eagle3, PROMPT, shape=dynamic_tree(6, 3, 2), rng=Seeded(1)),
    "eagle3": lambda f: tutorlib.eagle(f.target, f.eagle3, PROMPT),
    "dflash, drawn": lambda f: tutorlib.dflash(f.target, f.dflash, PROMPT, shape=drawn_chain(8), rng=Seeded(1)),
    "dflash2": lambda f: tutorlib.dflash(f.target, f.dflash2, PROMPT, shape=drawn_chain(8), rng=Seeded(1)),
    "dspark, confident": lambda f: tutorlib.dspark(
        f.target, f.dspark, PROMPT, shape=confident_chain([1.0, 1.1, 1.2, 1.3]), rng=Seeded(1)
    ),
}


def ngrams(target):
    levels = count_ngrams([target.encode(PROMPT)], 2, target.vocab_size)
    return made_to_fit(levels, 1, tokenizer=target.tokenizer, device=target.device)


@pytest.fixture(scope="module")
def cpu():
    return models.load("storyworld", device="cpu")


@pytest.fixture(scope="module")
def gpu():
    with pretend_gpu():
        family = models.load("storyworld")
        assert family.target.device.type == "cuda"
        return family


@pytest.fixture(scope="module")
def apple():
    with pretend_gpu(APPLE):
        return models.load("storyworld", device="mps")


def written(name, family):
    if name in BATCHES:
        rngs = [Seeded(seed) for seed in (1, 2)]
        return [trace.tokens for trace in run_batch(BATCHES[name](family, rngs=rngs, warp=WARPS), 4)]
    if name in DRAWING:
        ways = {"rng": None, "warp": ()}, {"rng": Seeded(2), "warp": WARPS}
        return [run(DRAWING[name](family, **how), 4).tokens for how in ways]
    trace = run(OTHERS[name](family), 4)
    return trace.tokens, json.dumps(trace.to_dict())  # with its candidates


def test_the_pretend_gpu_refuses_what_a_gpu_refuses_and_lets_the_rest_through(gpu):
    with pretend_gpu():
        here, there = torch.arange(3.0, device="cuda"), torch.arange(3.0)
        assert here.device == torch.device("cuda:0") != there.device and here.cpu().device.type == "cpu"
        assert (here + torch.tensor(1.0)).sum().item() == 6 and f"{here.sum():.1f}" == "3.0"
        assert here[torch.tensor([2])].tolist() == [2.0] and there.to(here).is_cuda and here.clone().add_(1).is_cuda
        for refused in (
            lambda: here + there,
            lambda: torch.cat([here, there]),
            lambda: torch.where(here > 0, here, there),
            lambda: there[here.long()],
            lambda: there.__setitem__(here.long(), 0.0),
            lambda: there.add_(here),
            lambda: here.masked_fill(there > 0, 0),
            lambda: here.__setitem__(here > 0, there),
            lambda: torch.multinomial(here, 1, generator=torch.Generator()),
            lambda: gpu.target.model(torch.tensor([[1]])),
        ):
            with pytest.raises(RuntimeError, match="device"):
                refused()
        with pytest.raises(TypeError, match="numpy"):
            here.numpy()


@pytest.mark.parametrize("name", [*DRAWING, *OTHERS, "speculative_batch"])
def test_every_method_writes_the_same_on_both_kinds_of_gpu(name, cpu, gpu, apple):
    with without_loops():
        expected = written(name, cpu)
    with pretend_gpu():
        assert written(name, gpu) == expected
    with pretend_gpu(APPLE):
        assert written(name, apple) == expected


def test_a_model_of_a_new_kind_is_tried_out_where_it_is(gpu, monkeypatch):
    verdicts = weakref.WeakKeyDictionary()
    monkeypatch.setattr("tutorlib.model.probe._verdicts", verdicts)
    with pretend_gpu():
        gpu.target.session([1])  # what cannot be cached there is warned of
    assert list(verdicts[gpu.target.model].values()) == [None]


def test_the_pretend_apple_gpu_has_no_float64(apple):
    with pretend_gpu(APPLE):
        row = apple.target.session([1]).feed()
        assert row.device.type == "mps" and row.float().softmax(-1).device.type == "mps"
        for refused in (
            lambda: row.double(),
            lambda: torch.zeros(1, dtype=torch.float64, device="mps"),
            lambda: row.cpu().double().to("mps"),
        ):
            with pytest.raises(TypeError, match="float64"):
                refused()


def test_what_generate_makes_of_its_options_is_computed_beside_the_rows(cpu, apple):
    def generated(family, device):
        ids = torch.tensor([cpu.target.encode(PROMPT)]).to(device)
        ours = tutorlib.custom_generate(tutorlib.sample, seed=3)
        options = {"do_sample": True, "top_k": 9, "suppress_tokens": [5, 6], "min_new_tokens": 5, "max_new_tokens": 6}
        mask = torch.ones_like(ids)
        return family.target.model.generate(ids, attention_mask=mask, custom_generate=ours, **options).tolist()

    expected = generated(cpu, "cpu")
    with pretend_gpu(APPLE):
        assert generated(apple, "mps") == expected


def test_float64_on_an_apple_gpu_is_refused_in_words():
    with pretend_gpu(APPLE), pytest.raises(ValueError, match="Apple's GPUs have no float64; take float32"):
        models.load("storyworld", device="mps", dtype="float64")


def test_every_method_of_the_front_door_is_run():
    run_here = {name.partition(",")[0] for name in (*DRAWING, *OTHERS, *BATCHES)}
    helpers = {"adaptive", "adaptive_gamma", "lower_layers", "upper_layers"}
    home = "tutorlib.decoders."
    methods = {name for name, one in vars(tutorlib).items() if getattr(one, "__module__", "").startswith(home)}
    assert methods - helpers <= run_here


# The methods that a chapter writes out, and what is asked of them here. Names that are not ours are the chapter's own.
CHAPTERS = [
    ("01_next_token", "write_with_cache(lm.model, ids, 4), write_without_cache(lm.model, ids, 4), next_probs(ids)"),
    ("02_greedy", "greedy_by_hand(target.model, ids, 4)"),
    ("03_beam_search", "beam_search_by_hand(target, prompt, 2, 4)"),
    ("04_best_first", "best_first_by_hand(target, prompt, 2, 3)"),
    ("05_sampling", "sample_by_hand(target.model, ids, 4, seed=7), broken_top_p(0.7)(rows)"),
    ("06_repetition", "repetition_by_hand(row, ids, 1.2), frequency_by_hand(row, ids, 0.5)"),
    ("06_repetition", "presence_by_hand(row, ids, 0.5), no_repeat_by_hand(row, ids, 2)"),
    ("06_repetition", "once_more(lm, ids, ids[:3], 2)"),
    ("07_contrastive", "contrast_by_hand([expert.model, amateur.model], ids, 4, alpha=0.1)"),
    ("10_speculative", "by_hand(target, draft, prompt, 2, Seeded(7), 6)"),
    ("11_is_it_exact", "Replay([]).choose(row.softmax(-1))"),
    ("13_drafts_for_free", "lookup_by_hand(target.model, ids, 6, 2, Seeded(7))[0], list(jacobi(target, prompt, 3))"),
    ("13_drafts_for_free", "run(copies_if_likely(target, prompt, rng=Seeded(7)), 4).tokens"),
    ("13_drafts_for_free", "lookahead_by_hand(target, prompt, 4, 3, 3, 2)[0]"),
    ("14_other_tokenizers", "tli_by_hand(target, other, prompt, 4, 2, Seeded(5))"),
    ("15_medusa", "unchecked(prompt, 4), path_by_path(ids, TokenTree([5, 6, 7], [-1, 0, -1]))"),
    (
        "15_medusa",
        "by_hand(prompt, heads.choices, Seeded(7), 4), by_hand(prompt, heads.choices, Greedy(), 4, mask=wrong_mask)",
    ),
    ("16_eagle", "features_of(ids), by_hand(head, prompt, Seeded(7), 5, nodes=4, depth=2, top_k=2)"),
    ("16_eagle", "by_hand(head, ids, Greedy(), 4, 4, 2, 2, given=off_by_one, positions=standing_still)"),
    ("17_eagle3", "features_of(ids, head3), by_hand(head3, prompt, Seeded(7), 5, nodes=4, depth=2, top_k=2)"),
    ("18_blocks", "early_exit_by_hand(target, prompt, 8, 2, 4), by_hand(target, block_head, prompt, 4, block_drafts)"),
    ("18_blocks", "by_hand(target, village.mtp, prompt, 4, module_drafts)"),
    ("18_blocks", "by_hand(target, village.parallel, prompt, 4, mask_drafts)"),
    ("19_joints", "by_hand(target, joint_head, prompt, 4, jointed_draft)"),
    ("19_joints", "by_hand(target, pair_head, prompt, 4, scored_draft)"),
    (
        "17_eagle3",
        "[by_hand(head3, ids, Greedy(), 4, 4, 2, 2, given=given) for given in (off_by_one, from_high_to_low)]",
    ),
]
WITHOUT_A_MODEL = {
    "block_by_hand",
    "budget_by_hand",
    "draw_and_check",
    "draws",
    "mean_kept",
    "one_after_the_other",
    "wrong_tli",
}


def names(node, context):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def free_names(statement):
    """The names that a statement reads from around it. What a function or a comprehension stores is its own."""
    inner = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    own = {one.arg for one in ast.walk(statement) if isinstance(one, ast.arg)}
    return names(statement, ast.Load) - own.union(
        *(names(one, ast.Store) for one in ast.walk(statement) if isinstance(one, inner))
    )


def bound_names(statement):
    """The names that a definition, an import or an assignment gives a value to."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return names(statement, ast.Store) if isinstance(statement, ast.Assign) else set()


@functools.cache
def statements(chapter):
    cells = json.loads((NOTEBOOKS / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [statement for source in code if "%pip" not in source for statement in ast.parse(source).body]


def needed(chapter, expression, given):
    """The statements of a chapter that an expression needs, in order, as far as their names are not given."""
    open_names, chosen = free_names(ast.parse(expression)) - given, []
    for statement in reversed(statements(chapter)):
        if bound := bound_names(statement) & open_names:
            chosen.insert(0, statement)
            open_names = (open_names - bound) | (free_names(statement) - given)
    return chosen


def value(chapter, expression, family):
    lm = family.target
    ids = lm.encode(PROMPT)
    rows = lm.session(ids).feed(ids[:2])
    given = {"target": lm, "lm": lm, "expert": lm, "draft": family.draft, "amateur": family.draft}
    given |= {"other": family.other_draft, "village": family, "heads": family.medusa, "head": family.eagle}
    given |= {
        "head3": family.eagle3,
        "block_head": family.dflash,
        "joint_head": family.dspark,
        "pair_head": family.dflash2,
        "prompt": PROMPT,
        "ids": ids,
        "rows": rows,
        "row": rows[-1],
    }
    code = ast.Module(needed(chapter, expression, set(given)), [])
    exec(compile(ast.unparse(code), chapter, "exec"), given)
    return tree_map(lambda one: one.tolist() if isinstance(one, torch.Tensor) else one, eval(expression, given))


@pytest.mark.parametrize("chapter, expression", CHAPTERS)
def test_what_a_chapter_writes_out_gives_the_same_on_a_gpu(chapter, expression, cpu, gpu):
    with without_loops():
        expected = value(chapter, expression, cpu)
    with pretend_gpu():
        assert value(chapter, expression, gpu) == expected


def test_every_method_that_a_chapter_writes_out_is_run():
    """A method is a function that draws from a `Randomness`, or that says it is written by hand."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        functions = {one.name: ast.unparse(one) for one in statements(path.stem) if isinstance(one, ast.FunctionDef)}
        methods = {
            name
            for name, code in functions.items()
            if name.endswith("by_hand") or re.search(r"rng\.(choose|accept)\(", code)
        }
        run_here = [free_names(ast.parse(expression)) for chapter, expression in CHAPTERS if chapter == path.stem]
        assert methods - set().union(*run_here) <= WITHOUT_A_MODEL, path.stem


def test_a_layer_on_another_device_keeps_its_keys_and_values_there(cpu):
    """As accelerate places large models: the layer's inputs are brought to it, and what comes of it back."""

    def found(family):
        batch = run_batch(tutorlib.speculative_batch(family.target, family.draft, [PROMPT, "Ada"]), 8)
        session = family.target.session(PROMPT, cache="static")
        return [
            run(tutorlib.eagle(family.target, family.eagle3, PROMPT), 8).tokens,
            *(trace.tokens for trace in batch),
            run(tutorlib.beam_search(family.target, PROMPT, **SEARCH)).tokens,
            session.feed().argmax(-1).tolist() + session.feed([3]).argmax(-1).tolist(),
        ]

    with pretend_gpu() as device:
        family = models.load("storyworld")
        layer = family.target.model.model.layers[3].to("cpu")

        def bring(module, args, kwargs):
            return tree_map(lambda one: one.cpu() if isinstance(one, torch.Tensor) else one, (args, kwargs))

        layer.register_forward_pre_hook(bring, with_kwargs=True)
        layer.register_forward_hook(lambda module, inputs, output: output.to(device))
        scattered = found(family)
    assert scattered == found(cpu)
