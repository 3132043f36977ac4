from __future__ import annotations

from pathlib import Path

from breakeven.engines.server_log import log_lines, log_tail


def test_the_last_lines_without_what_a_terminal_would_act_on(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\n\n\x1b[31mtwo\x1b[0m\r\n 10%\r 50%\r100%\nthree\x07\x1b]0;title\x07 \xff\nlong " + b"x" * 9000)
    lines = log_tail(file, 4)
    assert lines[:3] == ("two", "100%", "three \ufffd")
    assert len(lines[3]) == 500
    assert log_lines(file)[0] == "one"


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert log_tail(file, 2) == ("line 99998", "line 99999")


def test_no_log_is_no_lines(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none.log") == ()
