"""Measured kernel times of `aiconfigurator-core` (Apache-2.0, PyPI), read as data: tables by system, engine and kind of kernel.

Only its Parquet and YAML files are read; none of its code runs. The package is the optional extra `predict`.
"""
