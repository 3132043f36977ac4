"""Training an EAGLE-3 drafter: the head as a module, the training-time test, and the loop around it."""
