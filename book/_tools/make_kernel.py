"""Assemble the kernel of the live page: dot products in WebAssembly SIMD, a few kilobytes, written byte by byte.

    python book/_tools/make_kernel.py           write book/_static/live/kernel.js
    python book/_tools/make_kernel.py --check   fail unless that file is what this script writes

The module has one function for each number of tokens from 1 to 8. ``dot5`` computes ``y[t, o]``, the sum of the
products ``w[o, i] x[t, i]``, for five tokens at a time:

    dot5(y, w, x, rows, length, stride, out)

    y        address of the results; those of the next token are `out` bytes further
    w        address of the first row of weights; the next row is `stride` bytes further
    x        address of the inputs, four numbers of each token in turn: x[0, 0:4], x[1, 0:4], ..., x[0, 4:8], ...
    rows     how many rows; a multiple of 4
    length   how many numbers in a row; a multiple of 4

All numbers are float32. A weight is loaded once and multiplied with the inputs of all tokens, so five tokens cost far
less than five calls with one token. The bytes are written without WebAssembly's text format, because translating that
would need one more program. The opcodes are those of the WebAssembly specification, section 5.4.
"""

import argparse
import base64
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "_static" / "live" / "kernel.js"
# For each number of tokens: how many rows are computed side by side (what was fastest in Chromium). The running sums,
# rows times tokens, and what they are made of must fit into the 16 vector registers of a processor.
ROWS = {1: 4, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}
I32, V128 = b"\x7f", b"\x7b"  # types of values


def number(value):
    """A count or an index as unsigned LEB128: seven bits a byte, the lowest first."""
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + number(rest) if rest else bytes([low])


def vector(items):
    """Some encoded items, with their count in front."""
    return number(len(items)) + b"".join(items)


def section(kind, content):
    return bytes([kind]) + number(len(content)) + content


def constant(value):
    """``i32.const``, for a value from 0. Its LEB128 is signed: the seventh bit of the last byte would be a minus."""
    low, rest = value & 127, value >> 7
    code = b"\x41"
    while rest or low & 64:
        code += bytes([low | 128])
        low, rest = rest & 127, rest >> 7
    return code + bytes([low])


def simd(opcode, *operands):
    return b"\xfd" + number(opcode) + b"".join(operands)


ADD, SHIFT_LEFT, BELOW = b"\x6a", b"\x74", b"\x49"  # of i32
PLUS = b"\x92"  # of f32
MULTIPLY_4, PLUS_4, ZERO_4 = simd(0xE6), simd(0xE4), simd(12, bytes(16))  # of four f32 at once
END = b"\x0b"


def dot(tokens, side_by_side):
    """The body of the function for `tokens` tokens."""
    parameters = ["y", "w", "x", "rows", "length", "stride", "out"]
    pointers = ["end", "input", "result", "last", *(f"w{row}" for row in range(side_by_side))]
    sums = [[f"sum{row},{token}" for token in range(tokens)] for row in range(side_by_side)]
    vectors = ["factor", *sum(sums, [])]
    names = parameters + pointers + vectors

    def get(name):
        return b"\x20" + number(names.index(name))

    def let(name, *code):
        return b"".join(code) + b"\x21" + number(names.index(name))

    def load(pointer, offset):
        return get(pointer) + simd(0, number(4), number(offset))  # aligned to 2 ** 4 bytes

    def advance(name, *distance):
        return let(name, get(name), *distance, ADD)

    def repeat(code, name, end):
        """Run some code again as long as `name` is below `end`."""
        return b"\x03\x40" + code + get(name) + get(end) + BELOW + b"\x0d\x00" + END

    def store_sum(row, token):
        """Add up the four parts of a running sum, and store the total at `result`."""
        parts = [get(sums[row][token]) + simd(0x1F, bytes([lane])) for lane in range(4)]
        total = parts[0] + parts[1] + PLUS + parts[2] + parts[3] + PLUS + PLUS
        return get("result") + total + b"\x38" + number(2) + number(4 * row)  # f32.store

    inner = b""
    for row in range(side_by_side):
        inner += let("factor", load(f"w{row}", 0))
        for token, name in enumerate(sums[row]):
            inner += let(name, get(name), get("factor"), load("input", 16 * token), MULTIPLY_4, PLUS_4)
    inner += b"".join(advance(f"w{row}", constant(16)) for row in range(side_by_side))
    inner += advance("input", constant(16 * tokens))

    outer = b"".join(let(name, ZERO_4) for row in sums for name in row)
    outer += let("w0", get("w")) + b"".join(
        let(f"w{row}", get(f"w{row - 1}"), get("stride"), ADD) for row in range(1, side_by_side)
    )
    outer += let("w", get(f"w{side_by_side - 1}"), get("stride"), ADD)  # the first of the next rows
    outer += let("end", get("w0"), get("length"), constant(2), SHIFT_LEFT, ADD)
    outer += let("input", get("x")) + repeat(inner, "w0", "end") + let("result", get("y"))
    for token in range(tokens):
        outer += b"".join(store_sum(row, token) for row in range(side_by_side)) + advance("result", get("out"))
    outer += advance("y", constant(4 * side_by_side))

    code = let("last", get("y"), get("rows"), constant(2), SHIFT_LEFT, ADD) + repeat(outer, "y", "last") + END
    local = [number(len(pointers)) + I32, number(len(vectors)) + V128]
    return vector(local) + code


def module():
    """The whole module, as bytes."""

    def name(text):
        return vector([bytes([letter]) for letter in text.encode()])

    bodies = [dot(tokens, rows) for tokens, rows in ROWS.items()]
    exports = [name(f"dot{tokens}") + b"\x00" + number(index) for index, tokens in enumerate(ROWS)]
    return b"".join(
        [
            b"\0asm\x01\0\0\0",
            section(1, vector([b"\x60" + vector([I32] * 7) + vector([])])),  # the one type: seven addresses and counts
            section(2, vector([name("page") + name("memory") + b"\x02\x00" + number(1)])),
            section(3, vector([number(0)] * len(bodies))),
            section(7, vector(exports)),
            section(10, vector([number(len(body)) + body for body in bodies])),
        ]
    )


def script():
    """The text of kernel.js."""
    code = module()
    return (
        f"/* Dot products for 1 to {max(ROWS)} tokens in WebAssembly SIMD, {len(code)} bytes as base64. "
        "Made by book/_tools/make_kernel.py. */\n"
        f'(globalThis.Live ??= {{}}).KERNEL = "{base64.b64encode(code).decode()}";\n'
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing: is the committed kernel this one?")
    if parser.parse_args().check:
        same = TARGET.read_text(encoding="utf-8") == script()
        print("the kernel is up to date" if same else f"{TARGET.name} is not what make_kernel.py writes: run it")
        return 0 if same else 1
    TARGET.write_text(script(), encoding="utf-8")
    print(f"{TARGET.name}: {len(module())} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
