"""Sets of accelerator cards of a node as words: bit i of word k is card 63 k + i, as the node's engine numbers them."""

from collections.abc import Collection, Iterable, Sequence

BITS = 63
"""Cards in a word, which is a signed integer of 64 bits."""


def words_of(cards: Collection[int]) -> list[int]:
    """Return cards as words, no more than needed."""
    words = [0] * (1 + max(cards, default=-1) // BITS)
    for card in cards:
        words[card // BITS] |= 1 << card % BITS
    return words


def cards_of(words: Iterable[int]) -> list[int]:
    """Return the cards of words, in order."""
    return [BITS * k + i for k, word in enumerate(words) for i in range(int(word).bit_length()) if word >> i & 1]


def named(cards: Sequence[int]) -> str:
    """Return cards as text: ``card 3``, ``cards 0, 1``."""
    return f"card{'s' * (len(cards) != 1)} {', '.join(map(str, cards))}"
