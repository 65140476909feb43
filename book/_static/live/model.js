/* A Llama with a cache, on the reader's processor: from tokens to logits. Not here: tokens' texts, probabilities, random draws. */
(Live => {
  "use strict";
  const MOST = 8; /* tokens at a time: the kernel has one function for each number from 1 to 8 */
  let compiled; /* the kernel, for all models; null where the browser has no WebAssembly with SIMD */

  /* atob and a loop: Uint8Array.from(text, f) is ten times slower */
  Live.decodeBase64 = text => {
    const letters = atob(text), bytes = new Uint8Array(letters.length);
    for (let i = 0; i < bytes.length; i++) { bytes[i] = letters.charCodeAt(i); }
    return bytes;
  };

  Live.compileKernel = async () => {
    if (compiled === undefined) {
      try { compiled = await WebAssembly.compile(Live.decodeBase64(Live.KERNEL)); } catch { compiled = null; }
    }
    return compiled !== null;
  };

  const half = new Float32Array(65536); /* the value of every float16 */
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    half[bits] = sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
  }

  /* The tensors of a safetensors file of float16 numbers, by name, as they are stored. */
  const tensors = bytes => {
    const headed = 8 + new DataView(bytes.buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(8, headed)));
    delete head.__metadata__;
    return Object.entries(head).map(([name, { dtype, data_offsets: [from, to] }]) => {
      if (dtype !== "F16") { throw new Error(`${name} is stored as ${dtype}, not as F16`); }
      return [name, new Uint16Array(bytes.slice(headed + from, headed + to).buffer)];
    });
  };

  Live.Model = class {
    /* config: that of transformers; bytes: the model's safetensors file; more: such files with the weights of heads or a network on the
       model; sessions: how many texts can be held at the same time */
    constructor(config, bytes, more = [], sessions = 3) {
      const { hidden_size: H, intermediate_size: M, num_hidden_layers: L, head_dim: D, vocab_size: V } = config;
      const stored = [bytes, ...more].flatMap(tensors), context = config.max_position_embeddings, cache = 2 * L * context * H;
      const count = stored.reduce((sum, [, tensor]) => sum + tensor.length, 0) + sessions * cache + 2 * context * H + MOST * (4 * H + 3 * M + V) + 2 * context;
      this.config = config;
      this.context = context;
      this.memory = compiled ? new WebAssembly.Memory({ initial: Math.ceil(count / 16384) + 1 }) : null;
      this.kernel = compiled && new WebAssembly.Instance(compiled, { page: { memory: this.memory } }).exports;
      this.useKernel = Boolean(this.kernel);
      this.calls = 0;
      /* All numbers are in one array, and a vector is the index at which it begins: so the kernel can read them, too. */
      this.numbers = new Float32Array(compiled ? this.memory.buffer : count + 4);
      let free = 4;
      const take = size => (free += size) - size;
      const weights = this.weights = Object.fromEntries(stored.map(([name, tensor]) => {
        const at = take(tensor.length);
        for (let i = 0; i < tensor.length; i++) { this.numbers[at + i] = half[tensor[i]]; }
        return [name, at];
      }));
      this.layers = Array.from({ length: L }, (_, i) => this.layer(`model.layers.${i}`));
      this.norm = weights["model.norm.weight"];
      this.embeddings = weights["model.embed_tokens.weight"];
      this.x = take(MOST * H); this.y = take(MOST * H); this.q = take(MOST * H); this.v = take(MOST * H);
      this.gate = take(MOST * M); this.up = take(MOST * M); this.packed = take(MOST * M);
      this.logits = take(MOST * V); this.scores = take(context);
      const held = () => ({ k: take(context * H), v: take(context * H) });
      this.caches = Array.from({ length: sessions }, () => this.layers.map(held));
      this.spare = held(); /* for a network of one layer on the model */
      const angle = (position, i) => Math.fround(position * Math.fround(config.rope_parameters.rope_theta ** (-2 * i / D)));
      this.angles = Array.from({ length: context }, (_, position) =>
        Array.from({ length: D / 2 }, (_, i) => [Math.cos(angle(position, i)), Math.sin(angle(position, i))]));
    }

    /* Where the weights of a layer begin. */
    layer(prefix) {
      const of = name => this.weights[`${prefix}.${name}.weight`];
      return { norm: of("input_layernorm"), q: of("self_attn.q_proj"), k: of("self_attn.k_proj"), v: of("self_attn.v_proj"), o: of("self_attn.o_proj"),
        norm2: of("post_attention_layernorm"), gate: of("mlp.gate_proj"), up: of("mlp.up_proj"), down: of("mlp.down_proj") };
    }

    session() {
      if (!this.caches.length) { throw new Error("all sessions of this model are taken"); }
      return new Live.Session(this, this.caches.pop());
    }

    /* y[t, o] = sum of w[o, i] x[t, i], for `tokens` vectors x; the rows of w begin `stride` numbers apart */
    products(y, w, x, tokens, rows, length, stride = length) {
      const F = this.numbers;
      if (this.useKernel) {
        let input = x;
        if (tokens > 1) { /* four numbers of each token in turn */
          input = this.packed;
          for (let i = 0, to = input; i < length; i += 4) {
            for (let t = 0, from = x + i; t < tokens; t++, from += length, to += 4) {
              F[to] = F[from]; F[to + 1] = F[from + 1]; F[to + 2] = F[from + 2]; F[to + 3] = F[from + 3];
            }
          }
        }
        this.kernel[`dot${tokens}`](4 * y, 4 * w, 4 * input, rows, length, 4 * stride, 4 * rows);
        return;
      }
      for (let t = 0; t < tokens; t++) {
        for (let o = 0; o < rows; o++) {
          let a = 0, b = 0, c = 0, d = 0;
          for (let i = 0, j = w + o * stride, k = x + t * length; i < length; i += 4, j += 4, k += 4) {
            a += F[j] * F[k]; b += F[j + 1] * F[k + 1]; c += F[j + 2] * F[k + 2]; d += F[j + 3] * F[k + 3];
          }
          F[y + t * rows + o] = a + b + (c + d);
        }
      }
    }

    /* y = x / (root of the mean square of x) * weights, for each token */
    normalize(y, x, weights, tokens) {
      const F = this.numbers, H = this.config.hidden_size;
      for (let from = x; from < x + tokens * H; from += H, y += H) {
        let sum = 0;
        for (let i = 0; i < H; i++) { sum += F[from + i] ** 2; }
        const scale = 1 / Math.sqrt(sum / H + this.config.rms_norm_eps);
        for (let i = 0; i < H; i++) { F[y + i] = F[from + i] * scale * F[weights + i]; }
      }
    }

    /* Turn the two halves of each head by the angles of the token's position. */
    rotate(x, positions) {
      const F = this.numbers, { hidden_size: H, head_dim: D } = this.config;
      for (const [t, position] of positions.entries()) {
        for (let head = x + t * H; head < x + (t + 1) * H; head += D) {
          this.angles[position].forEach(([cos, sin], i) => {
            const a = F[head + i], b = F[head + i + D / 2];
            F[head + i] = a * cos - b * sin;
            F[head + i + D / 2] = b * cos + a * sin;
          });
        }
      }
    }

    /* One token's attention, one head: y = sum of softmax(q k[j]) v[j] over the places j < length in the cache, but for the hidden ones.
       In the cache, v is turned: one row for each number, so that this is a product of rows like all others. */
    attend(y, q, { k, v }, head, length, hidden) {
      const F = this.numbers, { hidden_size: H, head_dim: D } = this.config, p = this.scores, whole = (length + 3) & ~3;
      this.products(p, k + head, q, 1, whole, D, H);
      for (const j of hidden) { F[p + j] = -Infinity; }
      let most = -Infinity, sum = 0;
      for (let j = p; j < p + length; j++) { most = Math.max(most, F[j]); }
      for (let j = p; j < p + length; j++) { sum += F[j] = Math.exp((F[j] - most) / Math.sqrt(D)); }
      for (let j = p; j < p + length; j++) { F[j] /= sum; }
      F.fill(0, p + length, p + whole);
      this.products(y, v + head * this.context, p, 1, D, whole, this.context);
    }

    /* Change the states of T tokens in this.x by one layer, whose keys and values go to `held`, from `place` on. A layer without a first norm
       reads the states as they are. */
    apply(layer, held, T, place, positions, hidden) {
      const F = this.numbers, { x, y, q, v, gate, up, context } = this, k = held.k + place * this.config.hidden_size;
      const { hidden_size: H, intermediate_size: M, head_dim: D } = this.config;
      const add = (to, from) => { for (let i = 0; i < T * H; i++) { F[to + i] += F[from + i]; } };
      if (layer.norm === undefined) { F.copyWithin(y, x, x + T * H); } else { this.normalize(y, x, layer.norm, T); }
      this.products(q, layer.q, y, T, H, H);
      this.products(k, layer.k, y, T, H, H);
      this.products(v, layer.v, y, T, H, H);
      this.rotate(q, positions);
      this.rotate(k, positions);
      for (let t = 0; t < T; t++) { for (let j = 0; j < H; j++) { F[held.v + j * context + place + t] = F[v + t * H + j]; } }
      for (let t = 0; t < T; t++) {
        for (let head = 0; head < H; head += D) { this.attend(y + t * H + head, q + t * H + head, held, head, place + t + 1, hidden[t]); }
      }
      this.products(q, layer.o, y, T, H, H);
      add(x, q);
      this.normalize(y, x, layer.norm2, T);
      this.products(gate, layer.gate, y, T, M, H);
      this.products(up, layer.up, y, T, M, H);
      for (let j = 0; j < T * M; j++) { F[gate + j] *= F[up + j] / (1 + Math.exp(-F[gate + j])); }
      this.products(q, layer.down, gate, T, H, M);
      add(x, q);
    }

    /* The vectors of T tokens that begin at an index of the memory. */
    vectors(from, T, size) { return Array.from({ length: T }, (_, t) => this.numbers.slice(from + t * size, from + (t + 1) * size)); }

    /* Read at most eight tokens into the cache, the first of them at `place`; return the logits after each, as Float32Arrays.
       positions, hidden: where the tokens stand in their text, and which places each must not see; needed where texts branch. */
    forward(tokens, cache, place, positions = tokens.map((_, t) => place + t), hidden = tokens.map(() => [])) {
      const F = this.numbers, T = tokens.length, { x, y } = this, { hidden_size: H, vocab_size: V } = this.config;
      tokens.forEach((token, t) => F.copyWithin(x + t * H, this.embeddings + token * H, this.embeddings + (token + 1) * H));
      this.layers.forEach((layer, i) => this.apply(layer, cache[i], T, place, positions, hidden));
      this.normalize(y, x, this.norm, T);
      this.products(this.logits, this.embeddings, y, T, V, H);
      this.calls += 1;
      this.states = this.vectors(y, T, H); /* what the output layer reads, for heads */
      return this.vectors(this.logits, T, V);
    }
  };

  /* One text, of which the model remembers what it has read. */
  Live.Session = class {
    constructor(model, cache) {
      this.model = model;
      this.cache = cache;
      this.context = model.context;
      this.tokens = [];
      this.states = []; /* of each token, what the output layer reads */
    }

    /* The logits after each of the last `count` tokens of a text. Only what is new in the text is read; what is no longer in it is
       forgotten. */
    rows(text, count = 1) {
      if (text.length < count || text.length > this.context) { throw new RangeError(`a text has from ${count} to ${this.context} tokens`); }
      let same = 0;
      while (same < Math.min(this.tokens.length, text.length - count) && this.tokens[same] === text[same]) { same += 1; }
      const rows = [];
      this.tokens.length = this.states.length = same;
      while (this.tokens.length < text.length) {
        const next = text.slice(this.tokens.length, this.tokens.length + MOST);
        rows.push(...this.model.forward(next, this.cache, this.tokens.length));
        this.tokens.push(...next);
        this.states.push(...this.model.states);
      }
      return rows.slice(rows.length - count);
    }
  };
})(globalThis.Live ??= {});
