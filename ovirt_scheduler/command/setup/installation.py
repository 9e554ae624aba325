"""``ovirt-scheduler setup`` makes the plan of each step in turn, shows it and carries it out.

A step that fails stops the run. What was done is recorded, so the next run goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.setup.engine_steps import (
    ADOPTED,
    ENGINE_KEYS,
    OLD_PLUGINS,
    EngineSetting,
    OldPlugins,
    TrustStore,
    check_engine,
    java,
)
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.command.setup.machine_steps import Certificate, Service, User, folders, links
from ovirt_scheduler.command.setup.shipped_files import SchedulerConf, UnitFile, conf_files
from ovirt_scheduler.command.setup.step import FILE, SetupRecord, SetupStep, load, save
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadInput, BadUsage, NotPermitted, StepFailed

_PLUGINS_PATH = f"$PYTHONPATH/ovirt_scheduler/plugins:{ADOPTED}"


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(to, "setup", _run, output=(), settings=())
    arguments.add_options(command, {
        "--dry-run": "show each step, do nothing",
        "--root DIR": "set up the files of the machine whose / is DIR; starts nothing",
        "--remove": "undo what setup did; what was edited or there before stays, and so do plugins",
        "--engine": "connect the engine of this machine: root_api, engine-config, its Java's trust "
        "store",
        "--adopt": f"copy the plugins of ovirt-scheduler-proxy to {ADOPTED}, and call them",
    })  # fmt: skip
    command.set_defaults(root=Path("/"))


def _run(options: argparse.Namespace) -> Shown:
    """Make this machine ready for the daemon, and start it.

    Make the user, the folders, the configuration, the certificate and the unit, and start the
    daemon. Each step is shown before it is taken; what is done already is skipped, so you may run
    it again at any time, and after an upgrade. An edited file is never overwritten: the new one is
    put beside it. Exit status 1: something is left for you to do.

    examples:
      setup --dry-run
      setup --engine
      setup --engine --adopt
      setup --remove
      setup --root /mnt/image
    """
    root = options.root.resolve()
    if not root.is_dir():
        raise BadInput(f"--root {root}: there is no such folder")
    machine = Machine(root, live=root == Path("/"))
    if machine.live and os.geteuid() != 0 and not options.dry_run:
        raise NotPermitted(
            "only root can set this machine up; run it with sudo, or have --dry-run tell what it "
            "would do"
        )
    if options.remove and (options.engine or options.adopt):
        raise BadUsage("--remove undoes all that setup did: leave --engine and --adopt out")
    if options.remove:
        return Shown(well=not remove(machine, options.dry_run))
    return Shown(well=not install(machine, options.engine, options.adopt, options.dry_run))


def install(
    machine: Machine, engine: bool = False, adopt: bool = False, dry_run: bool = False
) -> int:
    """Set the machine up.

    Args:
        engine: set up the engine's side too.
        adopt: take over the old proxy's plugins.
        dry_run: show the plans, and change nothing.

    Returns:
        How many steps are left to the administrator.

    Raises:
        StepFailed: a step failed; those before it are done.
        ConfigError: scheduler.conf exists, and is wrong.
    """
    if engine:
        check_engine(machine)
    record = load(machine)
    conf = SchedulerConf(machine, record, _keys(machine, record, engine, adopt))
    manual_steps = _carry_out(machine, record, _steps(conf, engine, adopt), False, dry_run)
    if adopt and machine.status(ADOPTED) is not None:
        arguments.write(
            f"ovirt-scheduler check --plugins {ADOPTED} tells which plugins are to be ported\n"
        )
    elif OldPlugins.names(machine) and "plugins_path" not in record.conf_keys:
        arguments.write(
            f"found the old proxy's plugins: ovirt-scheduler check --plugins {OLD_PLUGINS} tells "
            f"which are to be ported, ovirt-scheduler setup --adopt copies them to {ADOPTED}\n"
        )
    if dry_run:
        arguments.write("nothing was changed; setup without --dry-run does it\n")
    else:
        steps = _next_steps(machine, engine or "root_api" in record.conf_keys, manual_steps)
        arguments.write("".join(["next:\n", *(f"  {step}\n" for step in steps)]))
    return manual_steps


def _next_steps(machine: Machine, engine: bool, manual_steps: int) -> Iterator[str]:
    """What the administrator does after an installation, a line for each."""
    if manual_steps:
        yield f"do what is left to you above: {manual_steps} of the steps"
    if not machine.live:
        yield "start the machine of this image"
    elif not machine.runs_systemd:
        yield "start the daemon: ovirt-scheduler serve"
    elif manual_steps:
        yield "start the daemon again: systemctl restart ovirt-scheduler"
    yield "see how the daemon is: ovirt-scheduler status"
    if engine:
        yield "have the engine ask for its units: systemctl restart ovirt-engine"
    else:
        yield "have the engine call it, on the engine's machine: ovirt-scheduler setup --engine"


def remove(machine: Machine, dry_run: bool = False) -> int:
    """Undo what is recorded. What was edited, or existed before, stays.

    Returns:
        How many steps are left to the administrator.

    Raises:
        StepFailed: a step failed; those before it are undone.
    """
    record = load(machine)
    if not machine.path(FILE).exists():
        arguments.write(f"nothing to undo: there is no {machine.path(FILE)}\n")
        return 0
    conf = SchedulerConf(machine, record, record.conf_keys)
    steps = _steps(conf, engine=True, adopt=True)
    manual_steps = _carry_out(machine, record, steps[::-1], True, dry_run)
    if record.engine_config:
        arguments.write("next:\n  have the engine stop calling: systemctl restart ovirt-engine\n")
    if not dry_run:
        machine.remove(FILE)
    return manual_steps


def _carry_out(
    machine: Machine, record: SetupRecord, steps: list[SetupStep], removing: bool, dry_run: bool
) -> int:
    """Make each plan, show it and carry it out.

    Returns:
        How many steps are left to the administrator.
    """
    manual_steps = 0
    for step in steps:
        try:
            plan = step.plan_removal() if removing else step.plan()
            manual_steps += plan.by_hand
            # A reader that ends early, such as head, does not stop the work.
            with contextlib.suppress(BrokenPipeError):
                arguments.write(f"{'would ' * (dry_run and bool(plan.act))}{plan.words}\n")
            if dry_run:
                machine.gone.add(plan.removes)
            elif plan.act:
                vars(record).update(plan.noted)
                save(machine, record)
                try:
                    plan.act()
                finally:
                    save(machine, record)  # ``act`` may have changed it, too
        except OSError as error:
            denied = isinstance(error, PermissionError) and os.geteuid()
            mend = "run setup as root" if denied else "mend it, then run setup again"
            raise StepFailed(f"{error.filename}: {error.strerror}; {mend}") from None
    return manual_steps


def _steps(conf: SchedulerConf, engine: bool, adopt: bool) -> list[SetupStep]:
    machine, record = conf.machine, conf.record
    unit = UnitFile(machine, record)  # comes first, as it refuses a program that cannot be started
    steps: list[SetupStep] = [unit, User(machine, record), *folders(machine, record)]
    steps += [*links(machine, record), conf, *conf_files(machine, record)]
    steps.append(Certificate(machine, record, conf))
    if adopt:
        steps.append(OldPlugins(machine, record))
    steps.append(Service(machine, record, (unit, conf)))
    if engine:  # last: what is imported is the certificate that the daemon serves
        steps.append(TrustStore(machine, record, conf))
        steps += (EngineSetting(machine, record, key, conf) for key in ENGINE_KEYS)
    return steps


def _keys(machine: Machine, record: SetupRecord, engine: bool, adopt: bool) -> dict[str, str]:
    """The keys to set in scheduler.conf, of earlier runs and of this one, with their values."""
    keys = dict(record.conf_keys)
    if engine:
        keys["root_api"] = "engine"
        keys.pop("ssl", None)
        if java(machine) is None:
            keys["ssl"] = "false"  # the engine could not trust the certificate (contract 3.0)
    if adopt and (OldPlugins.names(machine) or machine.status(ADOPTED) is not None):
        keys["plugins_path"] = _PLUGINS_PATH
    return keys
