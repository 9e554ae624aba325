"""Which policy units and drivers there are: plugins' files, and their last good versions.

``decisions`` and what lies above import it. It opens files, and runs nothing of them: a process
does that, of ``processes.loading``.
"""
