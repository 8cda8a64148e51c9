"""Readers of labelled pictures: what they accept, and what they say of what they refuse."""

import gzip
import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.published import published

from lawful.errors import InputError
from lawful.tasks.data import (
    Remote,
    as_colour,
    as_grey,
    cache_folder,
    decode,
    fetch,
    fetch_dataset,
    load_digits,
    load_images,
    read_arrays,
    read_idx,
    stratified_parts,
)
from lawful.tasks.data._cifar import CLASSES

LABELS = np.arange(40) % 4


def pictures(n=40, height=5, width=6, seed=0):
    return np.random.RandomState(seed).randint(0, 256, (n, height, width), dtype=np.uint8)


def idx_bytes(array, code=0x08):
    sizes = b"".join(int(s).to_bytes(4, "big") for s in array.shape)
    dtype = {0x08: ">u1", 0x0C: ">i4", 0x0E: ">f8"}[code]
    return bytes([0, 0, code, array.ndim]) + sizes + array.astype(dtype).tobytes()


def write_mnist(folder, images=None, labels=None, test=None, test_labels=None, pack=True):
    folder.mkdir(exist_ok=True)
    images = pictures() if images is None else images
    labels = LABELS if labels is None else labels
    test = images[:8] if test is None else test
    test_labels = labels[:8] if test_labels is None else test_labels
    parts = {
        "train-images-idx3-ubyte": images,
        "train-labels-idx1-ubyte": labels,
        "t10k-images-idx3-ubyte": test,
        "t10k-labels-idx1-ubyte": test_labels,
    }
    for name, array in parts.items():
        raw = idx_bytes(array)
        (folder / (name + ".gz" * pack)).write_bytes(gzip.compress(raw) if pack else raw)
    return folder


def png(image):
    out = io.BytesIO()
    Image.fromarray(image).save(out, "png")
    return out.getvalue()


def write_classes(root, images=None, split="", names=("cat", "dog"), start=0):
    images = pictures(20) if images is None else images
    for i, image in enumerate(images):
        folder = root / split / names[i % len(names)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{start + i:04d}.png").write_bytes(png(image))
    return root


# --- IDX -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "dtype"), [(0x08, "u1"), (0x0C, "i4"), (0x0E, "f8")])
@pytest.mark.parametrize("pack", [True, False])
def test_idx_round_trip(tmp_path, code, dtype, pack):
    array = pictures().astype(dtype)
    raw = idx_bytes(array, code)
    (tmp_path / "x").write_bytes(gzip.compress(raw) if pack else raw)
    got = read_idx(tmp_path / "x")
    assert got.dtype == np.dtype(dtype)
    assert np.array_equal(got, array)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("below", [".", "raw", "MNIST/raw"])
def test_mnist_folder(tmp_path, pack, below):
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    write_mnist(tmp_path / below, pack=pack)
    data = load_images(tmp_path, valid_share=0.2)
    assert (len(data.train), len(data.valid), len(data.test)) == (32, 8, 8)
    assert data.classes == ("0", "1", "2", "3")
    assert data.peak == 255
    assert np.array_equal(data.test.images, pictures()[:8])
    both = np.concatenate([data.train.images, data.valid.images])
    assert sorted(map(bytes, both)) == sorted(map(bytes, pictures()))
    for image, label in zip(data.valid.images, data.valid.labels, strict=True):
        index = next(i for i, p in enumerate(pictures()) if np.array_equal(p, image))
        assert LABELS[index] == label


def test_mnist_without_test_files(tmp_path):
    write_mnist(tmp_path)
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        (tmp_path / name).unlink()
    data = load_images(tmp_path, valid_share=0.1, test_share=0.2)
    assert (len(data.train), len(data.valid), len(data.test)) == (28, 4, 8)


def damage(folder, name, change):
    path = folder / f"{name}.gz"
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


IDX_FAULTS = [
    (
        "train-images-idx3-ubyte",
        lambda raw: raw[:-7],
        "1200 bytes of data .* got 1193 bytes: truncated",
    ),
    ("train-images-idx3-ubyte", lambda raw: raw + b"x", "too long"),
    ("train-images-idx3-ubyte", lambda raw: raw[:9], "a header of 16 bytes, got 9 bytes"),
    ("train-images-idx3-ubyte", lambda raw: b"", "an IDX file"),
    ("train-images-idx3-ubyte", lambda raw: b"\x01" + raw[1:], "begin with 01 00 08 03"),
    ("train-images-idx3-ubyte", lambda raw: raw[:2] + b"\x07" + raw[3:], "begin with 00 00 07 03"),
    (
        "train-labels-idx1-ubyte",
        lambda raw: idx_bytes(LABELS[:-1]),
        "40 labels, as many as pictures .* got 39",
    ),
    (
        "train-labels-idx1-ubyte",
        lambda raw: idx_bytes(np.where(LABELS == 2, 9, LABELS)),
        "label 9 .* but none is 2",
    ),
    ("train-labels-idx1-ubyte", lambda raw: idx_bytes(LABELS * 0), "at least two classes, got 1"),
    ("train-labels-idx1-ubyte", lambda raw: idx_bytes(LABELS[:, None]), "one dimension"),
    (
        "train-images-idx3-ubyte",
        lambda raw: idx_bytes(pictures()[0]),
        "sizes \\(pictures, height, width\\)",
    ),
    ("t10k-labels-idx1-ubyte", lambda raw: idx_bytes(LABELS[:8] + 3), r"labels in 0\.\.3, got 6"),
    (
        "t10k-images-idx3-ubyte",
        lambda raw: idx_bytes(pictures(8, 5, 7)),
        "6x5 grey as in training, got 7x5 grey",
    ),
]


@pytest.mark.parametrize(("name", "change", "words"), IDX_FAULTS)
def test_idx_faults_name_the_file(tmp_path, name, change, words):
    write_mnist(tmp_path)
    damage(tmp_path, name, change)
    with pytest.raises(InputError, match=words) as caught:
        load_images(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert name[:5] in str(caught.value)


def test_idx_header_that_lies_needs_no_memory(tmp_path):
    raw = bytes([0, 0, 8, 3]) + b"\xff\xff\xff\xff" * 3 + b"x"
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(InputError, match="truncated"):
        read_idx(tmp_path / "x")


def test_idx_truncated_gzip(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz: expected a whole gzip"):
        load_images(tmp_path)


@pytest.mark.parametrize("missing", ["train-images-idx3", "train-labels-idx1", "t10k-labels-idx1"])
def test_idx_missing_file(tmp_path, missing):
    write_mnist(tmp_path)
    (tmp_path / f"{missing}-ubyte.gz").unlink()
    with pytest.raises(InputError, match=rf"expected a file {missing}-ubyte\[.gz\], got "):
        load_images(tmp_path)


def test_idx_alone():
    with pytest.raises(InputError, match="no such file"):
        read_idx(Path("/nowhere/x"))


# --- class folders -------------------------------------------------------------------------------


def test_class_folders_are_divided_by_class(tmp_path):
    data = load_images(write_classes(tmp_path), valid_share=0.2, test_share=0.3)
    assert data.classes == ("cat", "dog")
    assert [np.bincount(p.labels).tolist() for p in (data.train, data.valid, data.test)] == [
        [5, 5],
        [2, 2],
        [3, 3],
    ]
    shown = np.concatenate([p.images for p in (data.train, data.valid, data.test)])
    assert sorted(map(bytes, shown)) == sorted(map(bytes, pictures(20)))


def test_class_folders_with_parts(tmp_path):
    write_classes(tmp_path, split="train")
    write_classes(tmp_path, pictures(4, seed=1), split="val")
    write_classes(tmp_path, pictures(6, seed=2), split="test")
    data = load_images(tmp_path)
    assert (len(data.train), len(data.valid), len(data.test)) == (20, 4, 6)
    assert np.array_equal(data.valid.images[data.valid.labels == 1], pictures(4, seed=1)[1::2])


def test_numbered_classes_are_in_numerical_order(tmp_path):
    data = load_images(write_classes(tmp_path, pictures(36), names=("10", "9", "2")))
    assert data.classes == ("2", "9", "10")


def zip_of(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)


@pytest.mark.parametrize("wrapper", ["", "cifar/"])
def test_zip_files_together(tmp_path, wrapper):
    colour = np.random.RandomState(0).randint(0, 256, (24, 4, 4, 3), dtype=np.uint8)
    names = [f"{'a' if i % 2 else 'b'}/{i:02d}.png" for i in range(24)]
    zip_of(
        tmp_path / "train.zip",
        {f"{wrapper}train/{n}": png(c) for n, c in zip(names[:20], colour, strict=False)}
        | {"__MACOSX/train/a/1.png": b"", "readme.txt": b"hi"},
    )
    zip_of(
        tmp_path / "test.zip",
        {f"{wrapper}test/{n}": png(c) for n, c in zip(names[20:], colour[20:], strict=True)},
    )
    data = load_images(tmp_path)
    assert (len(data.train), len(data.valid), len(data.test)) == (18, 2, 4)
    assert data.train.images.shape[1:] == (4, 4, 3)
    assert data.classes == ("a", "b")
    order = [21, 23, 20, 22]  # names in sorted order: a/21, a/23, b/20, b/22
    assert np.array_equal(data.test.images, colour[order])
    alone = load_images(tmp_path / "train.zip", valid_share=0.2, test_share=0.2)
    assert (len(alone.train), len(alone.valid), len(alone.test)) == (12, 4, 4)


def test_grey_among_colour_becomes_colour(tmp_path):
    write_classes(tmp_path)
    colour = np.random.RandomState(1).randint(0, 256, (5, 6, 3), dtype=np.uint8)
    (tmp_path / "cat" / "x.png").write_bytes(png(colour))
    data = load_images(tmp_path)
    assert data.train.images.shape[1:] == (5, 6, 3)


def test_decoding_of_modes():
    image = pictures(1)[0]
    assert np.array_equal(decode(png(image), "x"), image)
    deep = io.BytesIO()
    Image.fromarray(image.astype(np.uint16) * 257).save(deep, "png")
    assert np.array_equal(decode(deep.getvalue(), "x"), image)
    palette = io.BytesIO()
    Image.fromarray(as_colour(image)).convert("P").save(palette, "png")
    assert decode(palette.getvalue(), "x").shape == (5, 6, 3)
    alpha = io.BytesIO()
    Image.fromarray(image).convert("RGBA").save(alpha, "png")
    assert np.array_equal(decode(alpha.getvalue(), "x"), as_colour(image))
    assert np.array_equal(as_grey(as_colour(image)), image)


def folder_fault(fault, root):
    if fault == "size":
        (root / "cat" / "zz.png").write_bytes(png(pictures(1, 7, 9)[0]))
        return r"zz\.png: expected a picture of 6x5 like .*0000\.png, got 9x7"
    if fault == "damaged":
        (root / "cat" / "zz.png").write_bytes(png(pictures(1)[0])[:60])
        return r"zz\.png: expected a picture, got"
    if fault == "other":
        (root / "cat" / "zz.jpg").write_bytes(b"not a picture")
        return r"zz\.jpg: expected a picture, got"
    if fault == "loose":
        (root / "zz.png").write_bytes(png(pictures(1)[0]))
        return r"expected class/picture, got .*zz\.png"
    if fault == "one class":
        for file in (root / "dog").iterdir():
            file.unlink()
        return "at least two class folders, got cat"
    write_classes(root / "train")
    write_classes(root / "test", names=("cat", "cow"))
    for name in ("cat", "dog"):
        for file in (root / name).iterdir():
            file.unlink()
    return r"cow.*\.png: expected a class that train has in the test part, got cow"


@pytest.mark.parametrize("fault", ["size", "damaged", "other", "loose", "one class", "class"])
def test_folder_faults(tmp_path, fault):
    words = folder_fault(fault, write_classes(tmp_path))
    with pytest.raises(InputError, match=words):
        load_images(tmp_path)


def test_parts_without_train(tmp_path):
    write_classes(tmp_path / "test")
    with pytest.raises(InputError, match="a train folder, got test"):
        load_images(tmp_path)


def test_parts_that_would_be_empty(tmp_path):
    write_classes(tmp_path, pictures(4))
    with pytest.raises(InputError, match="pictures in every part, got none in the valid part of 4"):
        load_images(tmp_path)


def test_bad_zip(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"x\.zip: expected a zip file"):
        load_images(tmp_path)
    zip_of(tmp_path / "x.zip", {"a/1.png": png(pictures(1)[0]), "b/1.png": png(pictures(1)[0])})
    raw = bytearray((tmp_path / "x.zip").read_bytes())
    raw[45] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(raw)
    with pytest.raises(InputError, match=r"x\.zip"):
        load_images(tmp_path)


# --- CIFAR-10 ------------------------------------------------------------------------------------


def records(images, labels):
    flat = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None].astype(np.uint8), flat], 1).tobytes()


def colours(n, seed=0):
    return np.random.RandomState(seed).randint(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def write_cifar(folder):
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(20) % 10
    (folder / "data_batch_1.bin").write_bytes(records(colours(20), labels))
    (folder / "data_batch_2.bin").write_bytes(records(colours(20, 1), labels))
    (folder / "test_batch.bin").write_bytes(records(colours(10, 2), labels[:10]))
    return folder


def test_cifar_binary(tmp_path):
    write_cifar(tmp_path / "cifar-10-batches-bin")
    data = load_images(tmp_path, valid_share=0.25)
    assert data.classes == CLASSES
    assert (len(data.train), len(data.valid), len(data.test)) == (30, 10, 10)
    assert np.array_equal(data.test.images, colours(10, 2))
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
    packed = load_images(tmp_path / "cifar-10-binary.tar.gz", valid_share=0.25)
    assert np.array_equal(packed.train.images, data.train.images)
    assert np.array_equal(packed.valid.labels, data.valid.labels)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw[:-1], r"records of 3073 bytes, got 61459 bytes: truncated"),
        (lambda raw: b"", "records of 3073 bytes, got 0 bytes"),
        (lambda raw: b"\x0b" + raw[1:], r"labels in 0\.\.9, got 11 in record 0"),
    ],
)
def test_cifar_faults(tmp_path, change, words):
    write_cifar(tmp_path)
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=rf"data_batch_2\.bin: expected {words}"):
        load_images(tmp_path)


def test_cifar_other_forms(tmp_path):
    write_cifar(tmp_path)
    for name in ("data_batch_1.bin", "data_batch_2.bin"):
        (tmp_path / name).unlink()
    with pytest.raises(InputError, match=r"data_batch_1\.bin and its fellows"):
        load_images(tmp_path)
    (tmp_path / "test_batch.bin").unlink()
    (tmp_path / "data_batch_1").write_bytes(b"pickle")
    with pytest.raises(InputError, match="pickles are not opened"):
        load_images(tmp_path)
    (tmp_path / "x.tar.gz").write_bytes(b"\x1f\x8bnot")
    with pytest.raises(InputError, match=r"x\.tar\.gz: expected a whole tar"):
        load_images(tmp_path / "x.tar.gz")


# --- arrays --------------------------------------------------------------------------------------


def test_npz(tmp_path):
    floats = pictures().astype(np.float32) / 255
    np.savez(tmp_path / "x.npz", images=floats, labels=LABELS)
    data = load_images(tmp_path / "x.npz")
    assert data.peak == 1
    assert (len(data.train), len(data.valid), len(data.test)) == (28, 4, 8)
    parts = {f"{p}_images": pictures(8) for p in ("train", "valid", "test")}
    parts |= {f"{p}_labels": LABELS[:8] for p in ("train", "valid", "test")}
    np.savez(tmp_path / "y.npz", **parts)
    assert len(load_images(tmp_path / "y.npz").train) == 8


NAN = pictures().astype(np.float64) / 255
NAN[3, 1, 1] = np.nan
NPZ_FAULTS = [
    (
        {"images": NAN, "labels": LABELS},
        "images: expected finite pixels, got NaN or infinity in picture 3",
    ),
    ({"images": pictures() / 100.0, "labels": LABELS}, r"floats in \[0, 1\], got 0\.\.2\.55"),
    ({"images": pictures().astype(np.int32), "labels": LABELS}, "bytes, or floats"),
    ({"images": pictures(), "labels": LABELS[:-1]}, "40 labels"),
    ({"images": pictures(), "labels": LABELS - 1}, "labels from 0 on, got -1"),
    ({"images": pictures(), "labels": LABELS + 0.5}, "whole numbers as labels"),
    ({"images": pictures()[0], "labels": LABELS}, r"pictures \(n, height, width"),
    ({"images": pictures()[:0], "labels": LABELS[:0]}, "at least one picture"),
    ({"images": pictures()}, "an array labels"),
    ({"x": pictures()}, "arrays images and labels"),
    ({"images": np.array([None]), "labels": LABELS}, "expected a NumPy file"),
]


@pytest.mark.parametrize(("arrays", "words"), NPZ_FAULTS)
def test_npz_faults(tmp_path, arrays, words):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match=words) as caught:
        load_images(tmp_path / "x.npz")
    assert "x.npz" in str(caught.value)


def test_arrays_of_files(tmp_path):
    np.save(tmp_path / "x.npy", pictures())
    assert np.array_equal(read_arrays(tmp_path / "x.npy")["images"], pictures())
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"x\.npz: expected a NumPy file"):
        read_arrays(tmp_path / "x.npz")


# --- what there is -------------------------------------------------------------------------------


def test_paths_with_nothing(tmp_path):
    with pytest.raises(InputError, match="no such path"):
        load_images(tmp_path / "nowhere")
    with pytest.raises(InputError, match="got an empty folder"):
        load_images(tmp_path)
    (tmp_path / "notes.txt").write_text("hi")
    with pytest.raises(InputError, match=r"IDX files .* got none of these"):
        load_images(tmp_path)
    with pytest.raises(InputError, match="a file of another kind"):
        load_images(tmp_path / "notes.txt")
    write_mnist(tmp_path)
    with pytest.raises(InputError, match="the folder of the IDX files"):
        load_images(tmp_path / "train-images-idx3-ubyte.gz")


def test_digits():
    data = load_digits()
    assert (len(data.train), len(data.valid), len(data.test)) == (1259, 179, 359)
    assert data.train.images.shape[1:] == (8, 8)
    assert data.peak == data.train.images.max() == 16
    for part in (data.train, data.valid, data.test):
        share = np.bincount(part.labels) / len(part)
        assert np.abs(share - 0.1).max() < 0.01
    again = load_images(None)
    assert np.array_equal(again.test.images, data.test.images)


def test_stratified_parts_are_disjoint_whole_and_fixed():
    labels = np.repeat([0, 1, 2], [10, 25, 40])
    parts = stratified_parts(labels, [0.2, 0.1])
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(75))
    assert [np.bincount(labels[p]).tolist() for p in parts] == [[2, 5, 8], [1, 2, 4], [7, 18, 28]]
    assert all(
        np.array_equal(a, b)
        for a, b in zip(parts, stratified_parts(labels, [0.2, 0.1]), strict=True)
    )
    other = stratified_parts(labels, [0.2, 0.1], seed=9)
    assert not np.array_equal(parts[0], other[0])


# --- fetching ------------------------------------------------------------------------------------


def remote(path, digest=None):
    raw = path.read_bytes() if path.exists() else b""
    return Remote(path.name, path.as_uri(), digest or hashlib.sha256(raw).hexdigest())


def test_fetch_checks_and_keeps(tmp_path):
    source = tmp_path / "source.bin"
    source.write_bytes(os.urandom(600_000))
    seen = []
    cache = tmp_path / "cache"
    assert fetch([remote(source)], cache, lambda *a: seen.append(a)) == cache
    assert (cache / "source.bin").read_bytes() == source.read_bytes()
    assert seen[-1] == ("source.bin", 600_000, 600_000)
    assert [d for _, d, _ in seen] == sorted(d for _, d, _ in seen)
    known = remote(source)
    source.unlink()  # the cache alone is enough now
    fetch([known], cache)
    (cache / "source.bin").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"could not fetch file:.*--data"):
        fetch([known], cache)
    assert [p.name for p in cache.iterdir()] == ["source.bin"]


def test_fetch_refuses_other_bytes(tmp_path):
    source = tmp_path / "source.bin"
    source.write_bytes(b"other")
    with pytest.raises(InputError, match="expected SHA-256 0000"):
        fetch([remote(source, "0" * 64)], tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_fetch_by_name(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="mnist or cifar10, got svhn"):
        fetch_dataset("svhn")
    monkeypatch.setenv("LAWFUL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("LAWFUL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x" / "lawful"


# --- real data, where it lies beside the checkout ------------------------------------------------


def test_real_mnist():
    data = load_images(published("mnist"))
    assert (len(data.train) + len(data.valid), len(data.test)) == (60_000, 10_000)
    assert data.train.images.shape[1:] == (28, 28)
    assert np.bincount(data.test.labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]


@pytest.mark.slow
def test_real_cifar():
    data = load_images(published("cifar10"))
    assert (len(data.train) + len(data.valid), len(data.test)) == (50_000, 10_000)
    assert data.classes == CLASSES
    assert (np.bincount(data.test.labels) == 1000).all()
