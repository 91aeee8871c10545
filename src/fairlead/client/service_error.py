"""What a call that the scheduler did not grant raises. Apart from the connection, which takes its time to be imported."""


class ServiceError(RuntimeError):
    """The scheduler refused, or there is none. The message is one line: what, and what to do.

    Attributes
    ----------
    status : int or None
        The HTTP status of a refusal; None where there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
