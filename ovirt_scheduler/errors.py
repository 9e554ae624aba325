"""The exceptions: mistakes that somebody can mend, and errors of the daemon.

A plugin that fails while it runs is no exception: it is a ``model.CallResult``.

::

    SchedulerError
     |
     +-- RequestError            somebody's call cannot be answered: an XML-RPC fault (contract 1.5)
     |    +-- NotXmlRpc          -32700
     |    +-- UnknownMethod      -32601
     |    +-- BadParameters      -32602
     |    +-- InternalError      -32603
     |    +-- UnknownUnit          101
     |    +-- UnreadableDocument   102
     |    +-- RefusedProperty      103
     |    |    +-- SlowProperty
     |    +-- Overloaded           104
     |    +-- DriverFailed         105
     |    +-- HistoryUnreadable    106
     |
     +-- FileMistake             a mistake in a file, with its line
     |    +-- ConfigError          the administrator's: the daemon does not start, exit status 78
     |    |    +-- AddressUnavailable   the port or address, just now: exit status 75
     |    |    +-- OptionMistake   in a setting that an option changed: exit status 2
     |    +-- PluginError          a plugin's, or its conf file: that plugin is not loaded
     |    |    +-- DefaultMistake   of a property: its default
     |    +-- ScenarioError        the file of a simulation's scenario: exit status 66
     +-- ExecutorUnavailable     no zygote could be started: exit status 70
     +-- EngineUnavailable       the engine's REST API gives no answer that can be used
     |    +-- EngineRefusal        it answers with a fault
     |    |    +-- EngineDenial       its user may not do that
     |    +-- AnswerLost           whether it did what it was asked to is not known
     |    +-- AnswerLate           its answer did not come in the time that was left
     |    +-- AnswersTooLarge      there is no memory for its answers
     +-- UnreadableState         what one process packed for another cannot be unpacked
     +-- CommandError            a command cannot be done; its exit status
          +-- BadUsage             2
          +-- BadInput            66
          +-- NoAnswer            69
          +-- CallRefused          1
          +-- NotRecorded          1
          +-- NotOverwritten      73
          +-- StepFailed           1
          +-- NotPermitted        77
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar, Optional, TypeVar

Mistake = TypeVar("Mistake", bound="FileMistake")


class SchedulerError(Exception):
    """The root of the tree; its text is a sentence for the person who has to act.

    A command or a daemon that ends with it has this ``exit_status`` (sysexits.h).
    """

    exit_status: ClassVar[int] = 1


class RequestError(SchedulerError):
    """A call that cannot be answered; ``fault_code`` is the XML-RPC fault's (contract 1.5)."""

    fault_code: ClassVar[int]


class NotXmlRpc(RequestError):
    """The body is not well-formed XML, has a document type, or is not an XML-RPC call."""

    fault_code = -32700


class UnknownMethod(RequestError):
    """No method has the name that was called; the text has that name."""

    fault_code = -32601


class BadParameters(RequestError):
    """Wrong number, type or value; the text names the parameter and what was expected."""

    fault_code = -32602


class InternalError(RequestError):
    """An error of the daemon; the text has the request's id, and no internals."""

    fault_code = -32603


class UnknownUnit(RequestError):
    """There is no unit, driver or topic of the name that was called."""

    fault_code = 101


class UnreadableDocument(RequestError):
    """A hosts or VM document; the text says line and column, or which element."""

    fault_code = 102


class RefusedProperty(RequestError):
    """A unit's pattern for a property does not allow the value that was sent."""

    fault_code = 103


class SlowProperty(RefusedProperty):
    """A check of a value with its pattern took longer than the unit's time."""


class Overloaded(RequestError):
    """The daemon is at its limit of waiting requests, or is shutting down."""

    fault_code = 104


class DriverFailed(RequestError):
    """A driver gave no answer to ``schedule``, which has no empty answer."""

    fault_code = 105


class HistoryUnreadable(RequestError):
    """The history cannot be read, or not in time; the text says why, and what to do."""

    fault_code = 106


class FileMistake(SchedulerError):
    """A mistake in a file: ``file:line: what is wrong; what to do``.

    Attributes:
        mistakes: itself, or those that it tells together.
    """

    def __init__(self, message: str, file: Optional[str] = None, line: Optional[int] = None):
        self.message = message
        self.file = file
        self.line = line
        self.mistakes: tuple[FileMistake, ...] = (self,)
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(f"{place}{message}")

    @classmethod
    def together(cls: type[Mistake], mistakes: Iterable[Mistake]) -> Mistake:
        """The exception for one or more mistakes of a file; its class is that of the first."""
        first, *others = mistakes
        if not others:
            return first
        texts = [first.message]
        texts += (f"{f'line {each.line}: ' if each.line else ''}{each.message}" for each in others)
        whole = type(first)("; ".join(texts), first.file, first.line)
        whole.mistakes = (first, *others)
        return whole


class ConfigError(FileMistake):
    """scheduler.conf, a certificate or another file the daemon cannot start without.

    systemd does not try again after this exit status.
    """

    exit_status = os.EX_CONFIG


class OptionMistake(ConfigError):
    """A setting that an option of the command line has changed."""

    exit_status = 2


class AddressUnavailable(ConfigError):
    """The port is taken, or the machine does not have the address yet: systemd tries again."""

    exit_status = os.EX_TEMPFAIL


class PluginError(FileMistake):
    """A plugin or its conf file that cannot be loaded (contract 5.5)."""


class DefaultMistake(PluginError):
    """A default of a plugin's property: on the line of the defaults, and not of the patterns."""


class ScenarioError(FileMistake):
    """The file of a scenario for a simulation."""

    exit_status = os.EX_NOINPUT


class ExecutorUnavailable(SchedulerError):
    """The zygote does not start; the text has its last message."""

    exit_status = os.EX_SOFTWARE


class EngineUnavailable(SchedulerError):
    """The engine's REST API gives no usable answer; the text has the query and the answer."""


class EngineRefusal(EngineUnavailable):
    """The engine answered one query with a fault; it may well answer others.

    Attributes:
        words: the engine's own, if it gave a reason.
    """

    def __init__(self, message: str, words: str = "") -> None:
        super().__init__(message)
        self.words = words or message


class EngineDenial(EngineRefusal):
    """The user of [engine] is not logged in, or has no right to what was asked for."""


class AnswerLost(EngineUnavailable):
    """The engine was asked to change something, and its answer did not come or is none."""


class AnswerLate(EngineUnavailable):
    """The engine's answer did not come in the time that was left for it."""


class AnswersTooLarge(EngineUnavailable):
    """What the engine answers takes more memory than it may; it may well answer others."""


class UnreadableState(SchedulerError):
    """What one process packed for another cannot be unpacked."""


class CommandError(SchedulerError):
    """A command of the command line cannot be done."""


class BadUsage(CommandError):
    """The arguments of the command line do not fit together."""

    exit_status = 2


class BadInput(CommandError):
    """A file that was named on the command line cannot be read."""

    exit_status = os.EX_NOINPUT


class NoAnswer(CommandError):
    """No daemon answers, or its certificate is not trusted."""

    exit_status = os.EX_UNAVAILABLE


class CallRefused(CommandError):
    """The daemon answered with a fault; the text is the fault's."""


class NotRecorded(CommandError):
    """The history has no such decision."""


class NotOverwritten(CommandError):
    """A file is there already, or cannot be written."""

    exit_status = os.EX_CANTCREAT


class OutputUnwritten(CommandError):
    """Standard output cannot be written, as on a full disk."""


class StepFailed(CommandError):
    """A step of the installer failed; the steps before it stay done."""


class NotPermitted(CommandError):
    """Only root can do this."""

    exit_status = os.EX_NOPERM
