// consumer FOLDER: runs ops forward and backward at several batch sizes, from several threads, and writes what went in and what came
// out as .npy files, for xhat run to compute the same.
#include <Eigen/Dense>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bag.hpp"
#include "batch_norm.hpp"
#include "polynomial.hpp"
#include "product.hpp"
#include "rms_norm.hpp"
#include "scaled.hpp"

#define EXPECT(what) \
  if (!(what)) std::printf("main.cpp:%d: %s\n", __LINE__, #what), std::exit(1)

namespace {

namespace ops = xhat_ops;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void write(const std::string& path, const char* type, const std::string& shape, const void* data, size_t bytes) {
  std::string head = std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  head.resize((head.size() + 11 + 63) / 64 * 64 - 11, ' ');
  head += '\n';
  std::ofstream out(path, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8);
  char size[2] = {static_cast<char>(head.size() % 256), static_cast<char>(head.size() / 256)};
  out.write(size, 2) << head;
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}
void write(const std::string& path, const std::string& shape, const std::vector<float>& v) {
  write(path, "<f4", shape, v.data(), 4 * v.size());
}

std::vector<float> numbers(size_t n, unsigned seed) {
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1;
  return v;
}

void batch_norm(const std::string& folder, int64_t n) {
  const size_t elements = static_cast<size_t>(n) * 5 * 6 * 7;
  auto x = numbers(elements, 1), gamma = numbers(5, 2), beta = numbers(5, 3), dy = numbers(elements, 4);
  std::vector<float> y(elements), again(elements), dx(elements), dgamma(5), dbeta(5);
  ops::batch_norm::dims_type dims = {n, 5, 6, 7};
  ops::batch_norm::stash_type stash;
  ops::batch_norm::forward(dims, x, gamma, beta, 1e-5f, y, stash);
  ops::batch_norm::infer(dims, x, gamma, beta, 1e-5f, again);
  EXPECT(std::memcmp(y.data(), again.data(), 4 * elements) == 0);
  ops::batch_norm::backward(dims, x, gamma, 1e-5f, dy, dx, dgamma, dbeta, stash);
  ops::batch_norm::backward(dims, x, gamma, 1e-5f, dy, again, nullptr, nullptr, stash);  // the stash may be read again
  EXPECT(std::memcmp(dx.data(), again.data(), 4 * elements) == 0);
  if (folder.empty()) return;
  const std::string shape = std::to_string(n) + ", 5, 6, 7", at = folder + "/";
  write(at + "x.npy", shape, x);
  write(at + "gamma.npy", "5,", gamma);
  write(at + "beta.npy", "5,", beta);
  write(at + "dy.npy", shape, dy);
  write(at + "out_y.npy", shape, y);
  write(at + "out_grad_x.npy", shape, dx);
  write(at + "out_grad_gamma.npy", "5,", dgamma);
  write(at + "out_grad_beta.npy", "5,", dbeta);
}

void bag(const std::string& folder, int64_t n) {
  auto table = numbers(50 * 24, 5), dy = numbers(static_cast<size_t>(n) * 24, 6);
  std::vector<int32_t> ids(static_cast<size_t>(n) * 3);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % 50);
  std::vector<float> y(dy.size()), dtable(table.size());
  ops::bag::dims_type dims = {50, 24, n, 3};
  ops::bag::stash_type stash;
  ops::bag::forward(dims, table, ids, y, stash);
  ops::bag::backward(dims, ids, dy, dtable, stash);
  const std::string rows = std::to_string(n), at = folder + "/";
  write(at + "table.npy", "50, 24", table);
  write(at + "ids.npy", "<i4", rows + ", 3", ids.data(), 4 * ids.size());
  write(at + "dy.npy", rows + ", 24", dy);
  write(at + "out_y.npy", rows + ", 24", y);
  write(at + "out_grad_table.npy", "50, 24", dtable);

  // An index out of range is found before anything is written.
  ids[1] = 50;
  std::vector<float> untouched(y.size(), -1);
  EXPECT(bag_infer(&dims, table.data(), ids.data(), untouched.data()) == BAG_BAD_DATA);
  EXPECT(std::strstr(bag_message(), "out of range"));
  for (float v : untouched) EXPECT(v == -1);
}

// An op written in C++ (ops.cpp).
void rms_norm(const std::string& folder, int64_t n) {
  auto x = numbers(static_cast<size_t>(n) * 70, 7), gain = numbers(70, 8), dy = numbers(x.size(), 9);
  std::vector<float> y(x.size()), dx(x.size()), dgain(70);
  ops::rms_norm::stash_type stash;
  ops::rms_norm::forward({n, 70}, x, gain, y, stash);
  ops::rms_norm::backward({n, 70}, x, gain, dy, dx, dgain, stash);
  const std::string shape = std::to_string(n) + ", 70", at = folder + "/";
  write(at + "x.npy", shape, x);
  write(at + "gain.npy", "70,", gain);
  write(at + "dy.npy", shape, dy);
  write(at + "out_y.npy", shape, y);
  write(at + "out_grad_x.npy", shape, dx);
  write(at + "out_grad_gain.npy", "70,", dgain);
}

void polynomial() {
  std::vector<float> x = {-1, 0, 0.5f, 2}, w = {1, 2, 3, 4}, y(4), ones(4, 1), dx(4), dw(4);
  ops::polynomial::stash_type stash;
  ops::polynomial::forward({4}, x, w, y, stash);
  EXPECT((y == std::vector<float>{-2, 1, 3.25f, 49}));
  ops::polynomial::backward({4}, x, w, ones, dx, dw, stash);
  EXPECT((dx == std::vector<float>{8, 2, 8, 62} && dw == std::vector<float>{4, 1.5f, 5.25f, 7.125f}));
}

// Forward and backward of arrays with gaps: the middle columns of wider ones.
void any_sizes_and_strides() {
  for (auto [b, t, c] : {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 5}, {4, 9, 64}}) {
    const auto size = static_cast<size_t>(b * t * c), wide_row = static_cast<size_t>(c + 8);
    auto x = numbers(size, 1), w = numbers(static_cast<size_t>(c), 2), dy = numbers(size, 3);
    std::vector<float> y(size), dx(size), dw(w.size()), dw_again(w.size()), wide_x(wide_row * size / w.size()), wide_dy(wide_x),
        wide_y(wide_x), wide_dx(wide_x);
    auto at = [&](std::vector<float>& wide, size_t i) -> float& { return wide[i / w.size() * wide_row + i % w.size() + 4]; };
    for (size_t i = 0; i < size; ++i) at(wide_x, i) = x[i], at(wide_dy, i) = dy[i];
    const scaled_dims dims = {b, t, c};
    ops::scaled::stash_type stash;
    ops::scaled::forward(dims, x, w, y, stash);
    ops::scaled::backward(dims, x, w, dy, dx, dw, stash);
    auto middle = [&](auto& wide) {
      return ops::strided<std::remove_reference_t<decltype(wide[0])>>(wide.data() + 4, {t * (c + 8), c + 8, 1});
    };
    ops::scaled::forward(dims, middle(std::as_const(wide_x)), w, middle(wide_y), stash);
    ops::scaled::backward(dims, middle(std::as_const(wide_x)), w, middle(std::as_const(wide_dy)), middle(wide_dx), dw_again, stash);
    for (size_t i = 0; i < size; ++i) EXPECT(std::abs(at(wide_y, i) - y[i]) < 1e-5f && std::abs(at(wide_dx, i) - dx[i]) < 1e-5f);
    for (size_t i = 0; i < w.size(); ++i) EXPECT(std::abs(dw_again[i] - dw[i]) < 1e-4f);
    try {
      ops::scaled::infer(dims, {wide_x.data(), {1, 1}}, w, y);
      EXPECT(!"two strides for three dimensions were taken");
    } catch (const ops::error& e) {
      EXPECT(e.status() == SCALED_BAD_ARGUMENT);
    }
  }
}

void product_of_matrices() {
  for (int columns : {16, 48}) {  // the library was made for both
    Matrix a = Matrix::Random(33, 40), b = Matrix::Random(40, columns), c(33, columns);
    ops::product::infer({33, 40, columns}, a, b, c);
    EXPECT((c - a * b).cwiseAbs().maxCoeff() < 1e-4f);
    Eigen::Map<Matrix, 0, Eigen::OuterStride<>> gaps(a.data(), 16, 40, Eigen::OuterStride<>(80));
    try {
      ops::product::infer({16, 40, columns}, gaps, b, c);
      EXPECT(!"a map with gaps was taken");
    } catch (const ops::error& e) {
      EXPECT(e.status() == PRODUCT_BAD_ARGUMENT);
    }
  }
}

// Code for CUDA is there; what it does without a device is to say so. Memory of the host is none of the device's.
void on_a_gpu() {
  auto x = numbers(33 * 5 * 6 * 7, 1), g = numbers(5, 2), y = x;
  EXPECT(ops::batch_norm::cuda::stash_bytes({33, 5, 6, 7}) == 1024);
  try {
    ops::batch_norm::cuda::infer({32, 5, 6, 7}, nullptr, {x.data(), 1}, g.data(), g.data(), 1e-5f, y.data());
    EXPECT(!"an array of another size was taken");
  } catch (const ops::error& e) {
    EXPECT(e.status() == BATCH_NORM_BAD_ARGUMENT);
  }
  try {
    ops::batch_norm::cuda::infer({33, 5, 6, 7}, nullptr, x.data(), g.data(), g.data(), 1e-5f, ops::device_span<float>(y.data(), y.size()));
    EXPECT(!"memory of the host was taken");
  } catch (const ops::error& e) {
    EXPECT(e.status() == BATCH_NORM_NO_DEVICE || e.status() == BATCH_NORM_BAD_POINTER);
  }
}

void wrong_stashes() {
  auto x = numbers(2 * 5 * 6 * 7, 1), g = numbers(5, 2), y = x, dx = x;
  batch_norm_dims two = {2, 5, 6, 7}, one = {1, 5, 6, 7};
  std::vector<double> block(batch_norm_stash_bytes(&two) / 8 + 2);
  void* stash = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block.data()) + 15) / 16 * 16);
  auto backward = [&](const batch_norm_dims& d, void* s) {
    return batch_norm_backward(&d, x.data(), g.data(), 1e-5f, x.data(), dx.data(), nullptr, nullptr, s);
  };
  EXPECT(backward(two, stash) == BATCH_NORM_BAD_ARGUMENT && std::strstr(batch_norm_message(), "forward"));
  EXPECT(batch_norm_forward(&two, x.data(), g.data(), g.data(), 1e-5f, y.data(), stash) == BATCH_NORM_OK);
  EXPECT(backward(two, stash) == BATCH_NORM_OK);
  EXPECT(backward(one, stash) == BATCH_NORM_BAD_ARGUMENT && std::strstr(batch_norm_message(), "other sizes"));
  EXPECT(backward(two, nullptr) == BATCH_NORM_BAD_ARGUMENT);
  try {
    ops::batch_norm::infer({2, 5, 6, 7}, x, g, g, 1e-5f, std::vector<float>(7));
    EXPECT(!"an array of another size was taken");
  } catch (const ops::error& e) {
    EXPECT(std::strstr(e.what(), "y has 7 elements, but needs 420"));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (std::strlen(batch_norm_cpu_level()) == 0) {
    std::printf("%s\n", batch_norm_message());
    return 3;
  }
  const std::pair<const char*, void (*)(const std::string&, int64_t)> written[] = {
      {"batch_norm", batch_norm}, {"bag", bag}, {"rms_norm", rms_norm}};
  for (int64_t n : {1, 7, 32, 33, 100})
    for (auto [op, run] : written) {
      std::string folder = std::string(argv[1]) + "/" + op + "_" + std::to_string(n);
      std::filesystem::create_directories(folder);
      run(folder, n);
    }
  product_of_matrices();
  any_sizes_and_strides();
  polynomial();
  wrong_stashes();
  on_a_gpu();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 20; ++i) batch_norm("", 1 + (t * 7 + i) % 40);
    });
  for (std::thread& t : threads) t.join();
  std::printf("%s\n", batch_norm_cpu_level());
}
