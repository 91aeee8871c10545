"""Points in time in traces: seconds, or a date and time."""

from datetime import UTC, datetime

from fairlead.model.faults import shortened
from fairlead.model.quantity import plain_number


def moment(column: str, text: str, unit: float = 1.0) -> float:
    """Return seconds. Raises ValueError for text that is neither a number nor a date and time, of which UTC is the default."""
    try:
        return float(plain_number(text)) * unit
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{column}: write a number, or a date and time, not {shortened(repr(text))}") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
