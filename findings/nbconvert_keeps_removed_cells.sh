#!/bin/sh
# nbconvert 7.17.2: TagRemovePreprocessor.remove_cell_tags removes nothing with --to notebook, and exits with 0.
#
# One would expect: the option removes the tagged cells in every format: solutions from a handout, for instance.
# What happens: the preprocessor is switched on for html, slides, markdown and script. For notebooks it is off unless it is
#   enabled too; the option alone is accepted in silence, and the cells stay.
# Why it matters: a notebook for students made this way contains the solutions. Add
#   --TagRemovePreprocessor.enabled=True, and look into what you hand out.
# Seen (a notebook with a cell "question" and a cell "answer", tagged "solution"):
#   --to notebook: both cells; --to script: the question; --to notebook and enabled=True: the question
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --no-compile nbconvert==7.17.2 nbformat==5.11.1 || exit 2
cd "$dir"
cat >book.ipynb <<'JSON'
{"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "source": "question = 1", "outputs": [], "execution_count": 1},
           {"cell_type": "code", "id": "b", "metadata": {"tags": ["solution"]}, "source": "answer = 2", "outputs": [],
            "execution_count": 2}],
 "metadata": {"language_info": {"name": "python", "file_extension": ".py"}}, "nbformat": 4, "nbformat_minor": 5}
JSON
convert() {
  venv/bin/python -m nbconvert --log-level=ERROR --TagRemovePreprocessor.remove_cell_tags=solution "$@" book.ipynb
}
convert --to notebook --output plain
convert --to script --output script
convert --to notebook --output enabled --TagRemovePreprocessor.enabled=True
grep -c "answer" plain.ipynb script.py enabled.ipynb || true
grep -q "question" script.py && grep -q "question" enabled.ipynb || { echo "nbconvert lost the question."; exit 1; }
if ! grep -q "answer" plain.ipynb || grep -q "answer" script.py || grep -q "answer" enabled.ipynb; then
  echo "nbconvert's remove_cell_tags no longer works everywhere but for --to notebook."
  exit 1
fi
