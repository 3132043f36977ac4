"""Heads in and out: folders of any trainer read into the one model, and one folder that vLLM and SGLang both read rightly."""
