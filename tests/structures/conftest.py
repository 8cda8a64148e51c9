def pytest_generate_tests(metafunc):
    """Runs every law for every family that the test class lists."""
    families = getattr(metafunc.cls, "families", None)
    if families and "family" in metafunc.fixturenames:
        metafunc.parametrize("family", families, ids=str)
