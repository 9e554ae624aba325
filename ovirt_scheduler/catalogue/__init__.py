"""Finds the policy units and drivers in plugins' files, and keeps their last good versions.

``decisions`` and what lies above import it. It opens plugins' files and does not run them:
a process does that, with ``processes.loading``.
"""
