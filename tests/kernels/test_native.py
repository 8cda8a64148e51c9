import subprocess
import sys

import pytest
import torch

from lawful.errors import InputError
from lawful.kernels import _build, _native, force_backend, native_status, use_native


def test_reference_can_be_forced_and_is_restored():
    x = torch.zeros(2)
    before = use_native("auto", x)
    with pytest.raises(RuntimeError, match="inner"), force_backend("reference"):  # noqa: PT012
        assert not use_native("auto", x)
        raise RuntimeError("inner")
    assert use_native("auto", x) == before


def test_unknown_backend_is_refused():
    with pytest.raises(InputError, match=r"backend: expected .*got 'fast'"):
        use_native("fast", torch.zeros(1))


def test_half_precision_never_takes_the_native_path():
    x = torch.zeros(2, dtype=torch.bfloat16)
    assert not use_native("auto", x)
    with pytest.raises(InputError, match="not available"):
        use_native("native", x)


def test_missing_and_stale_libraries_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(_native, "LIBRARY_FOLDER", tmp_path)
    assert "not compiled" in native_status.__wrapped__().reason
    (tmp_path / "lawful_kernels-000000000000.so").touch()
    assert "other sources" in native_status.__wrapped__().reason


def test_library_for_another_processor_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_native, "LIBRARY_FOLDER", tmp_path)
    library = tmp_path / f"lawful_kernels-{_build.source_hash()}.so"
    library.touch()
    library.with_name(library.name + ".json").write_text('{"features": ["avx9000"]}')
    assert "avx9000" in native_status.__wrapped__().reason


def test_build_without_compiler_explains(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(_build.shutil, "which", lambda name: None)
    with pytest.raises(_build.BuildError, match="no C\\+\\+ compiler"):
        _build.build(tmp_path)
    assert not list(tmp_path.iterdir())


def test_compile_error_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(_build, "SOURCES", tmp_path / "csrc")
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "bad.cpp").write_text("int f() { return nothing; }\n")
    with pytest.raises(_build.BuildError, match="nothing") as caught:
        _build.build(tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


def test_loading_keeps_denormals():
    """Linking with -ffast-math would flush them to zero in the whole process."""
    code = (
        "import torch; from lawful.kernels import native_status; native_status();"
        "x = torch.tensor([1e-40]); assert (x + x).item() > 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_up_to_date_is_not_built_again(tmp_path, monkeypatch):
    monkeypatch.setattr(_build, "SOURCES", tmp_path / "csrc")
    (tmp_path / "csrc").mkdir()
    source = tmp_path / "csrc" / "one.cpp"
    source.write_text("int one() { return 1; }\n")
    first = _build.build(tmp_path / "out")
    made = first.stat().st_mtime_ns
    assert _build.build(tmp_path / "out") == first
    assert first.stat().st_mtime_ns == made
    source.write_text("int one() { return 2; }\n")
    second = _build.build(tmp_path / "out")
    assert second != first
    assert not first.exists()
