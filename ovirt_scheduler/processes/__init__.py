"""The processes below the daemon. The modules here are the daemon's side; the other is ``worker``.

::

    executor      one request: which calls of its plugins there are, on what, in which order
    places        how many calls may run at once
    inputs        what the calls of a request are on: documents, read and packed
    calls         calls of plugins, each in a process of its plugin: what becomes of each
    single_use    processes that do one thing and end: readers of documents, analyses
    pool          the processes of plugins that are kept between calls, and spare ones
    kept_process  one of these processes
    exchange      one task and its answer, over sockets and pipes that never block
    zygotes       the zygote that lives, and the next one when it dies
    handles       the daemon's ends of a zygote and of the processes that it forks
    interpreter   how the zygote's interpreter is started

``decisions`` and what lies above import them. ``worker``, ``loading`` and ``documents`` run in the
other processes; both sides know ``protocol`` and ``kernel`` alone, and never import each other.
"""
