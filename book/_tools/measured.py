"""A Sphinx role that puts a measured speed on a page, from the benchmark's files of results, when the page is made.

    {measured}`storyworld, story, 1, speculative`     the speed over the plain loop's: family, kind of prompt,
                                                      temperature, row of the benchmark
    {measured}`smollm2, *, 0, prompt_lookup`          the slowest and the fastest over all kinds of prompt
    {measured}`storyworld, machine`                   what it was measured on

A method that the benchmark runs with several settings, such as "speculative, gamma=2" and "speculative, gamma=8", is
named without them: of its settings, the fastest counts. So a page never says other numbers than the files.
"""

from docutils import nodes

from tutorlib.lab.bench.report import COMMITTED, read_report, where


def report_of(family):
    """The report of a family that comes with the book."""
    found = [read_report(path) for path in sorted(COMMITTED.glob(f"{family}_*.json"))]
    if len(found) != 1:
        raise ValueError(f"{len(found)} files of results in {COMMITTED} are of {family!r}; wanted is 1")
    return found[0]


def fastest(results, method):
    """The best median speed, over the plain loop's, of a method's rows; None where it has none."""
    rows = [one.over_plain.median for one in results if one.name == method or one.name.startswith(f"{method}, ")]
    return max(rows, default=None)


def measured(text):
    """What the role writes for its text; ValueError where nothing like that was measured."""
    family, kind, *rest = (part.strip() for part in text.split(","))
    report = report_of(family)
    if kind == "machine" and not rest:
        return where(report)
    if len(rest) != 2:
        raise ValueError(f'wanted is "family, kind, temperature, method" or "family, machine", got {text!r}')
    temperature, method = float(rest[0]), rest[1]
    speeds = [
        fastest(results, method)
        for condition, results in report["results"].items()
        if kind in ("*", condition.kind) and condition.temperature == temperature and condition.batch == 1
    ]
    speeds = [speed for speed in speeds if speed is not None]
    if not speeds:
        raise ValueError(f"nothing was measured of {text!r}")
    ends = [f"{speed:.2f}" for speed in sorted({min(speeds), max(speeds)})]
    return "–".join(ends)


def role(name, rawtext, text, lineno, inliner, options=None, content=None):
    try:
        return [nodes.Text(measured(text))], []
    except ValueError as error:
        message = inliner.reporter.error(str(error), line=lineno)
        return [inliner.problematic(rawtext, rawtext, message)], [message]


def setup(app):
    app.add_role("measured", role)
    return {"version": "1", "parallel_read_safe": True}
