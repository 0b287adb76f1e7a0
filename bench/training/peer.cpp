// Steps of training by lazy arrays, or by compiled ops; spoken to over pipes by board.py.
//
//   training_peer lazy|lazy-in-two|op THREADS    in two: the loss is realized first, the updates then
//   load MODEL FOLDER      reads the parameters that board.py wrote; one step compiles; answers "ok"
//   run STEPS              seconds of each step
//   loss                   of the last step
#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "bench/touched_buffer.h"
#include "xhat.h"
#include "xhat/lazy.h"

namespace {

namespace bench = xhat::bench;
using xhat::Argument;
using xhat::CompiledOp;
using xhat::Error;
using xhat::TensorView;

constexpr float kRate = 0.01f;  // of descent; as in in_torch.py

struct Data {
  std::vector<int64_t> shape;
  std::unique_ptr<bench::TouchedBuffer> memory;
  size_t elements() const {
    size_t n = 1;
    for (int64_t e : shape) n *= static_cast<size_t>(e);
    return n;
  }
  TensorView floats() const { return {reinterpret_cast<float*>(memory->data()), std::span<const int64_t>(shape)}; }
  TensorView shaped(const std::vector<int64_t>& as) const {
    return {reinterpret_cast<float*>(memory->data()), std::span<const int64_t>(as)};
  }
  TensorView whole_numbers() const { return {reinterpret_cast<int64_t*>(memory->data()), std::span<const int64_t>(shape)}; }
};

// Tensors of one model: "x" and "labels", and parameters in the order of the file.
struct Model {
  std::string name;
  Data x, labels;
  std::vector<std::string> names;
  std::vector<Data> parameters;
};

Data read(const std::string& path, std::vector<int64_t> shape, size_t width) {
  Data d{std::move(shape), nullptr};
  d.memory = std::make_unique<bench::TouchedBuffer>(d.elements() * width);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(d.memory->data()), static_cast<std::streamsize>(d.elements() * width)))
    throw Error("cannot read " + path);
  return d;
}

Model load(const std::string& name, const std::string& folder) {
  Model m;
  m.name = name;
  std::ifstream list(folder + "/" + name + ".txt");
  for (std::string line; std::getline(list, line);) {
    std::istringstream in(line);
    std::string tensor;
    in >> tensor;
    std::vector<int64_t> shape;
    for (int64_t e = 0; in >> e;) shape.push_back(e);
    Data d = read(folder + "/" + name + "." + tensor, shape, tensor == "labels" ? sizeof(int64_t) : sizeof(float));
    if (tensor == "x")
      m.x = std::move(d);
    else if (tensor == "labels")
      m.labels = std::move(d);
    else
      m.names.push_back(tensor), m.parameters.push_back(std::move(d));
  }
  return m;
}

struct Steps {
  std::function<void()> step;
  std::function<double()> loss;
};

Steps by_lazy_arrays(const std::shared_ptr<Model>& m, bool in_two) {
  using namespace xhat::lazy;
  struct State {
    std::shared_ptr<Model> model;
    Array x, labels, loss;
    std::vector<Array> parameters;
  };
  auto s = std::make_shared<State>();
  s->model = m;
  s->x = array(m->x.floats());
  s->labels = unsqueeze(array(m->labels.whole_numbers()), 1);
  for (const Data& d : m->parameters) s->parameters.push_back(array(d.floats()));
  auto scores = [](const State& t) {
    const std::vector<Array>& p = t.parameters;
    Array h = t.x;
    size_t i = 0;
    for (; p[i].rank() == 4; i += 2)
      h = pool(relu(conv(h, p[i], {.padding = {1}}) + reshape(p[i + 1], {1, p[i + 1].size(0), 1, 1})), {2, 2});
    if (h.rank() == 4) h = reshape(h, {h.size(0), -1});
    for (; i < p.size(); i += 2) {
      h = matmul(h, p[i]) + p[i + 1];
      if (i + 2 < p.size()) h = relu(h);
    }
    return h;
  };
  return {[s, scores, in_two] {
            s->loss = -mean(gather(log_softmax(scores(*s)), 1, s->labels));
            std::vector<Array> together = {s->loss};
            {
              const std::vector<Array> gradients = grad(s->loss, s->parameters);
              if (in_two) s->loss.realize();
              for (size_t i = 0; i < s->parameters.size(); ++i) {
                s->parameters[i] -= kRate * gradients[i];
                together.push_back(s->parameters[i]);
              }
            }
            realize(together);
          },
          [s] { return s->loss.item(); }};
}

// The loss as an op, written as its language has it.
std::string text_of(const Model& m) {
  std::string head = "op net(image: f32[" + std::string(m.x.shape.size() == 4 ? "N,C0,Y0,X0" : "N,D0") + "] const, t: i64[N]", body,
              last = "image";
  size_t i = 0;
  int layer = 0;
  auto number = [](auto n) { return std::to_string(n); };
  int64_t rows = m.x.shape.size() == 4 ? m.x.shape[2] : 0;
  for (; m.parameters[i].shape.size() == 4; i += 2, ++layer) {
    const std::string l = number(layer), next = number(layer + 1);
    head += ", " + m.names[i] + ": f32[C" + next + ",C" + l + ",3,3], " + m.names[i + 1] + ": f32[C" + next + "]";
    body += "  a" + l + "[n,o,y in 0.." + number(rows) + ",x in 0.." + number(rows) + "] = relu(sum(c,i,j: " + last +
            "[n,c,y+i-1,x+j-1 else 0] * " + m.names[i] + "[o,c,i,j]) + " + m.names[i + 1] + "[o])\n";
    rows /= 2;
    body += "  p" + l + "[n,o,y in 0.." + number(rows) + ",x in 0.." + number(rows) + "] = max(i in 0..2, j in 0..2: a" + l +
            "[n,o,2*y+i,2*x+j])\n";
    last = "p" + l;
  }
  const bool images = layer > 0;
  for (; i < m.parameters.size(); i += 2, ++layer) {
    const std::string l = number(layer), next = number(layer + 1), w = m.names[i], b = m.names[i + 1];
    const bool flat = images && last[0] == 'p';
    const bool end = i + 2 == m.parameters.size();
    head += ", " + w + ": f32[" + (flat ? "C" + l + "," + number(rows) + "," + number(rows) : "D" + l) + ",D" + next + "], " + b +
            ": f32[D" + next + "]";
    const std::string product =
        flat ? "sum(c,y,x: " + last + "[n,c,y,x] * " + w + "[c,y,x,j])" : "sum(k: " + last + "[n,k] * " + w + "[k,j])";
    body += "  h" + l + "[n,j] = " + (end ? product + " + " + b + "[j]" : "relu(" + product + " + " + b + "[j])") + "\n";
    last = "h" + l;
  }
  return head + ") -> (loss) {\n" + body + "  m[n] = max(j: " + last + "[n,j])\n  e[n] = log(sum(j: exp(" + last +
         "[n,j] - m[n]))) + m[n]\n" + "  loss = sum(n: e[n] - " + last + "[n,t[n]]) / N\n}";
}

Steps by_ops(const std::shared_ptr<Model>& m, int threads) {
  struct State {
    std::shared_ptr<Model> model;
    CompiledOp op, update;
    std::vector<Argument> forward, backward, updated;
    std::vector<Data> gradients;
    std::deque<std::string> names;  // that arguments point to
    xhat::Stash stash;
    float loss = 0;
  };
  auto s = std::make_shared<State>();
  s->model = m;
  s->op = xhat::compile(xhat::parse_op(text_of(*m)), {.threads = threads});
  s->forward = {{"image", m->x.floats()}, {"t", m->labels.whole_numbers()}, {"loss", TensorView(&s->loss, {})}};
  std::string head = "op update(", results, body;
  const xhat::Program& op = s->op.program();
  for (size_t i = 0; i < m->parameters.size(); ++i) {
    const std::string& name = m->names[i];
    const size_t rank = op.tensor(*op.find(name)).shape.size();
    std::vector<int64_t> shape = m->parameters[i].shape;
    if (rank != shape.size()) {  // the first layer behind images: by channel, row and column
      const int64_t side = m->x.shape[2] / 4;
      shape = {shape[0] / (side * side), side, side, shape[1]};
    }
    s->gradients.push_back({shape, std::make_unique<bench::TouchedBuffer>(m->parameters[i].elements() * sizeof(float))});
    const TensorView w = m->parameters[i].shaped(s->gradients[i].shape);
    s->forward.push_back({name, w});
    const std::string& gradient = s->names.emplace_back("grad_" + name);
    s->backward.push_back({gradient, s->gradients[i].floats()});
    const int64_t count = static_cast<int64_t>(m->parameters[i].elements());
    const std::string n = "N" + std::to_string(i);
    head += (i ? ", " : "") + name + ": f32[" + n + "], grad_" + name + ": f32[" + n + "]";
    results += (i ? ", " : "") + name + "_new";
    body += "  " + name + "_new[i] = " + name + "[i] - 0.01 * grad_" + name + "[i]\n";
    const TensorView flat(reinterpret_cast<float*>(m->parameters[i].memory->data()), {count});
    s->updated.push_back({name, flat});
    s->updated.push_back({gradient, TensorView(reinterpret_cast<float*>(s->gradients[i].memory->data()), {count})});
    s->updated.push_back({s->names.emplace_back(name + "_new"), flat});
  }
  s->update = xhat::compile(xhat::parse_op(head + ") -> (" + results + ") {\n" + body + "}"), {.threads = threads, .differentiate = false});
  return {[s] {
            s->op.forward(s->forward, s->stash);
            s->op.backward(s->backward, s->stash);
            s->update.infer(s->updated);
          },
          [s] { return static_cast<double>(s->loss); }};
}

int serve(const std::string& engine, int threads) {
  xhat::lazy::options().compile.threads = threads;
  Steps steps;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string command;
    in >> command;
    if (command == "load") {
      std::string name, folder;
      in >> name >> folder;
      auto model = std::make_shared<Model>(load(name, folder));
      steps = engine == "op" ? by_ops(model, threads) : by_lazy_arrays(model, engine == "lazy-in-two");
      steps.step();
      std::puts("ok");
    } else if (command == "run") {
      int count = 0;
      in >> count;
      for (int i = 0; i < count; ++i) {
        const auto start = std::chrono::steady_clock::now();
        steps.step();
        std::printf("%s%.9f", i ? " " : "", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      std::puts("");
    } else if (command == "loss") {
      std::printf("%.9g\n", steps.loss());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return std::fprintf(stderr, "training_peer lazy|lazy-in-two|op THREADS\n"), 2;
  try {
    return serve(words[1], std::atoi(words[2]));
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
