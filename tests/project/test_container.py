"""The steps of the Containerfile, run as podman would, but without a base image and a network."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import overlay
from tests.support.command import executed
from tests.support.overlay import Overlay
from tests.support.paths import PROJECT
from tests.support.processes import offspring
from tests.support.waiting import LONG, wait_until
from tests.support.wheels import write_wheels

TEXT = (PROJECT / "Containerfile").read_text("utf-8")


class Image(NamedTuple):
    """The last stage: its files, and what its instructions but RUN and COPY say."""

    files: Overlay
    said: dict[str, str]

    def command(self, *words: str) -> list[str]:
        """As the image's user, with the image's variables."""
        user = self.said["USER"]
        return ["env", self.said["ENV"], "setpriv", f"--reuid={user}", f"--regid={user}",
                "--clear-groups", *words]  # fmt: skip


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    if why := overlay.missing():
        pytest.skip(why)
    stages: dict[str, Overlay] = {}
    said: dict[str, str] = {}
    try:
        for word, rest in instructions():
            if word == "FROM":
                name = rest.partition(" AS ")[2]
                # In place of the base image: this machine, which has what apt-get would bring.
                files = stages[name] = Overlay(tmp_path / f"stage{len(stages)}")
                files.write_program("apt-get", "#!/bin/sh\n")
                write_wheels(files.root / "wheels")
            elif word == "RUN":
                files.run("sh", "-c", rest)
            elif word == "COPY":
                copy(rest.split(), files.root, stages)
            else:
                said[word] = rest
        yield Image(files, said)
    finally:
        for stage in stages.values():
            stage.end()


def instructions() -> Iterator[tuple[str, str]]:
    """The words of the file with what follows them."""
    for line in re.sub(r"(?m)^#.*\n", "", TEXT).replace("\\\n", " ").splitlines():
        if line:
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def copy(words: list[str], root: Path, stages: dict[str, Overlay]) -> None:
    """COPY: of the checkout without what .dockerignore names, or of an earlier stage."""
    *options, source, target = words
    if options:
        folder = stages[options[0].removeprefix("--from=")].root / source[1:]
        ignored = None
    else:
        folder = PROJECT / source
        lines = (PROJECT / ".dockerignore").read_text("utf-8").split()
        ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines))
    shutil.copytree(folder, root / target[1:], symlinks=True, ignore=ignored)


def test_the_image_is_built_with_what_the_readme_names():
    """The same list, so that neither is forgotten."""
    (packages,) = re.findall(r"apt-get install -y (gcc .+)", (PROJECT / "README.md").read_text())
    assert packages in TEXT


@pytest.mark.long
def test_the_images_steps_make_a_healthy_daemon_without_root(image):
    """It is process 1 of its container, answers calls, and ends as it is told to."""
    started = json.loads(image.said["ENTRYPOINT"]) + json.loads(image.said["CMD"])
    alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with subprocess.Popen(image.files.inside(*alone, *image.command(*started))) as container:
        try:
            (daemon,) = wait_until(lambda: offspring(container.pid)[:1])
            within = ("nsenter", "--target", str(daemon), "--all", "--root", "--wd", "env", "-i")
            check = json.loads(image.said["HEALTHCHECK"].partition("CMD ")[2])
            healthy = image.command(*check)
            wait_until(
                lambda: container.poll() is not None or not executed(*within, *healthy).returncode
            )
            assert container.poll() is None
            users = {Path(f"/proc/{pid}").stat().st_uid for pid in [daemon, *offspring(daemon)]}
            assert users == {18781}
            told = executed(*within, *image.command("ovirt-scheduler", "discover"), check=True)
            assert "MaxVms " in told.stdout
        finally:
            executed("kill", f"-{signal.SIGTERM.value}", str(daemon))
            ended = container.wait(LONG)
    assert ended == 0
