"""Long texts in pieces: within the limit, nothing lost, no fence left open."""

from hypothesis import given, strategies as st

from hermes_bridge.connector.core.split import shorten, split


def test_a_short_text_is_one_piece_and_blank_is_none() -> None:
    assert split("hello", 4000) == ["hello"]
    assert split(" \n ", 4000) == []


def test_cuts_prefer_paragraphs_then_lines_then_words() -> None:
    text = "a" * 30 + "\n\n" + "b" * 30
    assert split(text, 40) == ["a" * 30, "b" * 30]
    assert split("one two three four five six seven", 20)[0] == "one two three"
    assert split("x" * 50, 20) == ["x" * 16, "x" * 16, "x" * 18]


def test_a_fence_is_closed_and_opened_again() -> None:
    text = "```python\n" + "\n".join(f"line {n}" for n in range(30)) + "\n```\nend"
    pieces = split(text, 120)
    assert all(piece.count("```") % 2 == 0 for piece in pieces)
    assert all(piece.startswith("```python\n") for piece in pieces[:-1])
    assert pieces[-1].endswith("end")


@given(
    text=st.lists(
        st.sampled_from(["word", " ", "\n", "\n\n", "```\n", "x" * 30, "```py\n"]), max_size=60
    ),
    limit=st.integers(80, 200),
)
def test_every_piece_fits_and_every_word_survives(text: list[str], limit: int) -> None:
    whole = "".join(text)
    pieces = split(whole, limit)
    assert all(0 < len(piece) <= limit for piece in pieces)
    kept = "".join(pieces).replace("`", "").replace("\n", "").replace(" ", "").replace("py", "")
    wanted = whole.replace("`", "").replace("\n", "").replace(" ", "").replace("py", "")
    assert kept == wanted


def test_shortening_says_so() -> None:
    assert shorten("abc", 3, "!") == "abc"
    assert shorten("abcdef", 4, "!") == "abc!"
