"""Microseconds per matrix product of dense layers: torch's own matmul against oneDNN's.

    python -m benchmarks.matmul [--repetitions 5] [--calls 300]

One torch thread, denormals flushed, full float32. A `ratio` above 1 means that oneDNN is faster.
`auto` in every row is the backend that `agent.matmul=auto` (`border_cli/nn/matmul.py`) chooses on
this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor

from benchmarks.table import emit, make_parser, ratios
from border_cli.nn.device import learner_thread
from border_cli.nn.matmul import choose_matmul, has_onednn, processor, product
from border_cli.settings.networks import Matmul, MatmulPrecision

SHAPES = [  # rows, inputs, outputs
    *((64, 4, 256), (64, 256, 256), (64, 256, 2)),
    *((256, 17, 256), (256, 256, 256), (256, 512, 512)),
]
BATCHED = (2, 256, 256, 256)  # members, rows, inputs, outputs


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--calls", type=int, default=300, help="calls per measurement")
    arguments = parser.parse_args()
    if not has_onednn():
        raise SystemExit(f"torch {torch.__version__} has no oneDNN here")
    with learner_thread(1), torch.no_grad():
        tables(arguments.repetitions, arguments.calls)


def tables(repetitions: int, calls: int) -> None:
    for rows, inputs, outputs in SHAPES:
        shape = f"{rows} x {inputs} x {outputs}"
        for name, (theirs, ours) in products(rows, inputs, outputs).items():
            compare(f"{name}, {shape}", theirs, ours, repetitions, calls)
    members, rows, inputs, outputs = BATCHED
    theirs, ours = critics(members, rows, inputs, outputs)
    row = f"{members} critics, {rows} x {inputs} x {outputs}"
    compare(row, theirs, ours, repetitions, calls)


def products(rows: int, inputs: int, outputs: int) -> dict[str, tuple[Callable[[], Tensor], ...]]:
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    grad = torch.randn(rows, outputs)
    operands = {
        "forward with ReLU": (x, weight.t(), bias, "relu"),
        "gradient by the input": (grad, weight),
        "gradient by the weight": (grad.t(), x),
    }
    return {
        name: (partial(product, *values, onednn=False), partial(product, *values, onednn=True))
        for name, values in operands.items()
    }


def critics(
    members: int, rows: int, inputs: int, outputs: int
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    x, weights = torch.randn(members, rows, inputs), torch.randn(members, inputs, outputs)
    biases = torch.randn(members, 1, outputs)
    pairs = [(x[i], weights[i], biases[i, 0]) for i in range(members)]
    return (
        lambda: torch.bmm(x, weights).add_(biases),
        lambda: torch.stack([product(*pair, onednn=True) for pair in pairs]),
    )


def compare(
    row: str, theirs: Callable[[], Tensor], ours: Callable[[], Tensor], repetitions: int, calls: int
) -> None:
    """Measures both in turn and prints the medians."""
    turns = range(repetitions)
    pairs = [(microseconds(theirs, calls), microseconds(ours, calls)) for _ in turns]
    torchs, onednn = zip(*pairs, strict=True)
    line = {
        "torch_us": round(median(torchs), 1),
        "onednn_us": round(median(onednn), 1),
        "ratio": ratios(torchs, onednn),
        "error": float(f"{(theirs() - ours()).abs().max().item():.1e}"),
        "auto": f"{choose_matmul(Matmul.auto, MatmulPrecision.highest)} {processor()}",
    }
    emit("matmul", row, line)


def microseconds(multiply: Callable[[], Tensor], calls: int) -> float:
    for _ in range(calls // 10):
        multiply()
    began_s = time.perf_counter()
    for _ in range(calls):
        multiply()
    return (time.perf_counter() - began_s) / calls * 1e6


if __name__ == "__main__":
    main()
