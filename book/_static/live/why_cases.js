/* Cases in which speculation is slow, or not, for the calculator of why.js. Times in any unit; {calls, draft, accepted, gamma, between, prompt, tokens, told}. */
(Live => {
  "use strict";
  Live.CASES = {
    "The target's own copy in eight bits": { calls: [34, 40, 44, 47, 49, 53, 57, 61, 66], draft: 11.4, accepted: [0.93], gamma: 5, between: 1,
      told: "SmolLM2 on a laptop, with the compiled loops of this book: the draft is the same model with weights of eight bits (chapter 10). The calls of several tokens are cheap, the draft costs a third, and 93 % of its tokens are accepted." },
    "Products made for one row": { calls: [60, 113, 148, 138, 128, 133, 138, 143, 148], draft: 8, accepted: [0.8], gamma: 5, between: 1,
      told: "SmolLM2 on a laptop in PyTorch, and a draft that costs an eighth of a call. PyTorch's product has a quick way for one token, and another for several, which arranges the weights anew in each call. So the second token costs nearly as much as the first." },
    "A draft that is too deep": { calls: [24, 24, 24, 25, 25, 25, 25, 26, 26], draft: 30, accepted: [0.75], gamma: 4, between: 1,
      told: "Small models on a GPU: the time goes into starting the operations of one layer after another. SmolLM2-135M has 30 layers and SmolLM2-1.7B only 24, so the small model is the slower one. (Times in proportion to the layers.)" },
    "The draft was trained to a smaller depth": { calls: [30, 31, 32, 32, 33, 34, 35, 35, 36], draft: 5, accepted: [0.78, 0.74, 0.7, 0.35, 0.2, 0.12, 0.1, 0.1], gamma: 8, between: 1,
      told: "A network that was trained on three of its own steps drafts eight tokens. From the fourth on, it reads states that it has never seen." },
    "The chat template is missing": { calls: [30, 31, 32, 32, 33, 34, 35, 35, 36], draft: 4, accepted: [0.22], gamma: 5, between: 1,
      told: "The heads learnt from answers to chat messages. The prompt came without the chat template, so the target writes another kind of text, and few guesses are right." },
    "The draft reads a long prompt": { calls: [30, 31, 32, 33, 34, 35, 36, 37, 38], draft: 6, accepted: [0.8], gamma: 4, between: 1, prompt: 900, tokens: 40,
      told: "A summary of 40 tokens. The draft must read the long text too before it can guess, and plain decoding does not pay for that." },
    "The target is quantized, the draft is not": { calls: [9, 10, 10, 11, 11, 12, 12, 13, 13], draft: 6, accepted: [0.8], gamma: 4, between: 1,
      told: "The target's weights have four bits, and its calls became three times as quick. The draft still has sixteen bits. What used to be a fifth of a call is now two thirds of one." },
    "A mixture of experts": { calls: [20, 33, 45, 57, 68, 78, 88, 97, 106], draft: 3, accepted: [0.8], gamma: 4, between: 1,
      told: "Each token chooses 8 of 128 experts. Several tokens choose different ones, so a call with five tokens reads four times as many weights. (Calculated for experts that make up 70 % of a token's weights, and are chosen independently.)" },
    "The engine needs time between calls": { calls: [8, 8, 8, 9, 9, 9, 9, 9, 10], draft: 1.2, accepted: [0.75], gamma: 4, between: 11,
      told: "A small model in a large engine. Between two calls, the engine plans the next batch, copies tokens and samples in Python. With drafts it has more to do." }
  };
})(globalThis.Live ??= {});
