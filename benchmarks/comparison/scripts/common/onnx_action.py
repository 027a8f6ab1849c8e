"""Runs policy.onnx (or the file that is named) without the library that trained it."""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1] if sys.argv[1:] else "policy.onnx")
observation = np.zeros((1, 4), np.float32)
print("action", session.run(None, {session.get_inputs()[0].name: observation})[0])
