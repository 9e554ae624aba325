"""The parts that answer calls: processes, plugins, engine, and the decisions made with them.

The daemon has one runtime. A command that runs plugins itself (``--local``, ``try``, ``check``)
has its own.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping
from typing import Callable, NamedTuple, Optional

from ovirt_scheduler.catalogue.catalogue import CatalogueSource
from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.clusters.following import Following
from ovirt_scheduler.decisions.engine_replies import EngineData
from ovirt_scheduler.decisions.missing_names import MissingNames
from ovirt_scheduler.decisions.recent_selections import RecentSelections
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.decisions.shadows import Shadows
from ovirt_scheduler.engine.event_writer import EventWriter
from ovirt_scheduler.engine.inventory import LONGEST, Inventory
from ovirt_scheduler.history.input_recording import CUT
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE, History
from ovirt_scheduler.model.answer_memory import AnswerMemory
from ovirt_scheduler.model.jobs import Reported
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.processes.kernel import malloc
from ovirt_scheduler.security.state_folder import StateFolder
from ovirt_scheduler.server.dispatch import Method
from ovirt_scheduler.server.methods import DecisionMethods
from ovirt_scheduler.server.pages.history_methods import history_methods
from ovirt_scheduler.settings.table import Settings
from ovirt_scheduler.settings.value_types import Drive, EngineEvents

_package_log = logging.getLogger("ovirt_scheduler")


class Services(NamedTuple):
    """The services of one scheduler.conf, made anew when it is read again."""

    settings: Settings
    inventory: Optional[Inventory]  # None if no engine is configured
    decisions: DecisionService
    history: Optional[RecordReader] = None  # None for a command, which keeps nothing

    def methods(self) -> tuple[Method, ...]:
        """The methods of the XML-RPC interface, which call these services."""
        settings = self.settings
        scores, engine_reasons = settings.engine_scores, settings.engine_reasons
        methods = [*DecisionMethods(self.decisions, scores, engine_reasons).methods()]
        if self.history is not None:
            methods += history_methods(self.history, settings.pages, settings.history)
        return tuple(methods)


class Runtime:
    """An executor, a registry, and the services that use them; nothing is started yet.

    Args:
        settings: of the services to begin with.
        state: the daemon's state folder, which keeps good plugins and decisions. With it, processes
            of plugins are started before they are called. None for a command, which keeps nothing.
    """

    def __init__(self, settings: Settings, state: Optional[StateFolder] = None) -> None:
        self.executor = Executor(
            settings.max_parallel_calls,
            settings.max_waiting,
            settings.plugin_user,
            adopts=state is not None,
            most_processes=settings.kept_processes,
        )
        store = LastGood(None if state is None else state / "plugins")
        want = None if state is None else self.executor.prewarm
        loader = Loader(settings, self.executor.analyse, SHIPPED)
        self.registry = Registry(loader, store, want, self.keep_event)
        self.following = Following()
        self.history: Optional[History] = None
        self._shadows: Optional[Shadows] = None
        self._decided: tuple[Callable[[Reported], None], ...] = ()
        if state is not None:
            split = functools.partial(self.executor.split, CUT)
            is_inquiry = self.following.inquiries.cover
            self.history = History(state / FILE, split, malloc.give_back, is_inquiry)
            self._shadows = Shadows(self.executor, self.history, lambda: self._inventory)
            # In this order: what units in shadow say is added to a record that is there.
            self._decided = (self.history.decided, self._shadows.decided)
        self._selections: dict[str, tuple[str, ...]] = {}
        self._missing = MissingNames()
        # A command's own plugins, and what is simulated, know no calls but theirs.
        self._recent = None if state is None else RecentSelections()
        self._answer_memory = AnswerMemory()
        self._inventory: Optional[Inventory] = None  # in force
        self._former: Optional[Inventory] = None  # before; calls under way may use it
        self.event_writer: Optional[EventWriter] = None
        self.services = self.prepare(settings)
        self._inventory = self.services.inventory
        self._bound(settings)

    def start(self) -> None:
        """Start the zygote, and what writes the history.

        Raises:
            ExecutorUnavailable: the zygote does not start.
        """
        self.executor.start()
        self._write_events()
        if self.history is not None:
            self.history.start()

    def keep_event(self, event: Mapping[str, object]) -> None:
        """Keep an event of the daemon, if the settings ask for a history."""
        if self.history is not None and self.services.settings.history:
            self.history.event(event)

    def prepare(
        self,
        settings: Settings,
        registry: Optional[CatalogueSource] = None,
        engine: Optional[EngineData] = None,
    ) -> Services:
        """Make services of other settings, and leave those in force as they are.

        Args:
            registry: where units and drivers come from, unless it is the runtime's own.
            engine: the engine for plugins, instead of that of the settings.
        """
        inventory = self._inventory_for(settings)
        registry = registry or self.registry
        seconds = settings.request_timeout
        decided = self._decided
        if decided and inventory is not None and settings.drive is not Drive.OFF:
            decided += (self.following.decided,)
        return Services(
            settings,
            inventory,
            DecisionService(
                registry,
                self.executor,
                seconds,
                engine or inventory,
                decided,
                self._selections,
                self._missing,
                self._recent,
            ),
            None if self.history is None else self.history.reader,
        )

    def use(self, services: Services) -> None:
        """Put services in force that ``prepare`` made; plugins are loaded anew at the next look."""
        if services.inventory is not self._inventory:
            if self._former is not None:
                self._former.close()
            self._former, self._inventory = self._inventory, services.inventory
        self.services = services
        self._write_events()
        self.executor.keep_at_most(services.settings.kept_processes)
        self._bound(services.settings)
        self.registry.renew(Loader(services.settings, self.executor.analyse, SHIPPED))

    def begin_no_more(self) -> None:
        """Load no plugin and call no unit in shadow from now on; requests are answered."""
        self.registry.stop()
        if self._shadows is not None:
            self._shadows.stop()

    def close(self) -> None:
        """End every process, close the history, and log out of the engine."""
        self.executor.close()
        if self._shadows is not None:
            self._shadows.close()
        if self.history is not None:
            self.history.close()
        self._write_no_events()
        for inventory in (self._inventory, self._former):  # last: an engine may be silent
            if inventory is not None:
                inventory.close()

    def _write_events(self) -> None:
        """Have the engine's events written as the settings in force say it."""
        inventory, writer = self._inventory, self.event_writer
        if writer is not None and writer.inventory is inventory:
            return
        self._write_no_events()
        if self.history is None or inventory is None:  # a command tells whoever typed it
            return
        if inventory.settings.events is not EngineEvents.NONE:
            self.event_writer = EventWriter(inventory, inventory.settings.events)
            _package_log.addHandler(self.event_writer)

    def _write_no_events(self) -> None:
        if self.event_writer is not None:
            _package_log.removeHandler(self.event_writer)
            self.event_writer.close()
            self.event_writer = None

    def _bound(self, settings: Settings) -> None:
        """Have the history and the engine's inventory keep to the settings in force."""
        if self._inventory is not None:
            self._inventory.patience = min(LONGEST, settings.request_timeout / 2)
        if self.history is not None:
            days, size = settings.history_days, settings.history_size
            self.history.bound(days, size, settings.history, settings.record)

    def _inventory_for(self, settings: Settings) -> Optional[Inventory]:
        """The inventory in force, if the settings ask the same of the same engine; or a new one."""
        engine, used = settings.engine, self._inventory
        if engine is None:
            return None
        if used is not None and (used.settings, used.keeps_documents) == (engine, settings.record):
            return used
        return Inventory(engine, settings.record, self._answer_memory)


@contextlib.contextmanager
def started(settings: Settings) -> Iterator[Runtime]:
    """A runtime for one command; it is closed at the end.

    Raises:
        ExecutorUnavailable: no process can be started to run plugins in.
    """
    runtime = Runtime(settings)
    try:
        runtime.start()
        yield runtime
    finally:
        runtime.close()
