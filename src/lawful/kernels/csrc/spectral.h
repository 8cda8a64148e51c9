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

// The reverse: split rows -> interleaved y[row][f0 .. f0 + 16).
template <typename T>
void store_tile(T* y, int64_t rows, int64_t count, int64_t f0, const T* scratch) {
  const int64_t n = count - f0 < kTile ? count - f0 : kTile;
  for (int64_t r = 0; r < rows; ++r) {
    T* to = y + 2 * (r * count + f0);
    const T* re = scratch + 2 * kTile * r;
    const T* im = re + kTile;
    if (n == kTile) {
      for (int64_t j = 0; j < kTile; ++j) {
        to[2 * j] = re[j];
        to[2 * j + 1] = im[j];
      }
    } else {
      for (int64_t j = 0; j < n; ++j) {
        to[2 * j] = re[j];
        to[2 * j + 1] = im[j];
      }
    }
  }
}

// Two real layers X, P in one complex field Z = P + iX: their spectra at frequency k follow from
// Z at k and -k. `plus` and `minus` are the sites of k and -k; z[batch][group][site] interleaved;
// scratch rows are [batch][X layers, then P layers].
struct Pairs {
  const int64_t* plus;
  const int64_t* minus;
  int64_t count;  // pairs
  int64_t sites;
};

template <typename T>
void unpack_pairs(const T* z, int64_t batch, int64_t groups, const Pairs& pairs, int64_t f0,
                  T* scratch) {
  const int64_t n = pairs.count - f0 < kTile ? pairs.count - f0 : kTile;
  const int64_t* plus = pairs.plus + f0;
  const int64_t* minus = pairs.minus + f0;
  if (n < kTile) std::memset(scratch, 0, 4 * kTile * batch * groups * sizeof(T));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t g = 0; g < groups; ++g) {
      const T* from = z + 2 * (b * groups + g) * pairs.sites;
      T* x = scratch + 2 * kTile * (b * 2 * groups + g);
      T* p = x + 2 * kTile * groups;
      for (int64_t j = 0; j < n; ++j) {
        const T a = from[2 * plus[j]] / 2, c = from[2 * minus[j]] / 2;
        const T b_ = from[2 * plus[j] + 1] / 2, d = from[2 * minus[j] + 1] / 2;
        x[j] = b_ + d;
        x[kTile + j] = c - a;
        p[j] = a + c;
        p[kTile + j] = b_ - d;
      }
    }
  }
}

template <typename T>
void store_pairs(T* z, int64_t batch, int64_t groups, const Pairs& pairs, int64_t f0,
                 const T* scratch) {
  const int64_t n = pairs.count - f0 < kTile ? pairs.count - f0 : kTile;
  const int64_t* plus = pairs.plus + f0;
  const int64_t* minus = pairs.minus + f0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t g = 0; g < groups; ++g) {
      T* to = z + 2 * (b * groups + g) * pairs.sites;
      const T* x = scratch + 2 * kTile * (b * 2 * groups + g);
      const T* p = x + 2 * kTile * groups;
      for (int64_t j = 0; j < n; ++j) {
        to[2 * minus[j]] = p[j] + x[kTile + j];
        to[2 * minus[j] + 1] = x[j] - p[kTile + j];
        to[2 * plus[j]] = p[j] - x[kTile + j];
        to[2 * plus[j] + 1] = x[j] + p[kTile + j];
      }
    }
  }
}

// NB batch rows at once: y[b][o] = sum_i u[o][i] x[b][i], or conj(u[i][o]) when Adjoint.
template <typename T, int NB, bool Adjoint>
void rows_times_tile(const T* u, const T* x, T* y, int64_t c_out, int64_t c_in) {
  using V = typename TileVector<T>::type;
  for (int64_t o = 0; o < c_out; ++o) {
    V re[NB], im[NB];
    for (int b = 0; b < NB; ++b) re[b] = im[b] = V{};
    for (int64_t i = 0; i < c_in; ++i) {
      const T* block = u + 2 * kTile * (Adjoint ? i * c_out + o : o * c_in + i);
      const V ur = *reinterpret_cast<const V*>(block);
      const V ui = *reinterpret_cast<const V*>(block + kTile);
      for (int b = 0; b < NB; ++b) {
        const T* xb = x + 2 * kTile * (c_in * b + i);
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
      std::memcpy(y + 2 * kTile * (c_out * b + o), &re[b], sizeof(V));
      std::memcpy(y + 2 * kTile * (c_out * b + o) + kTile, &im[b], sizeof(V));
    }
  }
}

template <typename T, bool Adjoint>
void batch_times_tile(const T* u, const T* x, T* y, int64_t batch, int64_t c_out, int64_t c_in) {
  constexpr int kRows = sizeof(T) == 4 ? 8 : 4;
  int64_t b = 0;
  for (; b + kRows <= batch; b += kRows) {
    rows_times_tile<T, kRows, Adjoint>(u, x + 2 * kTile * c_in * b, y + 2 * kTile * c_out * b,
                                       c_out, c_in);
  }
  for (; b < batch; ++b) {
    rows_times_tile<T, 1, Adjoint>(u, x + 2 * kTile * c_in * b, y + 2 * kTile * c_out * b, c_out,
                                   c_in);
  }
}

template <typename T>
void multiply_tile(const T* u, const T* x, T* y, int64_t batch, int64_t c_out, int64_t c_in,
                   bool adjoint) {
  if (adjoint) {
    batch_times_tile<T, true>(u, x, y, batch, c_out, c_in);
  } else {
    batch_times_tile<T, false>(u, x, y, batch, c_out, c_in);
  }
}

template <typename T>
void spectral_apply_tiles(const T* u, const T* x, T* y, int64_t batch, int64_t c_out,
                          int64_t c_in, int64_t count, bool adjoint, int64_t begin, int64_t end) {
  std::vector<T> xs(2 * kTile * batch * c_in), ys(2 * kTile * batch * c_out);
  for (int64_t tile = begin; tile < end; ++tile) {
    unpack_tile(x, batch * c_in, count, tile * kTile, xs.data());
    multiply_tile(u + tile * c_out * c_in * 2 * kTile, xs.data(), ys.data(), batch, c_out, c_in,
                  adjoint);
    store_tile(y, batch * c_out, count, tile * kTile, ys.data());
  }
}

// The same on packed fields, whose 2 * groups real layers are the channels.
template <typename T>
void packed_apply_tiles(const T* u, const T* z, T* y, int64_t batch, int64_t groups,
                        const Pairs& pairs, bool adjoint, int64_t begin, int64_t end) {
  const int64_t c = 2 * groups;
  std::vector<T> xs(2 * kTile * batch * c), ys(2 * kTile * batch * c);
  for (int64_t tile = begin; tile < end; ++tile) {
    unpack_pairs(z, batch, groups, pairs, tile * kTile, xs.data());
    multiply_tile(u + tile * c * c * 2 * kTile, xs.data(), ys.data(), batch, c, c, adjoint);
    store_pairs(y, batch, groups, pairs, tile * kTile, ys.data());
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
void outer_tile(const T* g, const T* x, T* out, int64_t batch, int64_t c_out, int64_t c_in) {
  constexpr int kColumns = sizeof(T) == 4 ? 8 : 4;
  const int64_t g_step = 2 * kTile * c_out, x_step = 2 * kTile * c_in;
  for (int64_t o = 0; o < c_out; ++o) {
    T* row = out + o * c_in * 2 * kTile;
    const T* go = g + 2 * kTile * o;
    int64_t i = 0;
    for (; i + kColumns <= c_in; i += kColumns) {
      outer_columns<T, kColumns>(go, x + 2 * kTile * i, row + 2 * kTile * i, batch, g_step, x_step);
    }
    for (; i < c_in; ++i) {
      outer_columns<T, 1>(go, x + 2 * kTile * i, row + 2 * kTile * i, batch, g_step, x_step);
    }
  }
}

template <typename T>
void spectral_outer_tiles(const T* g, const T* x, T* out, int64_t batch, int64_t c_out,
                          int64_t c_in, int64_t count, int64_t begin, int64_t end) {
  std::vector<T> gs(2 * kTile * batch * c_out), xs(2 * kTile * batch * c_in);
  for (int64_t tile = begin; tile < end; ++tile) {
    unpack_tile(g, batch * c_out, count, tile * kTile, gs.data());
    unpack_tile(x, batch * c_in, count, tile * kTile, xs.data());
    outer_tile(gs.data(), xs.data(), out + tile * c_out * c_in * 2 * kTile, batch, c_out, c_in);
  }
}

// A pair k, -k of different frequencies stands for two, so its product counts twice.
template <typename T>
void packed_outer_tiles(const T* g, const T* z, T* out, int64_t batch, int64_t groups,
                        const Pairs& pairs, int64_t begin, int64_t end) {
  const int64_t c = 2 * groups;
  std::vector<T> gs(2 * kTile * batch * c), xs(2 * kTile * batch * c);
  for (int64_t tile = begin; tile < end; ++tile) {
    unpack_pairs(g, batch, groups, pairs, tile * kTile, gs.data());
    unpack_pairs(z, batch, groups, pairs, tile * kTile, xs.data());
    T weight[kTile];
    for (int64_t j = 0; j < kTile; ++j) {
      const int64_t f = tile * kTile + j;
      weight[j] = f < pairs.count && pairs.plus[f] == pairs.minus[f] ? 1 : 2;
    }
    for (int64_t r = 0; r < 2 * batch * c; ++r) {
      for (int64_t j = 0; j < kTile; ++j) gs[r * kTile + j] *= weight[j];
    }
    outer_tile(gs.data(), xs.data(), out + tile * c * c * 2 * kTile, batch, c, c);
  }
}

}  // namespace lawful
