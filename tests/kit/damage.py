"""Small damage to a file, for tests that nothing in it gives a traceback."""

from hypothesis import strategies as st

pieces = st.sampled_from(
    [
        '"',
        ",",
        "\n",
        "-",
        "1e400",
        "NaN",
        "nan",
        "9" * 400,
        "null",
        "[",
        ".0",
        "{}",
        "\0",
        ";",
        "true",
        '"x"',
        "é",
        "٣",
        " ",
        "_1",
    ]
)


@st.composite
def mutated(draw: st.DrawFn, sample: str) -> bytes:
    """Draw a file with a few bytes overwritten, cut out or put in."""
    content = bytearray(sample.encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        cut = draw(st.integers(0, 6))
        content[at : at + cut] = draw(st.binary(max_size=2) | pieces.map(str.encode))
    return bytes(content)
