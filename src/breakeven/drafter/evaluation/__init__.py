"""Honest evaluation: how many drafts the target would really accept, free-running, on prompts that training never saw."""
