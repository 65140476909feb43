"""Multi-token prediction: modules that continue the target's last feature by one token each.

A module's input at position t is a state h_t and the embedding of a token, both normed and joined: for the first module
the target's last feature and the token after it, x_{t+1}; for the next module what the first one made of them, and
x_{t+2}. Its output is normed like the target's last feature, and the target's own output head reads it. So a module is
one more layer of the target, a token further on.

A target has one module, which is used again for each further token, or several, each for one token. What this file does
not do: keep a sequence (`draft_session` for one module, `mtp_session` for several), train (`tutorlib.lab.training.
train_mtp`), or read files (`tutorlib.loading.formats`).
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..arguments import check_whole_number
from ..model.lm import LM
from .draft_session import DraftSession
from .eagle_head import DraftNetwork
from .head_parts import Layer, Mix, Rotation, causal
from .mtp_session import ModulesSession


class MtpModule(Layer):
    """A module: token and state are normed and joined, and then go through a layer like the target's."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config, config.hidden_size)
        width, eps = config.hidden_size, config.rms_norm_eps
        self.enorm, self.hnorm = nn.RMSNorm(width, eps=eps), nn.RMSNorm(width, eps=eps)
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        self.input_layernorm = nn.RMSNorm(width, eps=eps)
        self.norm = nn.RMSNorm(width, eps=eps)

    def read(self, embedded: torch.Tensor, hidden: torch.Tensor, rotation: Rotation, mix: Mix) -> torch.Tensor:
        """The normed output (rows, length, width) for embeddings and states of the same shape."""
        pair = [self.enorm.forward(embedded), self.hnorm.forward(hidden)]
        joined = self.eh_proj.forward(torch.cat(pair, dim=-1))
        return self.norm.forward(self.forward(joined, self.input_layernorm.forward(joined), rotation, mix))


class MtpHead(DraftNetwork):
    """The modules of multi-token prediction, with a copy of the target's embeddings, and its own output head.

    Source: DeepSeek-AI (2024), "DeepSeek-V3 Technical Report", section 2.2. Gloeckle et al. (2024), "Better & Faster
    Large Language Models via Multi-token Prediction", has heads side by side in their place, which do not know each
    other's tokens. One module used again and again: Cai et al. (2025), "FastMTP".

    Parameters
    ----------
    config : LlamaConfig
    modules : int
        With 1, the module continues from its own outputs as far as the tree goes. With more, each guesses one token,
        and no more tokens follow each other than there are modules.
    """

    feature_layers = (-1,)

    def __init__(self, config: PreTrainedConfig, modules: int = 1):
        super().__init__(config)
        check_whole_number(modules, 1, "modules is how many there are")
        self.layers = nn.ModuleList(MtpModule(config) for _ in range(modules))
        if modules > 1:
            self.ahead = modules

    @property
    def fc(self) -> nn.Linear:  # type: ignore[override]
        """The layer that joins token and state, in the first module."""
        return self.module(0).eh_proj

    def module(self, step: int) -> MtpModule:
        """The module that takes this step, counted from 0."""
        module = self.layers[min(step, len(self.layers) - 1)]
        assert isinstance(module, MtpModule)
        return module

    def start(self, features: torch.Tensor) -> torch.Tensor:
        return features

    def forward(
        self, tokens: torch.Tensor, hidden: torch.Tensor, rotation: Rotation, mix: Mix = causal, step: int = 0
    ) -> torch.Tensor:
        return self.module(step).read(self.embed_tokens.forward(tokens), hidden, rotation, mix)

    def read_out(self, hidden: torch.Tensor, target: LM) -> torch.Tensor:
        return target.read_out(hidden.to(target.dtype), normed=True)

    def session(self, target: LM) -> DraftSession | ModulesSession:  # type: ignore[override]
        """One sequence of drafts for a target."""
        return ModulesSession(self, target) if len(self.layers) > 1 else DraftSession(self, target)
