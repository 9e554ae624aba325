"""The zygote and what it forks: processes of plugins, and readers of documents.

Nobody on the daemon's side imports it: the daemon starts it as a program. It imports ``loading``,
``documents``, ``protocol``, ``kernel`` and ``plugin``.
"""
