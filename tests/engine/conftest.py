"""A fake engine, and what asks it."""

from __future__ import annotations

import pytest

from ovirt_scheduler.engine.inventory import Inventory
from tests.support.rest_server import Host, RestServer, Vm


@pytest.fixture
def engine(tmp_path):
    hosts = [Host(name) for name in ("lynx", "puma", "tiger")]
    with RestServer(tmp_path, hosts, [Vm("web", host="lynx"), Vm("mail")]) as server:
        yield server


@pytest.fixture
def asking(engine):
    inventory = Inventory(engine.settings())
    yield inventory
    inventory.close()
