"""What goes between the daemon and the processes below it: frames, messages, packed answers.

Both sides import it. It imports ``model`` alone.
"""
