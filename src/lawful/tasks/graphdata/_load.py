"""One door for every format of a graph."""

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lawful.errors import InputError, expected
from lawful.tasks.graphdata._arrays import load_mat, load_npz, load_pt
from lawful.tasks.graphdata._folder import is_folder, load_folder
from lawful.tasks.graphdata._raw import RawGraph
from lawful.tasks.graphdata._tables import SUFFIXES
from lawful.tasks.graphdata._transactions import load_transactions

FORMS = "a folder with nodes.csv and edges.csv, an .npz, .mat or .pt file, or S-FFSD's .csv"
_LARGEST = 8 * 2**30  # bytes that a zip file may unpack to


@dataclass(frozen=True)
class ReadOptions:
    """How files are read, where there is a choice."""

    label_column: str = ""
    anomalous: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    links: int = 2


def load_graph(path: Path, options: ReadOptions | None = None) -> RawGraph:
    """Reads a graph from a file or folder.

    Args:
        path: Folder with tables, or a .npz, .mat, .pt, .csv or .zip file.
        options: See `load_folder` and `load_transactions`.

    Raises:
        InputError: Nothing that can be read, or anything wrong inside.
    """
    options = options or ReadOptions()
    suffix = path.suffix.lower()
    if not path.exists():
        raise InputError(f"data: {path} does not exist")
    if path.is_dir():
        return _folder(path, options)
    if suffix == ".npz":
        return load_npz(path)
    if suffix == ".mat":
        return load_mat(path)
    if suffix in (".pt", ".pth"):
        return load_pt(path)
    if suffix == ".csv" and path.stem != "nodes":
        return load_transactions(path, options.links)
    if path.stem == "nodes" and suffix in SUFFIXES:
        return _folder(path.parent, options)
    if suffix == ".zip":
        return _zip(path, options)
    raise _unreadable(path)


def _folder(path: Path, options: ReadOptions) -> RawGraph:
    if not is_folder(path):
        names = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "an empty folder"
        raise expected(f"data: {path}", FORMS, names)
    return load_folder(
        path,
        label_column=options.label_column,
        anomalous=options.anomalous,
        kinds=options.kinds,
    )


def _zip(path: Path, options: ReadOptions) -> RawGraph:
    """The one graph inside a zip file."""
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as scratch:
            if sum(member.file_size for member in archive.infolist()) > _LARGEST:
                raise expected(f"data: {path}", f"at most {_LARGEST:,} bytes unpacked", "more")
            archive.extractall(scratch)
            files = [p for p in sorted(Path(scratch).rglob("*")) if p.is_file()]
            nodes = [p for p in files if p.stem == "nodes" and p.suffix.lower() in SUFFIXES]
            inside = nodes or files
            if len(inside) != 1:
                raise expected(f"data: {path}", "one graph inside", f"{len(files)} files")
            found = load_graph(inside[0], options)
            found.place = str(path)
            return found
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"data: {path}: expected a zip file, got {error}") from error


def _unreadable(path: Path) -> InputError:
    with path.open("rb") as stream:
        head = stream.read(4096)
    dgl = path.suffix.lower() in (".bin", ".dgl") or b"dgl" in head.lower()
    if dgl or path.stem.lower() in ("tfinance", "tsocial"):
        return InputError(
            f"data: {path}: a DGL graph cannot be read without dgl. Where dgl is installed, save "
            'it once as arrays: import dgl, numpy; g = dgl.load_graphs("FILE")[0][0]; '
            'numpy.savez("graph.npz", features=g.ndata["feature"].numpy(), '
            'labels=g.ndata["label"].numpy(), '
            "edges=numpy.stack([e.numpy() for e in g.edges()], 1)), and name graph.npz"
        )
    return expected(f"data: {path}", FORMS, f"a file {path.suffix or 'without an ending'}")
