"""The two tokenizers of the bundled models: byte-level BPE, learnt from the village's own stories."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tutorlib.storyworld import story

START, END = "<|story|>", "<|end|>"


def learn(vocab_size, *, seed, stories=5000, specials=(START, END)):
    """A byte-level BPE tokenizer that puts `START` in front of a text and can spell any string.

    Parameters
    ----------
    vocab_size : int
        With 640, each of the village's names and things is one token, and longer, rarer words are split.
    seed : str
        Determines the stories from which it is learnt.
    specials : tuple of str
        Special tokens, in the order of their ids.

    Returns
    -------
    transformers.PreTrainedTokenizerFast
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator((story(f"{seed} {i}") for i in range(stories)), trainer)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", pair=f"{START} $A $B", special_tokens=[(START, bpe.token_to_id(START))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=START, eos_token=END, clean_up_tokenization_spaces=False, model_max_length=512
    )
