// Ops of any length, for what planning takes and how it grows.
#pragma once
#include <string>

namespace xhat::bench {

// y = sin(sin(…x)): a value in every step, each inside the next.
inline std::string chain_of_sines(int steps) {
  std::string text = "op chain(x: f32[N]) -> (y) {\n";
  for (int k = 0; k < steps; ++k) {
    std::string from = k == 0 ? "x" : "v" + std::to_string(k - 1);
    text += (k + 1 == steps ? "y" : "v" + std::to_string(k)) + "[i] = sin(" + from + "[i])\n";
  }
  return text + "}\n";
}

// v' = sin(v)*v: every value used twice, so that a walk that forgets where it was takes 2^steps.
// x^x^x^…: every power has a condition of its own in the gradient, which compares all of the next power.
inline std::string tower_of_powers(int steps) {
  std::string body = "x[i]";
  for (int k = 1; k < steps; ++k) body += "^x[i]";
  return "op f(x: f32[N]) -> (y) { y[i] = " + body + " }";
}

inline std::string sum_of_terms(int terms) {
  std::string body = "x[i]";
  for (int k = 1; k < terms; ++k) body += " + " + std::to_string(k) + "*x[i]^" + std::to_string(k % 5);
  return "op f(x: f32[N]) -> (y) { y[i] = " + body + " }";
}

inline std::string chain_of_products(int steps) {
  std::string text = "op shared(x: f32[N]) -> (y) {\n";
  for (int k = 0; k < steps; ++k) {
    std::string from = k == 0 ? "x[i]" : "v" + std::to_string(k - 1) + "[i]";
    text += (k + 1 == steps ? "y" : "v" + std::to_string(k)) + "[i] = sin(" + from + ") * " + from + "\n";
  }
  return text + "}\n";
}

// Layer norms side by side, each of x with weights of its own, added up: per block two sums, two broadcasts, 17 nodes.
inline std::string row_of_norms(int blocks) {
  std::string inputs, text, sum;
  for (int k = 0; k < blocks; ++k) {
    std::string n = std::to_string(k);
    inputs += ", g" + n + ": f32[D], b" + n + ": f32[D]";
    text += "m" + n + "[n] = sum(d: x[n,d] * g" + n + "[d]) / D\n";
    text += "c" + n + "[n,d] = x[n,d] * g" + n + "[d] - m" + n + "[n]\n";
    text += "s" + n + "[n] = sum(d: c" + n + "[n,d]^2) / D\n";
    text += "h" + n + "[n,d] = c" + n + "[n,d] / sqrt(s" + n + "[n] + 1e-5) + b" + n + "[d]\n";
    sum += (k > 0 ? " + " : "") + ("tanh(h" + n + "[n,d])");
  }
  return "op norms(x: f32[N,D]" + inputs + ") -> (y) {\n" + text + "y[n,d] = " + sum + "\n}\n";
}

// Normalized perceptrons one behind the other, with a residual stream: layers as networks have them, each with values to share of its own.
inline std::string residual_layers(int layers) {
  std::string inputs, text, x = "x";
  for (int k = 0; k < layers; ++k) {
    const std::string n = std::to_string(k);
    inputs += ", g" + n + ": f32[D], w" + n + ": f32[D,F], u" + n + ": f32[F,D]";
    text += "m" + n + "[n] = sum(d: " + x + "[n,d]) / D\n";
    text += "v" + n + "[n] = sum(d: (" + x + "[n,d] - m" + n + "[n])^2) / D\n";
    text += "h" + n + "[n,d] = (" + x + "[n,d] - m" + n + "[n]) / sqrt(v" + n + "[n] + 1e-5) * g" + n + "[d]\n";
    text += "f" + n + "[n,f] = tanh(sum(d: h" + n + "[n,d] * w" + n + "[d,f]))\n";
    text += "x" + n + "[n,d] = " + x + "[n,d] + sum(f: f" + n + "[n,f] * u" + n + "[f,d])\n";
    x = "x" + n;
  }
  return "op layers(x: f32[N,D]" + inputs + ") -> (y) {\n" + text + "y[n,d] = " + x + "[n,d]\n}\n";
}

}  // namespace xhat::bench
