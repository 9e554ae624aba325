"""Wants a topic that another file has."""

from ovirt_scheduler.plugin import Driver


class Twice(Driver):
    topic = "values"

    def give(self):
        return "taken"
