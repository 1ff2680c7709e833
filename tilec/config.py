"""Every environment option of tilec, typed. Nothing else reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.environ.get("TILEC_CACHE", os.path.join(base, "tilec")))


@dataclass(frozen=True)
class Config:
    """One snapshot of the environment; call `current()` where an option is used, so that tests can change it."""

    rocm_path: Path | None = field(default_factory=lambda: Path(p) if (p := os.environ.get("ROCM_PATH")) else None)
    cache_dir: Path = field(default_factory=_cache_dir)
    arch: str = field(default_factory=lambda: os.environ.get("TILEC_ARCH", "gfx950"))
    verify: bool = field(default_factory=lambda: os.environ.get("TILEC_VERIFY", "0") == "1")


def current() -> Config:
    return Config()
