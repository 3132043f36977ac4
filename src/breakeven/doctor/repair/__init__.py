"""`breakeven doctor --fix OUT_DIR`: a repaired copy of a drafter for faults that have one right repair, and what changed in it.

`copying` is the copy under way, `configuration` and `tensors` hold the repairs, one function a fault, `writing` applies and writes.
"""
