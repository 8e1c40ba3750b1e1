"""Tests that data from other tools is converted in chunks to a dataset file, and that errors name file and row."""

import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import numpy
import pandas
import pyarrow
import torch
from PIL import Image
from pyarrow import parquet

import genesis
from genesis import data


def png(pixels, colour):
    """Returns a PNG file of 16 bits per channel, which Pillow does not write in colour."""
    height, width = pixels.shape[:2]

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(pixels):
    """Returns a TIFF file of 16 bits per channel in RGB."""
    content, bits = pixels.astype("<u2").tobytes(), struct.pack("<HHH", 16, 16, 16)
    tags = [(256, 3, 1, pixels.shape[1]), (257, 3, 1, pixels.shape[0]), (258, 3, 3, 8), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 16),
            (277, 3, 1, 3), (278, 3, 1, pixels.shape[0]), (279, 4, 1, len(content))]
    return (b"II*\0" + struct.pack("<I", 16 + len(content)) + bits + b"\0\0" + content
            + struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + b"\0\0\0\0")


class Converters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.random = numpy.random.default_rng()

    def saved(self, source):
        data.save(data.chunks_of(source), self.path / "saved.npz")
        with numpy.load(self.path / "saved.npz") as file:
            return {name: file[name] for name in file.files}

    def refused(self, source, *words):
        with self.assertRaises(genesis.InvalidArgumentError) as caught:
            self.saved(source)
        for each in words:
            self.assertIn(each, str(caught.exception))

    def table(self, name="rows.parquet", **columns):
        parquet.write_table(pyarrow.table(columns), self.path / name, row_group_size=700)
        return self.path / name

    # Parquet.

    def test_columns_of_parquet_become_fields(self):
        count = 2500  # Three chunks and four row groups.
        columns = {"a": self.random.normal(size=count), "b": self.random.normal(size=count).astype("float32"),
                   "t": self.random.integers(0, 60000, count).astype("uint16"), "flag": self.random.random(count) > 0.5,
                   "row": [list(each) for each in self.random.normal(size=(count, 3))]}
        path = self.table(**columns)
        arrays = self.saved(genesis.from_parquet(path))
        self.assertEqual({name: (array.dtype.name, array.shape) for name, array in arrays.items()}, {
            "a": ("float32", (count,)), "b": ("float32", (count,)), "t": ("int32", (count,)), "flag": ("bool", (count,)),
            "row": ("float32", (count, 3))})
        for name, wanted in columns.items():
            numpy.testing.assert_array_equal(arrays[name], numpy.array(wanted).astype(arrays[name].dtype), name)
        arrays = self.saved(genesis.from_parquet([path, path], {"x": ["a", "b"], "target": "t"}))
        numpy.testing.assert_array_equal(arrays["x"], numpy.tile(numpy.stack([columns["a"], columns["b"]], 1).astype("float32"), (2, 1)))
        self.assertEqual(list(arrays), ["x", "target"])
        numpy.testing.assert_array_equal(self.saved(genesis.from_parquet(self.path, {"x": "a"}))["x"], columns["a"].astype("float32"))

    def test_what_no_array_can_hold_is_named_by_column_and_row(self):
        row = random.randrange(1, 2000)
        self.refused(genesis.from_parquet(self.table(text=["a", "b"])), "column 'text' is of string; accepted: numbers")
        self.refused(genesis.from_parquet(self.table(a=[1.0] * row + [None, 2.0])), f"column 'a' is null in row {row};")
        self.refused(genesis.from_parquet(self.table(a=[[1, 2]] * 1500 + [[1]])), "column 'a' is ragged: 2 numbers in row 1024, 1 in row 1500;")
        self.refused(genesis.from_parquet(self.table(a=[[1, 2]] * row + [[1, None]])), f"column 'a' has a null in row {row};")
        self.refused(genesis.from_parquet(self.table(a=[[1, 2]] * 1024 + [[1]])), "field a has the shape (1,) in example 1024, and (2,) in example 0")
        self.refused(genesis.from_parquet(self.table(a=[[[1]]])), "column 'a' is of list<")
        self.refused(genesis.from_parquet(self.table(a=pyarrow.array([], "int64"))), "data has no example")
        self.refused(genesis.from_parquet(self.table(a=[1]), {"x": "b"}), "has no column 'b'; it has a")
        (self.path / "other.parquet").write_bytes(b"PAR1 and no more")
        self.refused(genesis.from_parquet(self.path / "other.parquet"), "other.parquet is not a Parquet file: ")

    # Images.

    def images(self, count=40, size=(6, 8)):
        pixels = {}
        for name in ("cat", "dog", "emu"):
            (self.path / "images" / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels[name, number] = self.random.integers(0, 256, (*size, 3), dtype="uint8")
                Image.fromarray(pixels[name, number]).save(self.path / "images" / name / f"{number}.png")
        return self.path / "images", pixels

    def test_a_folder_of_images(self):
        folder, pixels = self.images()
        (folder / "cat" / "notes.txt").write_text("none of the images")
        source = genesis.from_images(folder)
        self.assertEqual(source.classes, ["cat", "dog", "emu"])
        arrays = self.saved(source)
        self.assertEqual((arrays["x"].shape, arrays["x"].dtype.name), ((120, 3, 6, 8), "float32"))
        wanted = {(each.transpose(2, 0, 1).astype("float32") / 255).tobytes(): name for (name, _), each in pixels.items()}
        for x, target in zip(arrays["x"], arrays["target"]):
            self.assertEqual(wanted.pop(x.tobytes()), source.classes[target])
        self.assertEqual(wanted, {})
        # The held-out part, the last tenth, contains several classes.
        self.assertGreater(len(set(arrays["target"][-12:])), 1)
        self.assertEqual(self.saved(genesis.from_images(folder, (4, 5), "L"))["x"].shape, (120, 1, 4, 5))

    def test_images_that_cannot_be_taken_are_named(self):
        folder, _ = self.images()
        whole, odd = (folder / "dog" / "3.png").read_bytes(), folder / "emu" / "odd.png"
        for content in (b"", b"no image", whole[:len(whole) // 2]):
            odd.write_bytes(content)
            self.refused(genesis.from_images(folder), f"{odd} cannot be read as an image: ")
        Image.fromarray(numpy.zeros((7, 8), "uint8")).save(odd)
        self.refused(genesis.from_images(folder), "7 x 8", "6 x 8", "give size=(height, width)")
        for values in (numpy.full((6, 8), 40_000, "uint16"), numpy.full((6, 8), 0.5, "float32")):
            odd.unlink()
            odd = odd.with_suffix(".png" if values.dtype == "uint16" else ".tiff")
            Image.fromarray(values).save(odd)
            self.refused(genesis.from_images(folder), f"{odd} cannot be read as an image: its pixels are of the mode ", "8 bits per channel")
        odd.unlink()
        deep = self.random.integers(0, 65536, (6, 8, 4)).astype(">u2")
        for name, content in (("rgb.png", png(deep[..., :3], 2)), ("rgba.png", png(deep, 6)), ("grey.png", png(deep[..., 0], 0)),
                              ("grey_alpha.png", png(deep[..., :2], 4)), ("a.ppm", b"P6\n8 6\n65535\n" + deep[..., :3].tobytes()),
                              ("b.ppm", b"P6 # a comment 8 6 255\n8 6 1023\n" + deep[..., :3].tobytes()),
                              ("c.pgm", b"P5\n8\n6\n256\n" + deep[..., 0].tobytes()),
                              ("d.ppm", b"P3 8 6 300 " + b" ".join(b"%d" % each for each in deep[..., :3].ravel() % 301)),
                              ("rgb.tiff", tiff(deep[..., :3]))):
            odd = folder / "emu" / name
            odd.write_bytes(content)
            for mode in "RGB", "L":
                with self.subTest(name, mode=mode):
                    self.refused(genesis.from_images(folder, mode=mode), f"{odd} cannot be read as an image: its pixels are of the mode ", "8 bits per channel")
            odd.unlink()
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "mode is 'F'; accepted: 'RGB', or 'L'"):
            genesis.from_images(folder, mode="F")
        (self.path / "empty").mkdir()
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "has no images in folders of their classes"):
            genesis.from_images(self.path / "empty")

    def test_images_of_8_bits_and_fewer_are_taken(self):
        folder = self.path / "images" / "emu"
        folder.mkdir(parents=True)
        pixels = self.random.integers(0, 256, (6, 8, 3), dtype="uint8")
        for ending in ("png", "ppm", "tiff", "bmp", "webp"):
            for mode in ("RGB", "L", "1", "P") if ending not in ("ppm", "webp") else ("RGB", "L"):
                Image.fromarray(pixels).convert(mode).save(folder / f"{mode}.{ending}")
        (folder / "few.pgm").write_bytes(b"P5\n# a comment 65535\n8 6\n15\n" + (pixels[..., 0] % 16).tobytes())
        (folder / "few.ppm").write_bytes(b"P3 8 6 7 " + b" ".join(b"%d" % each for each in pixels.ravel() % 8))
        (folder / "bits.pgm").write_bytes(b"P4\n8 6\n" + bytes(range(6)))
        arrays = self.saved(genesis.from_images(self.path / "images"))
        self.assertEqual(arrays["x"].shape, (len(list(folder.iterdir())), 3, 6, 8))

    # Text and tokens.

    def test_text_becomes_rows_of_tokens(self):
        text = "grüße, 世界\n" * 150_000  # More than one piece, with characters of one to three bytes.
        (self.path / "a.txt").write_text(text)
        raw = text.encode()
        ids = self.saved(genesis.from_text(self.path / "a.txt", 64))["ids"]
        self.assertEqual(ids.astype("uint8").tobytes(), raw[:len(raw) // 64 * 64])
        # A single line that spans several pieces.
        (self.path / "a.txt").write_text(text.replace("\n", " "))
        ids = self.saved(genesis.from_text(self.path, 16, tokenizer=lambda some: [ord(each) for each in some], field="word"))["word"]
        self.assertEqual("".join(map(chr, ids.ravel())), text.replace("\n", " ")[:ids.size])
        self.assertGreater(ids.size, len(text) - 16)

    def test_tokens_and_text_that_cannot_be_taken(self):
        tokens = self.random.integers(0, 60000, 700_001).astype("<u2")
        tokens.tofile(self.path / "a.bin")
        numpy.testing.assert_array_equal(self.saved(genesis.from_tokens(self.path, 100))["ids"].ravel(), tokens[:700_000])
        (self.path / "a.bin").write_bytes(b"abc")
        self.refused(genesis.from_tokens(self.path / "a.bin", 2), "a.bin has 3 bytes; accepted: whole tokens of 2 bytes (uint16)")
        (self.path / "a.txt").write_bytes(b"x" * 1_500_000 + b"\xff rest")
        self.refused(genesis.from_text(self.path / "a.txt", 9), "a.txt is not UTF-8 at byte 1500000;")
        (self.path / "a.txt").write_bytes("ü".encode() * 10 + b"\xc3")
        self.refused(genesis.from_text(self.path / "a.txt", 4), "a.txt is not UTF-8 at byte 20;")
        self.refused(genesis.from_text(self.path / "a.txt", 10_000), "not UTF-8")
        for make, words in ((lambda: genesis.from_text("a.txt", 0), "length is 0"), (lambda: genesis.from_tokens("a.bin", 4, "float32"), "dtype is")):
            with self.assertRaisesRegex(genesis.InvalidArgumentError, words):
                make()
        with self.assertRaises(FileNotFoundError):
            self.saved(genesis.from_text(self.path / "nowhere.txt", 4))

    # All converters.

    def test_examples_that_do_not_belong_together_are_named(self):
        row = numpy.zeros(3)
        self.refused([(row, 1)] * 5 + [(numpy.zeros(4), 1)], "field x has the shape (4,) in example 5")
        self.refused([(row, 1)] * 1030 + [(numpy.zeros(4), 1)], "field x has the shape (4,) in example 1030")
        self.refused([(row, 1)] * 1024 + [(row, 1.5)], "field target is of float32 in example 1024, and of int64 in example 0")
        self.refused([{"x": row}, {"y": row}], "example 1 has the fields y, the first one x;")
        self.refused([(row, 1)] * 1029 + [(row, 0.5)], "field target is of float32 in example 1029, and of int64 in example 0")
        self.refused([(row, 1)] * 3 + [(row, [1, [2]])], "field target cannot be read as an array in example 3: ")

    def test_frames_of_pandas_are_arrays(self):
        rows, labels = self.random.normal(size=(40, 3)).astype("float32"), self.random.integers(0, 3, 40)
        frame, series = pandas.DataFrame(rows, columns=list("abc")), pandas.Series(labels)
        for source in ((frame, series), [frame, series], (frame, labels), {"x": frame, "target": series}):
            found = self.saved(source)
            numpy.testing.assert_array_equal(found["x"], rows)
            numpy.testing.assert_array_equal(found["target"], labels)
        numpy.testing.assert_array_equal(self.saved(frame)["x"], rows)
        self.refused((pandas.DataFrame({"a": ["x", "y"]}), pandas.Series([0, 1])), "field x is not an array of numbers")

    def test_a_batch_that_does_not_belong_to_the_others_is_named(self):
        row, label = torch.zeros(3), torch.tensor(1)

        def loader(*batches):
            class Stream(torch.utils.data.IterableDataset):
                def __iter__(self):
                    return (example for batch in batches for example in batch)

            return torch.utils.data.DataLoader(Stream(), 4)

        same = [[(row, label)] * 4] * 300
        self.assertEqual(data.save(data.chunks_of(loader(*same)), self.path / "saved.npz")["x"].shape, (4, 3))
        place = "batch 300 (from example 1200 on)"
        self.refused(loader(*same, [(torch.zeros(5), label)] * 4), f"field x has the shape (5,) for each example in {place}, and (3,) in batch 0")
        self.refused(loader(*same, [(row, torch.tensor(0.5))] * 2), f"field target is of float32 in {place}, and of int64 in batch 0")
        self.refused(loader(*same, [(row, label, label)] * 4), f"{place} has the fields x0, x1, target, the first one x, target;")
        self.refused(loader(*same, [(row, "a")] * 4), f"field target is not an array of numbers whose first dimension counts examples "
                                                      f"(shape (4,), <U1) in {place}; ")
        self.refused(loader(*same, [(row.to(torch.float8_e4m3fn), label)] * 4), f"field x cannot be read as an array in {place}: ")

    def test_the_same_examples_give_the_same_bytes(self):
        x, target = self.random.normal(size=(3000, 4)), self.random.integers(0, 3, 3000)
        dataset = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(target))
        files = []
        for source in ((x, target), dataset, {"x": x, "target": target}):
            self.saved(source)
            files.append((self.path / "saved.npz").read_bytes())
        self.assertEqual(len(set(files)), 1)

    def test_a_dataset_is_never_in_memory_as_a_whole(self):
        # Runs in another process, because the peak memory of this one includes other tests.
        code = """
import pathlib, resource, sys, torch
from genesis import data
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 30_000
    def __getitem__(self, row):
        return torch.full((2500,), float(row)), row % 3
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data.save(data.chunks_of(torch.utils.data.Subset(Rows(), range(1024))), pathlib.Path(sys.argv[1]) / "small.npz")
before = peak()
data.save(data.chunks_of(Rows()), pathlib.Path(sys.argv[1]) / "large.npz")
print(peak() - before)
"""
        grown = int(subprocess.run([sys.executable, "-c", code, self.path], check=True, capture_output=True, text=True).stdout)
        self.assertGreater((self.path / "large.npz").stat().st_size, 280 << 20)
        self.assertLess(grown, 100 << 10)
        self.assertEqual(numpy.load(self.path / "large.npz", mmap_mode="r")["target"][-1], 29_999 % 3)


if __name__ == "__main__":
    unittest.main()
