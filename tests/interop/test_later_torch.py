"""Tests that genesis.export and the worker get along if the torch of the export is later than the worker's and has no nativert."""

import json
import unittest
import zipfile
from unittest import mock

import torch
from exported_jobs import FORMATS, STEPS, Changed, ExportedJobs, Normed, loss_of
from module_kinds import Attention, Follower
from torch import nn

import genesis
from genesis.exporting import packed, runtime

LATER = f"{torch.__version__.split('.')[0]}.999.1"


class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres, self.head = nn.Parameter(torch.randn(4, 6)), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.cdist(x, self.centres))


class LaterTorch(ExportedJobs):
    def records(self):
        with zipfile.ZipFile(self.path / "net.pt2") as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def edit(self, record, change):
        """Rewrites the exported file with a record of JSON changed, as if the torch LATER had written it."""
        records = self.records()
        manifest = json.loads(records["module/extra/genesis.json"])
        manifest["torch"] = LATER
        records["module/extra/genesis.json"] = json.dumps(manifest).encode()
        content = json.loads(records[record])
        change(content)
        records[record] = json.dumps(content).encode()
        with zipfile.ZipFile(self.path / "net.pt2", "w") as archive:
            for name, content in records.items():
                archive.writestr(zipfile.ZipInfo(name), content)

    def test_a_file_of_a_later_torch_trains(self):
        job, _ = self.job(Normed)
        wanted, last, _ = self.train(job)
        self.edit("module/models/FP32.json", lambda graph: graph["schema_version"].update(minor=graph["schema_version"]["minor"] + 3, patch=1))
        records, again, _ = self.train(job)
        self.assertEqual(len(records), STEPS)
        self.assertEqual(records, wanted)
        for name, tensor in last["model_state_dict"].items():
            self.assertTrue(torch.equal(tensor, again["model_state_dict"][name]), name)

    def test_what_a_later_torch_has_and_the_worker_lacks_is_named(self):
        def rename(graph):
            node = next(node for node in graph["graph_module"]["graph"]["nodes"] if node["target"] == "torch.ops.aten.addmm.default")
            next(argument for argument in node["inputs"] if argument["name"] == "mat1")["name"] = "matrix"

        job, _ = self.job(Normed)
        self.edit("module/models/FP32.json", rename)
        own = torch.__version__.split("+")[0]
        self.assertIn(f'torch "{LATER}" exported it and this worker runs {own}; export the module again with torch=={own} (LibTorch says: ',
                      self.refused(job))

    def test_exports_are_the_same_without_nativert(self):
        torch.manual_seed(4)
        for module in (Normed(), Attention(), Follower()):
            with self.subTest(type(module).__name__):
                genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=FORMATS)
                wanted = self.records()
                with mock.patch.object(runtime, "RUNNER", None):
                    genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=FORMATS)
                self.assertEqual(self.records(), wanted)

    def test_graphs_are_compared_without_nativert(self):
        with mock.patch.object(runtime, "RUNNER", None):
            for change in (lambda y: y / len(y), lambda y: y * 10 if y.shape[0] > 4 else y):
                with self.assertRaisesRegex(genesis.ExportError, "the graph and the module Changed differ in "):
                    genesis.export(Changed(change), self.batch("x"), self.path / "net.pt2", loss=loss_of)

    def test_arguments_have_the_names_of_the_workers(self):
        job, _ = self.job(Distances)
        wanted, _, _ = self.train(job)

        def as_later(graph):
            for node in graph["graph_module"]["graph"]["nodes"]:
                if node["target"] == "torch.ops.aten._cdist_backward.default":
                    next(argument for argument in node["inputs"] if argument["name"] == "grad")["name"] = "grad_output"

        self.edit("module/models/FP32.json", as_later)
        self.assertIn("Cannot initialize argument grad", self.refused(job))
        later = {"models/FP32.json": self.records()["module/models/FP32.json"]}
        self.edit("module/models/FP32.json", lambda graph: graph.update(json.loads(packed.for_workers("FP32", later)["models/FP32.json"])))
        self.assertEqual(self.train(job)[0], wanted)


if __name__ == "__main__":
    unittest.main()
