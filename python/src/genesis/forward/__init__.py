"""Forwards jobs of a daemon to tools that display training runs: ``python -m genesis.forward --to tensorboard:runs``.

The daemon is the queue: it keeps events and the metrics of every step on disk, and a ``Follower`` for each tool reads them at the speed
of the tool. Neither the daemon nor a job waits for a tool. docs/exporters.md is the page.
"""
