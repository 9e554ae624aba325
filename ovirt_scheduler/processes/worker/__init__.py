"""What runs in the zygote and in the processes that it forks.

::

    zygote            forks workers, and ends them
    main              a worker's first task says what it becomes
    reader            it reads the documents of one request
    plugin_process    it calls the functions of one plugin
    answers           what a function returned, or printed, as an answer
    baseline          what the process was like before a call: compared after it
    saved_state       the part of that which is restored

Nobody on the daemon's side imports them: the daemon starts the zygote as a program. They import
``loading``, ``documents``, ``protocol``, ``kernel`` and ``plugin``.
"""
