// Binds spectral.h: see kernels/spectral/README.md.
#include "spectral.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Tiles per task, so that a task is worth waking a thread for (about 30 us of arithmetic).
int64_t grain(int64_t batch, int64_t c_out, int64_t c_in) {
  const int64_t work = batch * c_out * c_in * lawful::kTile * 8;
  return 1 + (1 << 21) / (work + 1);
}

template <typename T>
void run_apply(const Tensor& u, const Tensor& x, Tensor& y, bool adjoint) {
  const int64_t tiles = u.size(0), batch = x.size(0), c_in = x.size(1), count = x.size(2);
  const int64_t c_out = y.size(1);
  const T* up = static_cast<const T*>(u.data_ptr());
  const T* xp = static_cast<const T*>(x.data_ptr());
  T* yp = static_cast<T*>(y.data_ptr());
  torch::stable::parallel_for(0, tiles, grain(batch, c_out, c_in), [&](int64_t lo, int64_t hi) {
    lawful::spectral_apply_tiles<T>(up, xp, yp, batch, c_out, c_in, count, adjoint, lo, hi);
  });
}

template <typename T>
void run_outer(const Tensor& g, const Tensor& x, Tensor& out) {
  const int64_t tiles = out.size(0), batch = x.size(0), count = x.size(2);
  const int64_t c_out = g.size(1), c_in = x.size(1);
  const T* gp = static_cast<const T*>(g.data_ptr());
  const T* xp = static_cast<const T*>(x.data_ptr());
  T* op = static_cast<T*>(out.data_ptr());
  torch::stable::parallel_for(0, tiles, grain(batch, c_out, c_in), [&](int64_t lo, int64_t hi) {
    lawful::spectral_outer_tiles<T>(gp, xp, op, batch, c_out, c_in, count, lo, hi);
  });
}

Tensor spectral_apply(Tensor u, Tensor x, bool adjoint) {
  const int64_t c_out = adjoint ? u.size(2) : u.size(1);
  Tensor y = torch::stable::new_empty(x, {x.size(0), c_out, x.size(2), 2});
  u = torch::stable::contiguous(u);
  x = torch::stable::contiguous(x);
  if (x.scalar_type() == ScalarType::Double) {
    run_apply<double>(u, x, y, adjoint);
  } else {
    run_apply<float>(u, x, y, adjoint);
  }
  return y;
}

Tensor spectral_outer(Tensor g, Tensor x) {
  const int64_t tiles = (x.size(2) + lawful::kTile - 1) / lawful::kTile;
  Tensor out = torch::stable::new_empty(x, {tiles, g.size(1), x.size(1), 2, lawful::kTile});
  g = torch::stable::contiguous(g);
  x = torch::stable::contiguous(x);
  if (x.scalar_type() == ScalarType::Double) {
    run_outer<double>(g, x, out);
  } else {
    run_outer<float>(g, x, out);
  }
  return out;
}

lawful::Pairs pairs_of(const Tensor& plus, const Tensor& minus, int64_t sites) {
  return {static_cast<const int64_t*>(plus.data_ptr()),
          static_cast<const int64_t*>(minus.data_ptr()), plus.size(0), sites};
}

template <typename T>
void run_packed_apply(const Tensor& u, const Tensor& z, Tensor& y, const lawful::Pairs& pairs,
                      bool adjoint) {
  const int64_t batch = z.size(0), groups = z.size(1);
  const T* up = static_cast<const T*>(u.data_ptr());
  const T* zp = static_cast<const T*>(z.data_ptr());
  T* yp = static_cast<T*>(y.data_ptr());
  const int64_t size = grain(batch, 2 * groups, 2 * groups);
  torch::stable::parallel_for(0, u.size(0), size, [&](int64_t lo, int64_t hi) {
    lawful::packed_apply_tiles<T>(up, zp, yp, batch, groups, pairs, adjoint, lo, hi);
  });
}

template <typename T>
void run_packed_outer(const Tensor& g, const Tensor& z, Tensor& out, const lawful::Pairs& pairs) {
  const int64_t batch = z.size(0), groups = z.size(1);
  const T* gp = static_cast<const T*>(g.data_ptr());
  const T* zp = static_cast<const T*>(z.data_ptr());
  T* op = static_cast<T*>(out.data_ptr());
  const int64_t size = grain(batch, 2 * groups, 2 * groups);
  torch::stable::parallel_for(0, out.size(0), size, [&](int64_t lo, int64_t hi) {
    lawful::packed_outer_tiles<T>(gp, zp, op, batch, groups, pairs, lo, hi);
  });
}

Tensor packed_apply(Tensor u, Tensor z, Tensor plus, Tensor minus, bool adjoint) {
  Tensor y = torch::stable::new_empty(z, {z.size(0), z.size(1), z.size(2), 2});
  u = torch::stable::contiguous(u);
  z = torch::stable::contiguous(z);
  const lawful::Pairs pairs = pairs_of(plus, minus, z.size(2));
  if (z.scalar_type() == ScalarType::Double) {
    run_packed_apply<double>(u, z, y, pairs, adjoint);
  } else {
    run_packed_apply<float>(u, z, y, pairs, adjoint);
  }
  return y;
}

Tensor packed_outer(Tensor g, Tensor z, Tensor plus, Tensor minus) {
  const int64_t tiles = (plus.size(0) + lawful::kTile - 1) / lawful::kTile;
  const int64_t c = 2 * z.size(1);
  Tensor out = torch::stable::new_empty(z, {tiles, c, c, 2, lawful::kTile});
  g = torch::stable::contiguous(g);
  z = torch::stable::contiguous(z);
  const lawful::Pairs pairs = pairs_of(plus, minus, z.size(2));
  if (z.scalar_type() == ScalarType::Double) {
    run_packed_outer<double>(g, z, out, pairs);
  } else {
    run_packed_outer<float>(g, z, out, pairs);
  }
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def("spectral_apply(Tensor u, Tensor x, bool adjoint) -> Tensor");
  m.def("spectral_outer(Tensor g, Tensor x) -> Tensor");
  m.def("spectral_packed_apply(Tensor u, Tensor z, Tensor plus, Tensor minus, bool adjoint) -> Tensor");
  m.def("spectral_packed_outer(Tensor g, Tensor z, Tensor plus, Tensor minus) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("spectral_apply", TORCH_BOX(&spectral_apply));
  m.impl("spectral_outer", TORCH_BOX(&spectral_outer));
  m.impl("spectral_packed_apply", TORCH_BOX(&packed_apply));
  m.impl("spectral_packed_outer", TORCH_BOX(&packed_outer));
}
