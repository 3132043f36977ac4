"""Does speculative decoding pay on this deployment, how good must a drafter be, and why does this one fall short?"""

__version__ = "0.1.0"
