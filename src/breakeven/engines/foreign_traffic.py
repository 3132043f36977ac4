"""Whether somebody else used the server during a window: what it counted against what our client sent and received.

Both sides look at slightly different moments: the scrapes stand a little outside the window, and the server is ahead of what has
arrived. So small differences mean nothing, and the allowance grows with the requests under way.
"""

from __future__ import annotations

from breakeven.engines.base import Counters

__all__ = ["foreign_traffic"]

# Twice the smallest difference that users usually care about would hide in this share of somebody else's tokens.
TOKEN_SHARE = 0.05
# A chunk on its way and the last steps of a request, several drafted tokens each.
TOKENS_PER_REQUEST = 32
# One request more may have ended between the window's edge and the scrape, at either end.
REQUESTS_PER_SLOT = 2


def foreign_traffic(before: Counters, after: Counters, *, own_tokens: int, own_finished: int, under_way: float) -> str | None:
    """What shows that the counters and our own traffic are not the same thing; None when they agree.

    own_tokens: output tokens that arrived in the window. own_finished: our requests that ended in it.
    under_way: our requests under way, on average over the window.
    """
    slots = max(1.0, under_way)
    slack = TOKEN_SHARE * own_tokens + TOKENS_PER_REQUEST * slots
    tokens = after.generation_tokens - before.generation_tokens
    # counted when requests end, tokens of a window say nothing of it: a request brings all of its own at once
    if tokens - own_tokens > slack and not after.at_finish:
        return f"the server wrote {tokens - own_tokens} tokens more than the {own_tokens} asked for here"
    if own_tokens - tokens > slack and not after.at_finish:
        return (
            f"the server counted {tokens} tokens where {own_tokens} arrived here: the counters are another server's, "
            "or a replica is missing from metrics_urls"
        )
    if before.num_requests is not None and after.num_requests is not None:
        finished = after.num_requests - before.num_requests
        if finished - own_finished > REQUESTS_PER_SLOT * slots + TOKEN_SHARE * own_finished:
            return f"the server ended {finished - own_finished} requests more than the {own_finished} sent from here"
    return None
