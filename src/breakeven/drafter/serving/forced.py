"""Drafts accepted to order, so that what a round costs can be measured before there is a drafter worth serving."""

from __future__ import annotations

from breakeven.errors import UsageError

__all__ = ["ForcedAcceptance"]


class ForcedAcceptance:
    """A slot's mean over rounds is exact, and no two of its rounds differ by more than one (minimum variance)."""

    def __init__(self, accept_length: float, *, num_draft_tokens: int, num_slots: int) -> None:
        """Raises UsageError: no rounds of so many drafts have this mean."""
        if not num_draft_tokens or not 1.0 <= accept_length <= num_draft_tokens + 1:
            expected = f"1 to {num_draft_tokens + 1}" if num_draft_tokens else "a drafter"
            raise UsageError(
                f"forced accept length {accept_length} cannot be served with {num_draft_tokens or 'no'} drafts a round; "
                f"expected {expected}"
            )
        self._owed_a_round = accept_length - 1.0
        self._most = float(num_draft_tokens)
        # Acceptances owed to each slot, staggered so that a round's total is even too; it outlives the sequences.
        self._credit = [slot / num_slots for slot in range(num_slots)]

    def accepted(self, slot: int, num_drafts: int) -> int:
        """How many of a slot's drafts to accept in this round.

        What a round could not accept, for want of drafts, is made up for by later ones, up to one full round.
        """
        credit = min(self._credit[slot], self._most) + self._owed_a_round
        # the small term keeps 0.1 + 0.2 + ... from falling just short of a whole number
        accepted = min(int(credit + 1e-9), num_drafts)
        self._credit[slot] = credit - accepted
        return accepted
