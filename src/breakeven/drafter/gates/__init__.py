"""Gates of a training: what must hold before a GPU is spent, before a curve is believed, and before a head is shipped."""
