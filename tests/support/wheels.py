"""Wheels of what is installed beside the tests, for a pip that may reach no index."""

from __future__ import annotations

import re
import zipfile
from importlib import metadata
from pathlib import Path

from tests.support.paths import PROJECT


def write_wheels(folder: Path) -> None:
    """Write the wheels that an installation of the project takes from an index.

    Args:
        folder: a new one.
    """
    folder.mkdir()
    setup = (PROJECT / "setup.py").read_text("utf-8").partition("extras_require")[0]
    waiting = ["setuptools", *re.findall(r'"([\w-]+)>=', setup)]
    written: set[str] = set()
    while waiting:
        name = re.sub(r"[-_.]+", "_", waiting.pop()).lower()
        if name in written:
            continue
        written.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # it is required elsewhere, and not here
        _write_wheel(folder, name, distribution)
        requirements = (line for line in distribution.requires or () if "extra ==" not in line)
        waiting += [re.split(r"[^\w.-]", line)[0] for line in requirements]


def _write_wheel(folder: Path, name: str, distribution: metadata.Distribution) -> None:
    tag = re.findall(r"(?m)^Tag: (.+)$", distribution.read_text("WHEEL") or "")[-1]
    file = folder / f"{name}-{distribution.version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path in distribution.files or ():
            if ".." not in path.parts and path.suffix != ".pyc":
                wheel.write(path.locate(), str(path))
