"""Readings of metrics dumps: counters exactly, gauges as what they are, the last interval only."""
