"""The exception for refused requests; in a file of its own because the connection is slow to import."""


class ServiceError(RuntimeError):
    """The scheduler refused a request, or does not run. The message is one line, with the reason and the remedy.

    Attributes
    ----------
    status : int or None
        HTTP status of the refusal; None without an answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
