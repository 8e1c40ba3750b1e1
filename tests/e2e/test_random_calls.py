"""Tests messages with random values in random fields, for each method over gRPC and HTTP.

Each call gets a response soon, none triggers a bug, and accepted objects can be listed. GENESIS_CALLS sets the number of calls. A failure
prints its seed."""

import json
import os
import random
import shutil
import time
import unittest

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Field

import harness
import secure
from test_hostile_callers import SOON, HostileTest

CALLS = int(os.environ.get("GENESIS_CALLS", "400"))
NUMBERS = (0, 1, -1, 2, 7, 64, 1000, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"), 1 / 3)
TEXTS = ("", "x", "pendulum.npz", "../pendulum.npz", "/etc/passwd", "./pendulum.npz", "a" * 300, "\n", "a\x00b", "\x1b[2J",
         "ü" * 120, "\u202egpj", "𝕏", "%n%s", "'; drop table jobs; --", "..", ".", "~", "job-1", "FP32", "{}", "-",
         "😀" * 2000, "c" * 100_000)
INTEGERS = {Field.TYPE_INT32: (-(2**31), 2**31 - 1), Field.TYPE_INT64: (-(2**63), 2**63 - 1),
            Field.TYPE_UINT32: (0, 2**32 - 1), Field.TYPE_UINT64: (0, 2**64 - 1)}
# DrainWorker ends the workers that the test needs.
DRAINS = ("DrainWorker",)
DEFECTS = ("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "UNAVAILABLE", "DATA_LOSS")


class Chance:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, field, depth):
        if field.type in INTEGERS:
            low, high = INTEGERS[field.type]
            return min(max(self.random.choice(NUMBERS), low), high)
        if field.type in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT):
            number = self.random.choice(REALS)
            return number if field.type == Field.TYPE_DOUBLE or abs(number) < 1e38 else 0.0
        if field.type == Field.TYPE_BOOL:
            return self.random.random() < 0.5
        if field.type == Field.TYPE_STRING:
            return self.random.choice(TEXTS)
        if field.type == Field.TYPE_BYTES:
            return self.random.choice(TEXTS).encode()[:self.random.randrange(4096)]
        if field.type == Field.TYPE_ENUM:
            known = [value.number for value in field.enum_type.values]
            return self.random.choice([*known, *known, 99, -5, 2**31 - 1])
        raise AssertionError(field.full_name)

    def fill(self, message, share, depth=0):
        """Sets each field of the message to a random value with probability `share`, including the fields of submessages."""
        for field in message.DESCRIPTOR.fields:
            there = not field.is_repeated and field.message_type and message.HasField(field.name)
            if not there and self.random.random() > share:
                continue
            if field.message_type and field.message_type.GetOptions().map_entry:
                key, value = field.message_type.fields
                for _ in range(self.random.randrange(3)):
                    if value.message_type:
                        self.fill(getattr(message, field.name)[self.value(key, depth)], share, depth + 1)
                    else:
                        getattr(message, field.name)[self.value(key, depth)] = self.value(value, depth)
            elif field.is_repeated:
                count = self.random.choice((0, 1, 2, 3, 50))
                for _ in range(count):
                    if field.message_type:
                        if depth < 5:
                            self.fill(getattr(message, field.name).add(), share, depth + 1)
                    else:
                        getattr(message, field.name).append(self.value(field, depth))
            elif field.message_type:
                if depth < 6:
                    getattr(message, field.name).SetInParent()
                    self.fill(getattr(message, field.name), share, depth + 1)
            else:
                setattr(message, field.name, self.value(field, depth))

    def request(self, method):
        message = secure.messages(method)[0]()
        if method == "Train" and self.random.random() < 0.8:
            # A valid request in which some fields are then changed.
            json_format.ParseDict({"spec": harness.PENDULUM}, message)
            self.fill(message, 0.02)
        else:
            self.fill(message, self.random.choice((0.05, 0.3, 0.8)))
        if "job_id" in message.DESCRIPTOR.fields_by_name and self.random.random() < 0.5:
            message.job_id = f"job-{self.random.randrange(4)}"
        return message


class RandomCalls(HostileTest):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("GENESIS_SEED", random.SystemRandom().randrange(10**9)))
        self.chance = Chance(self.seed)
        print(f"GENESIS_SEED={self.seed}", flush=True)

    def methods(self):
        service = secure.messages("Train")[0].DESCRIPTOR.file.services_by_name["TrainingService"]
        return [method for method in service.methods if method.name not in DRAINS]

    def start_with_datasets(self):
        root = self.folder / "datasets"
        root.mkdir()
        for file in harness.TRAJECTORIES.glob("*.npz"):
            shutil.copy(file, root)
        return self.start("--datasets-root", root)

    def assert_no_defect(self, daemon):
        self.assertIsNone(daemon.process.poll())
        self.assertNotIn("defect:", daemon.log())
        client = self.client(daemon)
        token, count = "", 0
        while True:
            page = client.call("ListJobs", page_token=token)
            count += len(page.jobs)
            token = page.next_page_token
            if not token:
                break
        self.assert_serves(daemon)
        return count

    def test_over_grpc(self):
        daemon = self.start_with_datasets()
        client = self.client(daemon)
        methods, slowest, codes = self.methods(), (0, ""), {}
        for _ in range(CALLS):
            method = self.chance.random.choice(methods)
            name = method.name if self.chance.random.random() < 0.6 else "Train"
            method = next(each for each in methods if each.name == name)
            request = self.chance.request(name)
            requests = [request, self.chance.request(name)] if method.client_streaming else request
            kind = ("stream" if method.client_streaming else "unary") + "_" + (
                "stream" if method.server_streaming else "unary")
            message, answer = secure.messages(name)
            call = getattr(client.channel, kind)(
                f"/{secure.TRAINING}/{name}", request_serializer=message.SerializeToString,
                response_deserializer=answer.FromString)
            begin = time.monotonic()
            code = "OK"
            try:
                # The watch of an idle job ends by its timeout.
                made = call(iter(requests) if method.client_streaming else requests,
                            timeout=1 if method.server_streaming else harness.LONG)
                if method.server_streaming:
                    list(made)
            except grpc.RpcError as error:
                code = error.code().name
                if method.server_streaming and code == "DEADLINE_EXCEEDED":
                    continue
                self.assertNotIn(code, DEFECTS, f"{name}: {error.details()[:300]}\n{str(request)[:3000]}")
                self.assertNotIn("\n{", error.details())
            slowest = max(slowest, (time.monotonic() - begin, name))
            codes[code] = codes.get(code, 0) + 1
        print(codes, f"slowest {slowest[0]:.2f} s ({slowest[1]})", flush=True)
        self.assertGreater(codes.get("INVALID_ARGUMENT", 0), CALLS // 20)
        self.assertGreater(self.assert_no_defect(daemon), 0)
        self.assertEqual(daemon.stop(), 0)

    def test_over_http(self):
        daemon = self.start_with_datasets()
        paths = [(path, verb.upper()) for path, verbs in json.loads(
            (harness.SOURCE / "docs" / "openapi.json").read_text())["paths"].items() for verb in verbs
            if not path.endswith((":drain", ":watch"))]
        chance, statuses = self.chance.random, {}
        for _ in range(CALLS):
            path, verb = chance.choice([*paths, ("/v1/jobs", "POST"), ("/v1/jobs", "POST")])
            for name in ("job_id", "checkpoint_id", "dataset", "name", "worker_id"):
                text = chance.choice((f"job-{chance.randrange(4)}", *(text for text in TEXTS if len(text) < 300)))
                path = path.replace("{" + name + "}", "".join(f"%{byte:02X}" for byte in text.encode()) or "x")
            body = json_format.MessageToJson(self.chance.request("Train")).encode()
            for _ in range(chance.choice((0, 0, 0, 1, 5))):  # Invalid bytes.
                at = chance.randrange(len(body) + 1)
                body = body[:at] + chance.randbytes(chance.randrange(3)) + body[at + chance.randrange(4):]
            if verb == "GET":
                body = b""
                path += "?" + "&".join(f"{chance.choice(('page_size', 'page_token', 'states', 'x', 'job_id'))}="
                                       f"{chance.choice(('1', '-1', '99', 'RUNNING', '%00', '%FF', '%', '1e9', ''))}"
                                       for _ in range(chance.randrange(4)))
            begin = time.monotonic()
            answer = self.exchange(daemon, f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                   f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            self.assertLess(time.monotonic() - begin, 3 * SOON)
            status = int(answer.split(b" ", 2)[1])
            self.assertNotIn(status, (500, 501, 502, 503, 504), (verb, path, answer[:2000]))
            statuses[status] = statuses.get(status, 0) + 1
        print(statuses, flush=True)
        self.assert_no_defect(daemon)
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
