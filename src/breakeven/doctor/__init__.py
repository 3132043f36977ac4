"""Why is acceptance poor? Named fault, evidence, remedy, from files, flags and logs alone.

`gather` turns what the user has into `evidence`; `registry` is the one table of rules; each file under `rules/` is one fault, a
pure function of the evidence; `weighing` orders and combines what they find; `repair` mends what has one right repair.
"""
