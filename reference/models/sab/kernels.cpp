// Fused steps of Sparse Attentive Backtracking; `scan.py` has the same steps in plain torch operations.
//
// Everything between two matrix products of a step is one pass here. Threads share the batch, and no sum crosses
// sequences, so results don't depend on the number of threads. Compiled and loaded by `kernels.py`.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Mirrors `Buffers` in kernels.py.
template <typename T>
struct Buffers {
    int64_t batch, hidden, width, ranks, read, row_stride, capacity, shift, threads;
    T *gates, *cells, *hiddens, *outputs, *reads, *queries;  // [T(+1), B, ...]
    int64_t* rows;
    T *weights, *inverse;  // [T, B, row_stride], [T, B]
    T *values, *keys, *w3, *scores;  // [N, B, H], [N, B, D], [D], [B, N]
    T denominator, margin;
    T *hidden_gradient, *read_gradient, *value_gradient, *key_gradient, *cell_gradient, *phi;  // phi: [B, D]
};

template <typename T>
static inline T exponential(T x) {
    using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    constexpr bool single = sizeof(T) == 4;
    constexpr T limit = single ? T(87) : T(708);
    constexpr T round = single ? T(12582912.0) : T(6755399441055744.0);  // 1.5 * 2^mantissa: rounds to integers
    constexpr T high = single ? T(0.693359375) : T(6.93145751953125e-1);
    constexpr T low = single ? T(-2.12194440e-4) : T(1.42860682030941723212e-6);
    x = std::min(std::max(x, -limit), limit);
    const T shifted = x * T(1.44269504088896340736) + round;
    const Int power = std::bit_cast<Int>(shifted) - std::bit_cast<Int>(round);
    const T whole = shifted - round;
    const T r = (x - whole * high) - whole * low;
    T p;
    if constexpr (single) {
        p = T(1.9875691500e-4);
        p = p * r + T(1.3981999507e-3);
        p = p * r + T(8.3334519073e-3);
        p = p * r + T(4.1665795894e-2);
        p = p * r + T(1.6666665459e-1);
        p = p * r + T(5.0000001201e-1);
        p = p * r * r + r + T(1);
    } else {
        p = T(1) / T(6227020800.0);
        p = p * r + T(1) / T(479001600.0);
        p = p * r + T(1) / T(39916800.0);
        p = p * r + T(1) / T(3628800.0);
        p = p * r + T(1) / T(362880.0);
        p = p * r + T(1) / T(40320.0);
        p = p * r + T(1) / T(5040.0);
        p = p * r + T(1) / T(720.0);
        p = p * r + T(1) / T(120.0);
        p = p * r + T(1) / T(24.0);
        p = p * r + T(1) / T(6.0);
        p = p * r + T(0.5);
        p = p * r * r + r + T(1);
    }
    constexpr Int bias = single ? 127 : 1023, mantissa = single ? 23 : 52;
    return p * std::bit_cast<T>(Int((power + bias) << mantissa));
}

template <typename T>
static inline T sigmoid(T x) { return T(1) / (T(1) + exponential(-x)); }

template <typename T>
static inline T hyperbolic(T x) { return T(1) - T(2) / (T(1) + exponential(x + x)); }

// Gates (output, input, forget, candidate) to activations in place; c_t and the LSTM output.
template <typename T>
static void cell_forward(const Buffers<T>& s, int64_t t) {
    const int64_t H = s.hidden;
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t b = 0; b < s.batch; ++b) {
        T* __restrict__ o = s.gates + (t * s.batch + b) * 4 * H;
        T* __restrict__ i = o + H;
        T* __restrict__ f = i + H;
        T* __restrict__ g = f + H;
        const T* __restrict__ before = s.cells + (t * s.batch + b) * H;
        T* __restrict__ c = s.cells + ((t + 1) * s.batch + b) * H;
        T* __restrict__ out = s.outputs + (t * s.batch + b) * H;
        T* __restrict__ h = s.hiddens + ((t + 1) * s.batch + b) * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) {
            o[j] = sigmoid(o[j]);
            i[j] = sigmoid(i[j]);
            f[j] = sigmoid(f[j]);
            g[j] = hyperbolic(g[j]);
            c[j] = f[j] * before[j] + i[j] * g[j];
            h[j] = out[j] = o[j] * hyperbolic(c[j]);
        }
    }
}

// Copies a state into the store and turns its key, 2 W1 m, into e^{2 W1 m}.
template <typename T>
static void store(const Buffers<T>& s, int64_t t, int64_t n) {
    const int64_t H = s.hidden, D = s.width;
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t from = s.shift ? (b + 1) % s.batch : b;
        std::memcpy(s.values + (n * s.batch + b) * H, s.hiddens + ((t + 1) * s.batch + from) * H, H * sizeof(T));
        T* __restrict__ key = s.keys + (n * s.batch + b) * D;
#pragma omp simd
        for (int64_t j = 0; j < D; ++j) key[j] = exponential(key[j]);
    }
}

// Scores of n memories of sequences first..last-1, up to a constant: -2 sum_j w3_j / (1 + e^{2p} e^{2q}).
template <typename T>
static inline void score(const Buffers<T>& s, int64_t t, int64_t n, int64_t first, int64_t last) {
    const int64_t D = s.width;
    for (int64_t b = first; b < last; ++b) {
        T* __restrict__ query = s.queries + (t * s.batch + b) * D;
#pragma omp simd
        for (int64_t j = 0; j < D; ++j) query[j] = exponential(query[j]);
    }
    const T* __restrict__ w = s.w3;
    for (int64_t m = 0; m < n; ++m)
        for (int64_t b = first; b < last; ++b) {
            const T* __restrict__ key = s.keys + (m * s.batch + b) * D;
            const T* __restrict__ query = s.queries + (t * s.batch + b) * D;
            T sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < D; ++j) sum += w[j] / (T(1) + key[j] * query[j]);
            s.scores[b * s.capacity + m] = T(-2) * sum;
        }
}

// Scores, the best `ranks` of them (earliest first among equals), weights, s_t and h_t.
template <typename T>
static void sparse_forward(const Buffers<T>& s, int64_t t, int64_t n) {
    const int64_t H = s.hidden, ranks = s.ranks;
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t part = 0; part < s.threads; ++part) {
        const int64_t first = s.batch * part / s.threads, last = s.batch * (part + 1) / s.threads;
        score(s, t, n, first, last);
        for (int64_t b = first; b < last; ++b) {
            const T* a = s.scores + b * s.capacity;
            int64_t* row = s.rows + (t * s.batch + b) * s.row_stride;
            T* best = s.weights + (t * s.batch + b) * s.row_stride;
            int64_t filled = 0;
            for (int64_t m = 0; m < n; ++m) {
                if (filled == ranks && !(a[m] > best[ranks - 1])) continue;
                int64_t at = filled < ranks ? filled++ : ranks - 1;
                for (; at > 0 && a[m] > best[at - 1]; --at) {
                    best[at] = best[at - 1];
                    row[at] = row[at - 1];
                }
                best[at] = a[m];
                row[at] = m * s.batch + b;
            }
            const T threshold = best[ranks - 1] + s.margin;
            T total = 0;
            for (int64_t k = 0; k < ranks; ++k) {
                best[k] = k < s.read ? std::max(best[k] - threshold, T(0)) : T(0);
                total += best[k];
            }
            total += s.denominator;
            const T inverse = total > 0 ? T(1) / total : T(0);
            s.inverse[t * s.batch + b] = inverse;
            T* __restrict__ read = s.reads + (t * s.batch + b) * H;
            T* __restrict__ h = s.hiddens + ((t + 1) * s.batch + b) * H;
            for (int64_t k = 0; k < s.read; ++k) {
                best[k] = total > 0 ? best[k] / total : T(0);
                const T weight = best[k];
                const T* __restrict__ value = s.values + row[k] * H;
#pragma omp simd
                for (int64_t j = 0; j < H; ++j) read[j] += weight * value[j];
            }
#pragma omp simd
            for (int64_t j = 0; j < H; ++j) h[j] += read[j];
        }
    }
}

// Softmax over all n memories; the weights go to `weights_NB`.
template <typename T>
static void dense_forward(const Buffers<T>& s, int64_t t, int64_t n, T* weights_NB) {
    const int64_t H = s.hidden;
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t part = 0; part < s.threads; ++part) {
        const int64_t first = s.batch * part / s.threads, last = s.batch * (part + 1) / s.threads;
        score(s, t, n, first, last);
        for (int64_t b = first; b < last; ++b) {
            T* __restrict__ a = s.scores + b * s.capacity;
            T most = a[0], total = 0;
            for (int64_t m = 1; m < n; ++m) most = std::max(most, a[m]);
#pragma omp simd reduction(+ : total)
            for (int64_t m = 0; m < n; ++m) total += a[m] = exponential(a[m] - most);
            T* __restrict__ read = s.reads + (t * s.batch + b) * H;
            T* __restrict__ h = s.hiddens + ((t + 1) * s.batch + b) * H;
            for (int64_t m = 0; m < n; ++m) {
                const T weight = weights_NB[m * s.batch + b] = a[m] / total;
                const T* __restrict__ value = s.values + (m * s.batch + b) * H;
#pragma omp simd
                for (int64_t j = 0; j < H; ++j) read[j] += weight * value[j];
            }
#pragma omp simd
            for (int64_t j = 0; j < H; ++j) h[j] += read[j];
        }
    }
}

// Adds the gradient of memory n, if there is one (n >= 0), to that of h_t.
template <typename T>
static void arrive(const Buffers<T>& s, int64_t t, int64_t n) {
    const int64_t H = s.hidden;
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t from = s.shift ? (b + s.batch - 1) % s.batch : b;
        const T* __restrict__ value = s.value_gradient + (n * s.batch + from) * H;
        T* __restrict__ state = s.hidden_gradient + (t * s.batch + b) * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) state[j] += value[j];
    }
}

// Gradient of one pair's score, `gradient`: to key, query and phi = tanh (for w3).
template <typename T>
static inline void pair(const Buffers<T>& s, T gradient, const T* __restrict__ key, const T* __restrict__ query,
                        T* __restrict__ to_key, T* __restrict__ to_query, T* __restrict__ phi) {
    const T* __restrict__ w = s.w3;
#pragma omp simd
    for (int64_t j = 0; j < s.width; ++j) {
        const T half = T(1) / (T(1) + key[j] * query[j]);  // (1 - tanh) / 2
        const T slope = gradient * T(2) * w[j] * half * (T(1) - half);
        to_key[j] += slope;
        to_query[j] += slope;
        phi[j] += gradient * (T(1) - (half + half));
    }
}

template <typename T>
static inline T dot(const T* __restrict__ x, const T* __restrict__ y, int64_t n) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) sum += x[j] * y[j];
    return sum;
}

// Gradient of s_t to memories, keys and the query, whose gradient takes the query's place.
// `weights_NB` null: the sparse read; else the dense read of n memories.
template <typename T>
static void read_backward(const Buffers<T>& s, int64_t t, int64_t n, const T* weights_NB, T* scratch) {
    const int64_t H = s.hidden, D = s.width, B = s.batch;
    const bool sparse = weights_NB == nullptr;
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t b = 0; b < B; ++b) {
        const int64_t at = t * B + b, count = sparse ? s.ranks : n;
        T* read = s.read_gradient + at * H;
        const T* state = s.hidden_gradient + at * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) read[j] += state[j];
        T* to_score = s.scores + b * std::max(s.capacity, s.row_stride);
        T mean = 0, sum = 0;
        for (int64_t k = 0; k < count; ++k) {
            const int64_t row = sparse ? s.rows[at * s.row_stride + k] : k * B + b;
            const T weight = sparse ? s.weights[at * s.row_stride + k] : weights_NB[row];
            to_score[k] = weight > 0 ? dot(s.values + row * H, read, H) : T(0);
            mean += weight * to_score[k];
        }
        for (int64_t k = 0; k < count; ++k) {
            const T weight = sparse ? s.weights[at * s.row_stride + k] : weights_NB[k * B + b];
            to_score[k] = weight > 0 ? (to_score[k] - mean) * (sparse ? s.inverse[at] : weight) : T(0);
            sum += to_score[k];
        }
        if (sparse) to_score[s.ranks - 1] -= sum;
        T* query = s.queries + at * D;
        T* to_query = scratch + b * D;
        std::fill(to_query, to_query + D, T(0));
        for (int64_t k = 0; k < count; ++k) {
            const int64_t row = sparse ? s.rows[at * s.row_stride + k] : k * B + b;
            const T weight = sparse ? s.weights[at * s.row_stride + k] : weights_NB[row];
            T* __restrict__ value = s.value_gradient + row * H;
#pragma omp simd
            for (int64_t j = 0; j < H; ++j) value[j] += weight * read[j];
            pair(s, to_score[k], s.keys + row * D, query, s.key_gradient + row * D, to_query, s.phi + b * D);
        }
        std::copy(to_query, to_query + D, query);
    }
}

// Gradients of the gates in their place; cell_gradient goes from c_t to c_{t-1}.
template <typename T>
static void cell_backward(const Buffers<T>& s, int64_t t) {
    const int64_t H = s.hidden;
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t b = 0; b < s.batch; ++b) {
        T* __restrict__ o = s.gates + (t * s.batch + b) * 4 * H;
        T* __restrict__ i = o + H;
        T* __restrict__ f = i + H;
        T* __restrict__ g = f + H;
        const T* __restrict__ before = s.cells + (t * s.batch + b) * H;
        const T* __restrict__ c = s.cells + ((t + 1) * s.batch + b) * H;
        const T* __restrict__ state = s.hidden_gradient + (t * s.batch + b) * H;
        T* __restrict__ cell = s.cell_gradient + b * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) {
            const T squashed = hyperbolic(c[j]);
            const T to_cell = cell[j] + state[j] * o[j] * (T(1) - squashed * squashed);
            o[j] = state[j] * squashed * o[j] * (T(1) - o[j]);
            const T candidate = g[j];
            g[j] = to_cell * i[j] * (T(1) - candidate * candidate);
            i[j] = to_cell * candidate * i[j] * (T(1) - i[j]);
            cell[j] = to_cell * f[j];
            f[j] = to_cell * before[j] * f[j] * (T(1) - f[j]);
        }
    }
}

#define EXPORT(suffix, T)                                                                                         \
    void cell_forward_##suffix(const Buffers<T>* s, int64_t t) { cell_forward(*s, t); }                           \
    void store_##suffix(const Buffers<T>* s, int64_t t, int64_t n) { store(*s, t, n); }                           \
    void sparse_forward_##suffix(const Buffers<T>* s, int64_t t, int64_t n) { sparse_forward(*s, t, n); }         \
    void dense_forward_##suffix(const Buffers<T>* s, int64_t t, int64_t n, T* w) { dense_forward(*s, t, n, w); }  \
    void arrive_##suffix(const Buffers<T>* s, int64_t t, int64_t n) { arrive(*s, t, n); }                         \
    void read_backward_##suffix(const Buffers<T>* s, int64_t t, int64_t n, const T* w, T* scratch) {              \
        read_backward(*s, t, n, w, scratch);                                                                      \
    }                                                                                                             \
    void cell_backward_##suffix(const Buffers<T>* s, int64_t t) { cell_backward(*s, t); }

extern "C" {
EXPORT(float32, float)
EXPORT(float64, double)
}
