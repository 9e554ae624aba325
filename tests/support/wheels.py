"""Wheels of what is installed beside the tests, for a pip that may reach no index."""

from __future__ import annotations

import re
import zipfile
from importlib import metadata
from pathlib import Path

_NEEDED = re.compile(r"[\w.-]+")


def write_wheels(folder: Path, *names: str) -> None:
    """Write a wheel of each of the distributions, and of all that they require.

    What is required only for an extra, or elsewhere, and not here, is left out.
    """
    written: set[str] = set()
    waiting = [*names]
    while waiting:
        name = re.sub(r"[-_.]+", "_", waiting.pop()).lower()
        if name in written:
            continue
        written.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        _write_wheel(folder, name, distribution)
        waiting += [
            _NEEDED.match(line)[0] for line in distribution.requires or () if "extra ==" not in line
        ]


def _write_wheel(folder: Path, name: str, distribution: metadata.Distribution) -> None:
    tag = re.findall(r"(?m)^Tag: (.+)$", distribution.read_text("WHEEL") or "")[-1]
    file = folder / f"{name}-{distribution.version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path in distribution.files or ():
            if ".." not in path.parts and path.suffix != ".pyc":
                wheel.write(path.locate(), str(path))
