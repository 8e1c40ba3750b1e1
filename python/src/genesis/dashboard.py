"""The address of the daemon's dashboard."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Union

from genesis.connection import Connection
from genesis.job import Job

if TYPE_CHECKING:
    from genesis.client import Client


def open(target: "Union[Client, Job]") -> str:  # noqa: A001 - called as genesis.open.
    """Prints the address at which a browser shows a job, or all jobs of a client's daemon (docs/dashboard.md).

    If the daemon authenticates its callers, the address signs one browser in as the caller of the client, once and within a minute. It holds a code
    for that, never the client's token.

    Args:
        target: a job or a client.

    Returns:
        The address. Its host is this machine if the daemon serves HTTP on a loopback address.
    """
    connection: Connection = target._connection if isinstance(target, Job) else target.connection
    daemon = urllib.parse.urlsplit(connection.call("GetServerInfo").http_address)
    page = f"/jobs/{urllib.parse.quote(target.id, safe='')}" if isinstance(target, Job) else "/"
    code = connection.call("CreateLoginCode").code
    host = _reached(daemon.hostname, connection.server)
    # A browser does not send the part after the number sign to any server.
    address = f"{daemon.scheme}://{host}:{daemon.port}/#{page}" + (f"?login={code}" if code else "")
    print(address)
    return address


def _reached(host: str, server: str) -> str:
    """Returns the host at which the client reaches an HTTP address: for an address on all interfaces, the host of its own connection."""
    if host not in ("0.0.0.0", "::"):
        return f"[{host}]" if ":" in host else host
    return "localhost" if server.startswith("unix:") else server.rsplit(":", 1)[0]
