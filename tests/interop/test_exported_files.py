"""Tests that damaged or hostile exported files, and those that do not match the job, are rejected before any part of them is loaded."""

import json
import os
import subprocess
import tempfile
import unittest
import zipfile

import compiled_job  # noqa: F401 - sets the path of the scripts.
import exported
import numpy
import step
import tiers
import torch
import twin
from exported_jobs import EXAMPLES, FORMATS, GATE, STEPS, ExportedJobs, Normed, Scaled, loss_of

import genesis


class ExportedFiles(ExportedJobs):
    def rewrite(self, change, compression=zipfile.ZIP_STORED):
        """Rewrites the exported file after applying `change` to a dict of its records, {name: bytes}."""
        path = self.path / "net.pt2"
        with zipfile.ZipFile(path) as archive:
            records = {name: archive.read(name) for name in archive.namelist()}
        change(records)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in records.items():
                archive.writestr(zipfile.ZipInfo(name), content, compression)

    def edit(self, name, old, new):
        def change(records):
            self.assertIn(old, records[name])
            records[name] = records[name].replace(old, new)
        self.rewrite(change)

    def test_a_size_that_is_a_program_is_refused(self):
        sizes = ["Symbol('s9', positive=True, integer=True)", "Mul(Integer(12), Symbol('s9', positive=True, integer=True))"]
        exported.check_expressions([{"sizes": [{"as_expr": {"expr_str": each}} for each in sizes]}])
        for text in ("exit()", "Symbol('s9').__class__", "Integer(1)\nexit()", "Symbol('s9'); 1", "Symbol('s' + 'exit()')", "Mul(x for x in [1])",
                     "Symbol('exit')", 7):
            with self.subTest(text), self.assertRaisesRegex(step.StepError, "sums and products"):
                exported.check_expressions({"a": [{"expr_str": text}]})

    def test_a_hostile_file_is_refused_before_it_is_loaded(self):
        graph, manifest = "module/models/FP32.json", "module/extra/genesis.json"

        def add(name):
            return lambda: self.rewrite(lambda records: records.__setitem__(name, b"x"))

        cases = {
            "operator": (lambda: self.edit(graph, b"torch.ops.aten.addmm.default", b"torch.ops.aten.from_file.default"),
                         'has the operator "torch.ops.aten.from_file.default"'),
            "custom operator": (lambda: self.edit(graph, b"torch.ops.aten.addmm.default", b"torch.ops.mine.run.default"),
                                'has the operator "torch.ops.mine.run.default"'),
            "escaped operator": (lambda: self.edit(graph, b'"target": "torch.ops.aten.addmm.default"',
                                                   b'"\\u0074arget": "os.system"'), 'has the operator "os.system"'),
            "library": (add("module/data/aotinductor/FP32/a.so"), "that is none of a module's"),
            "pickle": (add("module/data/sample_inputs/FP32.pt"), "that is none of a module's"),
            "object": (add("module/data/constants/custom_obj_0"), "that is none of a module's"),
            "constants": (lambda: self.edit("module/data/constants/FP32_constants_config.json", b"{}",
                                            b'{"a": {"path_name": "custom_obj_0"}}'), "has constants of its own"),
            "compressed": (lambda: self.rewrite(lambda records: None, zipfile.ZIP_DEFLATED),
                           'has the tensor "layers.0.weight" compressed; accepted: stored, as genesis.export writes it'),
            "function of sizes": (lambda: self.edit(graph, b'"target": "torch.ops.aten.addmm.default"', b'"target": "_operator.attrgetter"'),
                                  'has the operator "_operator.attrgetter"'),
            "shape": (lambda: self.edit(manifest, b"16,\n    6", b"16,\n    7"), "of other bytes"),
            "large shape": (lambda: self.edit(manifest, b"16,\n    6", b"9223372036854775807,\n    9223372036854775807"),
                            "of other bytes"),
            "older exporter": (lambda: self.edit(manifest, b'"format": 3,\n "producer": "genesis-trainer 0.1.0",', b'"format": 1,'),
                               "which an older genesis-trainer wrote, whose graphs may compute products of slices from memory that is not "
                               "theirs: export it again with genesis-trainer 0.1.0;"),
            "newer exporter": (lambda: self.edit(manifest, b'"format": 3,\n "producer": "genesis-trainer 0.1.0",',
                                                 b'"format": 4,\n "producer": "genesis-trainer 9.0\\n",\n "more": {"a": [1.5]},'),
                               'is of format 4, which "genesis-trainer 9.0\\n" wrote; this worker reads format 3: export it again with '
                               'genesis-trainer 0.1.0;'),
            "unknown key": (lambda: self.edit(manifest, b'"format": 3,', b'"format": 3,\n "more": 1,'), "an unknown key"),
            "losses": (lambda: self.edit(manifest, b'"losses": "MEAN"', b'"losses": "SUM"'), 'has losses "SUM"'),
            "version": (lambda: self.edit(manifest, b'"layers.1": 2', b'"layers.1": -2'), "has a manifest that cannot be read, at byte "),
            "losses that are none": (lambda: self.edit(manifest, b'"losses": "MEAN"', b'"losses": "EXAMPLES"'), "model.exported"),
            "not finite": (lambda: self.rewrite(lambda records: records.__setitem__(
                "module/extra/tensors/0", records["module/extra/tensors/0"][:-8] + numpy.float32([numpy.nan, numpy.inf]).tobytes())),
                           'has a tensor "layers.0.weight" that is nan at [15, 4]'),
            "torch": (lambda: self.edit(manifest, torch.__version__.split("+")[0].encode(), b"2.9.0"),
                      'was exported by torch "2.9.0"'),
            "torch of another major version": (lambda: self.edit(manifest, torch.__version__.split("+")[0].encode(), b"3.0.0"),
                                               'was exported by torch "3.0.0"'),
            "gradient": (lambda: self.edit(manifest, b'"gradients": [', b'"gradients": ["none",'), 'names "none" among'),
            "broken graph": (lambda: self.edit(graph, b'{"graph_module"', b'{"graph_module'), "cannot be read"),
            "outputs": (lambda: self.edit(manifest, b'"layers.0.weight",\n  "layers.0.bias"', b'"layers.0.bias"'),
                        ""),
        }
        for name, (change, message) in cases.items():
            with self.subTest(name):
                job, _ = self.job(Normed)
                change()
                self.assertIn(message, self.refused(job))

    def test_predictions_that_do_not_fit_the_file_are_refused(self):
        manifest, graph = "module/extra/genesis.json", "module/models/prediction.json"
        job, module = self.job(Normed)
        genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"],
                       predict=lambda module, batch: {"logits": module(batch["x"]), "sum": module(batch["x"]).sum(1)})
        whole = (self.path / "net.pt2").read_bytes()

        def given(**prediction):
            def change(records):
                values = json.loads(records[manifest])
                values["prediction"].update(prediction)
                records[manifest] = json.dumps(values).encode()
            return change

        def taken_out(records):
            values = json.loads(records[manifest])
            del values["prediction"]
            records[manifest] = json.dumps(values).encode()

        def with_operator(records):
            records[graph] = records[graph].replace(b"torch.ops.aten.addmm.default", b"torch.ops.aten.from_file.default")

        cases = [(lambda records: records.pop(graph), f'has no record "{graph}"'),
                 (taken_out, "that is none of a module's"),
                 (with_operator, 'whose graph prediction has the operator "torch.ops.aten.from_file.default"'),
                 (given(inputs=["y"]), 'names "y" among its inputs of predictions'),
                 (given(inputs=["x", "x"]), 'names "x" among its inputs of predictions'),
                 (given(inputs=[]), "predicts 2 tensors from 0 fields"),
                 (given(outputs=[]), "predicts 0 tensors from 1 fields"),
                 (given(outputs=[f"y{number}" for number in range(65)]), "predicts 65 tensors from 1 fields"),
                 (given(outputs=["logits", "logits"]), 'names "logits" among its predictions'),
                 (given(outputs=["logits", "a b"]), 'names "a b" among its predictions'),
                 (given(outputs=["logits", "y" * 65]), 'among its predictions'),
                 (given(outputs=["logits", ""]), 'names "" among its predictions'),
                 (given(outputs=["logits"]), "has a graph prediction of 10 inputs and 2 outputs, where its manifest has 10 and 1"),
                 (given(inputs=["x", "label"]), "has a graph prediction of 10 inputs and 2 outputs, where its manifest has 11 and 2"),
                 (given(types=[]), "an unknown key of the prediction"),
                 (given(inputs="x"), "has a manifest that cannot be read")]
        for change, message in cases:
            (self.path / "net.pt2").write_bytes(whole)
            self.rewrite(change)
            with self.subTest(message):
                self.assertIn(message, self.refused(job))

    @tiers.nightly
    def test_a_graph_without_one_of_its_parts_is_refused(self):
        record = "module/models/FP32.json"
        job, _ = self.job(Normed)
        whole = self.exported[Normed]
        with zipfile.ZipFile(self.path / "net.pt2") as archive:
            outer = json.loads(archive.read(record))
        places = [(), ("graph_module",), *(("graph_module", name) for name in ("graph", "signature")),
                  *(("graph_module", "graph", name) for name in outer["graph_module"]["graph"])]
        for place in places:
            for other in (None, []):
                def change(records):
                    root = json.loads(records[record])
                    part = root
                    for name in place[:-1]:
                        part = part[name]
                    if not place:
                        root = other
                    elif other is None:
                        del part[place[-1]]
                    else:
                        part[place[-1]] = other
                    records[record] = json.dumps(root).encode()
                (self.path / "net.pt2").write_bytes(whole)
                self.rewrite(change)
                with self.subTest(place, other=other), tempfile.TemporaryDirectory() as checkpoints:
                    done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", checkpoints], capture_output=True, text=True,
                                          env={**os.environ, **GATE})
                    self.assertGreaterEqual(done.returncode, 0, done.stderr)  # Not ended by a signal.
                    if place[2:] in ((), ("inputs",), ("outputs",), ("nodes",)):
                        self.assertRegex(done.stderr, "model.exported.*(has a graph FP32 (without|of|that cannot be read)|LibTorch cannot load: .*export the module again)")

    def test_a_truncated_file_is_refused_at_any_length(self):
        job, _ = self.job(Normed)
        whole = (self.path / "net.pt2").read_bytes()
        for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
            (self.path / "net.pt2").write_bytes(whole[:length])
            self.assertIn("net.pt2", self.refused(job))

    def test_data_that_does_not_fit_is_named(self):
        cases = {"missing": ({"label": self.arrays["label"]}, "dataset.arrays has label [] int64"),
                 "shape": ({"x": self.arrays["x"][:, :5], "label": self.arrays["label"]}, "x [5] float32"),
                 "type": ({"x": self.arrays["x"].astype("float64"), "label": self.arrays["label"]}, "x [6] float64")}
        for name, (arrays, message) in cases.items():
            with self.subTest(name):
                told = self.refused(self.job(Normed, arrays=arrays)[0])
                self.assertIn("net.pt2) needs the field x [6] of float32; ", told)
                self.assertIn(message, told)

    def test_a_precision_without_a_graph_is_refused(self):
        job, module = self.job(Normed)
        genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])
        job.write_text(json.dumps({**json.loads(job.read_text()), "precision": {"mode": "MIXED_BF16"}}))
        self.assertIn("has no graph; accepted: FP32; or export the module for it", self.refused(job))

    def test_a_precision_that_nobody_named_and_the_file_has_not_is_fp32(self):
        job, module = self.job(Normed)
        genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])
        spec = json.loads(job.read_text())
        for mode in (None, "AUTO"):
            spec["precision"] = {"mode": mode} if mode else {}
            job.write_text(json.dumps(spec))
            records, _, _ = self.train(job)
            self.assertEqual({record["mode"] for record in records}, {"FP32"})

    def test_a_label_that_the_module_has_no_class_for_is_named(self):
        row = int(numpy.random.default_rng().integers(EXAMPLES - EXAMPLES // 10))
        labels = self.arrays["label"].copy()
        labels[row] = 9
        job, _ = self.job(Normed, arrays={"x": self.arrays["x"], "label": labels})
        said = self.refused(job)
        self.assertRegex(said, rf"rows.npz: the field label of example {row} \(row \d+ of its batch\) is 9; accepted: ")
        self.assertIn("torch says: Target 9 is out of bounds.", said)

    def test_a_loss_that_is_not_finite_is_diagnosed(self):
        for mode in FORMATS:
            job, _ = self.job(Normed, mode, optimizer={"learning_rate": 1e30})
            self.assertRegex(self.refused(job), "FAILURE_CAUSE_NON_FINITE: the (loss|gradients?) became .* in FP32; .*verdict: ")
            job, _ = self.job(Scaled, mode)
            spec = json.loads(job.read_text())
            # The diagnosis recomputes the step without the injected NaN, including backward.
            job.write_text(json.dumps({**spec, "rehearsals": [{"kind": "NAN", "at_step": 7}]}))
            with tempfile.TemporaryDirectory() as checkpoints:
                records, output = twin.run_worker(job, checkpoints, environment=GATE)
            self.assertEqual(len(records), STEPS)
            self.assertIn(f"the loss became nan at step 7 in {mode}", output)
            self.assertIn("verdict: data", output)


if __name__ == "__main__":
    unittest.main()
