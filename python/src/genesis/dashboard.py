"""The address of the daemon's dashboard."""

from __future__ import annotations

import ipaddress
import urllib.parse
from typing import TYPE_CHECKING, Union

from genesis.connection import Connection
from genesis.errors import FailedPreconditionError
from genesis.job import Job

if TYPE_CHECKING:
    from genesis.client import Client


def open(target: "Union[Client, Job]") -> str:  # noqa: A001 - called as genesis.open.
    """Prints the address at which a browser shows a job, or all jobs of a client's daemon (docs/dashboard.md).

    Args:
        target: a job or a client.

    Returns:
        The address. Its host is this machine if the daemon serves HTTP on a loopback address.

    Raises:
        FailedPreconditionError: the daemon chose its HTTP port itself (``http.listen`` with port 0), so that only its log names the port.
    """
    connection: Connection = target._connection if isinstance(target, Job) else target.connection
    settings = {setting.key: setting.value for setting in connection.call("GetConfig").settings}
    listen = settings["http.listen"]
    host, port = listen.rsplit(":", 1)
    if port == "0":
        raise FailedPreconditionError(f"http.listen of the daemon is {listen}, a port that it chose itself; its log names the port, and a fixed one "
                                      "(--http-listen 127.0.0.1:8080) has an address that lasts")
    scheme = "http" if settings["tls.certificate_file"] == "(none)" else "https"
    address = f"{scheme}://{_reached(host, connection.server)}:{port}/"
    if isinstance(target, Job):
        address += f"#/jobs/{urllib.parse.quote(target.id, safe='')}"
    print(address)
    return address


def _reached(host: str, server: str) -> str:
    """Returns the host of an HTTP address as seen by the client: for one on all interfaces, that of the client's own connection."""
    try:
        if not ipaddress.ip_address(host.strip("[]")).is_unspecified:
            return host
    except ValueError:
        return host
    return "localhost" if server.startswith("unix:") else server.rsplit(":", 1)[0]
