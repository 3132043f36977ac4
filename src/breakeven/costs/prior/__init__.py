"""c before any hardware: what every part of a plain step, a verification and a draft takes, from measured kernel tables."""
