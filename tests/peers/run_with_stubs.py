# SPDX-License-Identifier: Apache-2.0
"""Runs a bridge without the package it forwards to, whose calls are only noted: python run_with_stubs.py SCRIPT CALLS"""
import runpy
import sys
from unittest.mock import MagicMock

stub = MagicMock()
for name in ("comet_ml", "neptune", "neptune.types", "PIL"):
    sys.modules[name] = stub
script, calls = sys.argv[1:]
sys.argv[1:] = ["study"]
runpy.run_path(script, run_name="__main__")
with open(calls, "w") as f:
    f.writelines(f"{c}\n" for c in stub.mock_calls)
