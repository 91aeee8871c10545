def start(
    path: bytes,
    cwd: bytes,
    argv: list[bytes],
    env: list[bytes],
    groups: list[bytes],
    back: tuple[int, ...],
    born_in: bytes,
    files: list[int],
    cores: bytes,
    most_files: int,
    spool: int,
    record: bytes,
) -> int: ...
