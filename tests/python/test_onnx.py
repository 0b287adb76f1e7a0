"""A sample of ONNX's node tests (tests/onnx); tests/onnx/board.py runs all. Skipped where `cmake/setup.sh boards` has not installed ONNX."""

import pathlib
import sys

import pytest

pytest.importorskip("onnx")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "onnx"))
import board  # noqa: E402

SAMPLE = [
    "softmax_axis_1",
    "layer_normalization_3d_axis1_epsilon",
    "gemm_all_attributes",
    "conv_with_strides_padding",
    "convtranspose",
    "maxpool_2d_dilations",
    "resize_upsample_sizes_nearest",
    "scatternd_add",
    "gather_elements_1",
    "top_k",
    "cumsum_1d_exclusive",
    "einsum_batch_matmul",
    "lstm_with_peepholes",
    "attention_4d_causal",
    "quantizelinear",
    "scan9_sum",
]


@pytest.mark.parametrize("case", SAMPLE)
def test_case(case):
    _, verdict, why, _, text = board.run(f"test_{case}")
    assert verdict == "passed", f"{why}\n{text}"


def test_what_has_no_program_says_why():
    verdicts = {
        case: board.run(f"test_{case}")[1:3]
        for case in ("nonmaxsuppression_two_classes", "strnormalizer_nostopwords_nochangecase", "cast_FLOAT_to_INT4")
    }
    assert verdicts == {
        "nonmaxsuppression_two_classes": ("not expressible", "shapes that depend on data"),
        "strnormalizer_nostopwords_nochangecase": ("not expressible", "strings"),
        "cast_FLOAT_to_INT4": ("not expressible", "types of 8 bits and fewer: f8, f4, i4, i2"),
    }
