// Declares the operator namespace. Each operator family defines its schemas and CPU kernels in a
// file of its own with STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m).
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(lawful, m) {
  (void)m;
}
