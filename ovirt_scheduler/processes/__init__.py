"""The processes below the daemon. The modules here are the daemon's side; the other is ``worker``.

::

    executor      one request: documents are read, its plugins called in their order
    runner        one round of calls, each in a process of its plugin; readers; analyses
    pool          the processes of plugins that are kept between calls, and spare ones
    kept_process  one of these processes
    plugin_call   one call: what its process is asked, and what came of it
    exchange      one task and its answer, over sockets and pipes that never block
    handles       the daemon's ends of the zygote and of the processes that it forks
    places        how many calls may run at once
    interpreter   how the zygote's interpreter is started

``decisions`` and what lies above import them. ``worker``, ``loading`` and ``documents`` run in the
other processes; both sides know ``protocol`` and ``kernel`` alone, and never import each other.
"""
