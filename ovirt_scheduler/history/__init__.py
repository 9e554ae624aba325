"""The history: what was decided and what happened to the daemon, kept in the state folder.

``daemon``, ``server``, ``clusters``, ``decisions`` and ``command`` import it. It imports ``model``,
``settings``, ``security`` and ``log``.
"""
