"""Schedulers that come with the package. The loader finds them as it finds any plugin.

Nobody imports them. They import ``plugin`` alone.
"""
