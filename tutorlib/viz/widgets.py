"""Things to turn and slide, for a page with a kernel behind it; each has a static figure for a page without one.

ipywidgets is imported here and nowhere else, and only when a widget is made. Only what is in both ipywidgets 7.7 (which
Colab has) and 8 is used: sliders, a text field, and an image that is redrawn. A live widget's cell carries the tag
`nbval-ignore-output`.
"""

import io
from collections.abc import Sequence

import numpy as np

from .labels import Labels
from .palette import STYLE
from .plots import next_token_bars


def next_token_figure(lm, prompt, temperatures: Sequence[float] = (0.5, 1.0, 2.0), *, top=8):
    """Draw what may follow a prompt, once for each temperature, side by side: the widget's static form.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    temperatures : sequence of float
        All above 0.
    top : int
        Bars in each picture; the same tokens in each.

    Returns
    -------
    matplotlib.figure.Figure
        Closed already, so that a notebook shows it once: leave it as the last line of a cell.

    Raises
    ------
    ValueError
        If a temperature is not above 0.
    """
    import matplotlib.pyplot as plt

    logits = next_logits(lm, prompt)
    figure, axes = plt.subplots(
        1, len(temperatures), figsize=(3.7 * len(temperatures), 0.34 * min(top, len(logits)) + 1.3), squeeze=False
    )
    for ax, temperature in zip(axes[0], temperatures, strict=True):
        _draw(ax, lm, logits, temperature, top)
    for ax in axes[0][1:]:
        ax.set_ylabel("")
    figure.tight_layout()
    plt.close(figure)
    return figure


def next_token_explorer(lm, prompt, *, temperature=1.0, top=10):
    """Make a widget that shows what may follow a prompt, with a field for the prompt and a slider for the temperature.

    Without a kernel behind the page its last picture stays; put `next_token_figure` beside it for readers of the
    static page.

    Parameters
    ----------
    lm : LM
        With a tokenizer, if the prompt is to be edited.
    prompt : str or list of int
        The first prompt.
    temperature : float
        Where the slider starts, from 0.1 to 3.
    top : int
        How many tokens to draw.

    Returns
    -------
    ipywidgets.VBox
        Or, where ipywidgets is not installed, the figure of `next_token_figure`.

    Raises
    ------
    ValueError
        If the temperature is outside the slider, or the prompt is not one (see `LM.prompt_tokens`).
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
    picture = ipywidgets.Image(value=_picture(lm, logits, temperature, top), format="png")
    complaint = ipywidgets.Label(value="")

    def redraw(change):
        nonlocal logits
        try:
            if change["owner"] is field:
                logits = next_logits(lm, field.value)
        except ValueError as error:  # an empty prompt, or one too long: said under the picture, which stays
            complaint.value = str(error)
            return
        complaint.value = ""
        picture.value = _picture(lm, logits, slider.value, top)

    for control in (field, slider):
        control.observe(redraw, names="value")
    return ipywidgets.VBox([field, slider, picture, complaint])


def next_logits(lm, prompt):
    """Return the logits of the token after `prompt` as a float64 array of shape (vocab,)."""
    return lm.session(prompt).feed()[-1].double().cpu().numpy()


def _draw(ax, lm, logits, temperature, top):
    """One distribution at one temperature, the likeliest `top` tokens as bars."""
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
    ax.set_xlabel(f"probability ({probs[order].sum():.2f} in all; {rest} more tokens)" if rest else "probability")
    return ax


def _picture(lm, logits, temperature, top):
    """The figure as PNG bytes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with rc_context(STYLE):
        figure = Figure(figsize=(7, 0.34 * min(top, len(logits)) + 1.3))
        _draw(figure.add_subplot(), lm, logits, temperature, top)
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
