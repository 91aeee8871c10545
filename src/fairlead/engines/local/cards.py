"""The environment variables by which programs see only a task's own accelerator cards. Standard library only.

They are a convention: a program that changes them sees all cards.

- CUDA sees none if the list is empty, and numbers cards as nvidia-smi does only with `CUDA_DEVICE_ORDER`.
- HIP (ROCm) counts from 0 what `ROCR_VISIBLE_DEVICES` leaves, which is none if that is set and empty. An empty
  `HIP_VISIBLE_DEVICES` alone would show all.
- Level Zero (oneAPI) shows all cards for an empty mask, and none for a number that no card has. SYCL filters what is left.
"""

from collections.abc import Sequence

NO_SUCH_CARD = "65535"


def visible(cards: Sequence[int]) -> dict[str, str]:
    """Return the variables of a task that has these cards, by index."""
    listed = ",".join(map(str, cards))
    found = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": listed,
        "ROCR_VISIBLE_DEVICES": listed,
        "HIP_VISIBLE_DEVICES": ",".join(map(str, range(len(cards)))),
        "ZE_AFFINITY_MASK": listed or NO_SUCH_CARD,
    }
    return found if cards else found | {"ONEAPI_DEVICE_SELECTOR": "!*:gpu"}
