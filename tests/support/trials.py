"""One plugin's file, run on the demonstration's hosts as try runs it."""

from __future__ import annotations

from xml.etree import ElementTree

from ovirt_scheduler.command.calls import trial
from ovirt_scheduler.command.calls.input_files import CommandInputs
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings import scheduler_conf
from tests.support.paths import PROJECT

HOSTS = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
IDS = [host.get("id") for host in ElementTree.fromstring(HOSTS)]
VM_ID = "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"
EVERY = tuple(Kind)


def run(path, kinds=EVERY, hosts=HOSTS, properties=None):
    settings = trial.settings_for(scheduler_conf.load(None, {}), path)
    return trial.run(settings, path, kinds, CommandInputs(hosts, properties=properties or {}))
