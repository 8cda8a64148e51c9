// Products with one small complex matrix per frequency, vectorised over the frequencies.
//
// The matrices come in tiles of 16 frequencies: u[tile][out][in][re, im][16]. Fields are
// interleaved complex, x[batch][channel][frequency]. A tile of x is unpacked once into split
// real and imaginary vectors that stay in the first-level cache, then all arithmetic is on whole
// vectors: no shuffles, no transposition of the field, each matrix read once.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

namespace lawful {

constexpr int64_t kTile = 16;

template <typename T>
struct TileVector {
  typedef T type __attribute__((vector_size(sizeof(T) * kTile), aligned(sizeof(T))));
};

// x[row][f0 .. f0 + 16) of `rows` rows -> re, im vectors; zeros beyond the last frequency.
template <typename T>
void unpack_tile(const T* x, int64_t rows, int64_t count, int64_t f0, T* scratch) {
  const int64_t n = count - f0 < kTile ? count - f0 : kTile;
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = x + 2 * (r * count + f0);
    T* re = scratch + 2 * kTile * r;
    T* im = re + kTile;
    if (n == kTile) {
      for (int64_t j = 0; j < kTile; ++j) {
        re[j] = from[2 * j];
        im[j] = from[2 * j + 1];
      }
    } else {
      std::memset(re, 0, 2 * kTile * sizeof(T));
      for (int64_t j = 0; j < n; ++j) {
        re[j] = from[2 * j];
        im[j] = from[2 * j + 1];
      }
    }
  }
}

template <typename T>
void store_tile(T* y, int64_t n, const T* re, const T* im) {
  if (n == kTile) {
    for (int64_t j = 0; j < kTile; ++j) {
      y[2 * j] = re[j];
      y[2 * j + 1] = im[j];
    }
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    y[2 * j] = re[j];
    y[2 * j + 1] = im[j];
  }
}

// NB batch rows at once: y[b][o] = sum_i u[o][i] x[b][i], or conj(u[i][o]) when Adjoint.
template <typename T, int NB, bool Adjoint>
void rows_times_tile(const T* u, const T* x, T* y, int64_t batch_step, int64_t c_out,
                     int64_t c_in, int64_t count, int64_t f0) {
  using V = typename TileVector<T>::type;
  const int64_t n = count - f0 < kTile ? count - f0 : kTile;
  for (int64_t o = 0; o < c_out; ++o) {
    V re[NB], im[NB];
    for (int b = 0; b < NB; ++b) re[b] = im[b] = V{};
    for (int64_t i = 0; i < c_in; ++i) {
      const T* block = u + 2 * kTile * (Adjoint ? i * c_out + o : o * c_in + i);
      const V ur = *reinterpret_cast<const V*>(block);
      const V ui = *reinterpret_cast<const V*>(block + kTile);
      for (int b = 0; b < NB; ++b) {
        const T* xb = x + batch_step * b + 2 * kTile * i;
        const V xr = *reinterpret_cast<const V*>(xb);
        const V xi = *reinterpret_cast<const V*>(xb + kTile);
        if (Adjoint) {
          re[b] += ur * xr + ui * xi;
          im[b] += ur * xi - ui * xr;
        } else {
          re[b] += ur * xr - ui * xi;
          im[b] += ur * xi + ui * xr;
        }
      }
    }
    for (int b = 0; b < NB; ++b) {
      store_tile(y + 2 * ((b * c_out + o) * count + f0), n, reinterpret_cast<const T*>(&re[b]),
                 reinterpret_cast<const T*>(&im[b]));
    }
  }
}

template <typename T, bool Adjoint>
void spectral_apply_tiles(const T* u, const T* x, T* y, int64_t batch, int64_t c_out,
                          int64_t c_in, int64_t count, int64_t begin, int64_t end) {
  constexpr int kRows = sizeof(T) == 4 ? 8 : 4;
  std::vector<T> scratch(2 * kTile * batch * c_in);
  const int64_t step = 2 * kTile * c_in;
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t f0 = tile * kTile;
    const T* block = u + tile * c_out * c_in * 2 * kTile;
    unpack_tile(x, batch * c_in, count, f0, scratch.data());
    int64_t b = 0;
    for (; b + kRows <= batch; b += kRows) {
      rows_times_tile<T, kRows, Adjoint>(block, scratch.data() + b * step,
                                         y + 2 * b * c_out * count, step, c_out, c_in, count, f0);
    }
    for (; b < batch; ++b) {
      rows_times_tile<T, 1, Adjoint>(block, scratch.data() + b * step, y + 2 * b * c_out * count,
                                     step, c_out, c_in, count, f0);
    }
  }
}

// NI input channels at once: out[o][i] = sum_b g[b][o] conj(x[b][i]).
template <typename T, int NI>
void outer_columns(const T* g, const T* x, T* out, int64_t batch, int64_t g_step, int64_t x_step) {
  using V = typename TileVector<T>::type;
  V re[NI], im[NI];
  for (int i = 0; i < NI; ++i) re[i] = im[i] = V{};
  for (int64_t b = 0; b < batch; ++b) {
    const V gr = *reinterpret_cast<const V*>(g + b * g_step);
    const V gi = *reinterpret_cast<const V*>(g + b * g_step + kTile);
    for (int i = 0; i < NI; ++i) {
      const T* xb = x + b * x_step + 2 * kTile * i;
      const V xr = *reinterpret_cast<const V*>(xb);
      const V xi = *reinterpret_cast<const V*>(xb + kTile);
      re[i] += gr * xr + gi * xi;
      im[i] += gi * xr - gr * xi;
    }
  }
  for (int i = 0; i < NI; ++i) {
    std::memcpy(out + 2 * kTile * i, &re[i], sizeof(V));
    std::memcpy(out + 2 * kTile * i + kTile, &im[i], sizeof(V));
  }
}

template <typename T>
void spectral_outer_tiles(const T* g, const T* x, T* out, int64_t batch, int64_t c_out,
                          int64_t c_in, int64_t count, int64_t begin, int64_t end) {
  constexpr int kColumns = sizeof(T) == 4 ? 8 : 4;
  std::vector<T> gs(2 * kTile * batch * c_out), xs(2 * kTile * batch * c_in);
  const int64_t g_step = 2 * kTile * c_out, x_step = 2 * kTile * c_in;
  for (int64_t tile = begin; tile < end; ++tile) {
    unpack_tile(g, batch * c_out, count, tile * kTile, gs.data());
    unpack_tile(x, batch * c_in, count, tile * kTile, xs.data());
    for (int64_t o = 0; o < c_out; ++o) {
      T* row = out + ((tile * c_out + o) * c_in) * 2 * kTile;
      const T* go = gs.data() + 2 * kTile * o;
      int64_t i = 0;
      for (; i + kColumns <= c_in; i += kColumns) {
        outer_columns<T, kColumns>(go, xs.data() + 2 * kTile * i, row + 2 * kTile * i, batch,
                                   g_step, x_step);
      }
      for (; i < c_in; ++i) {
        outer_columns<T, 1>(go, xs.data() + 2 * kTile * i, row + 2 * kTile * i, batch, g_step,
                            x_step);
      }
    }
  }
}

}  // namespace lawful
