"""Make a release of what is committed. `make release VERSION=1.0.0` runs it.

    python .ci/release.py VERSION [--date YYYY-MM-DD]

The first run writes the version and the date into the files that have them, for somebody to look
at and to commit. The second one, on that commit, makes the source distribution, the wheel, the RPMs
where rpmbuild and the Python of their Enterprise Linux are there, and their checksums, in
build/release. Who makes the files of the same commit again gets the same bytes, but for the RPMs.
It sends nothing anywhere.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

PROJECT = Path.cwd()
RELEASE = PROJECT / "build" / "release"
MAINTAINER = "The ovirt-scheduler project"
ENTERPRISE_LINUX = {9: "python3.9", 10: "python3.12"}


def texts(version: str, date: datetime.date) -> dict[str, str]:
    """What the files that have the version have to be: path to text."""
    day = f"{date:%a %b %d %Y}"
    places = {
        "ovirt_scheduler/__init__.py": [
            (r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"')
        ],
        "packaging/ovirt-scheduler.spec": [
            (r"(?m)^Version: .*$", f"Version: {version}"),
            (r"(?m)^\* .* - \S+$", f"* {day} {MAINTAINER} - {version}-1"),
        ],
        "CHANGELOG.md": [
            (rf"(?m)^## {re.escape(version)} \(.*\)$", f"## {version} ({date.isoformat()})")
        ],
    }
    made = {}
    for path, changes in places.items():
        text = (PROJECT / path).read_text("utf-8")
        for pattern, line in changes:
            text, count = re.subn(pattern, line, text, count=1)
            if not count:
                sys.exit(f"{path}: has no line like {pattern}; write one for {version} first")
        made[path] = text
    return made


def date_of_changelog(version: str) -> datetime.date | None:
    """The date that the changelog has of a version; None while it has none."""
    text = (PROJECT / "CHANGELOG.md").read_text("utf-8")
    match = re.search(rf"(?m)^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", text)
    return datetime.date.fromisoformat(match[1]) if match else None


def disagreements(version: str) -> list[str]:
    """What README and changelog say of another version."""
    readme, changelog = (PROJECT / name for name in ("README.md", "CHANGELOG.md"))
    named = re.findall(r"ovirt[-_]scheduler[-_ ](\d+\.\d+\.\d+)", readme.read_text("utf-8"))
    newest = re.findall(r"(?m)^## (\S+)", changelog.read_text("utf-8"))[0]
    return [
        f"{file} has the version {other}, and this is {version}"
        for file, other in [*(("README.md", other) for other in named), ("CHANGELOG.md", newest)]
        if other != version
    ]


def run(*command: str | Path) -> None:
    if subprocess.run([*map(str, command)], cwd=PROJECT, check=False).returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


def build(version: str) -> None:
    """Make the files of the release from the commit."""
    for folder in (RELEASE, PROJECT / "build" / "lib"):  # an earlier file may be gone by now
        shutil.rmtree(folder, ignore_errors=True)
    RELEASE.mkdir(parents=True)
    committed = int(output("git", "log", "-1", "--format=%ct"))
    os.environ["SOURCE_DATE_EPOCH"] = str(committed)
    os.umask(0o022)
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", RELEASE)
    settle(*RELEASE.glob("*.tar.gz"), committed)
    run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
        "--wheel-dir", RELEASE, ".",
    )  # fmt: skip
    for release, python in ENTERPRISE_LINUX.items():
        if shutil.which("rpmbuild") and runs(python):
            run("make", "rpm", f"EL={release}")
            (package,) = (PROJECT / "build/rpm/RPMS").rglob(f"*-{version}-*.el{release}.*.rpm")
            shutil.copy(package, RELEASE)
        else:
            print(f"no RPM for Enterprise Linux {release}: that needs rpmbuild and {python}")
    files = sorted(file for file in RELEASE.iterdir() if file.is_file())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (RELEASE / "SHA256SUMS").write_text("".join(sums))
    print(*(f"{RELEASE.relative_to(PROJECT)}/{file.name}" for file in files), sep="\n")


def settle(source: Path, moment: int) -> None:
    """Write a source distribution anew without what differs from one build to the next."""
    content = io.BytesIO()
    with tarfile.open(source) as archive, tarfile.open(fileobj=content, mode="w") as settled:
        for member in sorted(archive, key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            member.pax_headers = {}  # fractions of seconds
            settled.addfile(member, archive.extractfile(member) if member.isfile() else None)
    source.write_bytes(gzip.compress(content.getvalue(), mtime=moment))


def output(*command: str) -> str:
    """What a command says, which has to end well."""
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    return ended.stdout


def runs(python: str) -> bool:
    """Whether there is an interpreter of this name; pyenv has names of some that do not run."""
    return bool(
        shutil.which(python)
        and not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode
    )


def main() -> None:
    """Write the version, or make the release that has it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="three numbers, such as 1.0.0")
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=None)
    options = parser.parse_args()
    if not re.fullmatch(r"\d+\.\d+\.\d+", options.version):
        parser.error(f"{options.version}: expected three numbers, such as 1.0.0")
    changed = output("git", "status", "--porcelain", "--untracked-files=no")
    if changed:
        sys.exit(f"commit this first, as a release is made of a commit:\n{changed.rstrip()}")
    date = options.date or date_of_changelog(options.version) or datetime.date.today()  # noqa: DTZ011
    expected = texts(options.version, date)
    differing = [
        path for path, text in expected.items() if (PROJECT / path).read_text("utf-8") != text
    ]
    for path in differing:
        (PROJECT / path).write_text(expected[path], "utf-8")
    if differing:
        print(*(f"{path} has {options.version} now" for path in differing), sep="\n")
        print("look at them, commit them, and run this again")
    elif problems := disagreements(options.version):
        sys.exit("\n".join(problems))
    else:
        build(options.version)
        print(f"next: git tag v{options.version}")


if __name__ == "__main__":
    main()
