"""Host header checks, against DNS rebinding: a foreign web page may let a browser reach this machine under its own name."""


def name_in(header: str) -> str:
    """Return the name in a Host header: in lower case, without port or the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def is_accepted(name: str, hosts: set[str]) -> bool:
    """True if `hosts` has this name, or a wildcard for it such as ``*.lab.example``."""
    return bool({name, f"*.{name.partition('.')[2]}"} & hosts)
