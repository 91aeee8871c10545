"""The names that requests may be for: a page of somebody else's may have a browser ask this machine under a name of its own."""


def name_in(header: str) -> str:
    """The name in a Host header: without a port, in lower case, an IPv6 address without its brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def is_one(name: str, hosts: set[str]) -> bool:
    """Whether a name is among some, or one below one that stands for all below it (``*.lab.example``)."""
    return bool({name, f"*.{name.partition('.')[2]}"} & hosts)
