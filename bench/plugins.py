"""The plugins that are called: written to a folder, and named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

MOST = 20  # filters by ids in one call

# A unit of the released proxy's kind: it gets ids. The same file serves the daemon and the
# process per call; with `return` it is what that process prints.
_BY_IDS = '''\
"""Keeps every host."""

import ovirtsdk4.types


class {name}:
    def do_filter(self, hosts_ids, vm_id, args_map):
        {answer}
'''

_BY_ENTITIES = '''\
"""Keeps the hosts with room for the VM; costs what they run."""

from ovirtsdk4 import types


def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.status == types.HostStatus.UP and fits(host, vm)]


def do_score(hosts, vm, properties):
    return [(host, host.summary.active) for host in hosts]


def fits(host, vm):
    return host.max_scheduling_memory >= vm.memory
'''

_FUNCTION = '''\
"""Keeps every host."""

import ovirtsdk4.types


def do_filter(hosts, vm, properties):
    return hosts
'''

_HEAVY = '''\
"""Keeps every host, and imports libraries that take long to load."""

import asyncio

import cryptography.x509


def do_filter(hosts, vm, properties):
    return hosts
'''

# What is published of this kind: it logs in for each call, and searches for the hosts by their ids.
_PUBLISHED = """\
import ovirtsdk4


class {name}:
    def do_filter(self, hosts_ids, vm_id, args_map):
        connection = ovirtsdk4.Connection(
            url={url!r}, username={username!r}, password={password!r}, ca_file={ca_file!r}
        )
        hosts_service = connection.system_service().hosts_service()
        hosts = hosts_service.list(search=" or ".join("id=" + each for each in hosts_ids))
        print([host.id for host in hosts if host.summary.active < 100])
        connection.close()
"""

# The same rule as a function: the daemon asks the engine, and gives it the hosts.
_OF_FEW = """\
def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.summary.active < 100]
"""

# Tells when it was loaded, called and done, on the clock that all processes share.
_MARKS = """\
import os
import time

loaded = time.monotonic()

from ovirtsdk4 import types


def do_filter(hosts, vm, properties):
    called = time.monotonic()
    answer = [host for host in hosts if host.id]
    done = time.monotonic()
    marks = os.open(properties["marks"], os.O_WRONLY | os.O_APPEND)
    os.write(marks, f"{loaded} {called} {done}\\n".encode())
    os.close(marks)  # else its process would not be kept
    return answer
"""

BY_IDS = [f"Ids{number:02d}" for number in range(1, MOST + 1)]
BY_ENTITIES = [f"Entities{number}" for number in range(1, 6)]
MARKS = [f"Marks{number}" for number in range(1, 6)]
PRINTS, FUNCTION, HEAVY = "IdsPrinted", "IdsFunction", "Heavy"
PUBLISHED, OF_FEW = "Published", "OfFew"
NUMBER = MOST + len(BY_ENTITIES) + 3  # all but MARKS


def write(folder: Path, wanted: Sequence[str] = ()) -> list[Path]:
    """Write each plugin as NAME.py, its unit of the same name; all but MARKS unless said.

    Returns:
        The files.
    """
    texts = {name: _BY_IDS.format(name=name, answer="return hosts_ids") for name in BY_IDS}
    texts[PRINTS] = _BY_IDS.format(name=PRINTS, answer="print(hosts_ids)")
    texts.update(dict.fromkeys(BY_ENTITIES, _BY_ENTITIES))
    texts.update(dict.fromkeys(MARKS, _MARKS))
    texts.update({FUNCTION: _FUNCTION, HEAVY: _HEAVY})
    folder.mkdir(exist_ok=True)
    files = [folder / f"{name}.py" for name in wanted or texts.keys() - MARKS]
    for file in files:
        file.write_text(texts[file.stem], "utf-8")
    return files


def write_published(folder: Path, **engine: str) -> None:
    """Write PUBLISHED, which asks an engine, and OF_FEW, the same rule as a function.

    Args:
        engine: its url, username, password and ca_file.
    """
    folder.mkdir()
    (folder / f"{PUBLISHED}.py").write_text(_PUBLISHED.format(name=PUBLISHED, **engine), "utf-8")
    (folder / f"{OF_FEW}.py").write_text(_OF_FEW, "utf-8")
