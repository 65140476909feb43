"""Widgets with sliders and fields, for a page with a kernel; each has a static figure for a page without one.

ipywidgets is imported only here, and only when a widget is made. The widgets use only what both ipywidgets 7.7 (on
Colab) and 8 have: sliders, a text field, and an image that is redrawn. A cell with a live widget has the tag
`nbval-ignore-output`.
"""

import io
from collections.abc import Sequence

import numpy as np
import torch

from ..arguments import takes_iterators
from ..sampling.warp import min_p, probabilities, top_k, top_p, typical
from ..sampling.warp import temperature as temperature_warp
from .distributions import next_token_bars, warp_bars
from .labels import Labels
from .palette import STYLE


@takes_iterators
def next_token_figure(lm, prompt, temperatures: Sequence[float] = (0.5, 1.0, 2.0), *, top=8):
    """Draw the next-token distribution after a prompt at several temperatures, as the static form of the widget.

    Every temperature must be above 0. `top` is the number of tokens drawn for each.

    Returns
    -------
    matplotlib.figure.Figure
        It is already closed, so that a notebook shows it only once. Make it the last line of a cell.
    """
    import matplotlib.pyplot as plt

    logits = next_logits(lm, prompt)
    size = 3.7 * len(temperatures), 0.34 * min(top, len(logits)) + 1.3
    figure, axes = plt.subplots(1, len(temperatures), figsize=size, squeeze=False)
    for ax, temperature in zip(axes[0], temperatures, strict=True):
        _draw(ax, lm, logits, temperature, top)
    for ax in axes[0][1:]:
        ax.set_ylabel("")
    figure.tight_layout()
    plt.close(figure)
    return figure


def next_token_explorer(lm, prompt, *, temperature=1.0, top=10):
    """Make a widget with the next-token distribution, a field for the prompt and a slider for the temperature.

    Without a kernel, the page keeps the last picture; put `next_token_figure` beside it for readers of the static page.
    The slider starts at `temperature`, which must be from 0.1 to 3. `top` is the number of tokens drawn.

    Returns
    -------
    ipywidgets.VBox
        If ipywidgets is not installed, the figure of `next_token_figure` instead.
    """
    if not 0.1 <= temperature <= 3:
        raise ValueError(f"temperature must be between 0.1 and 3, the ends of the slider; got {temperature!r}")
    logits = next_logits(lm, prompt)
    try:
        import ipywidgets
    except ImportError:
        return next_token_figure(lm, prompt, (temperature,), top=top)

    wide = ipywidgets.Layout(width="95%")
    text = lm.decode(prompt) if not isinstance(prompt, str) else prompt
    field = ipywidgets.Text(value=text, description="prompt", continuous_update=False, layout=wide)
    options = {"min": 0.1, "max": 3.0, "step": 0.1, "description": "temperature", "continuous_update": False}
    slider = ipywidgets.FloatSlider(value=temperature, layout=wide, **options)
    picture = ipywidgets.Image(value=_picture(lm, logits, temperature, top), format="png", layout=_picture_layout())
    complaint = ipywidgets.Label(value="")

    def redraw(change):
        nonlocal logits
        try:
            if change["owner"] is field:
                logits = next_logits(lm, field.value)
        except ValueError as error:  # an empty or too long prompt: show the error below the old picture
            complaint.value = str(error)
            return
        complaint.value = ""
        picture.value = _picture(lm, logits, slider.value, top)

    for control in (field, slider):
        control.observe(redraw, names="value")
    return ipywidgets.VBox([field, slider, picture, complaint])


# The sliders of `warp_explorer`: (name, warp, smallest value, largest value, step, value at which the warp is off).
# The order is that of transformers: first the temperature, then the filters.
WARP_SLIDERS = (
    ("temperature", temperature_warp, 0.1, 3.0, 0.1, 1.0),
    ("top-k", top_k, 1, 50, 1, 50),
    ("top-p", top_p, 0.05, 1.0, 0.05, 1.0),
    ("min-p", min_p, 0.0, 0.9, 0.02, 0.0),
    ("typical", typical, 0.05, 1.0, 0.05, 1.0),
)


def warp_explorer(lm, prompt, *, top=12, **start):
    """Make a widget that shows what warps do to the distribution after a prompt, with one slider for each warp.

    The warps are applied from the top slider to the bottom one. Each slider has a value at which its warp is off.
    Without a kernel, the page keeps the last picture.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    top : int
        How many tokens to draw.
    **start : float
        The start values of sliders, such as ``temperature=0.7``, ``top_k=5``, ``top_p=0.9``, ``min_p=0.1`` and
        ``typical=0.5``. The other warps are off at the start.

    Returns
    -------
    ipywidgets.VBox
        If ipywidgets is not installed, a figure with the same warps instead.
    """
    values = {name: off for name, *_, off in WARP_SLIDERS}
    for name, value in start.items():
        slider = next((slider for slider in WARP_SLIDERS if slider[0].replace("-", "_") == name), None)
        if slider is None:
            names = ", ".join(name.replace("-", "_") for name in values)
            raise ValueError(f"there is no slider {name!r}; the sliders are {names}")
        if not slider[2] <= value <= slider[3]:
            raise ValueError(f"{name} must be between {slider[2]} and {slider[3]}, the ends of its slider; got {value}")
        values[slider[0]] = value
    logits = torch.as_tensor(next_logits(lm, prompt))[None]
    names = _names(lm)
    try:
        import ipywidgets
    except ImportError:
        return _closed_figure(lambda ax: _draw_warps(ax, names, logits, values, top), top)

    sliders = {}
    for name, _, low, high, step, off in WARP_SLIDERS:
        kind = ipywidgets.IntSlider if isinstance(off, int) else ipywidgets.FloatSlider
        options = {"min": low, "max": high, "step": step, "value": values[name], "description": name}
        sliders[name] = kind(**options, continuous_update=False, layout=ipywidgets.Layout(width="95%"))

    def picture_of_now():
        return _warp_picture(names, logits, {name: slider.value for name, slider in sliders.items()}, top)

    picture = ipywidgets.Image(value=picture_of_now(), format="png", layout=_picture_layout())

    def redraw(change):
        picture.value = picture_of_now()

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    return ipywidgets.VBox([*sliders.values(), picture])


def _names(lm):
    """The texts of all tokens of a model."""
    labels = Labels(lm)
    return [labels.visible(token) for token in range(lm.vocab_size)]


def _active_warps(values):
    """The warps that are not off, in the order of the sliders."""
    return [make(values[name]) for name, make, *_, off in WARP_SLIDERS if values[name] != off]


def _warp_title(values):
    active = [f"{name} {values[name]:g}" for name, *_, off in WARP_SLIDERS if values[name] != off]
    return ", ".join(active) or "no warp"


def _closed_figure(draw, top):
    """A figure on which `draw` has drawn. It is closed, so that a notebook shows it only once."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 0.3 * (top + 1) + 1.3))
    draw(ax)
    plt.close(figure)
    return figure


def _warp_picture(names, logits, values, top):
    """The picture for the values of the sliders, as PNG bytes. Its scale is the same for all values."""
    return _png(0.3 * (min(top, len(names)) + 1) + 1.3, lambda ax: _draw_warps(ax, names, logits, values, top))


def _draw_warps(ax, names, logits, values, top):
    """Draw one distribution before and after the warps that the sliders are set to."""
    before = probabilities(logits)[0].numpy()
    after = probabilities(logits, _active_warps(values))[0].numpy()
    warp_bars(ax, names, before, after, top=top, legend=True, title=_warp_title(values)).set_xlim(0, 1)


def next_logits(lm, prompt):
    """Return the logits of the token after `prompt` as a float64 array of shape (vocab,)."""
    return lm.session(prompt).feed()[-1].cpu().double().numpy()


def _draw(ax, lm, logits, temperature, top):
    """Draw one distribution at one temperature, with the `top` most likely tokens as bars."""
    if not temperature > 0:
        raise ValueError(f"a temperature must be above 0, got {temperature!r}")
    scaled = (logits - logits.max()) / temperature
    probs = np.exp(scaled) / np.exp(scaled).sum()
    order = np.argsort(-logits, kind="stable")[:top]
    labels = Labels(lm)
    texts = [labels.visible(token) for token in order]
    rest = len(probs) - len(texts)
    next_token_bars(ax, texts, probs[order], top=top, title=f"temperature {temperature:g}")
    ax.set_xlim(0, 1.15)  # the same in every picture, so that bars can be compared
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel(f"probability (total {probs[order].sum():.2f}; {rest:,} more tokens)" if rest else "probability")
    return ax


def _picture(lm, logits, temperature, top):
    return _png(0.34 * min(top, len(logits)) + 1.3, lambda ax: _draw(ax, lm, logits, temperature, top))


def _picture_layout():
    """The layout of a widget's picture: its size is fixed, so that it is not stretched to the page's width."""
    import ipywidgets

    return ipywidgets.Layout(width="700px", max_width="100%", align_self="flex-start")


def _png(height, draw):
    """A figure on which `draw` has drawn, 7 inches wide, as PNG bytes. It has twice the pixels at which it is shown."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    # The figure is not cropped, so that all pictures of a widget have the same size, whatever the sliders are set to.
    with rc_context({**STYLE, "savefig.bbox": None}):
        figure = Figure(figsize=(7, height), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(buffer, format="png", dpi=200)
    return buffer.getvalue()
