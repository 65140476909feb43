"""The plugin that compares pictures, and the kinds and order of outputs, notices what nbval passes."""

import io
import os
import subprocess
import sys
from base64 import b64decode, b64encode

import matplotlib.pyplot as plt
import nbformat
import pytest
from build_book import ROOT
from compare_outputs import OTHER_VERSION, difference, forms
from execute_notebooks import execute, fewer_colours
from PIL import Image


def drawn(heights, width=6.0):
    figure = plt.figure(figsize=(width, 3))
    axes = figure.add_subplot()
    axes.bar(range(len(heights)), heights)
    axes.set(xlabel="position", ylabel="probability", ylim=(0, 1))
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=200)
    plt.close(figure)
    return b64encode(file.getvalue()).decode()


def grey(png):
    file = io.BytesIO()
    Image.new("RGB", Image.open(io.BytesIO(b64decode(png))).size, (127, 127, 127)).save(file, "png")
    return b64encode(file.getvalue()).decode()


def test_a_figure_drawn_again_equals_the_stored_one_and_a_changed_number_does_not(figures):
    png = drawn([0.5, 0.3, 0.2])
    assert difference(png, fewer_colours(png)) == difference(drawn([0.5, 0.3, 0.2]), png) == ""
    assert "pixels" in difference(drawn([0.5, 0.3, 0.2], 7), png)
    for other in (grey(png), drawn([0.5, 0.3, 0.22]), drawn([0.3, 0.5, 0.2]), drawn([0.5, 0.3])):
        assert "another picture" in difference(other, png)
    for other in (grey(png), drawn([0.3, 0.5, 0.2]), drawn([0.5, 0.3])):
        assert "another picture" in difference(other, png, OTHER_VERSION)


def test_printed_text_in_pieces_is_one_output_and_the_order_of_outputs_counts():
    text, table = nbformat.v4.new_output("stream", text="a"), nbformat.v4.new_output("display_data", {"text/html": "b"})
    assert forms([text, text, table]) == forms([text, table]) != forms([table, text])
    result = nbformat.v4.new_output("execute_result", {"text/html": "b"})
    assert forms([result]) != forms([table])


SOURCE = """
import matplotlib.pyplot as plt
print("a line")
_ = plt.bar([0, 1], [0.7, 0.3])
"""


def in_grey(outputs):
    outputs[1].data["image/png"] = grey(outputs[1].data["image/png"])


@pytest.mark.slow
def test_nbval_with_the_plugin_fails_for_another_picture_and_for_another_order(tmp_path):
    made = tmp_path / "as_executed.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SOURCE)]), made)
    assert execute(made)
    for name, change in (("grey", in_grey), ("reversed", list.reverse)):
        notebook = nbformat.read(made, as_version=4)
        change(notebook.cells[0].outputs)
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "compare_outputs", "--nbval", "--nbval-current-env"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "book" / "_tools")}
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert "PASSED as_executed.ipynb" in said and "FAILED grey.ipynb" in said and "FAILED reversed.ipynb" in said
    assert "another picture than the stored one" in said and "in another order" in said
