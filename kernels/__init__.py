"""Kernels of tilec, one family a file, each short enough to read in one sitting.

The convention, which the command line relies on. A file holds
- one or more `@tc.kernel` functions;
- `defaults() -> dict`: the arguments of a run, by the kernel's argument names: `tc.spec(dtype, shape)` for tensors (the
  caller makes the data), numbers for run-time scalars, and Consts where the kernel's own defaults do not do;
- `reference(**arguments) -> dict`: numpy arrays for the tensors in (those that the kernel writes too, as they were
  before the launch), numbers for scalars and Consts. It returns what the tensors that the kernel writes hold
  afterwards, by name: float64 for floats, integers as they are;
- `bounds(**arguments) -> dict`, where a kernel rounds on the way: how far elements of an output may be off beyond one
  rounding of its type and what an accumulation in f32 loses.
A file with several kernels has these for each: `defaults_NAME`, `reference_NAME`, `bounds_NAME`.
"""
