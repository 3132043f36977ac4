from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from breakeven.drafter.serving.streaming import TextStream


def one_byte(token_id: int) -> bytes:
    return bytes([token_id])


def push_all(stream: TextStream, tokens: list[list[int]]) -> tuple[str, int, str | None]:
    text, num_tokens = "", 0
    for index, chunk in enumerate(tokens):
        delta = stream.push(chunk, last=index == len(tokens) - 1)
        text += delta.text
        num_tokens += delta.num_tokens
        if delta.stopped_by is not None:
            return text, num_tokens, delta.stopped_by
    return text, num_tokens, None


def chunks_of(data: bytes, sizes: list[int]) -> list[list[int]]:
    chunks, start = [], 0
    for size in sizes:
        chunks.append(list(data[start : start + size]))
        start += size
    return [*chunks, list(data[start:])]


def test_incomplete_character_is_held_back() -> None:
    stream = TextStream(one_byte)
    first, *rest = "é".encode()
    assert stream.push([first]).text == ""
    assert stream.push(rest).text == "é"


def test_what_never_completes_becomes_a_replacement_character() -> None:
    stream = TextStream(one_byte)
    assert stream.push([0xF0, 0x9F], last=True).text == "�"


@given(st.binary(max_size=40), st.lists(st.integers(1, 5), max_size=10))
def test_any_split_of_any_bytes_gives_the_text_of_the_whole(data: bytes, sizes: list[int]) -> None:
    text, num_tokens, _ = push_all(TextStream(one_byte), chunks_of(data, sizes))
    assert text == data.decode("utf-8", "replace")
    assert num_tokens == len(data)


def test_stop_string_across_chunks_is_never_shown() -> None:
    stream = TextStream(one_byte, ["END"])
    assert stream.push(b"one E").text == "one "
    assert stream.push(b"N").text == ""
    delta = stream.push(b"Dxyz")
    assert (delta.text, delta.stopped_by, delta.num_tokens) == ("", "END", 1)


def test_what_only_looked_like_a_stop_string_is_released() -> None:
    stream = TextStream(one_byte, ["END"])
    assert stream.push(b"EN").text == ""
    assert stream.push(b"Z").text == "ENZ"


def test_held_text_is_released_at_the_end() -> None:
    assert TextStream(one_byte, ["END"]).push(b"xEN", last=True).text == "xEN"


def test_stop_string_of_several_bytes_a_character() -> None:
    assert push_all(TextStream(one_byte, ["→"]), [list("a→b".encode())]) == ("a", 4, "→")


@given(
    st.text(alphabet="abé", max_size=30),
    st.lists(st.text(alphabet="abé", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), max_size=12),
)
def test_text_ends_where_the_first_stop_string_completes(text: str, stops: list[str], sizes: list[int]) -> None:
    shown, _, stopped_by = push_all(TextStream(one_byte, stops), chunks_of(text.encode(), sizes))
    ends = [(text.index(stop) + len(stop), stop) for stop in stops if stop in text]
    if not ends:
        assert (shown, stopped_by) == (text, None)
        return
    # of those that complete with the same character, the longest begins first
    end = min(ends)[0]
    longest = max((stop for position, stop in ends if position == end), key=len)
    assert (shown, stopped_by) == (text[: end - len(longest)], longest)
