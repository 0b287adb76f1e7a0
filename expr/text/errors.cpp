#include "expr/text/errors.h"

#include <algorithm>
#include <utility>

namespace xhat {
namespace {

std::vector<Error> in_order(std::vector<Error> all) {
  std::ranges::stable_sort(all, {}, [](const Error& e) { return std::pair(e.pos().line, e.pos().column); });
  return all;
}

}  // namespace

Errors::Errors(std::vector<Error> all) : Error(in_order(all).front()), all_(in_order(std::move(all))) {
  for (const Error& e : all_) what_ += (what_.empty() ? "" : "\n") + std::string(e.what());
}

Errors Errors::located(const std::string& file, const std::string& text) const {
  std::vector<Error> located;
  for (const Error& e : all_) located.push_back(e.located(file, text));
  return Errors(std::move(located));
}

std::vector<Error> all_of(const Error& e) {
  const auto* several = dynamic_cast<const Errors*>(&e);
  return several ? several->all() : std::vector<Error>{e};
}

void throw_all(std::vector<Error> all) {
  if (all.size() == 1) throw all.front();
  throw Errors(std::move(all));
}

}  // namespace xhat
