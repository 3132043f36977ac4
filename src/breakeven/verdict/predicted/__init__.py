"""Predictions: what a drafter would gain where it was not measured, from kernel tables, step times or measured tables.

`acceptance`, `step_file` and `reported_rows` read what users have, `surfaces`, `kernels` and `tables` predict, `result` is the type
that comes out.
"""
