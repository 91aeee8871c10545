from typing import Any

class Arrays:
    arrays: dict[str, Any]
    def __init__(self, **arrays: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class View(Arrays): ...

class PreemptionPlan(Arrays):
    ARRAYS: dict[str, tuple[Any, int]]

class Tree(Arrays):
    ARRAYS: dict[str, tuple[Any, int]]

def __getattr__(name: str) -> Any: ...
