/* The village's tokenizer: byte-level BPE, as in tokenizer.json. Not here: which tokens a model may see, and how they are shown. */
(Live => {
  "use strict";

  /* A text is first cut into words, with the space before them; tokens never cross such a cut. White space is spelled out, because
     JavaScript's \s is not quite Unicode's. */
  const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
  const WORDS = new RegExp(
    `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`, "gu");

  /* Each byte is written as one visible character: the printable ones as themselves, the others as those from 256 on. */
  const letters = [];
  for (let byte = 0, next = 256; byte < 256; byte++) {
    const printable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    letters.push(String.fromCharCode(printable ? byte : next++));
  }
  const bytes = new Map(letters.map((letter, byte) => [letter, byte]));

  Live.Tokenizer = class {
    /* vocab: the tokens by id; merges: pairs of tokens that are joined, the first ones first; special: ids of tokens that are no text */
    constructor({ vocab, merges, special }) {
      this.vocab = vocab;
      this.ids = new Map(vocab.map((token, id) => [token, id]));
      this.ranks = new Map(merges.map((pair, rank) => [pair.join(" "), rank]));
      this.special = new Set(special);
      this.begin = special[0];
      this.end = special[1];
    }

    /* A prompt begins with the token that begins a story. */
    encode(text) {
      const ids = [this.begin];
      for (const { special, words } of this.parts(text)) {
        if (special !== undefined) { ids.push(special); }
        for (const [word] of words.matchAll(WORDS)) { ids.push(...this.joined(word)); }
      }
      return ids;
    }

    /* Special tokens that stand in a text by name, and the text before each. */
    *parts(text) {
      let from = 0;
      for (;;) {
        const found = [...this.special].map(id => [text.indexOf(this.vocab[id], from), id]).filter(([at]) => at >= 0);
        if (!found.length) { break; }
        const [at, id] = found.reduce((a, b) => (b[0] < a[0] ? b : a));
        yield { words: text.slice(from, at) };
        yield { special: id, words: "" };
        from = at + this.vocab[id].length;
      }
      yield { words: text.slice(from) };
    }

    joined(word) {
      const parts = [...new TextEncoder().encode(word)].map(byte => letters[byte]);
      const rank = at => this.ranks.get(`${parts[at]} ${parts[at + 1]}`) ?? Infinity;
      for (;;) {
        let best = 0;
        for (let at = 1; at + 1 < parts.length; at++) { if (rank(at) < rank(best)) { best = at; } }
        if (rank(best) === Infinity) { return parts.map(part => this.ids.get(part)); }
        parts.splice(best, 2, parts[best] + parts[best + 1]);
      }
    }

    /* The text of tokens, without the special ones. A character cut in two becomes a replacement mark. */
    decode(ids) {
      const kept = ids.filter(id => !this.special.has(id));
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(kept.flatMap(id => [...this.vocab[id]].map(letter => bytes.get(letter)))));
    }
  };
})(globalThis.Live ??= {});
