"""Clients of both APIs of a daemon: gRPC by reflection, and HTTP with JSON by the OpenAPI document."""

import http.client
import json
import re
import urllib.parse

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

SERVICE = "genesis.training.v1.TrainingService"
# Seconds after which a test fails. Not a measurement.
DEADLINE = 180


class Answer:
    """The outcome of a call over either transport: the name of the code, the message, and the responses."""

    def __init__(self, code, text="", responses=(), violations=()):
        self.code, self.text = code, text
        self.responses, self.violations = list(responses), list(violations)

    @property
    def response(self):
        return self.responses[0]

    def __repr__(self):
        return f"{self.code} {self.text} {[str(r)[:200] for r in self.responses]}"


class GrpcApi:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.methods = {m.name: m for m in self.pool.FindServiceByName(SERVICE).methods}

    def close(self):
        self.channel.close()

    def types(self, name):
        method = self.methods[name]
        return (message_factory.GetMessageClass(method.input_type),
                message_factory.GetMessageClass(method.output_type))

    def stub(self, name):
        method = self.methods[name]
        request, response = self.types(name)
        kind = {(False, False): self.channel.unary_unary, (False, True): self.channel.unary_stream,
                (True, False): self.channel.stream_unary}[
                    (method.client_streaming, method.server_streaming)]
        return kind(f"/{SERVICE}/{name}", request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString)

    def call(self, name, fields):
        """Calls a method. `fields` are those of the request, or a list of such dicts for a client stream."""
        method = self.methods[name]
        request, _ = self.types(name)
        many = fields if method.client_streaming else [fields]
        messages = [json_format.ParseDict(each, request()) for each in many]
        try:
            if method.server_streaming:
                return Answer("OK", responses=list(self.stub(name)(messages[0], timeout=DEADLINE)))
            argument = iter(messages) if method.client_streaming else messages[0]
            return Answer("OK", responses=[self.stub(name)(argument, timeout=DEADLINE)])
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details(), violations=self._violations(error))

    @staticmethod
    def _violations(error):
        """Returns (field, description) of each violation in google.rpc.BadRequest, decoded from grpc-status-details-bin."""
        details = [v for k, v in error.trailing_metadata() or () if k == "grpc-status-details-bin"]
        found = []
        for number, status in [f for d in details for f in wire_fields(d)]:
            if number != 3:
                continue
            detail = dict(wire_fields(status))
            assert detail[1] == b"type.googleapis.com/google.rpc.BadRequest", detail[1]
            for _, violation in wire_fields(detail[2]):
                pair = dict(wire_fields(violation))
                found.append((pair.get(1, b"").decode(), pair.get(2, b"").decode()))
        return found


def wire_fields(data):
    """Yields (number, bytes or int) for each field of a serialized message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        value = varint()
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        yield tag >> 3, value


class HttpApi:
    """A client that builds requests only from the OpenAPI document, and parses responses with the types of `grpc_api`."""

    def __init__(self, address, grpc_api):
        self.address, self.grpc_api = address, grpc_api
        self.text = self.exchange("GET", "/v1/openapi.json")[2].decode()
        self.operations = {}
        for path, verbs in json.loads(self.text)["paths"].items():
            for verb, operation in verbs.items():
                self.operations[operation["operationId"]] = (verb.upper(), path, operation)

    def exchange(self, verb, target, body=None, headers=None):
        """Sends one request. Returns (status, headers, body)."""
        connection = http.client.HTTPConnection(self.address, timeout=DEADLINE)
        try:
            connection.request(verb, target, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def request_of(self, name, fields):
        """Returns (verb, target, body, headers) of a call."""
        verb, path, operation = self.operations[name]
        many = fields if isinstance(fields, list) else [fields]
        rest = dict(many[0])
        for field in re.findall(r"{(\w+)}", path):
            path = path.replace(f"{{{field}}}", urllib.parse.quote(str(rest.pop(field, "")), safe=""))
        content = operation.get("requestBody", {}).get("content", {})
        if isinstance(fields, list):
            body = "\n".join(json.dumps(each) for each in [rest, *many[1:]])
            return verb, path, body, {"Content-Type": "application/x-ndjson"}
        if content:
            body = json.dumps(rest) if rest else None
            return verb, path, body, {"Content-Type": "application/json"} if rest else {}
        query = []
        for key, value in rest.items():
            if isinstance(value, dict):
                query += [(f"{key}.{inner}", each) for inner, text in value.items() for each in (text if isinstance(text, list) else [text])]
            else:
                query += [(key, v) for v in (value if isinstance(value, list) else [value])]
        words = [(k, str(v).lower() if isinstance(v, bool) else v) for k, v in query]
        return verb, path + ("?" + urllib.parse.urlencode(words) if words else ""), None, {}

    def call(self, name, fields):
        return self._read(name, *self.exchange(*self.request_of(name, fields)))

    def upload(self, name, subject, body):
        """Calls ImportCheckpoint. The request body is the file itself."""
        verb, path, _ = self.operations[name]
        target = re.sub(r"{\w+}", urllib.parse.quote(subject, safe=""), path)
        return self._read(name, *self.exchange(verb, target, body,
                                               {"Content-Type": "application/octet-stream"}))

    def _read(self, name, status, headers, body):
        if status >= 300:
            error = json.loads(body)["error"]
            assert error["code"] == status, (error, status)
            violations = [(v["field"], v["description"]) for detail in error.get("details", [])
                          for v in detail["field_violations"]]
            return Answer(error["status"], error["message"], violations=violations)
        _, response = self.grpc_api.types(name)
        if headers["content-type"] == "application/octet-stream":
            return Answer("OK", responses=[response(content=body)])
        return Answer("OK", responses=[json_format.Parse(line, response())
                                       for line in body.decode().splitlines() if line])
