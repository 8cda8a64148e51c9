import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_chain_beats_single_words():
    spec = importlib.util.spec_from_file_location("crf_tagger", ROOT / "examples/crf_tagger.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    alone, chain = module.main()
    assert alone < 0.8
    assert chain > alone + 0.1
