"""Rules for single values: texts, names, properties, numbers, JSON.

It may be imported like ``model``, and imports it and ``errors`` alone.
"""
