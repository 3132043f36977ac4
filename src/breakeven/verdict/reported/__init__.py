"""Judging figures that somebody reported, without raw samples: a table in, a `Result` of kind "reported" out.

`schema` (of `cells` and `figures`) and `files` read the table, `gathering` makes `arms` of its rows, `readings` and `admission` say
what the figures mean, `comparing` does the arithmetic, `findings`, `missing`, `conclusions`, `sweeps` and `deciding` put it into
words, `judge` assembles the result.
"""

from breakeven.verdict.reported.judge import judge_reported, judge_table

__all__ = ["judge_reported", "judge_table"]
