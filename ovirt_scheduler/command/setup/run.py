"""``ovirt-scheduler setup`` makes the plan of each step in turn, shows it and carries it out.

A step that fails stops the run. What was done is recorded, so the next run goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from ovirt_scheduler.command.setup import record as install_record
from ovirt_scheduler.command.setup.engine import (
    ADOPTED,
    OLD_PLUGINS,
    OldPlugins,
    TrustStore,
    engine_settings,
    java,
)
from ovirt_scheduler.command.setup.files import SchedulerConf, UnitFile, companions, sample_confs
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.setup.record import Record
from ovirt_scheduler.command.setup.step import Plan, Step
from ovirt_scheduler.command.setup.steps import Certificate, Service, User, folders, links
from ovirt_scheduler.errors import StepFailed

Write = Callable[[str], None]  # shows a text; BrokenPipeError once if nobody reads it any more

_PLUGINS_PATH = f"$PYTHONPATH/ovirt_scheduler/plugins:{ADOPTED}"


@dataclass(frozen=True)
class SetupOptions:
    """The options of the command line."""

    engine: bool = False  # set up the engine's side too
    adopt: bool = False  # take over the old proxy's plugins
    dry_run: bool = False  # show the plans, and change nothing


def install(machine: Machine, options: SetupOptions, write: Write) -> int:
    """Set the machine up.

    Returns:
        How many steps are left to the administrator.

    Raises:
        StepFailed: a step failed; those before it are done.
        ConfigError: scheduler.conf exists, and is wrong.
    """
    record = install_record.load(machine) or Record()
    steps = _steps(machine, record, _conf(machine, record, options), options)
    left = _run(machine, record, [step.plan for step in steps], options.dry_run, write)
    if OldPlugins.found(machine) and not options.adopt and "plugins_path" not in record.conf_keys:
        write(
            f"found the old proxy's plugins: ovirt-scheduler check --plugins {OLD_PLUGINS} tells "
            f"which are to be ported, ovirt-scheduler setup --adopt copies them to {ADOPTED}\n"
        )
    if options.engine:
        write("the engine asks for units when it starts: systemctl restart ovirt-engine\n")
    return left


def remove(machine: Machine, dry_run: bool, write: Write) -> int:
    """Undo what is recorded. What was edited, or existed before, stays.

    Returns:
        How many steps are left to the administrator.

    Raises:
        StepFailed: a step failed; those before it are undone.
    """
    record = install_record.load(machine)
    if record is None:
        write(f"nothing to undo: there is no {machine.path(install_record.FILE)}\n")
        return 0
    conf = SchedulerConf(machine, record, record.conf_keys)
    steps = _steps(machine, record, conf, SetupOptions(engine=True, adopt=True))
    left = _run(machine, record, [step.plan_removal for step in reversed(steps)], dry_run, write)
    if not dry_run:
        machine.path(install_record.FILE).unlink()
    return left


def _run(
    machine: Machine,
    record: Record,
    planners: list[Callable[[], Plan]],
    dry_run: bool,
    write: Write,
) -> int:
    """Make each plan, show it and carry it out. Gives how many are left to the administrator."""
    left = 0
    for make_plan in planners:
        try:
            plan = make_plan()
            left += plan.left
            would = "would " if dry_run and plan.act else ""
            _show(f"{would}{plan.words}\n", write, dry_run)
            if dry_run:
                machine.gone.add(plan.removes)
            elif plan.act:
                plan.note()
                install_record.save(machine, record)
                try:
                    plan.act()
                finally:
                    install_record.save(machine, record)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StepFailed(
                f"{error.filename}: {error.strerror}; mend it, then run setup again"
            ) from None
    return left


def _show(text: str, write: Write, dry_run: bool) -> None:
    """Write a line. A reader that ends early, such as ``head``, does not stop the installation."""
    try:
        write(text)
    except BrokenPipeError:
        if dry_run:
            raise


def _steps(
    machine: Machine, record: Record, conf: SchedulerConf, options: SetupOptions
) -> list[Step]:
    unit = UnitFile(machine, record)  # comes first, as it refuses a program that cannot be started
    steps: list[Step] = [unit, User(machine, record), *folders(machine, record)]
    steps += [*links(machine, record), *companions(machine, record), conf]
    steps += [*sample_confs(machine, record), Certificate(machine, record, conf)]
    if options.engine:
        steps += [TrustStore(machine, record, conf), *engine_settings(machine, record, conf)]
    if options.adopt:
        steps.append(OldPlugins(machine, record))
    return [*steps, Service(machine, record, (unit, conf))]


def _conf(machine: Machine, record: Record, options: SetupOptions) -> SchedulerConf:
    """scheduler.conf with the keys of earlier runs, and those of this one."""
    keys = dict(record.conf_keys)
    if options.engine:
        keys["root_api"] = "engine"
        keys.pop("ssl", None)
        if not machine.live or java(machine) is None:
            keys["ssl"] = "false"  # nobody would trust the certificate (contract 3.0)
    if options.adopt and (OldPlugins.found(machine) or machine.path(ADOPTED).exists()):
        keys["plugins_path"] = _PLUGINS_PATH
    return SchedulerConf(machine, record, keys)
