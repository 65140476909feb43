"""Two lists of specimens: what the correct method is, why people write the mistake, and where it was published."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ...decoders.beam_search import beam_search
from ...decoders.speculative import speculative
from ...decoders.speculative_batch import speculative_batch
from ...decoders.token_intersection import token_intersection
from ...measures.proof import samples_needed, token_distribution, total_variation
from ...sampling.warp import top_p
from . import batches_and_ends, beams, bookkeeping, cases, engines, grammars, rules, vocabularies, warps

MARK = "# the mistake"
NOT_FOUND = "Not found published, but easy to make."
Outcomes = dict[tuple, float]


@dataclass(frozen=True, repr=False)
class Specimen:
    """One mistake.

    Attributes
    ----------
    mistaken : function
        The method with the mistake.
    correct : function
        The correct method, with the same signature.
    why : str
        Why people write it. Its docstring states what is wrong.
    case : function from a method to two distributions
        What the method does in a small case made for this mistake, by enumeration, and what it should do.
    least : float
        The smallest total variation between these two that the tests accept.
    source : str
        Where it was published, with a link if there is a lasting one, as "where: link". Empty if no publication was
        found.
    compares : str
        What the distributions describe.
    """

    mistaken: Callable
    correct: Callable
    why: str
    case: Callable[[Callable], tuple[Outcomes, Outcomes]]
    least: float
    source: str = ""
    compares: str = "texts"

    @property
    def name(self) -> str:
        return self.mistaken.__name__

    @property
    def what(self) -> str:
        """What is wrong: the first paragraph of the docstring of the mistaken method."""
        return " ".join((inspect.getdoc(self.mistaken) or "").partition("\n\n")[0].split())

    def outcomes(self, method: Callable | None = None) -> tuple[Outcomes, Outcomes]:
        """What a method, by default the mistaken one, does in the small case, and what it should do. Cached."""
        return _outcomes(self.case, method or self.mistaken)

    def distance(self) -> float:
        """Total variation between what the mistaken method does and what it should do."""
        return total_variation(*self.outcomes())

    def distance_of_correct(self) -> float:
        """The same distance for the correct method. It is 0 except for rounding."""
        return total_variation(*self.outcomes(self.correct))

    def samples_needed(self, level: float = 0.05, power: float = 0.9) -> float:
        """How many samples of the small case a χ² test needs to find the mistake, if it counts one token of each.

        It is the token at the position that shows the mistake best. See `proof.samples_needed`.
        """
        made, due = self.outcomes()
        return min(
            samples_needed(
                token_distribution(made, position), token_distribution(due, position), level=level, power=power
            )
            for position in range(max(map(len, due)))
        )

    @property
    def code(self) -> str:
        """The source of the mistaken method, without its docstring."""
        source = inspect.getsource(inspect.unwrap(self.mistaken))
        return re.sub(r'\n    """.*?"""\n+', "\n", source, count=1, flags=re.DOTALL).removeprefix("@decoder\n").rstrip()

    @property
    def wrong_lines(self) -> str:
        """The wrong line or lines, with the mark."""
        return "\n".join(line.strip() for line in self.code.splitlines() if MARK in line)

    @property
    def published(self) -> str:
        """Where it was published, as a link in Markdown, or a sentence that no publication was found."""
        where, _, link = self.source.partition(": https://")
        if not where:
            return NOT_FOUND
        return f"Published in: [{where}](https://{link})." if link else f"Published in: {where}."

    def _repr_markdown_(self) -> str:
        """What is wrong, the wrong line, why people write it, and where it was published."""
        wrong = self.wrong_lines.replace(f"  {MARK}", f"\n{MARK}")
        of = "" if self.compares == "texts" else f", comparing {self.compares}"
        head = f"**`{self.name}`** (total variation {self.distance():.3f}{of}). {self.what}"
        return f"{head}\n\n```python\n{wrong}\n```\n\n*Why:* {self.why} *{self.published}*"

    def __repr__(self) -> str:
        return f"Specimen({self.name})"


@cache
def _outcomes(case, method):
    return case(method)


GITHUB = "https://github.com/"

SPECIMENS = [
    Specimen(
        rules.rows_one_late, speculative,
        "A call returns one row of logits for each token that it reads, so row i looks as if it were about token i. In "
        "fact, it is about the token after it.",
        cases.texts, 0.3,
        f"mlx-node, pull request 11, found in review: {GITHUB}mlx-node/mlx-node/pull/11",
    ),
    Specimen(
        rules.inverted_coin, speculative,
        "The paper rejects with probability 1 - p/q, so the code rejects if r > 1 - p/q. But a uniform random number r "
        "is above 1 - p/q with probability p/q. So the more alike p and q are, the more often a token is rejected.",
        cases.texts, 0.05,
    ),
    Specimen(
        rules.resample_from_target, speculative,
        "It seems safe to draw from the target. But accepted tokens already supply a part of p, so the draw after a "
        "rejection has to supply only the part that is missing.",
        cases.short_texts, 0.05,
        f"Spec-RL, where it is a choice made for training: {GITHUB}ShopeeLLM/Spec-RL/issues/14",
    ),
    Specimen(
        rules.fixed_threshold, speculative,
        "It sounds like what acceptance should mean: the token is good enough for the target.",
        cases.texts, 0.05,
        "SGLang, as the option speculative_accept_threshold_single, which is off by default: "
        f"{GITHUB}sgl-project/sglang/blob/main/python/sglang/srt/server_args.py",
    ),
    Specimen(
        rules.score_only, speculative,
        "Speculative decoding really does read the whole draft in one call of the target, and the average "
        "log-likelihood from this call looks like a way to check the draft.",
        cases.texts, 0.3,
        "a guide to speculative decoding with Gemma 2 (2024), which has no lasting address",
    ),
    Specimen(
        rules.other_warp, speculative,
        "One function drafts and applies the temperature. Another function checks, and it starts again from the "
        "logits, without the temperature.",
        cases.hot_texts, 0.05,
        f"transformers, issue 47932 (2026, closed): {GITHUB}huggingface/transformers/issues/47932",
    ),
    Specimen(
        rules.greedy_with_coins, rules.greedy_speculation,
        "To make the method greedy, somebody replaced every draw by an argmax, but forgot the acceptance test, because "
        "it does not look like a draw.",
        cases.greedy_texts, 0.1,
        "litgpt 0.5.13 at temperature 0, and speculative-sampling, the code of a blog post (2023, fixed): "
        f"{GITHUB}jaymody/speculative-sampling/issues/3",
    ),
    Specimen(
        rules.unwarped_bonus, speculative,
        "The bonus token is drawn in a different part of the code from the other tokens, straight from the last row of "
        "the logits.",
        cases.hot_texts, 0.05,
        "kronk, pull request 788 (2026), where the bonus token is the argmax of the unfiltered logits: "
        f"{GITHUB}ardanlabs/kronk/pull/788",
    ),
    Specimen(
        rules.greedy_drafts, speculative,
        "The most likely token is accepted most often, so why draft any other? You may always draft it, but then q is "
        "1 for this token and 0 for all others.",
        cases.texts, 0.05,
        "ml-recurrent-drafter, where drafts come from a beam search: "
        f"{GITHUB}apple/ml-recurrent-drafter/issues/6",
    ),
    Specimen(
        bookkeeping.rollback_too_short, speculative,
        "The resampled token takes the position of the rejected one in the text, so it looks as if nothing were left "
        "over in the cache.",
        cases.texts, 0.03,
        "openvino.genai, issue 4190, where the count of cached tokens stays one too high after a rejection: "
        f"{GITHUB}openvinotoolkit/openvino.genai/issues/4190",
    ),
    Specimen(
        batches_and_ends.padding_as_text, speculative_batch,
        "All rows of a tensor need the same length, and padding raises no error. But the model reads it as text.",
        cases.first_of_a_batch, 0.05,
        f"TransformerLens, issue 1760 (2026, fixed): {GITHUB}TransformerLensOrg/TransformerLens/issues/1760",
    ),
    Specimen(
        batches_and_ends.prefixes_as_rows, speculative,
        "It needs neither a cache nor a rollback, and one call still scores everything. The last column would be "
        "correct if all rows had the same length, but the prefixes of a draft have different lengths. And no row holds "
        "the whole draft, so there is never a bonus token.",
        cases.texts, 0.03,
    ),
    Specimen(
        batches_and_ends.past_the_end, batches_and_ends.ends_at_the_end,
        "In a plain loop, it is enough to check whether the newest token ends the text. But a round of speculation "
        "adds several tokens at once.",
        cases.ended_texts, 0.1,
        f"transformers, issue 47912 (2026, closed): {GITHUB}huggingface/transformers/issues/47912",
    ),
    Specimen(
        warps.top_p_without_the_crossing, top_p,
        "`cumsum > p` is the first mask that comes to mind, but it has to be shifted by one token.",
        cases.nucleus, 0.3,
        f"GPT-2's own sampling code: {GITHUB}openai/gpt-2/blob/master/src/sample.py",
    ),
    Specimen(
        batches_and_ends.padding_is_token_zero, speculative,
        "The tokenizer has no padding token, but something has to fill the tensor, and the mask `tokens != 0` is easy "
        "to write.",
        cases.texts, 0.03,
        "transformers, issue 2862 (2020), which proposes this mask: "
        f"{GITHUB}huggingface/transformers/issues/2862",
    ),
    Specimen(
        vocabularies.map_in_hash_order, token_intersection,
        "A vocabulary is a dict, and it is easy to assume that a dict lists its tokens in the order of their ids.",
        cases.two_vocabularies, 0.03,
        f"transformers 5.23.0, measured in chapter 11: {GITHUB}huggingface/transformers",
    ),
    Specimen(
        vocabularies.foreign_ids, token_intersection,
        "Both models number their tokens, so a small id of one model is also a valid index into the other model's row. "
        "No error is raised, but the probability belongs to a different token.",
        cases.same_size_vocabularies, 0.05,
        "sglang, which did not compare the two vocabularies before pull request 23838: "
        f"{GITHUB}sgl-project/sglang/pull/23838",
    ),
    Specimen(
        warps.top_k_one_for_greedy, warps.greedy_of_any_draw,
        "With one token left, there seems to be nothing to draw. But in half precision, equal logits are common.",
        cases.ties, 0.5,
        f"tpu-inference, pull request 3580: {GITHUB}vllm-project/tpu-inference/pull/3580",
    ),
    Specimen(
        beams.beam_starts_at_one, beam_search,
        "A product of probabilities starts at 1. When the product became a sum of logarithms, the 1 was left in.",
        cases.best_text, 1.0,
        "a much-copied tutorial, which multiplied -log p as well (corrected in 2020): "
        "https://machinelearningmastery.com/beam-search-decoder-natural-language-processing/",
    ),
    Specimen(
        beams.length_off_by_one, beam_search,
        "Whether the prompt's last token is counted depends on where the code calls len().",
        cases.best_text, 1.0,
        "transformers before pull request 27351 (2023), which counted the prompt too: "
        f"{GITHUB}huggingface/transformers/pull/27351",
    ),
    Specimen(
        beams.first_finished_beam, beam_search,
        "A greedy loop stops at the first end-of-text token, so it seems natural to stop here too.",
        cases.best_text, 1.0,
        f"xnmt before pull request 572 (2019): {GITHUB}neulab/xnmt/pull/572",
    ),
    Specimen(
        bookkeeping.forgets_at_least_one, speculative,
        "After most drafts there is something to forget, so a count of 0 looks like an error to guard against.",
        cases.texts, 0.01,
    ),
    Specimen(
        rules.perplexity_threshold, speculative,
        "The title of the EAGLE paper contains the word *uncertainty*, and perplexity is a measure of uncertainty. But "
        "the paper means the uncertainty of features (chapter 16).",
        cases.short_texts, 0.15,
    ),
    Specimen(
        rules.mixed_with_prediction, speculative,
        "EAGLE does predict features, and its loss does compare features. But in EAGLE, the prediction only proposes "
        "tokens. Here, it also helps to check them, although the target's own row is known.",
        cases.texts_with_prediction, 0.05,
    ),
    Specimen(
        bookkeeping.lagging_draft, speculative,
        "The draft model chose this token, so it seems that the token must be in its cache. But a token that was drawn "
        "has not yet been read.",
        cases.accepted_in_two_rounds, 0.1,
        f"mlxcel before pull request 1002 (2026): {GITHUB}lablup/mlxcel/pull/1002",
        "numbers of accepted tokens",
    ),
]  # fmt: skip

# Mistakes of programs that serve models. They are shown in the chapter on how to check a draft; chapter 11 shows the
# others.
ENGINE_SPECIMENS = [
    Specimen(
        engines.shared_noise, speculative,
        "Each position has random numbers of its own, so that a seed always gives the same text. The draft, the check "
        "and the draw after a rejection are at one position, so all of them take its numbers.",
        cases.one_of_three, 0.05,
        f"vLLM until pull request 54282 (August 2026): {GITHUB}vllm-project/vllm/pull/54282",
    ),
    Specimen(
        engines.dropped_after_the_draw, speculative,
        "A token that even the draft finds unlikely will probably be rejected, so why check it? But drawing again "
        "whenever the token is unlikely makes unlikely tokens rarer than they should be.",
        cases.texts, 0.03,
        "llama.cpp, pull request 22506, where it is harmless, because drafts there are argmaxes: "
        f"{GITHUB}ggml-org/llama.cpp/pull/22506",
    ),
    Specimen(
        engines.raw_logits_as_q, speculative,
        "The check asks every draft for its logits. A draft that takes the argmax has logits too, and no error is "
        "raised if it hands them over.",
        cases.hot_texts, 0.1,
        "transformers 5.24.0, in the class SinglePositionMultiTokenCandidateGenerator, which drafts for Gemma 4: "
        f"{GITHUB}huggingface/transformers/blob/main/src/transformers/generation/candidate_generator.py",
    ),
    Specimen(
        engines.unwarped_check, speculative,
        "A function that scores tokens needs no settings for sampling, because it draws nothing. But its probabilities "
        "decide what is kept.",
        cases.hot_texts, 0.1,
        f"vLLM 0.5.4, issue 9834 (2024, fixed by pull request 10198): {GITHUB}vllm-project/vllm/issues/9834",
    ),
    Specimen(
        engines.rejected_in_the_state, speculative,
        "In a cache of keys and values, the rejected tokens are the last ones, and can be cut off. A recurrent state "
        "has no end to cut off: each token changes all of it.",
        cases.texts, 0.3,
        "tpu-inference before pull request 3178 (2026), for models with linear attention: "
        f"{GITHUB}vllm-project/tpu-inference/pull/3178",
    ),
    Specimen(
        engines.drawn_in_half_precision, speculative,
        "Models compute in half precision, and one rounding more seems harmless. The check converts to full precision "
        "first, because it divides.",
        cases.short_texts, 5e-5,
        f"DeepSpec, issue 31 (2026): {GITHUB}deepseek-ai/DeepSpec/issues/31",
    ),
    Specimen(
        engines.penalty_without_the_prompt, speculative,
        "The prompt is read in a part of the code that draws nothing. The list of tokens for the penalty begins "
        "where the first token is drawn.",
        cases.penalised_texts, 0.1,
        "mlx-lm 0.32.2 with a draft model, in speculative_generate_step: "
        f"{GITHUB}ml-explore/mlx-lm/blob/main/mlx_lm/generate.py",
    ),
    Specimen(
        engines.penalty_of_before_the_draft, speculative,
        "One call of the target scores the whole draft, so one computation of the penalty for the whole call is "
        "convenient. But plain sampling computes it anew after each token.",
        cases.penalised_texts, 0.03,
        f"SGLang, pull request 28242, where it is called relaxed: {GITHUB}sgl-project/sglang/pull/28242",
    ),
]  # fmt: skip


# Mistakes with a grammar that has a state. They are shown in the chapter on constraints.
GRAMMAR_SPECIMENS = [
    Specimen(
        grammars.grammar_advanced_by_drafts, speculative,
        "To mask the row after a drafted token, the grammar has to consume this token before anybody knows whether it "
        "will be kept. The next round skips as many tokens of the text as the grammar has consumed, and goes on from "
        "there. After a rejection, the number is right, but some of the consumed tokens are not in the text.",
        cases.constrained_texts, 0.1,
    ),
    Specimen(
        grammars.rollback_of_all_rejected, speculative,
        "The model's cache holds all drafted tokens, so it gives back every rejected one, and the same number looks "
        "right for the grammar. But the grammar has refused some of these tokens, and so never held them. So it gives "
        "back tokens of the text instead.",
        cases.constrained_texts, 0.1,
    ),
]  # fmt: skip
