"""Make the font in which browsers set the book's formulas: the part of Latin Modern Math that formulas need.

    pip install fonttools brotli
    python book/_tools/make_math_font.py latinmodern-math.otf

Without a mathematics font a browser on Linux puts subscripts on the line itself: where they belong is written in a
font's MATH table, which the part keeps. Version 1.959 of the font comes with every TeX distribution, and in Debian's
package fonts-lmodern. The result is committed, so that nothing is downloaded to build or to read the book; it carries
a name of its own, as the font's licence asks of changed copies.
"""

import argparse
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

FOLDER = Path(__file__).resolve().parents[1] / "_static"
NAME = "Book Math"
# What formulas are made of: signs, and the first and last of each row of letters.
SIGNS = """
    \N{NO-BREAK SPACE}\N{COMBINING CIRCUMFLEX ACCENT}\N{COMBINING TILDE}\N{COMBINING MACRON}
    ¬±·×÷ ˆˇ˘˙˜¯ –—‖…′″‾ ←↑→↓↔↦⇐⇒⇔⟵⟶⟷⟸⟹⟺
    ∀∂∃∅∇∈∉∏∑−∓∗∘√∝∞∣∥∧∨∩∪∫∼≃≈≠≡≤≥≪≫⊂⊃⊆⊇⊕⊗⊙⊤⊥⋅⋮⋯⋱ ⌈⌉⌊⌋⟨⟩⩽⩾ ℎℓℕℝℤℚℂ ℬℰℱℋℐℒℳℛ𝚤𝚥
"""
LETTERS = ["!~", "ΑΡ", "ΣΩ", "αω", "ϑϵ", "𝐴𝑧", "𝒜𝒵", "𝔸𝕐", "𝛼𝜛"]


def make(source, target):
    """Write the part of the font file `source` that formulas need as a WOFF2 file."""
    font = TTFont(source, recalcTimestamp=False)
    left_out = ["FFTM", "GDEF", "GPOS", "GSUB"]
    part = subset.Subsetter(subset.Options(drop_tables=left_out, name_IDs=[0, 1, 2, 4, 6], hinting=False))
    letters = [code for first, last in LETTERS for code in range(ord(first), ord(last) + 1)]
    part.populate(unicodes={*map(ord, SIGNS), *letters})
    part.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 4, 6):
            record.string = NAME.replace(" ", "") if record.nameID == 6 else NAME
    names = font["CFF "].cff
    names.fontNames[0] = NAME.replace(" ", "")
    names[0].FullName = names[0].FamilyName = NAME
    font.flavor = "woff2"
    font.save(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("font", type=Path, help="latinmodern-math.otf")
    target = FOLDER / "book-math.woff2"
    make(parser.parse_args().font, target)
    print(f"{target.name}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
