"""Build hook: compile the native kernels when a compiler and torch are at hand, else stay pure.

Everything else about the package is declared in pyproject.toml.
"""

import importlib.util
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent


class BuildKernels(build_ext):
    """Delegates to lawful.kernels._build, loaded by path so that torch-less builds work."""

    def run(self) -> None:
        path = ROOT / "src" / "lawful" / "kernels" / "_build.py"
        spec = importlib.util.spec_from_file_location("lawful_kernels_build", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        base = ROOT / "src" if self.inplace or self.editable_mode else Path(self.build_lib)
        target = base / "lawful" / "kernels" / "_lib"
        try:
            print(f"lawful: native kernels built: {module.build(target)}")
        except module.BuildError as error:
            print(f"lawful: native kernels not built, the pure torch path will be used: {error}")

    def get_outputs(self) -> list[str]:
        return []

    def get_source_files(self) -> list[str]:
        return [str(p.relative_to(ROOT)) for p in (ROOT / "src/lawful/kernels/csrc").iterdir()]


setup(ext_modules=[Extension("lawful.kernels._lib", [])], cmdclass={"build_ext": BuildKernels})
