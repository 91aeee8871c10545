"""Sets of accelerator cards of a node as bits: bit i is card i, as the node's engine numbers them."""

from collections.abc import Iterable, Sequence

MOST_CARDS = 63
"""Cards from this index on are not in a set."""


def bits_of(cards: Iterable[int]) -> int:
    """Return cards as bits."""
    return sum(1 << card for card in set(cards) if 0 <= card < MOST_CARDS)


def named(cards: Sequence[int]) -> str:
    """Return cards as text: ``card 3``, ``cards 0, 1``."""
    return f"card{'s' * (len(cards) != 1)} {', '.join(map(str, cards))}"


def cards_of(bits: int) -> list[int]:
    """Return the cards of bits, in order."""
    return [card for card in range(MOST_CARDS) if bits >> card & 1]
