from typing import Any

from fairlead.scheduler.kernel.scheduling import Arrays

class Tape(Arrays): ...

def __getattr__(name: str) -> Any: ...
