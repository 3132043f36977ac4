"""What engines print as "accept length" and "accept rate", and what it means. Conversions both ways, and inference.

`formulas` are the definitions met in the field, `definitions` the table of who prints which in which releases, `figures` numbers
with the precision they were printed with, and `reading` turns a printed (length, rate) into true acceptance, or refuses to: which
definitions fit is `fitting`, what to say where none does `contradiction`, and what comes out `result`.
"""
