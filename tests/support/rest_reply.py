"""What a fake engine answers by HTTP."""

from __future__ import annotations

import json
from typing import NamedTuple

from tests.support.elements import Element

DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


class Reply(NamedTuple):
    status: int
    content_type: str
    body: str


def json_reply(status: int, told: object) -> Reply:
    return Reply(status, "application/json;charset=UTF-8", json.dumps(told))


def fault(status: int, detail: str) -> Reply:
    document = Element("fault", [Element("reason", "Operation Failed"), Element("detail", detail)])
    return Reply(status, "application/xml", f"{DECLARATION}{document}")
