"""The processes below the daemon. The modules here are the daemon's side; the other is ``worker``.

::

    executor          one request: the calls of its plugins, their inputs and their order
    slots             how many calls may run at once
    inputs            the inputs of the calls of a request: documents, read and packed
    plugin_calls      calls of plugins, each in a process of its plugin, and their results
    document_reading  documents, read by processes that are kept for that
    single_use        processes that do one thing and end: documents are cut, a file is analysed
    pool              the processes that are kept, of plugins and readers, and spare ones
    pool_maintenance  the thread that keeps them ready, and how many it may make
    ending_counts     counts why processes have ended
    exchange          one task and its answer, over sockets and pipes that never block; the loop
                      that hands tasks to processes
    forker            the zygote that lives, and the next one when it dies
    zygote            one zygote as the daemon sees it, and the thread that watches it
    worker_handle     a process that a zygote forks, as the daemon sees it
    timing            how long processes are kept, and waited for
    interpreter       how the zygote's interpreter is started

One request goes this way::

    Executor.run
        Slots.hold                     it has a slot
        inputs.read_inputs             its documents are packs, by way of document_reading.read
        plugin_calls.make_calls        for each call, in exchange.completed:
            Exchange.begin                 the task goes to a process of its plugin (Pool.take)
            Exchange.receive               output and answer come back
            messages.unpack_answer         the answer is checked
            Exchange.release               the process is kept, or ended

``decisions`` and what lies above import these modules. ``worker``, ``loading`` and ``documents``
run in the other processes; both sides know ``protocol`` and ``kernel`` alone, and never import each
other.
"""
