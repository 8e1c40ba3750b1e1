"""Shared code of the tests of tokens and TLS: certificates, tokens, and clients that use them."""

import json
import os
import pathlib
import subprocess

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

import harness

TRAINING = "genesis.training.v1.TrainingService"
FAKE_WORKER = harness.BIN.parent / "tests" / "fake_worker"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True,
                   timeout=harness.LONG)


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, folder, name="test authority"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.certificate = self.folder / "ca.pem"
        self.key = self.folder / "ca.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", self.key, "-out", self.certificate, "-days", "2", "-subj", f"/CN={name}")

    def issue(self, common_name, file=None, address="127.0.0.1"):
        """Issues a certificate for the address and localhost. Returns (certificate, key)."""
        base = self.folder / (file or common_name)
        key, request = base.with_suffix(".key"), base.with_suffix(".csr")
        certificate, extensions = base.with_suffix(".pem"), base.with_suffix(".ext")
        extensions.write_text(f"subjectAltName=IP:{address},DNS:localhost\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                key, "-out", request, "-subj", f"/CN={common_name}")
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
                "-CAcreateserial", "-days", "2", "-out", certificate, "-extfile", extensions)
        os.chmod(key, 0o600)
        return certificate, key


def new_token(name, role):
    """Runs genesisctl token. Returns (token, line for the tokens file)."""
    done = subprocess.run([harness.BIN / "genesisctl", "-o", "json", "token", name, role],
                          check=True, capture_output=True, text=True, timeout=harness.LONG)
    made = json.loads(done.stdout)
    return made["token"], made["line"]


def write_secret(path, text):
    """Replaces a file atomically, as operators' tools do."""
    new = pathlib.Path(f"{path}.new")
    new.touch(mode=0o600)
    new.write_text(text)
    os.replace(new, path)
    return path


class Client:
    """A client that calls any method by name, with messages from protoc's descriptor set."""

    def __init__(self, channel, token=None):
        self.channel = channel
        self.metadata = [("authorization", f"Bearer {token}")] if token else []

    def call(self, method, timeout=harness.LONG, **fields):
        request, response = messages(method)
        streams = method == "AppendTrajectories"
        stub = (self.channel.stream_unary if streams else self.channel.unary_unary)(
            f"/{TRAINING}/{method}", request_serializer=request.SerializeToString,
            response_deserializer=response.FromString)
        message = request(**fields)
        return stub(iter([message]) if streams else message, metadata=self.metadata, timeout=timeout)

    def stream(self, method, timeout=harness.LONG, **fields):
        request, response = messages(method)
        stub = self.channel.unary_stream(
            f"/{TRAINING}/{method}", request_serializer=request.SerializeToString,
            response_deserializer=response.FromString)
        return stub(request(**fields), metadata=self.metadata, timeout=timeout)

    def code(self, method, timeout=harness.LONG, **fields):
        """Returns the name of the status code of a call."""
        try:
            self.call(method, timeout=timeout, **fields)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"

    def services(self):
        """Lists services by reflection. Raises grpc.RpcError if that is refused."""
        pool = ProtoReflectionDescriptorDatabase(
            grpc.intercept_channel(self.channel, _WithMetadata(self.metadata)))
        return list(pool.get_services())


class _WithMetadata(grpc.StreamStreamClientInterceptor):
    def __init__(self, metadata):
        self.metadata = metadata

    def intercept_stream_stream(self, continuation, details, requests):
        return continuation(details._replace(metadata=self.metadata), requests)


_pool = None


def messages(method):
    """Returns (request class, response class) of a method."""
    global _pool
    if _pool is None:
        from google.protobuf import descriptor_pb2
        proto = harness.SOURCE / "proto"
        done = subprocess.run(
            ["protoc", "-I", proto, "--include_imports", "-o", "/dev/stdout",
             "genesis/training/v1/training_service.proto"],
            check=True, capture_output=True, timeout=harness.LONG)
        _pool = DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(done.stdout).file:
            _pool.Add(file)
    found = _pool.FindServiceByName(TRAINING).methods_by_name[method]
    return GetMessageClass(found.input_type), GetMessageClass(found.output_type)


def tls_channel(address, authority, certificate=None, key=None, options=()):
    credentials = grpc.ssl_channel_credentials(
        pathlib.Path(authority).read_bytes(),
        pathlib.Path(key).read_bytes() if key else None,
        pathlib.Path(certificate).read_bytes() if certificate else None)
    # Uses a new connection each time, because certificates change.
    return grpc.secure_channel(address, credentials,
                               [("grpc.use_local_subchannel_pool", 1), *options])


def plain_channel(address, options=()):
    return grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1), *options])
