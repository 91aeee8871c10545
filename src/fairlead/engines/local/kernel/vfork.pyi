def start(
    path: bytes,
    cwd: bytes,
    argv: list[bytes],
    env: list[bytes],
    files: list[int],
    cores: bytes,
    most_files: int,
    spool: int,
    record: bytes,
) -> int: ...
