"""For test suites: assert that a module keeps its laws; a failure says which broke, and where."""

from typing import Any

from lawful.laws._check import check


def assert_lawful(module: Any, *inputs: Any, **kwargs: Any) -> None:
    """Fails with the broken rows of `check`, or when there was no law to try.

    Takes the arguments of `check`. Use it in any test framework::

        def test_my_layer():
            assert_lawful(MyLayer(8), torch.randn(2, 5, 8))

    Raises:
        AssertionError: A law is broken, or none was tried.
    """
    __tracebackhide__ = True
    certificate = check(module, *inputs, **kwargs)
    if not certificate.holds:
        raise AssertionError(f"laws are broken\n{certificate}")
