"""Tests docs/openapi.json and docs/job_file.schema.json with the standard validators of OpenAPI and JSON Schema."""

import json
import pathlib
import re
import tempfile
import unittest

from tools import SOURCE, TOOLS, run  # Must come first, because it adds the harness to the path.
import harness

DOCS = SOURCE / "docs"
SCHEMA = DOCS / "job_file.schema.json"
BLOCK = re.compile(r"^```(?:yaml|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHOLE = """
model: {world_model: {hidden_size: 64}}
dataset: {trajectories: {path: hopper.npz}}
training: {max_steps: 10}
"""


def job_files():
    """Returns {place: text} of the job files in examples/ and of those on pages."""
    found = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted((SOURCE / "examples").glob("*.yaml"))}
    for page in sorted([*DOCS.rglob("*.md"), SOURCE / "README.md"]):
        text = page.read_text()
        for block in BLOCK.finditer(text):
            if re.search(r'^(?:model:|\{"model")', block[1], re.MULTILINE):
                found[f"{page.relative_to(SOURCE)}:{text.count(chr(10), 0, block.start()) + 1}"] = block[1]
    return found


class ApiDocuments(unittest.TestCase):
    def test_openapi_is_valid_and_each_operation_has_a_name_and_a_tag(self):
        run(TOOLS / "openapi-spec-validator", DOCS / "openapi.json")
        document = json.loads((DOCS / "openapi.json").read_text())
        operations = [operation for verbs in document["paths"].values() for operation in verbs.values()]
        names = [operation["operationId"] for operation in operations]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual({tag for operation in operations for tag in operation["tags"]}, {tag["name"] for tag in document["tags"]})
        self.assertEqual({len(operation["tags"]) for operation in operations}, {1})


class Daemon(harness.DaemonTest):
    # Ranges are in the descriptions only, and protobuf's JSON accepts more than the types say: null, and numbers as text.
    UNFIT = "positive_data_acceptance,negative_data_rejection"
    FIXED = {"path.job_id": "ok-1", "path.checkpoint_id": "ok-1-step-10", "query.wait_seconds": 1}

    def test_answers_as_the_document_says(self):
        """Schemathesis sends requests that fit the document, requests that do not, and sequences of calls."""
        # The fake worker predicts nothing, which would be an error of the server.
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), "--workers-predictors", "0")
        daemon.train("ok-1", harness.PENDULUM)
        daemon.wait_for_end("ok-1")
        settings = pathlib.Path(self.data_dir, "schemathesis.toml")
        settings.write_text("[parameters]\n" + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self.FIXED.items()))
        # WatchJobs does not end by itself, and WatchWeights of a job that waits neither.
        run(TOOLS / "schemathesis", "--config-file", settings, "run", f"http://{daemon.http}/v1/openapi.json", "--seed", "7",
            "--max-examples", "5", "--exclude-checks", self.UNFIT, "--exclude-operation-id", "WatchJobs", "--exclude-operation-id", "WatchWeights",
            "--request-timeout", "30",
            cwd=self.data_dir)


class JobSchema(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, *texts):
        """Checks files with these contents. Returns the finished check-jsonschema."""
        paths = [self.folder / f"{number}.yaml" for number in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(text)
        return run(TOOLS / "check-jsonschema", "--schemafile", SCHEMA, *paths, check=False)

    def test_is_a_schema(self):
        run(TOOLS / "check-jsonschema", "--check-metaschema", SCHEMA)

    def test_accepts_the_job_files_of_examples_and_pages(self):
        files = job_files()
        self.assertGreater(len(files), 8)
        done = self.check(*files.values())
        self.assertEqual(done.returncode, 0, f"{dict(enumerate(files))}\n{done.stdout}{done.stderr}")

    def test_accepts_what_is_left_out(self):
        for text in (WHOLE.replace("{hidden_size: 64}", ""), WHOLE + "optimizer:\n", WHOLE + "optimizer: {learning_rate: 0}\n",
                     WHOLE + "max_restarts: 0\n", WHOLE + "optimizer: {weight_decay: -1}\n", WHOLE + "precision: {tf32: OFF}\n"):
            with self.subTest(text):
                done = self.check(text)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_refuses_what_the_daemon_refuses(self):
        for text in ("training: {max_steps: 10}\n", WHOLE + "optimiser: {}\n", WHOLE + "max_restarts: 1001\n",
                     WHOLE + "optimizer: {weight_decay: -2}\n", WHOLE + "precision: {mode: FP8}\n", WHOLE + "checkpoint: {keep_last: many}\n",
                     WHOLE.replace("{world_model:", "{transformer: {}, world_model:"), WHOLE.replace("{trajectories: {path: hopper.npz}}", "{}"),
                     WHOLE.replace("10", "-10"), WHOLE + "scheduling: {labels: {" + ", ".join(f"k{i}: v" for i in range(65)) + "}}\n"):
            with self.subTest(text):
                self.assertNotEqual(self.check(text).returncode, 0)


if __name__ == "__main__":
    unittest.main()
