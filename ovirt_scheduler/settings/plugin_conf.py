"""The settings in a plugin's conf file (contract 5.8)."""

from __future__ import annotations

import re
from pathlib import Path

from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.units import OnFailure
from ovirt_scheduler.settings.conf_file import ConfFile, Mistakes, text_lines
from ovirt_scheduler.settings.table import PLUGIN, PluginConf

# Searched in the lines of a conf file that has a mistake, which may be just here: ``on_failure:
# reject``. No other key may be "reject"; a misspelt key counts.
_MEANT_TO_REJECT = re.compile(
    r"""(?i)[^#\s=:]+\s*[=:>]*\s*['"]?reject\b|on[_ -]?failure\b(?!\s*[=:>]*\s*['"]?ignore\b)"""
)
_MEANT_AS_SHADOW = re.compile(r"""(?i)shadow\s*[=:]*\s*['"]?true\b""")


def parse(data: bytes, path: Path) -> PluginConf:
    """Check the content of a plugin's conf file.

    Args:
        data: what is in the file.
        path: where it is, for messages; its name is the plugin's.

    Returns:
        All settings, those with defaults too.

    Raises:
        PluginError: each mistake with the file, the line and the key, and what is allowed.
    """
    conf = ConfFile(data, path, PluginError, PLUGIN)
    if conf["defaultValues"] and not conf["customProperties"]:
        conf.refuse("defaultValues", "there are no customProperties that it could be for")
        conf.mistakes.check()
    values = dict(conf.values)
    return PluginConf(
        name=values.pop("name") or path.stem,
        custom_properties=values.pop("customProperties"),
        properties_line=conf.lines["customProperties"],
        defaults_line=conf.lines["defaultValues"],
        default_values=values.pop("defaultValues"),
        **values,
    )


def rejects(data: bytes, path: Path, default: OnFailure) -> bool:
    """Whether a filter that cannot be loaded rejects every host (contract 4.2).

    A mistake elsewhere in its conf file does not change what that file says of it. Where the file
    is no text that can be read, nobody knows what it says: then it rejects.

    Args:
        data: what is in the filter's conf file.
        path: where that file is.
        default: what scheduler.conf says.
    """
    try:
        conf = parse(data, path)
    except PluginError:
        try:
            lines = text_lines(data, Mistakes(path, PluginError))
        except PluginError:
            return True
        meant = default is OnFailure.REJECT or any(map(_MEANT_TO_REJECT.match, lines))
        return meant and not any(map(_MEANT_AS_SHADOW.match, lines))
    live = conf.enabled and not conf.shadow
    return live and (conf.on_failure or default) is OnFailure.REJECT
