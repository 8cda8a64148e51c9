// Chains in log space and float64: exact at any scale. The fall-back of the scaled kernels, and
// the home of what needs no derivative (best path, sampling). One batch element at a time.
#pragma once

#include <vector>

#include "chain.h"

namespace lawful::chain {

inline double log_sum_exp(const double* x, int n) {
  double top = kNegInf<double>;
  for (int i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  if (!(top > kNegInf<double>)) return top;
  double s = 0;
  for (int i = 0; i < n; ++i) s += std::exp(x[i] - top);
  return top + std::log(s);
}

template <class T>
struct LogChain {
  const Chains<T>& in;
  int64_t id, N;
  int C;
  std::vector<double> alpha, beta, buffer;
  double log_partition = 0;

  LogChain(const Chains<T>& chains, int64_t b)
      : in(chains), id(b), N(chains.length(b)), C(chains.C), buffer(chains.C) {}

  double* row(std::vector<double>& x, int64_t t) { return x.data() + t * C; }

  // alpha_t(j) = u_t(j) + log sum_i exp(alpha_{t-1}(i) + T(i,j))
  void forward() {
    alpha.resize(N * C);
    for (int64_t t = 0; t < N; ++t) {
      const T* u = in.u(id, t);
      double* now = row(alpha, t);
      if (!t) {
        for (int j = 0; j < C; ++j) now[j] = u[j];
        continue;
      }
      const T* tr = in.pair(id, t - 1);
      const double* last = row(alpha, t - 1);
      for (int j = 0; j < C; ++j) {
        for (int i = 0; i < C; ++i) buffer[i] = last[i] + double(tr[i * C + j]);
        now[j] = log_sum_exp(buffer.data(), C) + u[j];
      }
    }
    log_partition = N ? log_sum_exp(row(alpha, N - 1), C) : 0.0;
  }

  void backward() {
    beta.assign(N * C, 0.0);
    for (int64_t t = N - 2; t >= 0; --t) {
      const T *u = in.u(id, t + 1), *tr = in.pair(id, t);
      const double* next = row(beta, t + 1);
      double* now = row(beta, t);
      for (int i = 0; i < C; ++i) {
        for (int j = 0; j < C; ++j) buffer[j] = next[j] + u[j] + double(tr[i * C + j]);
        now[i] = log_sum_exp(buffer.data(), C);
      }
    }
  }

  bool possible() const { return log_partition > kNegInf<double>; }

  double unary(int64_t t, int c) {
    return std::exp(row(alpha, t)[c] + row(beta, t)[c] - log_partition);
  }
  // P(z_t = i, z_{t+1} = j)
  double pair(int64_t t, int i, int j) {
    const double score = double(in.u(id, t + 1)[j]) + double(in.pair(id, t)[i * C + j]);
    return std::exp(row(alpha, t)[i] + score + row(beta, t + 1)[j] - log_partition);
  }

  // mu (N, C); pairs (C, C) summed over steps, or (N-1, C, C) when `each`. Null: not wanted.
  void marginals(T* mu, T* pairs, bool each) {
    forward();
    backward();
    if (!possible() || N == 0) return;
    for (int64_t t = 0; mu && t < N; ++t) {
      double total = 0;
      for (int c = 0; c < C; ++c) total += buffer[c] = unary(t, c);
      for (int c = 0; c < C; ++c) mu[t * C + c] = T(buffer[c] / total);
    }
    if (!pairs) return;
    std::vector<double> sum(each ? 0 : C * C);
    for (int64_t t = 0; t + 1 < N; ++t) {
      for (int k = 0; k < C * C; ++k) {
        const double p = pair(t, k / C, k % C);
        if (each) pairs[t * C * C + k] = T(p);
        else sum[k] += p;
      }
    }
    if (!each) {
      for (int k = 0; k < C * C; ++k) pairs[k] = T(sum[k]);
    }
  }

  // Prefix and suffix means of the tangent, then Cov(indicator, total tangent).
  void tangent(const T* v_unary, const T* v_pair, T* g_unary, double* g_pair) {
    forward();
    backward();
    if (!possible() || N == 0) return;
    std::vector<double> h(N * C), g(N * C, 0.0);
    auto v = [&](int64_t t, int c) { return v_unary ? double(v_unary[t * C + c]) : 0.0; };
    auto w = [&](int i, int j) { return v_pair ? double(v_pair[i * C + j]) : 0.0; };
    for (int64_t t = 0; t < N; ++t) {
      for (int j = 0; j < C; ++j) {
        double mean = 0, mass = 0;
        const double reached = row(alpha, t)[j] - double(in.u(id, t)[j]);
        for (int i = 0; t && reached > kNegInf<double> && i < C; ++i) {
          const double score = row(alpha, t - 1)[i] + double(in.pair(id, t - 1)[i * C + j]);
          const double p = std::exp(score - reached);
          if (p > 0) {
            mean += p * (h[(t - 1) * C + i] + w(i, j));
            mass += p;
          }
        }
        h[t * C + j] = v(t, j) + (mass > 0 ? mean / mass : 0.0);
      }
      centre(h, t);
    }
    for (int64_t t = N - 2; t >= 0; --t) {
      for (int i = 0; i < C; ++i) {
        double mean = 0, mass = 0;
        const double reached = row(beta, t)[i];
        for (int j = 0; reached > kNegInf<double> && j < C; ++j) {
          const double score = double(in.u(id, t + 1)[j]) + double(in.pair(id, t)[i * C + j]);
          const double p = std::exp(score + row(beta, t + 1)[j] - reached);
          if (p > 0) {
            mean += p * (w(i, j) + v(t + 1, j) + g[(t + 1) * C + j]);
            mass += p;
          }
        }
        g[t * C + i] = mass > 0 ? mean / mass : 0.0;
      }
      centre(g, t);
    }
    for (int64_t t = 0; t < N; ++t) {
      for (int c = 0; c < C; ++c) {
        const double p = unary(t, c);
        g_unary[t * C + c] = T(p > 0 ? p * (h[t * C + c] + g[t * C + c]) : 0.0);
      }
      if (t + 1 < N) tangent_step(t, h, g, v, w, g_pair);
    }
  }

  // State at t with largest alpha_t + scores of leading to `next` (or at the end, next < 0).
  template <class Choose>
  void trace(int64_t* states, const Choose& choose) {
    int next = -1;
    for (int64_t t = N - 1; t >= 0; --t) {
      const double* now = row(alpha, t);
      for (int i = 0; i < C; ++i) {
        buffer[i] = now[i] + (next < 0 ? 0.0 : double(in.pair(id, t)[i * C + next]));
      }
      next = choose(buffer.data(), t);
      states[t] = next;
    }
  }

  // alpha becomes the best score of a prefix ending in each state.
  void best() {
    alpha.resize(N * C);
    for (int64_t t = 0; t < N; ++t) {
      const T* u = in.u(id, t);
      double* now = row(alpha, t);
      if (t) {
        const T* tr = in.pair(id, t - 1);
        const double* last = row(alpha, t - 1);
        for (int j = 0; j < C; ++j) now[j] = kNegInf<double>;
        for (int i = 0; i < C; ++i) {
          for (int j = 0; j < C; ++j) {
            const double x = last[i] + double(tr[i * C + j]);
            now[j] = x > now[j] ? x : now[j];
          }
        }
        for (int j = 0; j < C; ++j) now[j] += u[j];
      } else {
        for (int j = 0; j < C; ++j) now[j] = u[j];
      }
    }
  }

 private:
  void centre(std::vector<double>& x, int64_t t) {
    double mean = 0;
    for (int c = 0; c < C; ++c) {
      const double p = unary(t, c);
      if (p > 0) mean += p * x[t * C + c];
    }
    for (int c = 0; c < C; ++c) x[t * C + c] -= mean;
  }

  template <class V, class P>
  void tangent_step(int64_t t, const std::vector<double>& h, const std::vector<double>& g,
                    const V& v, const P& w, double* g_pair) {
    double mean = 0;
    auto total = [&](int i, int j) {
      return h[t * C + i] + w(i, j) + v(t + 1, j) + g[(t + 1) * C + j];
    };
    for (int k = 0; k < C * C; ++k) {
      const double p = pair(t, k / C, k % C);
      if (p > 0) mean += p * total(k / C, k % C);
    }
    for (int k = 0; k < C * C; ++k) {
      const double p = pair(t, k / C, k % C);
      if (p > 0) g_pair[k] += p * (total(k / C, k % C) - mean);
    }
  }
};

}  // namespace lawful::chain
