// Chains with a shared transition, states in the lanes of a vector, R batch elements side by side.
#pragma once

#include "chain.h"

namespace lawful::chain {

// Where one batch element's results go; null pointers are not written. Rows of a and f have P
// entries; `ring` keeps only two rows (log-partition alone).
template <class T>
struct StateRows {
  T* a = nullptr;
  T* f = nullptr;
  T* inverse = nullptr;  // (N) 1 / s_t
  T* unary = nullptr;    // (N, C) marginals
  T* pair = nullptr;     // (C, C) expected transitions
  double* log_partition = nullptr;
  uint8_t* flag = nullptr;  // set when the scaled domain may have lost something
  int64_t id = 0, length = 0;
};

template <class T>
inline void forward_step(const Chains<T>& in, StateRows<T>& row, LogProduct& log, int64_t t,
                         int64_t at, const T* q, int P) {
  constexpr int W = kLanes<T>;
  T *a = row.a + at * P, *psi = row.f + at * P;
  const T* u = in.u(row.id, t);
  Vec<T> top = splat(kNegInf<T>);
  for (int j = 0; j < P; j += W) {
    const Vec<T> x = load_part(u + j, in.C - j, kNegInf<T>);
    store(psi + j, x);
    top = vmax<T>(top, x);
  }
  const T peak = hmax<T>(top);
  Vec<T> sum = {};
  for (int j = 0; j < P; j += W) {
    const Vec<T> e = vexp(load(psi + j) - peak);
    const Vec<T> x = t ? e * load(q + j) : e;
    store(psi + j, e);
    store(a + j, x);
    sum += x;
  }
  const T s = hsum<T>(sum);
  const bool good = s > Range<T>::tiny;
  if (!good) *row.flag = 1;
  const T inverse = good ? 1 / s : T(0);
  for (int j = 0; j < P; j += W) {
    store(a + j, load(a + j) * inverse);
    store(psi + j, load(psi + j) * inverse);
  }
  if (row.inverse) row.inverse[t] = inverse;
  log.add(peak);
  log.times(good ? s : 1);
}

template <class T, int R>
inline void forward_block(const Chains<T>& in, const Prepared<T>& tr, StateRows<T>* rows, T* q,
                          bool ring) {
  const int P = tr.P;
  int64_t longest = 0;
  LogProduct log[R];
  const T* x[R];
  T* y[R];
  for (int r = 0; r < R; ++r) {
    longest = rows[r].length > longest ? rows[r].length : longest;
    y[r] = q + r * P;
  }
  for (int64_t t = 0; t < longest; ++t) {
    const int64_t at = ring ? t & 1 : t, before = ring ? at ^ 1 : t - 1;
    if (t) {
      for (int r = 0; r < R; ++r) x[r] = rows[r].a + (t < rows[r].length ? before : 0) * P;
      product<T, R>(x, tr.to.data(), in.C, P, y);
    }
    for (int r = 0; r < R; ++r) {
      if (t < rows[r].length) forward_step(in, rows[r], log[r], t, at, y[r], P);
    }
  }
  for (int r = 0; r < R; ++r) {
    const int64_t n = rows[r].length;
    const double steps = n > 1 ? double(n - 1) * tr.top : 0.0;
    *rows[r].log_partition = log[r].value() + steps;
  }
}

template <class T, int R>
inline void backward_block(const Chains<T>& in, const Prepared<T>& tr, StateRows<T>* rows, T* q) {
  constexpr int W = kLanes<T>;
  const int P = tr.P;
  int64_t longest = 0;
  Vec<T> largest[R];
  const T* x[R];
  T* y[R];
  for (int r = 0; r < R; ++r) {
    longest = rows[r].length > longest ? rows[r].length : longest;
    largest[r] = Vec<T>{};
    y[r] = q + r * P;
  }
  for (int64_t t = longest - 1; t >= 0; --t) {
    bool any = false;
    for (int r = 0; r < R; ++r) {
      const bool inner = t + 1 < rows[r].length;
      x[r] = rows[r].f + (inner ? t + 1 : 0) * P;
      any = any || inner;
    }
    if (any) product<T, R>(x, tr.from.data(), in.C, P, y);
    for (int r = 0; r < R; ++r) {
      StateRows<T>& row = rows[r];
      if (t >= row.length) continue;
      T *a = row.a + t * P, *f = row.f + t * P, *b = y[r];
      const bool last = t == row.length - 1;
      Vec<T> sum = {};
      for (int j = 0; j < P; j += W) {
        if (last) store(b + j, splat(T(1)));
        sum += load(a + j) * load(b + j);
      }
      const T z = hsum<T>(sum);
      if (!(z > Range<T>::tiny && z < Range<T>::limit)) *row.flag = 1;
      const T scale = 1 / z, inverse = row.inverse[t];
      for (int j = 0; j < P; j += W) {
        const Vec<T> weight = load(b + j) * scale;
        largest[r] = vmax<T>(largest[r], weight * inverse);
        store(f + j, load(f + j) * weight);
        if (row.unary && j < in.C) {
          store_part(row.unary + t * in.C + j, in.C - j, load(a + j) * weight);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    if (!(hmax<T>(largest[r]) <= Range<T>::limit)) *rows[r].flag = 1;
  }
}

// out = T * sum_t a_t f_{t+1}', the expected number of transitions.
template <class T>
inline void expected_pairs(const Chains<T>& in, const Prepared<T>& tr, const StateRows<T>& row,
                           T* sum) {
  constexpr int W = kLanes<T>;
  const int C = in.C, P = tr.P;
  std::memset(sum, 0, sizeof(T) * C * P);
  if (row.length > 1) outer_sum(sum, row.a, row.f + P, row.length - 1, C, P);
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < C; j += W) {
      const Vec<T> x = load(sum + i * P + j) * load(&tr.to[i * P + j]);
      store_part(row.pair + i * C + j, C - j, x);
    }
  }
}

// ---- the derivative of the marginals: Hessian of the log-partition times a tangent -------------

template <class T>
struct StateTangent {
  const T *a, *f, *unary, *pair;   // as above
  const T *v_unary, *v_pair;       // tangents (N, C), (C, C); either may be null
  T *g_unary, *g_pair;             // results; g_pair is added to, (C, P)
  T *left, *right;                 // scratch (N, P)
  T *weighted, *weighted_back;     // scratch (C, P): T * v_pair and its transpose
  int64_t length = 0;
};

// Prefix means h_t, centred at every step: left_t = a_t (h_t - mean of the next pair's tangent).
template <class T, int R>
inline void tangent_forward(const Prepared<T>& tr, StateTangent<T>* rows, int C, int64_t longest,
                            T* q) {
  constexpr int W = kLanes<T>;
  const int P = tr.P;
  const T* x[R];
  T* y[R];
  for (int r = 0; r < R; ++r) y[r] = q + r * P;
  T* extra = q + R * P;
  for (int64_t t = 0; t < longest; ++t) {
    if (t) {
      for (int r = 0; r < R; ++r) x[r] = rows[r].left + (t < rows[r].length ? t - 1 : 0) * P;
      product<T, R>(x, tr.to.data(), C, P, y);
    }
    for (int r = 0; r < R; ++r) {
      StateTangent<T>& row = rows[r];
      if (t >= row.length) continue;
      T shift = 0;
      if (t && row.v_pair) {
        const T* before = row.a + (t - 1) * P;
        product<T, 1>(&before, row.weighted, C, P, &extra);
        Vec<T> sum = {};
        for (int j = 0; j < P; j += W) sum += load(row.f + t * P + j) * load(extra + j);
        shift = hsum<T>(sum);
      }
      Vec<T> total = {};
      for (int j = 0; j < P; j += W) {
        const int rest = C - j;
        const Vec<T> mu = load_part(row.unary + t * C + j, rest, T(0));
        Vec<T> g = {};
        if (row.v_unary) g = mu * load_part(row.v_unary + t * C + j, rest, T(0));
        if (t) {
          Vec<T> s = load(y[r] + j);
          if (row.v_pair) s += load(extra + j);
          g += load(row.f + t * P + j) * s;
        }
        store(row.left + t * P + j, g);
        total += g;
      }
      const T centre = hsum<T>(total);
      T* last = row.left + (t - 1) * P;
      for (int j = 0; j < P; j += W) {
        const Vec<T> mu = load_part(row.unary + t * C + j, C - j, T(0));
        const Vec<T> g = load(row.left + t * P + j) - mu * centre;
        store_part(row.g_unary + t * C + j, C - j, g);
        store(row.left + t * P + j, load(row.a + t * P + j) * mean_of<T>(g, mu));
        if (shift != 0) store(last + j, load(last + j) - load(row.a + (t - 1) * P + j) * shift);
      }
    }
  }
}

// Suffix means g_t; right_t = f_t (v_t + g_t), centred, and the unary result is completed.
template <class T, int R>
inline void tangent_backward(const Prepared<T>& tr, StateTangent<T>* rows, int C, int64_t longest,
                             T* q) {
  constexpr int W = kLanes<T>;
  const int P = tr.P;
  const T* x[R];
  T* y[R];
  for (int r = 0; r < R; ++r) y[r] = q + r * P;
  T* extra = q + R * P;
  for (int64_t t = longest - 1; t >= 0; --t) {
    for (int r = 0; r < R; ++r) x[r] = rows[r].right + (t + 1 < rows[r].length ? t + 1 : 0) * P;
    if (t + 1 < longest) product<T, R>(x, tr.from.data(), C, P, y);
    for (int r = 0; r < R; ++r) {
      StateTangent<T>& row = rows[r];
      if (t >= row.length) continue;
      const bool inner = t + 1 < row.length;
      if (inner && row.v_pair) {
        const T* after = row.f + (t + 1) * P;
        product<T, 1>(&after, row.weighted_back, C, P, &extra);
      }
      Vec<T> total = {}, total_v = {};
      for (int j = 0; j < P; j += W) {
        const int rest = C - j;
        const Vec<T> mu = load_part(row.unary + t * C + j, rest, T(0));
        Vec<T> g = {};
        if (inner) {
          Vec<T> s = load(y[r] + j);
          if (row.v_pair) s += load(extra + j);
          g = load(row.a + t * P + j) * s;
        }
        store(row.right + t * P + j, g);
        total += g;
        if (row.v_unary) total_v += mu * load_part(row.v_unary + t * C + j, rest, T(0));
      }
      const T centre = hsum<T>(total), mean_v = hsum<T>(total_v);
      for (int j = 0; j < P; j += W) {
        const int rest = C - j;
        const Vec<T> mu = load_part(row.unary + t * C + j, rest, T(0));
        const Vec<T> g = load(row.right + t * P + j) - mu * centre;
        Vec<T> w = mean_of<T>(g, mu);
        if (row.v_unary) w += load_part(row.v_unary + t * C + j, rest, T(0)) - mean_v;
        store(row.right + t * P + j, load(row.f + t * P + j) * w);
        T* out = row.g_unary + t * C + j;
        store_part(out, rest, load_part(out, rest, T(0)) + g);
      }
    }
  }
}

// g_pair += T * (sum_t left_t f_{t+1}' + a_t right_{t+1}') + v_pair * expected pairs.
template <class T>
inline void tangent_pairs(const Prepared<T>& tr, const StateTangent<T>& row, int C, T* sum) {
  constexpr int W = kLanes<T>;
  const int P = tr.P;
  std::memset(sum, 0, sizeof(T) * C * P);
  if (row.length > 1) {
    outer_sum(sum, (const T*)row.left, row.f + P, row.length - 1, C, P);
    outer_sum(sum, row.a, (const T*)row.right + P, row.length - 1, C, P);
  }
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < C; j += W) {
      Vec<T> x = load(sum + i * P + j) * load(&tr.to[i * P + j]);
      if (row.v_pair) {
        x += load_part(row.v_pair + i * C + j, C - j, T(0)) *
             load_part(row.pair + i * C + j, C - j, T(0));
      }
      store(row.g_pair + i * P + j, load(row.g_pair + i * P + j) + x);
    }
  }
}

// T * v_pair and its transpose, padded.
template <class T>
inline void weigh_pairs(const Prepared<T>& tr, const StateTangent<T>& row, int C) {
  const int P = tr.P;
  std::memset(row.weighted, 0, sizeof(T) * C * P);
  std::memset(row.weighted_back, 0, sizeof(T) * C * P);
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < C; ++j) {
      const T w = tr.to[i * P + j];
      const T x = w > 0 ? w * row.v_pair[i * C + j] : T(0);
      row.weighted[i * P + j] = row.weighted_back[j * P + i] = x;
    }
  }
}

}  // namespace lawful::chain
