"""Compiles ``csrc/*.cpp`` into one shared library against torch's stable C++ interface.

Run as ``python -m lawful.kernels build``; an install from source calls the same function. The
file imports no torch itself, so that an installer can load it by path.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "csrc"
# Never -ffast-math: linking with it makes the whole process flush denormals, and it licenses the
# compiler to ignore infinities and NaN, which the kernels rely on. Nor -fassociative-math: it turns
# (a - b) + tiny into a - (b - tiny) and loses what was added. A sum that may be reordered says so
# with `#pragma omp simd reduction`.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
]


class BuildError(RuntimeError):
    """The kernels could not be compiled; the message says why in one line."""


def source_hash() -> str:
    """Identifies the sources and flags, so that a stale library is never loaded."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in {".cpp", ".h"}:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def cpu_features() -> list[str]:
    """The vector extensions of this processor that -march=native could have used."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return [platform.processor() or platform.machine()]
    line = next((x for x in text.splitlines() if x.startswith(("flags", "Features"))), "")
    names = line.partition(":")[2].split()
    vector = ("sse", "avx", "fma", "f16c", "bmi", "asimd", "sve", "amx")
    return sorted(n for n in names if n.startswith(vector))


def _torch_paths() -> tuple[Path, str]:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(
            "torch is not visible at build time; install it first, then run "
            "`python -m lawful.kernels build`"
        )
    root = Path(next(iter(spec.submodule_search_locations)))
    if not (root / "include/torch/csrc/stable/library.h").is_file():
        raise BuildError("this torch has no stable C++ headers (torch >= 2.10 is needed)")
    return root, (root / "version.py").read_text()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [x for x in done.stderr.splitlines() if "error:" in x] or done.stderr.splitlines()
        raise BuildError(f"{command[0]} failed: {lines[0] if lines else 'no message'}")


def build(target: Path, native: bool = True) -> Path:
    """Compiles all sources into ``target/lawful_kernels-<hash>.so`` and returns its path.

    A library that is there already, of the same sources and flags and for the same processor, is
    left as it is.

    Args:
        target: Folder for the library; made if absent. The result appears there in one rename.
        native: Use every instruction of this processor. ``False`` gives a portable x86-64-v2
            (or plain baseline elsewhere) library that may move between machines.

    Raises:
        BuildError: No compiler, no torch, a compile error, or a folder that cannot be written.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise BuildError("no C++ compiler found (g++ or clang++, or name one in CXX)")
    torch_root, _ = _torch_paths()
    if native:
        arch = ["-march=native"]
    else:
        arch = ["-march=x86-64-v2"] if platform.machine() == "x86_64" else []
    include = [f"-I{SOURCES}", f"-isystem{torch_root / 'include'}"]
    sources = sorted(SOURCES.glob("*.cpp"))
    if not sources:
        raise BuildError("no kernel sources in this installation")
    name = f"lawful_kernels-{source_hash()}.so"
    about = {"features": cpu_features() if native else [], "flags": [*FLAGS, *arch]}
    info = target / f"{name}.json"
    if (target / name).is_file() and info.is_file() and json.loads(info.read_text()) == about:
        return target / name
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as scratch:
            objects = [Path(scratch, s.stem + ".o") for s in sources]
            jobs = [
                [compiler, *FLAGS, *arch, *include, "-c", str(s), "-o", str(o)]
                for s, o in zip(sources, objects, strict=True)
            ]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(_run, jobs))
            made = Path(scratch, name)
            libs = [f"-L{torch_root / 'lib'}", "-ltorch_cpu", "-lc10"]
            rpath = f"-Wl,-rpath,{torch_root / 'lib'}"
            _run([compiler, "-shared", *map(str, objects), "-o", str(made), *libs, rpath])
            written = Path(scratch, info.name)
            written.write_text(json.dumps(about, indent=1))
            written.replace(info)
            made.replace(target / name)
    except OSError as error:
        raise BuildError(f"cannot write {target}: {error}") from None
    for old in target.glob("lawful_kernels-*"):
        if not old.name.startswith(name):
            with contextlib.suppress(OSError):
                old.unlink()
    return target / name
