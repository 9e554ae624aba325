"""A plugin's file, read and loaded: its imports, its units, its drivers, its mistakes.

``worker`` imports it; ``check`` runs ``lint`` as a program. It imports ``model`` and
``plugin``.
"""
