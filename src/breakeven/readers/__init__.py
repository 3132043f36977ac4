"""Reading what servers print: logs of vLLM, SGLang and llama.cpp, and dumps of their metrics.

`sources` gives bytes of whole lines from any file, `formats/` knows each engine's lines, `scan` puts them into `sections` (one for
each start of a server), `dumps` does the same for Prometheus text. `reading` is the result: figures, cuts, phases and findings.
"""
