"""Connection to one daemon: its address, TLS, token, and the stubs of its service."""

from __future__ import annotations

import ipaddress
import operator
import os
import pathlib
import random
import time
import urllib.parse
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, Tuple, Union

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf import message_factory

from genesis.errors import GenesisError, InvalidArgumentError, from_rpc
from genesis.requests import message, shown
from genesis.training.v1 import training_service_pb2

SERVICE = training_service_pb2.DESCRIPTOR.services_by_name["TrainingService"]
DEFAULT_SERVER = "127.0.0.1:50051"
# Status codes of transient errors, such as while the daemon restarts.
PASSING = (grpc.StatusCode.UNAVAILABLE,)
# Limit on a response; larger than any message that the daemon sends.
MAX_MESSAGE_BYTES = 16 << 20
OPTIONS = (("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
           # An HTTP proxy cannot reach a daemon on loopback or in a private network. genesisctl uses no proxy either.
           ("grpc.enable_http_proxy", 0),
           # Reconnects within a second after a restart of the daemon.
           ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000))

FilePath = Union[str, "os.PathLike[str]"]


def _class_of(descriptor: Any) -> Any:
    """Returns the Python class of a message. Before protobuf 4.22 the function that returns it has another name."""
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory().GetPrototype(descriptor)


def _check_server(server: Any) -> None:
    if isinstance(server, str):
        # gRPC also accepts names without a port, and URIs.
        if server.startswith("unix:") or "//" in server or ":" not in server or server.endswith("]"):
            return
        port = server.rsplit(":", 1)[1]
        if port.isdecimal() and 1 <= int(port) <= 65535:
            return
    raise InvalidArgumentError(f"server is {shown(server)}; accepted: HOST:PORT with a port from 1 to 65535, or unix:PATH")


def _target(server: str) -> str:
    """Returns the gRPC target of a server. The path of a Unix socket is quoted, because ``#``, ``?`` and ``%`` are special in URIs."""
    if not server.startswith("unix:") or server.startswith("unix://"):
        return server
    path = server[len("unix:"):]
    if "," in path:
        raise InvalidArgumentError(
            f"server is {shown(server)}; gRPC takes a comma for the end of an address: give the socket a path without one")
    return "unix:" + urllib.parse.quote(os.fsencode(path))


def is_local(server: str) -> bool:
    if server.startswith("unix:"):
        return True
    host = server.rsplit(":", 1)[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Connection:
    """A connection to a daemon. It calls the methods of TrainingService by name, and sends the token with each call.

    Connects on the first call, and reconnects if the connection breaks. Any thread may use it.
    """

    def __init__(self, server: Optional[str] = None, *, token: Optional[str] = None, token_file: Optional[FilePath] = None,
                 tls_ca: Optional[FilePath] = None, tls_cert: Optional[FilePath] = None, tls_key: Optional[FilePath] = None,
                 timeout: float = 60.0) -> None:
        environment = os.environ.get
        self.server = server or environment("GENESIS_SERVER") or DEFAULT_SERVER
        _check_server(self.server)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise InvalidArgumentError(f"timeout is {shown(timeout)}; accepted: a number of seconds above 0")
        self.timeout = timeout
        token_file = token_file or (None if token else environment("GENESIS_TOKEN_FILE"))
        token = pathlib.Path(token_file).read_text().strip() if token_file else token or environment("GENESIS_TOKEN")
        tls_ca = tls_ca or environment("GENESIS_TLS_CA")
        tls_cert = tls_cert or environment("GENESIS_TLS_CERT")
        tls_key = tls_key or environment("GENESIS_TLS_KEY")
        if token and not tls_ca and not is_local(self.server):
            raise ValueError(f"the token would travel unencrypted to {self.server}; give tls_ca (GENESIS_TLS_CA)")
        if bool(tls_cert) != bool(tls_key):
            raise ValueError("tls_cert and tls_key belong together; give both or none")
        if tls_cert and not tls_ca:
            raise ValueError("tls_cert needs tls_ca; without it the connection is not TLS")
        self._token, self._token_file = token, token_file
        if tls_ca:
            def read(path: Optional[FilePath]) -> Optional[bytes]:
                return pathlib.Path(path).read_bytes() if path else None

            credentials = grpc.ssl_channel_credentials(read(tls_ca), read(tls_key), read(tls_cert))
            self._channel = grpc.secure_channel(_target(self.server), credentials, options=OPTIONS)
        else:
            self._channel = grpc.insecure_channel(_target(self.server), options=OPTIONS)
        self._stubs: Dict[str, Callable[..., Any]] = {}
        self._requests: Dict[str, Any] = {}
        for method in SERVICE.methods:
            self._add(method)

    def _add(self, method: MethodDescriptor) -> None:
        kind = {(False, False): self._channel.unary_unary, (False, True): self._channel.unary_stream,
                (True, False): self._channel.stream_unary}[(method.client_streaming, method.server_streaming)]
        request, response = _class_of(method.input_type), _class_of(method.output_type)
        self._requests[method.name] = request
        self._stubs[method.name] = kind(f"/{SERVICE.full_name}/{method.name}", request_serializer=operator.methodcaller("SerializeToString"),
                                        response_deserializer=response.FromString)

    @property
    def _metadata(self) -> Tuple[Tuple[str, str], ...]:
        # Read for each call because a program may renew the file before its token expires.
        token = pathlib.Path(self._token_file).read_text().strip() if self._token_file else self._token
        return (("authorization", f"Bearer {token}"),) if token else ()

    def close(self) -> None:
        self._channel.close()

    def error(self, error: grpc.RpcError) -> GenesisError:
        return from_rpc(error, self.server)

    def request(self, method: str, /, **fields: Any) -> Any:
        """Builds the request of a method.

        Raises:
            InvalidArgumentError: a value has the wrong type for its field.
        """
        return message(self._requests[method], **fields)

    def call(self, method: str, request: Any = None, *, timeout: Optional[float] = None, repeat: bool = True, **fields: Any) -> Any:
        """Makes a unary call with a request, or with the fields of one.

        Args:
            timeout: maximum duration in seconds. Default: that of the connection.
            repeat: whether to retry until the timeout while the daemon is unavailable.

        Raises:
            GenesisError: the subclass for the status code.
        """
        if request is None:
            request = self.request(method, **fields)
        deadline = time.monotonic() + (timeout or self.timeout)

        def attempt() -> Any:
            left = max(deadline - time.monotonic(), 0.001)
            return self._stubs[method](request, timeout=left, metadata=self._metadata)

        return self._persist(attempt, deadline if repeat else 0)

    def _persist(self, attempt: Callable[[], Any], deadline: float) -> Any:
        """Runs ``attempt`` until it succeeds, fails with a permanent error, or the deadline has passed. Returns its result."""
        pause = 0.1
        while True:
            try:
                return attempt()
            except grpc.RpcError as error:
                if error.code() not in PASSING or time.monotonic() + pause > deadline:
                    raise self.error(error) from None
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 2.0)

    def stream(self, method: str, request: Any) -> Any:
        """Starts a streaming call without a timeout and returns gRPC's call object.

        ``request`` is one message, or an iterable of messages if the client streams."""
        return self._stubs[method](request, metadata=self._metadata)

    def send(self, method: str, requests: Iterable[Any]) -> Any:
        """Streams requests, without a timeout or retries, and returns the response."""
        return self._persist(lambda: self.stream(method, iter(requests)), 0)

    def send_again(self, method: str, requests: Sequence[Any]) -> Any:
        """Streams requests that may be sent twice, and returns the response. Retries until the timeout while the daemon is unavailable."""
        return self._persist(lambda: self.stream(method, iter(requests)), time.monotonic() + self.timeout)

    def watch(self, method: str, cursor: int, timeout: float, **fields: Any) -> Iterator[Any]:
        """Yields the responses of WatchJob or WatchJobs, and None whenever the daemon has ended the stream.

        If the connection breaks or the daemon restarts, reconnects and continues after the last cursor.

        Raises:
            UnavailableError: the daemon was unavailable for longer than the timeout, in seconds.
            GenesisError: the subclass for another status code.
        """
        for response in self.persist(method, lambda: {"cursor": cursor, **fields}, timeout):
            if response is not None:
                cursor = max(cursor, response.cursor)
            yield response

    def persist(self, method: str, fields: Callable[[], Dict[str, Any]], timeout: float,
                begun: Callable[[Any], None] = lambda stream: None) -> Iterator[Any]:
        """Yields the responses of a stream, and None whenever the daemon has ended it, then starts it again. Raises as ``watch``.

        Args:
            fields: called for the fields of the request whenever the stream is started.
            begun: called with the call object of gRPC whenever the stream is started.
        """
        pause, lost_since = 0.1, None
        while True:
            stream = None
            try:
                stream = self.stream(method, self.request(method, **fields()))
                begun(stream)
                for response in stream:
                    pause, lost_since = 0.1, None
                    yield response
                yield None
            except grpc.RpcError as error:
                if error.code() not in PASSING:
                    raise self.error(error) from None
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > timeout:
                    raise self.error(error) from None
            finally:
                if stream is not None:
                    stream.cancel()
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 2.0)
