"""Which files of the package are a feature's: the rest is the core (docs/design.md).

Whoever moves a file puts its new path here. A file becomes no feature by its place alone.
"""

from __future__ import annotations

_OF_COMMANDS = r"^command/(?!serve|cli|arguments|tables|check|__init__|completion)"

# Paths below ``ovirt_scheduler``, as regular expressions, each with the feature that the files are
# of. The first row that matches a file counts.
FEATURES = [
    (r"^history/", "history"),
    (r"^decisions/shadows", "history"),
    (r"^processes/documents/splitting", "history"),
    (r"^server/pages/", "pages"),
    (r"^daemon/control_socket", "pages"),
    (r"^clusters/", "clusters"),
    (r"^plugin/schedulers/", "clusters"),
    (r"^plugin/cluster_use", "clusters"),
    (r"^model/cluster_state", "clusters"),
    (r"^model/plans", "clusters"),
    (r"^model/values/statistics", "clusters"),
    (r"^processes/documents/resource_use", "clusters"),
    (r"^workbench/", "workbench"),
    (r"^testing/", "testing"),
    (r"^command/setup/", "setup"),
    (_OF_COMMANDS, "commands"),
    (r"^daemon/certificate_report", "commands"),
]
