"""The accelerators that figures are given against: peak speed and memory, from the vendors' data sheets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """One device as jax counts them."""

    kind: str
    """What its `device_kind` begins with in jax."""

    peak_flops: float
    """Dense bfloat16 FLOP/s."""

    memory: float
    """Bytes of high-bandwidth memory."""


GB, GIB = 1e9, 2.0**30

CHIPS = {
    "v4": Chip("TPU v4", 275e12, 32 * GIB),
    "v5e": Chip("TPU v5 lite", 197e12, 16 * GIB),
    "v5p": Chip("TPU v5", 459e12, 95 * GIB),
    "v6e": Chip("TPU v6 lite", 918e12, 32 * GIB),
    "a100-40": Chip("NVIDIA A100", 312e12, 40 * GB),
    "a100-80": Chip("NVIDIA A100", 312e12, 80 * GB),
    "h100": Chip("NVIDIA H100", 989e12, 80 * GB),
    "h100-pcie": Chip("NVIDIA H100 PCIe", 756e12, 80 * GB),
    "h200": Chip("NVIDIA H200", 989e12, 141 * GB),
    "b200": Chip("NVIDIA B200", 2250e12, 180 * GB),
    "l4": Chip("NVIDIA L4", 121e12, 24 * GB),
}
"""By the names that people use. Unchecked: nothing here has run on them yet."""


def peak_of_kind(device_kind: str) -> float | None:
    """Peak FLOP/s of a device by its kind in jax; None for one that is not in the table."""
    chips = [chip for chip in CHIPS.values() if device_kind.startswith(chip.kind)]
    return max(chips, key=lambda chip: len(chip.kind)).peak_flops if chips else None
